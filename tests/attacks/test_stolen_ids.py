"""Event ids are chosen by senders: who takes another node's id in advance does not make its fault a known one."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from real.patience import patience

from store.database.connections import transact
from store.database.partitions import ensure_days
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


def fault(node: str | None, ident: str, **changes: Any) -> Event:
    """A GPU that fell off the bus, under an id of the sender's choice."""
    return Event(changes.pop("time", NOW), node, "kernel", "xid", 79, "fatal", id=ident, **changes)


def append(engine: sa.Engine, events: Sequence[Event]) -> int:
    """Append in a transaction; says how many were new."""
    ensure_days(engine, {(event.time or NOW).date() for event in events}, ("events",), now=NOW)
    return len(transact(engine, lambda connection: append_events(connection, events, NOW)).new)


def nodes(engine: sa.Engine) -> list[tuple[str | None, str]]:
    """Node and id of every stored event, the id cut to the sign that marks one of ours."""
    with engine.connect() as connection:
        rows = connection.execute(sa.select(schema.events.c.node, schema.events.c.id)).all()
    return sorted((row.node or "", row.id if not row.id.startswith("~") else "~") for row in rows)


def test_a_stolen_id_does_not_hide_the_fault_of_its_owner(any_engine: sa.Engine) -> None:
    """The owner's event is stored beside the thief's, once, however often it is sent."""
    assert append(any_engine, [fault("thief", "boot-1:17")]) == 1
    assert append(any_engine, [fault("owner", "boot-1:17"), fault("owner", "boot-1:18")]) == 2
    assert append(any_engine, [fault("owner", "boot-1:17"), fault("owner", "boot-1:18")]) == 0
    assert nodes(any_engine) == [("owner", "boot-1:18"), ("owner", "~"), ("thief", "boot-1:17")]


def test_an_id_stolen_in_the_same_batch_hides_nothing(any_engine: sa.Engine) -> None:
    """Requests of several nodes share a transaction."""
    assert append(any_engine, [fault("thief", "e"), fault("owner", "e"), fault("thief", "e")]) == 2
    assert [node for node, _ in nodes(any_engine)] == ["owner", "thief"]
    assert append(any_engine, [fault("owner", "e")]) == 0


def test_the_stores_own_ids_cannot_be_stolen(any_engine: sa.Engine) -> None:
    """Who computes what the owner's event will be called, and sends that, gets another id for it."""
    append(any_engine, [fault("thief", "e"), fault("owner", "e")])
    with any_engine.connect() as connection:
        table = schema.events
        made = connection.scalar(sa.select(table.c.id).where(table.c.id.startswith("~"))) or ""
    with any_engine.begin() as connection:
        connection.execute(sa.delete(schema.events).where(schema.events.c.id == made))
    assert append(any_engine, [fault("thief", made)]) == 1
    assert append(any_engine, [fault("owner", "e")]) == 1


def test_a_record_without_a_time_is_not_hidden_either(any_engine: sa.Engine) -> None:
    """Only its id tells whether it is there."""
    assert append(any_engine, [fault("thief", "e", time=None)]) == 1
    assert append(any_engine, [fault("owner", "e", time=None)]) == 1
    assert append(any_engine, [fault("owner", "e", time=None)]) == 0


def test_a_run_cannot_hide_what_another_run_says(any_engine: sa.Engine) -> None:
    """Events that name no node are their run's."""
    assert append(any_engine, [fault(None, "e", attributes={"run": "theirs"})]) == 1
    assert append(any_engine, [fault(None, "e", attributes={"run": "ours"})]) == 1
    assert append(any_engine, [fault(None, "e", attributes={"run": "ours"})]) == 0


def test_a_thief_that_is_quick_wins_nothing(any_engine: sa.Engine) -> None:
    """Both at the same moment, the same times, many times over: every event of the owner is stored."""
    start = threading.Barrier(2)

    def many(node: str) -> Callable[[], None]:
        def work() -> None:
            start.wait(patience(30))
            for number in range(30):
                append(any_engine, [fault(node, f"e{number}", time=NOW + timedelta(seconds=number))])

        return work

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(many(node)) for node in ("thief", "owner")]:
            done.result(patience(60))
    found = [node for node, _ in nodes(any_engine)]
    assert (found.count("owner"), found.count("thief")) == (30, 30)
