"""Appends on both databases: idempotent, whole, and by two writers at once."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from real.patience import patience

from store.database.connections import writing
from store.events.append import (
    append_events,
    append_jobs,
    append_links,
    append_nodes,
    append_outages,
    note_seen,
)
from store.events.event_pages import EventWindow, newest_time, read_events
from store.nodes.inventory import read_nodes, read_outages
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.telemetry import Rollup
from store.runs.jobs import read_jobs
from store.tables import schema
from store.tables.bulk_rows import upsert_last_seen
from store.telemetry.hours import append_rollups

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


def event(number: int, **change: Any) -> Event:
    """One of many different events."""
    known: dict[str, Any] = {"time": NOW + timedelta(seconds=number), "node": f"n{number % 3}", "source": "kernel"}
    return Event(**{**known, "kind": "xid", "code": 79, "device": Device("gpu", index=number % 8), **change})


def test_what_was_appended_is_read_back_as_it_was(any_engine: sa.Engine) -> None:
    """Every field, through JSON columns and either kind of time."""
    whole = Event(
        time=NOW.replace(microsecond=789_001),
        node="gpu-017",
        source="kernel",
        kind="xid",
        code=2**40,
        severity="fatal",
        cause="hardware",
        action="reboot_node",
        device=Device("gpu", "0000:0f:00.0", 3, "GPU-1", 7),
        message="GPU has fallen off the bus \u2620 'quoted'",
        attributes={"pid": 12, "process": "python", "mig": None, "ratio": 0.5, "sure": True, "run": "llm"},
        line=3,
        file="kernel/gpu-017.log",
        id="an id",
    )
    with writing(any_engine).begin() as connection:
        append_events(connection, [whole], NOW)
    with any_engine.begin() as connection:
        assert list(read_events(connection, EventWindow())) == [whole]
        assert list(read_events(connection, EventWindow(run="llm"))) == [whole]


def test_appending_again_changes_nothing(any_engine: sa.Engine) -> None:
    """Neither in a later call nor within one."""
    events = [event(number) for number in range(10)]
    for batch, new, known in ((events[:6], 6, 0), (events, 4, 6), ([*events, *events], 0, 10)):
        with writing(any_engine).begin() as connection:
            taken = append_events(connection, batch, NOW)
            assert (len(taken.new), taken.known) == (new, known)
    with any_engine.begin() as connection:
        assert len(list(read_events(connection, EventWindow()))) == 10


def test_what_is_new_is_told_with_its_nodes(any_engine: sa.Engine) -> None:
    """So that only these are looked at again."""
    with writing(any_engine).begin() as connection:
        append_events(connection, [event(0)], NOW)
        taken = append_events(connection, [event(0), event(1), event(2, node=None)], NOW)
    assert taken.nodes == {"n1"}
    assert all(item.id for item in taken.new)


def test_no_events_are_no_work(any_engine: sa.Engine) -> None:
    """An empty batch is fine."""
    with writing(any_engine).begin() as connection:
        assert append_events(connection, [], NOW).new == ()
        append_outages(connection, [])
        append_jobs(connection, [])
        append_rollups(connection, [])
        append_nodes(connection, [])
        append_links(connection, [])
        upsert_last_seen(connection, {})


def test_more_events_than_a_statement_takes_are_appended(engine: sa.Engine) -> None:
    """SQLite has a limit on bound values."""
    events = [event(number, message=str(number)) for number in range(33_000)]
    with writing(engine).begin() as connection:
        assert len(append_events(connection, events, NOW).new) == 33_000
        assert append_events(connection, events, NOW).known == 33_000


def test_an_event_without_a_time_happened_when_it_was_received(any_engine: sa.Engine) -> None:
    """For all we know; its id stays the one without a time."""
    for received in (NOW, NOW + timedelta(days=1)):
        with writing(any_engine).begin() as connection:
            append_events(connection, [event(0, time=None)], received)
    with any_engine.begin() as connection:
        assert [item.time for item in read_events(connection, EventWindow())] == [NOW]


def test_a_node_that_is_heard_of_is_known_with_its_newest_event(any_engine: sa.Engine) -> None:
    """An older event does not set it back; what is known of it stays."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("n0", rack="r1", gpus=8)])
        append_events(connection, [event(9), event(3)], NOW)
        append_events(connection, [event(0, message="late")], NOW)
    with any_engine.begin() as connection:
        seen = dict(connection.execute(sa.select(schema.nodes.c.node, schema.nodes.c.last_seen)).all())
        assert seen == {"n0": NOW + timedelta(seconds=9)}
        assert read_nodes(connection) == [Node("n0", rack="r1", gpus=8)]
        assert newest_time(connection) == NOW + timedelta(seconds=9)


def test_nodes_may_be_noted_at_the_end(any_engine: sa.Engine) -> None:
    """Of a transaction that has more to do: until then no other writer waits for them."""
    with writing(any_engine).begin() as connection:
        new = append_events(connection, [event(0), event(3), event(1)], NOW, note_nodes=False).new
        assert read_nodes(connection) == []
        note_seen(connection, new, NOW)
        seen = dict(connection.execute(sa.select(schema.nodes.c.node, schema.nodes.c.last_seen)).all())
    assert seen == {"n0": NOW + timedelta(seconds=3), "n1": NOW + timedelta(seconds=1)}


def test_what_is_known_of_a_node_is_replaced_but_not_when_it_was_seen(any_engine: sa.Engine) -> None:
    """A new nodes.csv holds."""
    with writing(any_engine).begin() as connection:
        upsert_last_seen(connection, {"n0": NOW})
        append_nodes(connection, [Node("n0", rack="r1"), Node("n0", rack="r2")])
    with any_engine.begin() as connection:
        row = connection.execute(sa.select(schema.nodes)).mappings().one()
    assert (row["rack"], row["last_seen"]) == ("r2", NOW)


def outage_event(end: str | None, reason: str = "Xid 79") -> Event:
    """An event that carries an outage of n0."""
    a = {"start": "2025-03-01T00:00:00Z", "end": end, "state": "DOWN", "reason": reason, "user": "root"}
    return Event(NOW, "n0", "sacctmgr", "outage", attributes=a)


def test_an_outage_in_an_event_is_kept_and_closed_by_a_later_one(any_engine: sa.Engine) -> None:
    """Same node, same start: one outage."""
    for end in (None, "2025-03-01T06:00:00Z"):
        with writing(any_engine).begin() as connection:
            append_events(connection, [outage_event(end)], NOW)
    with any_engine.begin() as connection:
        outages = read_outages(connection)
    assert [(outage.end, outage.cause, outage.planned) for outage in outages] == [
        (datetime(2025, 3, 1, 6, tzinfo=UTC), "hardware", False)
    ]


def test_an_event_that_carries_no_outage_after_all_stays_an_event(any_engine: sa.Engine) -> None:
    """Nothing is dropped."""
    with writing(any_engine).begin() as connection:
        append_events(connection, [Event(NOW, None, "sacctmgr", "outage"), Event(NOW, "n", "x", "outage")], NOW)
    with any_engine.begin() as connection:
        assert read_outages(connection) == []
        assert len(list(read_events(connection, EventWindow(kind="outage")))) == 2


def job(start: datetime | None, **change: Any) -> Job:
    """An attempt of the run llm."""
    known: dict[str, Any] = {"job_id": "1", "run": "llm", "state": "RUNNING", "submit": NOW, "end": None, "nodes": 2}
    return Job(**{**known, "start": start, "node_list": "n[0-1]", **change})


def test_attempts_of_one_job_are_kept_apart_by_their_submission(any_engine: sa.Engine) -> None:
    """A requeued job keeps its id and is submitted anew; a later record of an attempt replaces the earlier one."""
    later = NOW + timedelta(hours=1)
    with writing(any_engine).begin() as connection:
        append_jobs(connection, [job(None, state="PENDING"), job(None, submit=later, state="PENDING")])
        append_jobs(connection, [job(NOW), job(later, submit=later)])
        append_jobs(connection, [job(NOW, state="NODE_FAIL", end=later)])
    with any_engine.begin() as connection:
        assert [(j.start, j.state, j.end) for j in read_jobs(connection)] == [
            (NOW, "NODE_FAIL", later),
            (later, "RUNNING", None),
        ]
        assert read_jobs(connection, "other") == []


def test_a_job_that_waits_is_ordered_by_its_submission(any_engine: sa.Engine) -> None:
    """It has no start; one without either comes too."""
    with writing(any_engine).begin() as connection:
        append_jobs(connection, [job(None, job_id="2"), job(NOW - timedelta(hours=1), job_id="1")])
        append_jobs(connection, [job(None, job_id="3", submit=None, run="lost")])
    with any_engine.begin() as connection:
        assert [j.job_id for j in read_jobs(connection, "llm")] == ["1", "2"]
        assert [j.job_id for j in read_jobs(connection, "lost")] == ["3"]


def test_a_roll_up_is_replaced_by_a_later_one_of_its_hour(any_engine: sa.Engine) -> None:
    """In what the later one tells; and its node is known."""
    with writing(any_engine).begin() as connection:
        append_rollups(connection, [Rollup("n0", NOW, 8, 8, gpu_temp_max_c=70.0), Rollup("n1", NOW, 8, 8)])
        append_rollups(connection, [Rollup("n0", NOW, 16, 8, gpu_temp_max_c=None)])
    with any_engine.begin() as connection:
        rows = connection.execute(sa.select(schema.telemetry).order_by(schema.telemetry.c.node)).mappings().all()
    assert [(row["node"], row["samples"], row["gpu_temp_max_c"]) for row in rows] == [("n0", 16, 70.0), ("n1", 8, None)]


def test_the_newest_cabling_of_a_port_holds(any_engine: sa.Engine) -> None:
    """A host moved to another port's place."""
    cable = {"switch": "leaf-01", "port": 1, "peer": "n0", "peer_port": 1, "peer_type": "hca"}
    with writing(any_engine).begin() as connection:
        append_links(connection, [cable])
        append_links(connection, [{**cable, "peer": "n1"}])
    with any_engine.begin() as connection:
        assert connection.scalars(sa.select(schema.links.c.peer)).all() == ["n1"]


def in_threads(works: list[Callable[[], None]]) -> None:
    """Run each in a thread; what one raises is raised here."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # it is raised again below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(120))
    if failures:
        raise failures[0]


def test_two_writers_at_once_make_no_duplicate_and_lose_nothing(any_engine: sa.Engine) -> None:
    """Both send the same events in small batches, and some of their own."""
    shared = [event(number) for number in range(120)]

    def writer(name: str) -> Callable[[], None]:
        def work() -> None:
            own = [event(number, message=name) for number in range(60)]
            for start in range(0, 120, 10):
                with writing(any_engine).begin() as connection:
                    append_events(connection, [*shared[start : start + 10], *own[start // 2 : start // 2 + 5]], NOW)

        return work

    in_threads([writer("a"), writer("b")])
    with any_engine.begin() as connection:
        assert len(list(read_events(connection, EventWindow()))) == 240


def test_a_failed_append_leaves_nothing_behind(any_engine: sa.Engine) -> None:
    """The transaction is the caller's."""
    with pytest.raises(RuntimeError, match="on purpose"), writing(any_engine).begin() as connection:
        append_events(connection, [event(0)], NOW)
        raise RuntimeError("on purpose")
    with any_engine.begin() as connection:
        assert list(read_events(connection, EventWindow())) == []


def test_an_event_dated_in_the_future_happened_when_it_was_received(engine: sa.Engine) -> None:
    """A clock that jumped to 2999 must not make the newest moment of the whole store; what it said is kept."""
    now = datetime.now(UTC)
    wild = Event(datetime(2999, 1, 1, tzinfo=UTC), "n1", "kernel", "xid", 79)
    skewed = Event(now + timedelta(hours=2), "n2", "kernel", "xid", 79)
    with writing(engine).begin() as connection:
        taken = append_events(connection, [wild, skewed], received=now)
        again = append_events(connection, [wild, skewed], received=now + timedelta(minutes=1))
        found = {event.node: event for event in read_events(connection, EventWindow())}
    assert (len(taken.new), len(again.new)) == (2, 0)
    assert found["n1"].time == now
    assert found["n1"].attributes["time_claimed"] == "2999-01-01T00:00:00.000000Z"
    assert found["n2"].time == now + timedelta(hours=2)
    assert "time_claimed" not in found["n2"].attributes


def test_a_node_is_heard_of_until_its_roll_up_was_received(any_engine: sa.Engine) -> None:
    """The hour that is not over speaks for the moment of its receipt; one that came late, for its own end."""
    hour = datetime(2025, 3, 1, 12, tzinfo=UTC)
    with writing(any_engine).begin() as connection:
        append_rollups(connection, [Rollup("now", hour, 8, 8)], received=hour + timedelta(minutes=40))
        append_rollups(connection, [Rollup("late", hour, 8, 8)], received=hour + timedelta(hours=9))
        append_rollups(connection, [Rollup("early", hour, 8, 8)], received=hour - timedelta(minutes=5))
        append_rollups(connection, [Rollup("untold", hour, 8, 8)])
        seen = {row.node: row.last_seen for row in connection.execute(sa.select(schema.nodes))}
    assert seen == {
        "now": hour + timedelta(minutes=40),
        "late": hour + timedelta(hours=1),
        "early": hour,
        "untold": hour,
    }
