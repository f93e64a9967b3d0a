"""A large fleet's verdicts are made by a process beside: the same ones, and whatever becomes of it, nothing is lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from real.programs import wait_for

from api.loops import verdicts
from api.loops.verdicts import EngineBeside, EngineProcessError, VerdictTurns
from api.server.state import State
from diagnosis.incidents.intake import put_faults
from store.database.connections import write_turn, writing
from store.events.append import append_events, append_nodes
from store.hints.outbox import due_deliveries
from store.records.event import Device, Event
from store.records.node import Node
from store.verdicts.symptom_news import count_news
from store.verdicts.verdict_log import open_verdicts

from .conftest import QUIET

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def beside(engine: sa.Engine) -> Iterator[EngineBeside]:
    """The engine beside."""
    found = EngineBeside(engine)
    yield found
    found.end()


def take(engine: sa.Engine, node: str, seconds: float = 0.0) -> None:
    """A GPU of a node falls off its bus."""
    now = NOW + timedelta(seconds=seconds)
    what = ("xid", 79, "fatal", "hardware", "reboot_node")
    event = Event(now, node, "kernel", *what, Device("gpu", pci="0000:0f:00.0"), "off the bus")
    with writing(engine).begin() as connection:
        put_faults(connection, append_events(connection, [event], now).new, now)


def named(engine: sa.Engine) -> set[str | None]:
    """The nodes of the verdicts that stand."""
    with engine.connect() as connection:
        return {one.node for one in open_verdicts(connection)}


def test_what_comes_in_is_told_with_what_receivers_are_owed(engine: sa.Engine, beside: EngineBeside) -> None:
    """In one transaction of the process beside; a moment without news does nothing."""
    take(engine, "gpu-001")
    told = beside.turn(NOW, ("pager",))
    assert (told.events, told.states, told.symptoms) == (0, ("open",), 1)  # what waited at the start is read as known
    take(engine, "gpu-002", 1)
    told = beside.turn(NOW + timedelta(seconds=1), ("pager",))
    assert (told.events, told.states, told.symptoms) == (1, ("open",), 2)
    assert beside.turn(NOW + timedelta(seconds=2), ()).events == 0
    assert named(engine) == {"gpu-001", "gpu-002"}
    with engine.connect() as connection:
        assert count_news(connection) == 0
        assert len(due_deliveries(connection, NOW + timedelta(minutes=1), 10)) == 2


def test_it_writes_only_in_a_turn_that_it_was_lent(
    engine: sa.Engine, beside: EngineBeside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it nothing is there, after it everything: no other writer of this process is in between."""
    stood: list[set[str | None]] = []

    @contextmanager
    def lent(database: sa.Engine) -> Iterator[None]:
        with write_turn(database):
            stood.append(named(database))
            yield
            stood.append(named(database))

    monkeypatch.setattr(verdicts, "write_turn", lent)
    take(engine, "gpu-001")
    beside.turn(NOW, ())
    assert stood == [set(), {"gpu-001"}]


def test_killed_it_is_missed_once_and_begun_anew(engine: sa.Engine) -> None:
    """What waited is told by the next one, and the verdict that stood keeps its id."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:04d}", "r1", None, "H100", 8, None) for n in range(1_000)])
    turns = VerdictTurns(State(QUIET, engine, lambda: NOW))
    take(engine, "gpu-0001")
    turns.turn(lambda: True)
    with engine.connect() as connection:
        (before,) = open_verdicts(connection)
    process = turns._engine.process  # type: ignore[union-attr]
    assert process.pid is not None and process.pid != os.getpid()
    process.kill()
    process.join()
    take(engine, "gpu-0002", 1)
    with pytest.raises(EngineProcessError):
        turns._engine.turn(NOW, ())  # type: ignore[union-attr]
    turns.turn(lambda: True)
    turns.end()
    with engine.connect() as connection:
        found = {one.node: one.id for one in open_verdicts(connection)}
        assert count_news(connection) == 0
    assert found.keys() == {"gpu-0001", "gpu-0002"}
    assert found["gpu-0001"] == before.id


def test_what_fails_there_is_told_here_and_the_next_turn_goes_on(engine: sa.Engine, beside: EngineBeside) -> None:
    """In the words of the process beside."""
    beside.turn(NOW, ())
    with writing(engine).begin() as connection:
        connection.execute(sa.text("ALTER TABLE symptom_news RENAME TO elsewhere"))
    with pytest.raises(EngineProcessError, match="symptom_news"):
        beside.turn(NOW + timedelta(seconds=1), ())
    with writing(engine).begin() as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO symptom_news"))
    take(engine, "gpu-001")
    assert beside.turn(NOW + timedelta(seconds=2), ()).events == 1
    wait_for("the process goes on", beside.is_alive)
