"""From the intake to incidents: each event is counted once, by whoever folds, and a bad row blocks no other."""

import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from fault_events import at, iteration, xid

from diagnosis.incidents import intake as module
from diagnosis.incidents.incident import FaultError, coalesce, decode_faults, encode_faults, faults_of, split_faults
from diagnosis.incidents.intake import fold_everything, fold_intake, put_faults
from store.database.connections import writing
from store.events.append import append_events
from store.events.event_pages import read_incidents
from store.events.incident_intake import IntakeBacklog, anything_waits, oldest_batches, read_waiting, unpack
from store.records.event import Device, Event
from store.records.incident import Incident
from store.tables import schema

# A flood of its whole size is measured by hand: `FLOOD_EVENTS=800000 pytest tests/diagnosis/test_fold_intake.py`.
FLOOD_EVENTS = int(os.environ.get("FLOOD_EVENTS", "60000"))


def take(engine: sa.Engine, *batches: list[Event]) -> None:
    """Append batches and put their faults into the intake, as the API does."""
    for batch in batches:
        with writing(engine).begin() as connection:
            put_faults(connection, append_events(connection, batch, at(0)).new, at(0))


def incidents(engine: sa.Engine) -> list[Incident]:
    """Every incident."""
    with engine.connect() as connection:
        return read_incidents(connection, at(-1e6), at(1e6))


def waiting(engine: sa.Engine) -> IntakeBacklog:
    """What the intake holds."""
    with engine.connect() as connection:
        return read_waiting(connection)


def test_faults_wait_in_the_intake_until_they_are_folded(any_engine: sa.Engine) -> None:
    """What is no fault does not; nor does what is sent again."""
    events = [xid(79, 0), xid(45, 1), xid(31, 500), replace(xid(31, 501), time=None), iteration(1)]
    take(any_engine, events[:2], events[2:], events)
    assert waiting(any_engine) == IntakeBacklog(4, at(0), 0)
    assert incidents(any_engine) == []
    assert fold_intake(any_engine) == 4
    assert fold_intake(any_engine) == 0
    assert waiting(any_engine) == IntakeBacklog(0, None, 0)
    assert incidents(any_engine) == coalesce([*events[:3], replace(events[3], time=at(0))])


def test_faults_come_out_of_a_text_as_they_went_in() -> None:
    """Every field, control characters too; and what is none is said."""
    device = Device("gpu", "0000:0f:00.0", 3, "GPU-1", 7)
    odd = Event(at(0.123456), None, "gpud", "xid", 2**40, "fatal", device=device, message="off\x01 \u2620", id="an id")
    faults = faults_of([odd, xid(79, 0), xid(45, 1, caused_by=79), xid(31, 500)])
    assert len(faults) == 3
    assert decode_faults(encode_faults(faults)) == faults
    with pytest.raises(FaultError, match="no JSON of faults"):
        decode_faults(b'[{"id": 1}]')


def test_a_batch_is_folded_as_far_as_it_goes_when_it_comes_in(engine: sa.Engine) -> None:
    """A flood costs no more than its faults."""
    take(engine, [xid(79, n / 100, name=f"e{n:04d}") for n in range(2_000)])
    with engine.connect() as connection:
        (batch,) = oldest_batches(connection, 1)
    assert (batch.count, len(decode_faults(unpack(batch)))) == (2_000, 1)
    assert len(batch.packed) < 1_000


def test_the_oldest_are_folded_first_and_at_least_one_row(engine: sa.Engine) -> None:
    """However large it is."""
    take(engine, [xid(79, n) for n in range(5)], [xid(79, n) for n in range(300, 303)], [xid(79, 600)])
    assert [fold_intake(engine, most_events=most) for most in (1, 3, 99)] == [5, 3, 1]
    assert [incident.count for incident in incidents(engine)] == [5, 3, 1]


def test_a_fold_that_fails_leaves_everything_as_it_was(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is gone in its middle: no incident counts what still waits; the next fold does it all."""
    take(engine, [xid(79, 0)], [xid(79, 1)])

    def gone(_connection: sa.Connection, _batches: Any) -> None:
        raise sa.exc.OperationalError("DELETE", None, Exception("gone"))

    with monkeypatch.context() as patched:
        patched.setattr(module, "remove_batches", gone)
        with pytest.raises(sa.exc.OperationalError):
            fold_intake(engine)
    assert (waiting(engine), incidents(engine)) == (IntakeBacklog(2, at(0), 0), [])
    fold_everything(engine)
    assert [incident.count for incident in incidents(engine)] == [2]


def test_a_row_that_cannot_be_folded_is_set_aside_and_the_others_go_on(
    any_engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is kept, counted and told of; mended, it is folded like any other."""
    take(any_engine, [xid(79, 0)], [xid(79, 300), xid(45, 301)], [xid(79, 600)])
    with writing(any_engine).begin() as connection:
        rows = oldest_batches(connection, 99)
        spoilt = sa.update(schema.intake).where(schema.intake.c.seq == rows[1].seq)
        connection.execute(spoilt.values(events=b"no zstd"))
    with caplog.at_level(logging.ERROR):
        assert fold_intake(any_engine) == 2
    assert f"row {rows[1].seq} of the intake" in caplog.text
    assert waiting(any_engine) == IntakeBacklog(0, None, 2)
    assert fold_intake(any_engine) == 0
    with writing(any_engine).begin() as connection:
        assert "is damaged" in connection.scalar(sa.select(schema.intake.c.error))
        connection.execute(sa.update(schema.intake).values(events=rows[1].packed, error=None))
    fold_everything(any_engine)
    assert [incident.count for incident in incidents(any_engine)] == [1, 2, 1]


def test_of_a_row_that_several_nodes_wrote_no_other_loses_its_incident(
    any_engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """What one node wrote cannot be read: that alone is set aside, and all the rest is folded, once."""
    take(any_engine, [xid(79, 0), xid(79, 300), xid(79, 301), xid(79, 900)], [xid(79, 1500)])
    with writing(any_engine).begin() as connection:
        whole = oldest_batches(connection, 99)[0]
        faults = split_faults(unpack(whole))
        assert len(faults) == 3
        text = b"[%b,%b,%b]" % (faults[0][1:-1], b'{"link": true}', faults[2][1:-1])
        packed = zstandard.ZstdCompressor().compress(text)
        connection.execute(sa.update(schema.intake).where(schema.intake.c.seq == whole.seq).values(events=packed))
    with caplog.at_level(logging.ERROR):
        assert fold_intake(any_engine) == 3
    assert f"row {whole.seq} of the intake: 2 events are in no incident and set aside" in caplog.text
    assert waiting(any_engine) == IntakeBacklog(0, None, 2)
    assert [incident.count for incident in incidents(any_engine)] == [1, 1, 1]
    with writing(any_engine).begin() as connection:
        assert "Object missing required field" in connection.scalar(sa.select(schema.intake.c.error))
        mended = zstandard.ZstdCompressor().compress(faults[1])
        connection.execute(sa.update(schema.intake).values(events=mended, error=None))
    fold_everything(any_engine)
    assert [incident.count for incident in incidents(any_engine)] == [1, 2, 1, 1]


def test_a_row_that_another_process_had_meanwhile_is_not_counted_twice(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a fold that fails and that of its faults one by one, somebody else folds it."""
    take(engine, [xid(79, 0), xid(79, 900)])
    whole, failed = module._fold, []

    def fails_once(connection: sa.Connection, batches: Any) -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise ValueError("of the rows")
        return whole(connection, batches)

    def warn(*_: Any, **__: Any) -> None:
        if len(failed) == 2:
            failed.append(1)
            assert fold_intake(engine) == 2

    monkeypatch.setattr(module, "_fold", fails_once)
    monkeypatch.setattr(module._log, "warning", warn)
    assert fold_intake(engine) == 0
    assert len(failed) == 3
    assert [incident.count for incident in incidents(engine)] == [1, 1]
    assert waiting(engine) == IntakeBacklog(0, None, 0)


def test_a_row_that_holds_fewer_events_than_it_says_is_set_aside(engine: sa.Engine) -> None:
    """Rather a row that is looked at than a count that is short."""
    take(engine, [xid(79, 0)])
    with writing(engine).begin() as connection:
        connection.execute(sa.update(schema.intake).values(count=2))
    assert fold_intake(engine) == 0
    assert waiting(engine).set_aside == 2


def test_a_schema_that_is_amiss_sets_nothing_aside(any_engine: sa.Engine) -> None:
    """A migration is on its way: the rows are not to blame."""
    take(any_engine, [xid(79, 0)])
    with any_engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE incidents RENAME TO elsewhere"))
    with pytest.raises(sa.exc.SQLAlchemyError):
        fold_intake(any_engine)
    assert waiting(any_engine) == IntakeBacklog(1, at(0), 0)
    with any_engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO incidents"))
    assert fold_intake(any_engine) == 1


@pytest.mark.integration
def test_while_one_folds_another_leaves_it_alone(postgres_engine: sa.Engine) -> None:
    """Two servers on one database."""
    take(postgres_engine, [xid(79, 0)])
    with postgres_engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(module._LOCK)))
        assert fold_intake(postgres_engine) == 0
        assert anything_waits(connection)
    assert fold_intake(postgres_engine) == 1


def in_parts(items: list[Event], size: int) -> Iterable[list[Event]]:
    """Lists of a size."""
    return (items[start : start + size] for start in range(0, len(items), size))


def test_a_flood_becomes_as_many_incidents_as_there_are_faults_and_counts_every_event(engine: sa.Engine) -> None:
    """Repeats of 29 faults, in batches out of order, folded now and then: counts and kinds are exact."""
    faults: list[Callable[[float, str], Event]] = [
        lambda second, name, n=n: replace(  # type: ignore[misc]
            xid((31, 48, 92)[n % 3], second, f"gpu-{n:03d}", name), device=Device("gpu", f"0000:{n:02x}:00.0")
        )
        for n in range(29)
    ]
    step = 240 / FLOOD_EVENTS
    flood = [faults[n % 29](n * step, f"e{n:06d}") for n in range(FLOOD_EVENTS)]
    batches = list(in_parts(flood, 2_000))
    random.Random(4).shuffle(batches)
    for number, batch in enumerate(batches):
        with writing(engine).begin() as connection:
            put_faults(connection, batch, at(0))
        if number % 7 == 0:
            fold_intake(engine, most_events=5_000)
    fold_everything(engine)
    found = incidents(engine)
    assert len(found) == 29
    assert Counter({incident.node: incident.count for incident in found}) == Counter(event.node for event in flood)
    assert [incident.kinds for incident in found] == [{f"xid:{incident.code}": incident.count} for incident in found]
    assert sum(incident.count for incident in found) == FLOOD_EVENTS
    assert max(incident.end for incident in found) - at(0) <= timedelta(seconds=240)
