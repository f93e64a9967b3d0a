"""What PostgreSQL writes into an answer is what Python would have written."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.answers.reply import dump
from store.database.connections import writing
from store.events.append import append_events
from store.events.event_pages import EventWindow, event_page, read_events
from store.events.node_evidence import node_evidence
from store.records.event import Device, Event, format_time
from store.tables import hint_tables, schema
from store.tables.pages import answer_columns, answer_rows, moment_of

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
# Characters that a database's text can hold.
words = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(2**53), 2**53)
documents = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
moments = st.datetimes(datetime(1970, 1, 2), datetime(9997, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  # as drawn


def write(engine: sa.Engine, *hints: dict[str, Any]) -> None:
    """These hints and no others."""
    row = {"node": "n", "action": "watch", "state": "shadow", "reason": "", "owner": "x"}
    row |= {"created": NOON, "valid_until": NOON, "evidence": {}}
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(hint_tables.hints))
        connection.execute(sa.insert(hint_tables.hints), [row | hint for hint in hints])


def answered(engine: sa.Engine) -> list[dict[str, Any]]:
    """The hints as a client reads them in an answer, by id."""
    page = sa.select(hint_tables.hints).subquery()
    with engine.connect() as connection:
        found: list[dict[str, Any]] = orjson.loads(dump(answer_rows(connection, page, page.c.id)))
    return found


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(moments, st.dictionaries(words, documents, max_size=4), words)
def test_any_moment_and_document_reach_a_client_as_they_were(
    any_engine: sa.Engine, moment: datetime, document: dict[str, Any], reason: str
) -> None:
    """To the microsecond, in UTC, with every digit, quote and emoji."""
    write(any_engine, {"id": "h1", "created": moment, "evidence": document, "reason": reason})
    (hint,) = answered(any_engine)
    assert (hint["created"], hint["reason"]) == (format_time(moment), reason)
    assert orjson.dumps(hint["evidence"], option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        document, option=orjson.OPT_SORT_KEYS
    )


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_times_are_utc_whatever_the_session_is_set_to(any_engine: sa.Engine, zone: str) -> None:
    """A site may have given its database another time zone."""
    write(any_engine, {"id": "h1", "created": NOON.replace(microsecond=70)})
    page = sa.select(hint_tables.hints.c.created, hint_tables.hints.c.id).subquery()
    with any_engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET TIME ZONE '{zone}'")
        (row,) = answer_rows(connection, page)
        assert orjson.loads(dump(row))["created"] == "2025-03-01T12:00:00.000070Z"
        assert moment_of(row, "created") == NOON.replace(microsecond=70)
        connection.rollback()
        connection.invalidate()


def test_what_is_not_there_is_null(any_engine: sa.Engine) -> None:
    """A time, a document and a word that a row has none of."""
    with writing(any_engine).begin() as connection:
        connection.execute(sa.insert(schema.nodes), [{"node": "n"}])
        connection.execute(sa.insert(schema.telemetry), [{"node": "n", "time": NOON, "samples": 1, "gpus_seen": 8}])
    with any_engine.connect() as connection:
        (node,) = answer_rows(connection, sa.select(schema.nodes).subquery())
        (hour,) = answer_rows(connection, sa.select(schema.telemetry).subquery())
    assert orjson.loads(dump(node)) == {"node": "n"} | dict.fromkeys(set(node) - {"node"})
    assert (hour["devices"], orjson.loads(dump(hour))["time"]) == (None, "2025-03-01T12:00:00.000000Z")


@pytest.mark.parametrize("uuid", ["GPU-1", "index", '"port":', '\\"index\\":', None])
def test_a_device_is_answered_whole_however_it_was_written(any_engine: sa.Engine, uuid: str | None) -> None:
    """Rows of before name every field of it; rows of today name what is known alone."""
    whole = {"type": "gpu", "pci": None, "index": 3, "uuid": uuid, "port": None}
    event = Event(NOON, "n", "kernel", "xid", 79, "fatal", device=Device(**whole), id="new")
    with writing(any_engine).begin() as connection:
        append_events(connection, [event, replace(event, id="old")], NOON)
        before = sa.update(schema.events).where(schema.events.c.id == "old").values(device=whole)
        connection.execute(before)
    with any_engine.connect() as connection:
        rows = event_page(connection, EventWindow(), 10)
        evidence = node_evidence(connection, "n", NOON, NOON + timedelta(days=1))
        assert [one.device for one in read_events(connection, EventWindow())] == [event.device] * 2
    assert evidence is not None
    shown = [*orjson.loads(dump(rows)), *evidence.rows["events"]]
    assert [list(row["device"].items()) for row in shown] == [list(whole.items())] * 4


def test_objects_come_in_the_order_asked_for(any_engine: sa.Engine) -> None:
    """By a time, the newest first; each with the columns of its page alone."""
    write(any_engine, *({"id": f"h{hour}", "created": NOON.replace(hour=hour)} for hour in (3, 11, 7)))
    page = sa.select(hint_tables.hints.c.id, hint_tables.hints.c.created).subquery()
    with any_engine.connect() as connection:
        found = answer_rows(connection, page, page.c.created.desc())
    assert [list(row) for row in found] == [["id", "created"]] * 3
    assert [row["id"] for row in found] == ["h11", "h7", "h3"]


def test_postgresql_hands_over_text_that_nobody_reads(postgres_engine: sa.Engine) -> None:
    """The point of it: neither a time nor a document becomes an object on the way."""
    write(postgres_engine, {"id": "h1", "evidence": {"score": 0.5}})
    with postgres_engine.connect() as connection:
        row = connection.execute(sa.select(*answer_columns(connection, hint_tables.hints.c))).one()
    assert isinstance(row.created, str)
    assert isinstance(row.evidence, orjson.Fragment)
