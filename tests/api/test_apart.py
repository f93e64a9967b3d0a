"""What takes long is made in another process: the same bytes, and an error where it made none."""

import os
from datetime import datetime
from pathlib import Path

import orjson
import pytest
import sqlalchemy as sa
from real.programs import wait_for

from api.loops import repair_list
from api.loops.repair_list import LemonTurns, SubprocessAnswerError, answer_by_subprocess, listed, repair_list_answer
from api.server.state import State
from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node
from store.tables import schema

from .conftest import NOW, QUIET, Clock


def told(connection: sa.Connection, now: datetime) -> bytes:
    """Who makes it, of what, as of when."""
    nodes = connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes))
    return orjson.dumps([os.getpid(), nodes, now])


def gone(_connection: sa.Connection, _now: datetime) -> bytes:
    """Is killed."""
    os.kill(os.getpid(), 9)
    return b""


def add_nodes(engine: sa.Engine, count: int) -> None:
    """So many nodes, of which nothing else is known."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{number:03}") for number in range(count)])


def test_it_is_made_by_another_process_of_the_same_database(any_engine: sa.Engine) -> None:
    """As of the moment that was handed in."""
    add_nodes(any_engine, 3)
    process, nodes, now = orjson.loads(answer_by_subprocess(told, any_engine.url, NOW))
    assert process != os.getpid()
    assert (nodes, datetime.fromisoformat(now)) == (3, NOW)
    wait_for("that process is gone", lambda: not Path(f"/proc/{process}").exists())


def test_a_process_that_fails_is_an_error_that_names_what_it_was_to_make(engine: sa.Engine) -> None:
    """Whatever ended it; nobody waits for it."""
    with pytest.raises(SubprocessAnswerError, match="gone"):
        answer_by_subprocess(gone, engine.url, NOW)


@pytest.mark.parametrize("nodes", [3, 4])
def test_the_repair_list_of_a_large_fleet_is_made_by_a_subprocess(
    engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    """The same list; that of a small one costs less than a process does."""
    begun: list[object] = []

    def counted(make: object, url: sa.URL, now: datetime) -> bytes:
        begun.append(make)
        return answer_by_subprocess(listed, url, now)

    monkeypatch.setattr(repair_list, "APART", 3)
    monkeypatch.setattr(repair_list, "answer_by_subprocess", counted)
    add_nodes(engine, nodes)
    state = State(QUIET, engine, clock)
    LemonTurns(state).turn()
    assert state.lemons.get(lambda: b"")[0] == repair_list_answer(state)
    assert begun == ([listed] if nodes > 3 else [])
