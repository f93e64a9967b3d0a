"""Retention: what goes is what is old and nothing else, and its counts stay: each once, whatever happens meanwhile."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predictor.history.arrays import DAY_MS, EVENT_WINDOW_MS, TELEMETRY_WINDOW_H
from store.database import retention
from store.database.connections import writing
from store.database.partitions import DIVIDED, ensure_days, name_of, partitions
from store.database.retention import MINIMUM, RetentionPeriods, count_old, prune, too_short
from store.events.append import append_events
from store.hints.outbox import DeliveryAttempt, log_attempt
from store.records.event import Event
from store.records.telemetry import Rollup
from store.tables import hint_tables, schema
from store.telemetry.hours import append_rollups

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2025, 3, 1, tzinfo=UTC)


def write(engine: sa.Engine, *moments: datetime, **fields: Any) -> None:
    """An event at each moment."""
    given = {"node": "n", "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal", **fields}
    with writing(engine).begin() as connection:
        append_events(connection, [Event(moment, **given) for moment in moments], NOW)


def rows(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    """A table, by its key."""
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()]


def days(engine: sa.Engine) -> dict[date, int]:
    """The events of each day that were summed up."""
    found: dict[date, int] = {}
    for row in rows(engine, schema.event_days):
        found[row["day"].date()] = found.get(row["day"].date(), 0) + row["count"]
    return found


def test_pruning_leaves_exactly_what_is_not_older(any_engine: sa.Engine) -> None:
    """The moment itself stays; the counts are those of what went; a second time nothing goes."""
    before = NOW - 3 * DAY
    moments = [NOW - i * DAY for i in range(10)] + [before + timedelta(microseconds=1), before - timedelta(seconds=1)]
    write(any_engine, *moments)
    assert count_old(any_engine, {"events": before}) == {"events": 7}
    assert prune(any_engine, {"events": before}) == {"events": 7}
    left = [row["time"] for row in rows(any_engine, schema.events)]
    assert sorted(left) == sorted(moment for moment in moments if moment >= before)
    assert prune(any_engine, {"events": before}) == {"events": 0}


def test_the_delivery_log_is_pruned_too(any_engine: sa.Engine) -> None:
    """It is one table on either database; the least that is kept is longer than releases are sent."""
    with writing(any_engine).begin() as connection:
        for age in (7, 8, 9, 30):
            log_attempt(connection, DeliveryAttempt("d", "h", "ops", NOW - age * DAY, "retry", 503, 0.1, "HTTP 503"))
    assert count_old(any_engine, {"deliveries": NOW - 8 * DAY}) == {"deliveries": 2}
    assert prune(any_engine, {"deliveries": NOW - 8 * DAY}) == {"deliveries": 2}
    assert [NOW - row["time"] for row in rows(any_engine, hint_tables.deliveries)] == [7 * DAY, 8 * DAY]
    assert too_short(RetentionPeriods(deliveries_days=7)) == "deliveries_days"


def test_nothing_but_what_is_named_goes(engine: sa.Engine) -> None:
    """However far ahead the moment lies."""
    write(engine, NOW)
    with writing(engine).begin() as connection:
        append_rollups(connection, [Rollup("n", MIDNIGHT, 60, 8)])
    kept = {
        t.name: rows(engine, t) for t in hint_tables.metadata.sorted_tables if t.name not in ("events", "event_days")
    }
    assert prune(engine, {"events": NOW + 1000 * DAY}) == {"events": 1}
    for name, found in kept.items():
        assert rows(engine, hint_tables.metadata.tables[name]) == found


def test_counts_stay_by_node_day_source_kind_code_and_severity(any_engine: sa.Engine) -> None:
    """Days are those of UTC; what names no node or code is counted, too."""
    write(any_engine, MIDNIGHT, MIDNIGHT + 23 * HOUR, MIDNIGHT - timedelta(microseconds=1))
    write(any_engine, MIDNIGHT + HOUR, kind="note", code=None, severity="info", node=None)
    write(any_engine, MIDNIGHT + HOUR, severity="error")
    write(any_engine, MIDNIGHT + HOUR, source="dcgm")
    assert prune(any_engine, {"events": NOW + DAY}) == {"events": 6}
    found = {tuple(row.values()) for row in rows(any_engine, schema.event_days)}
    assert found == {
        ("n", MIDNIGHT, "kernel", "xid", 79, "fatal", 2),
        ("n", MIDNIGHT - DAY, "kernel", "xid", 79, "fatal", 1),
        ("", MIDNIGHT, "kernel", "note", -1, "info", 1),
        ("n", MIDNIGHT, "kernel", "xid", 79, "error", 1),
        ("n", MIDNIGHT, "dcgm", "xid", 79, "fatal", 1),
    }


def test_late_events_of_a_day_that_went_are_added(any_engine: sa.Engine) -> None:
    """The day's count grows; nothing is counted twice."""
    ensure_days(any_engine, [NOW], ("events",), NOW)
    write(any_engine, NOW, NOW + HOUR)
    prune(any_engine, {"events": MIDNIGHT + DAY})
    write(any_engine, NOW + 2 * HOUR)
    for _ in range(2):
        prune(any_engine, {"events": MIDNIGHT + DAY})
    assert days(any_engine) == {MIDNIGHT.date(): 3}
    assert rows(any_engine, schema.events) == []


def test_a_day_of_telemetry_is_what_its_hours_say(any_engine: sa.Engine) -> None:
    """Means by their samples, extremes as they are, missing values missing; also where half of it went before."""
    hours = [
        Rollup("n", MIDNIGHT, 10, 8, 40.0, 50.0, sm_clock_min_mhz=900.0),
        Rollup("n", MIDNIGHT + HOUR, 30, 7, 80.0, 60.0, sm_clock_min_mhz=1000.0),
        Rollup("n", MIDNIGHT + 2 * HOUR, 40, 8, 50.0, None, sm_clock_min_mhz=800.0),
        Rollup("n", MIDNIGHT + DAY, 1, 1, 1.0),
    ]
    with writing(any_engine).begin() as connection:
        append_rollups(connection, hours)
    for end in (MIDNIGHT + 2 * HOUR, MIDNIGHT + DAY):
        prune(any_engine, {"telemetry": end})
    (day,) = rows(any_engine, schema.telemetry_days)
    assert {name: value for name, value in day.items() if value is not None} == {
        "node": "n",
        "day": MIDNIGHT,
        "hours": 3,
        "samples": 80,
        "gpus_seen": 8,
        "gpu_temp_mean_c": pytest.approx((10 * 40 + 30 * 80 + 40 * 50) / 80),
        "gpu_temp_max_c": 60.0,
        "sm_clock_min_mhz": 800.0,
    }
    assert len(rows(any_engine, schema.telemetry)) == 1


def test_steps_join_without_a_seam(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows of one moment are one step, however many; else a step has its size."""
    monkeypatch.setitem(retention._STEP_ROWS, "events", 3)
    for number in range(5):
        write(any_engine, NOW, code=number)
    write(any_engine, *(NOW - i * HOUR for i in range(1, 20)))
    assert prune(any_engine, {"events": NOW + DAY}) == {"events": 24}
    assert sum(days(any_engine).values()) == 24


def test_a_pruning_that_is_cut_off_goes_on_later(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps, every event is in one place."""
    monkeypatch.setitem(retention._STEP_ROWS, "events", 4)
    ensure_days(any_engine, [NOW - 2 * DAY, NOW - 3 * DAY], ("events",), NOW)
    write(any_engine, *(NOW - i * HOUR for i in range(1, 100)))
    for turns in range(1, 40):
        left = iter([True] * (turns % 3 + 1))
        prune(any_engine, {"events": NOW - 10 * HOUR}, lambda steps=left: next(steps, False))  # type: ignore[misc]
        assert sum(days(any_engine).values()) + len(rows(any_engine, schema.events)) == 99
    assert len(rows(any_engine, schema.events)) == 10


def test_events_that_no_incident_counts_yet_stay(any_engine: sa.Engine) -> None:
    """Until they are folded; a batch that was set aside holds nothing up."""
    write(any_engine, NOW)
    row = {"received": NOW - HOUR, "count": 1, "events": b""}
    with writing(any_engine).begin() as connection:
        connection.execute(schema.intake.insert().values(**row))
    assert prune(any_engine, {"events": NOW + DAY}) == {"events": 0}
    with writing(any_engine).begin() as connection:
        connection.execute(sa.update(schema.intake).values(error="no JSON"))
    assert prune(any_engine, {"events": NOW + DAY}) == {"events": 1}


def test_incidents_go_when_they_have_been_over_for_long(any_engine: sa.Engine) -> None:
    """One that began long ago and still goes on stays."""
    fields = {"kind": "xid", "severity": "fatal", "cause": "hardware", "action": "none", "device": {}, "message": ""}
    ends = {"over": NOW - 100 * DAY, "long": NOW - DAY, "edge": NOW - 91 * DAY}
    rest = {"name": "x", "count": 1, "kinds": {}, "heads": None, "jobs": [], "gpus": 0}
    columns = schema.incidents.c.keys()
    with writing(any_engine).begin() as connection:
        for key, end in ends.items():
            row = {**fields, **rest, "id": key, "node": "n", "start": NOW - 300 * DAY, "end": end}
            connection.execute(schema.incidents.insert().values({k: v for k, v in row.items() if k in columns}))
    before = RetentionPeriods(incidents_days=91).before(NOW)
    assert count_old(any_engine, before) == {"incidents": 1}
    assert prune(any_engine, before) == {"incidents": 1}
    assert {row["id"] for row in rows(any_engine, schema.incidents)} == {"long", "edge"}
    assert prune(any_engine, before) == {"incidents": 0}


def test_limits_say_what_goes(engine: sa.Engine) -> None:
    """None is for ever; each has its own; what the model looks back on is the least."""
    assert RetentionPeriods().before(NOW) == {}
    assert RetentionPeriods(events_days=30, scores_days=5).before(NOW) == {
        "events": NOW - 30 * DAY,
        "scores": NOW - 5 * DAY,
    }
    kept = (*DIVIDED, "incidents", "deliveries", "verdicts", "audit")
    assert {f"{table}_days" for table in kept} == set(RetentionPeriods.__slots__)
    assert too_short(RetentionPeriods()) is None
    assert too_short(MINIMUM) is None
    assert too_short(RetentionPeriods(events_days=28)) == "events_days"
    assert too_short(RetentionPeriods(telemetry_days=8, scores_days=400)) == "telemetry_days"
    assert MINIMUM.events_days is not None
    assert MINIMUM.telemetry_days is not None
    assert MINIMUM.events_days * DAY_MS > EVENT_WINDOW_MS
    assert MINIMUM.telemetry_days * 24 > TELEMETRY_WINDOW_H


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ages=st.lists(st.floats(-400, 0), max_size=15), cut=st.floats(-400, 10))
def test_any_store_is_pruned_at_any_moment(engine: sa.Engine, ages: list[float], cut: float) -> None:
    """Also over gaps of months; what went and what stays add up."""
    before, moments = NOW + cut * DAY, [NOW + age * DAY for age in ages]
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.events))
        connection.execute(sa.delete(schema.event_days))
        append_events(connection, [Event(m, "n", "s", "k", id=str(i)) for i, m in enumerate(moments)], NOW)
    prune(engine, {"events": before})
    left = [row["time"] for row in rows(engine, schema.events)]
    assert sorted(left) == sorted(moment for moment in moments if moment >= before)
    assert sum(days(engine).values()) + len(left) == len(moments)


@pytest.mark.integration
class TestDays:
    """On PostgreSQL whole days go as tables."""

    @staticmethod
    def names(engine: sa.Engine) -> list[str]:
        """The parts of `events`."""
        with engine.connect() as connection:
            return [part.name for part in partitions(connection, "events")]

    def test_whole_days_go_as_tables_and_part_of_one_by_rows(self, postgres_engine: sa.Engine) -> None:
        """The tables are gone from the database; days with nothing in them, too."""
        ensure_days(postgres_engine, [NOW - i * DAY for i in range(5)], ("events",), NOW)
        write(postgres_engine, *(NOW - i * 6 * HOUR for i in range(16)))
        assert prune(postgres_engine, {"events": NOW - 2 * DAY}) == {"events": 7}
        assert self.names(postgres_engine) == [name_of("events", (NOW - i * DAY).date()) for i in (2, 1, 0)] + [
            "events_other"
        ]
        assert sum(days(postgres_engine).values()) == 7
        assert not sa.inspect(postgres_engine).has_table(name_of("events", (NOW - 3 * DAY).date()))

    def test_a_day_that_was_taken_out_and_not_summed_up_is_finished(self, postgres_engine: sa.Engine) -> None:
        """Where the process died between the two."""
        ensure_days(postgres_engine, [NOW], ("events",), NOW)
        write(postgres_engine, NOW)
        name = name_of("events", NOW.date())
        with postgres_engine.begin() as connection:
            connection.execute(sa.text(f"ALTER TABLE events DETACH PARTITION {name}"))
        write(postgres_engine, NOW + HOUR)
        assert prune(postgres_engine, {"events": NOW - 100 * DAY}) == {"events": 1}
        assert days(postgres_engine) == {NOW.date(): 1}
        assert prune(postgres_engine, {"events": NOW + DAY}) == {"events": 1}
        assert days(postgres_engine) == {NOW.date(): 2}

    def test_a_long_reader_keeps_a_day_for_now(
        self, postgres_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It reads on undisturbed; the day goes the next time."""
        patch_brief(monkeypatch.setattr)
        ensure_days(postgres_engine, [NOW], ("events",), NOW)
        write(postgres_engine, NOW)
        with postgres_engine.begin() as reader:
            assert reader.scalar(sa.text("SELECT count(*) FROM events")) == 1
            assert prune(postgres_engine, {"events": MIDNIGHT + DAY}) == {"events": 0}
            assert "stays for now" in caplog.text
            assert reader.scalar(sa.text("SELECT count(*) FROM events")) == 1
        assert prune(postgres_engine, {"events": MIDNIGHT + DAY}) == {"events": 1}

    def test_a_day_that_waits_to_be_counted_is_not_taken_out(self, postgres_engine: sa.Engine) -> None:
        """As with rows."""
        ensure_days(postgres_engine, [NOW], ("events",), NOW)
        write(postgres_engine, NOW)
        with postgres_engine.begin() as connection:
            connection.execute(schema.intake.insert().values(received=NOW, count=1, events=b""))
        assert prune(postgres_engine, {"events": MIDNIGHT + DAY}) == {"events": 0}
        assert len(self.names(postgres_engine)) == 2


def patch_brief(setattr_: Callable[..., None]) -> None:
    """Waits of no length."""
    from store.database import partitions as brief

    setattr_(brief, "LOCK_TIMEOUT_MS", 20)
    setattr_(brief, "PAUSE_S", 0.0)
