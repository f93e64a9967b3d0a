"""Trips of the breaker: one in force a group, reset once."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.operator_actions import reset_breaker
from store.database.connections import writing
from store.hints.hint_log import audit_page
from store.hints.stops import (
    Backlog,
    Trip,
    newest_trips,
    note_trip,
    read_trip,
    reset_trip,
    trips_page,
)

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def note(engine: sa.Engine, name: str = "leaf-1", hours: float = 0) -> bool:
    """A leaf trips."""
    with writing(engine).begin() as connection:
        return note_trip(connection, ("leaf", name), f"breaker: {name}", 4, NOW + hours * HOUR, "policy")


def reset(engine: sa.Engine, seq: int, backlog: Backlog = "drop", who: str = "alice", hours: float = 1) -> Trip:
    """A person resets it."""
    with writing(engine).begin() as connection:
        return reset_breaker(connection, seq, backlog, NOW + hours * HOUR, who)


def newest(engine: sa.Engine) -> list[Trip]:
    """The last trip of each group."""
    with engine.connect() as connection:
        return newest_trips(connection)


def test_a_group_trips_once_until_it_is_reset(any_engine: sa.Engine) -> None:
    """Then again; the last of each group is what counts."""
    assert [note(any_engine), note(any_engine, hours=0.5), note(any_engine, "leaf-2")] == [True, False, True]
    (first, other) = newest(any_engine)
    assert (first.group, first.time, first.count, first.reset) == (("leaf", "leaf-1"), NOW, 4, None)
    ended = reset(any_engine, first.seq, "review")
    assert (ended.reset, ended.reset_by, ended.backlog) == (NOW + HOUR, "alice", "review")
    assert note(any_engine, hours=2)
    again = newest(any_engine)
    assert [(one.name, one.time) for one in again] == [("leaf-2", NOW), ("leaf-1", NOW + 2 * HOUR)]
    with any_engine.connect() as connection:
        assert [one.seq for one in trips_page(connection, 10)] == [again[1].seq, other.seq, first.seq]
        assert [one.seq for one in trips_page(connection, 10, in_force=True)] == [again[1].seq, other.seq]
        assert [one.seq for one in trips_page(connection, 1, before=other.seq)] == [first.seq]
        assert read_trip(connection, first.seq) == ended


def test_a_reset_is_done_once(any_engine: sa.Engine) -> None:
    """By the first; the same word again changes nothing, the other one is refused."""
    note(any_engine)
    (one,) = newest(any_engine)
    first = reset(any_engine, one.seq)
    assert reset(any_engine, one.seq, who="bob", hours=5) == first
    with pytest.raises(RequestRefusedError, match="by alice already, with the backlog drop") as refused:
        reset(any_engine, one.seq, "review")
    assert refused.value.known
    with pytest.raises(RequestRefusedError, match="no trip has the number 99") as unknown:
        reset(any_engine, 99)
    assert not unknown.value.known


def test_each_change_is_in_the_audit(engine: sa.Engine) -> None:
    """What was said twice is there once."""
    note(engine)
    note(engine)
    reset(engine, 1)
    reset(engine, 1)
    with engine.connect() as connection:
        entries = list(reversed(audit_page(connection, 10, None, "breaker")))
    assert [(entry["actor"], entry["action"]) for entry in entries] == [("policy", "tripped"), ("alice", "reset")]
    assert entries[0]["detail"] == {"kind": "leaf", "name": "leaf-1", "why": "breaker: leaf-1", "count": 4}
    assert entries[1]["detail"] == {"trip": 1, "kind": "leaf", "name": "leaf-1", "backlog": "drop"}


def test_of_many_at_once_one_is_heard(any_engine: sa.Engine) -> None:
    """Two servers that both take themselves for the leader; two people at two screens."""
    told: list[bool] = []
    gate = threading.Barrier(6)

    def trip_it() -> None:
        gate.wait()
        told.append(note(any_engine))

    def reset_it(seq: int, who: str) -> None:
        gate.wait()
        with writing(any_engine).begin() as connection:
            told.append(reset_trip(connection, seq, "drop", NOW, who))

    threads = [threading.Thread(target=trip_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 5 + [True]
    (one,) = newest(any_engine)
    told.clear()
    threads = [threading.Thread(target=reset_it, args=(one.seq, f"p{i}")) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 5 + [True]
