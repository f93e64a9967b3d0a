"""Events as rows of the table `events`: tuples for SQLite's executemany, text for PostgreSQL's COPY."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec
import orjson
import psycopg
import sqlalchemy as sa
from psycopg import errors

from store.records.event import Event
from store.tables.bulk_rows import escaped, sqlalchemy_error

COLUMNS = (
    *("id", "time", "received", "node", "run", "source", "kind", "code"),
    *("severity", "cause", "action", "device", "message", "attributes", "file", "line"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def sqlite_rows(events: Sequence[Event], received: datetime) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of COLUMNS; times as microseconds since 1970. Made a column at a time."""
    now = (received - _EPOCH) // _US
    return zip(
        [event.id for event in events],
        [now if event.time is None else (event.time - _EPOCH) // _US for event in events],
        repeat(now),
        [event.node for event in events],
        [event.run() for event in events],
        [event.source for event in events],
        [event.kind for event in events],
        [event.code for event in events],
        [event.severity for event in events],
        [event.cause for event in events],
        [event.action for event in events],
        _ENCODER.encode_lines([event.device for event in events]).decode().split("\n"),
        [event.message for event in events],
        _json_lines([event.attributes for event in events]).decode().split("\n"),
        [event.file for event in events],
        [event.line for event in events],
        strict=False,  # what repeats has no end, and lines have one more
    )


def copy_text(events: Sequence[Event], received: datetime) -> bytes:
    """Rows in the order of COLUMNS, in COPY's text format. NUL characters, which no text can hold there, are left out.

    It is made a column at a time: what repeats (names) is escaped once, and what does not, all in one go.
    """
    names = _Escaped({None: "\\N"})
    columns: tuple[Iterable[str], ...] = (
        _escaped_each([event.id or "" for event in events]),
        _times([event.time or received for event in events]),
        repeat(received.isoformat()),
        map(names.__getitem__, [event.node for event in events]),
        map(names.__getitem__, [event.run() for event in events]),
        map(names.__getitem__, [event.source for event in events]),
        map(names.__getitem__, [event.kind for event in events]),
        map(names.__getitem__, [event.code for event in events]),
        [event.severity for event in events],
        [event.cause for event in events],
        [event.action for event in events],
        _escaped_lines(_ENCODER.encode_lines([event.device for event in events])),
        _escaped_each([event.message for event in events]),
        _escaped_lines(_json_lines([event.attributes for event in events])),
        map(names.__getitem__, [event.file for event in events]),
        ["\\N" if event.line is None else str(event.line) for event in events],
    )
    # What repeats has no end, and lines of JSON have one more.
    return ("\n".join(map("\t".join, zip(*columns, strict=False))) + "\n").encode()


_ENCODER = msgspec.json.Encoder()


class _Escaped(dict[Any, str]):
    """Values as COPY reads them, made when first asked for."""

    def __missing__(self, value: object) -> str:
        text = self[value] = escaped(str(value).replace("\0", ""))
        return text


def _escaped_each(texts: list[str]) -> list[str]:
    """Each text escaped, by way of one long text between whose parts stands what none may hold."""
    whole = "\0".join(texts)
    if whole.count("\0") != len(texts) - 1:
        whole = "\0".join(text.replace("\0", "") for text in texts)
    return escaped(whole).split("\0")


def _times(moments: list[datetime]) -> list[str]:
    """RFC 3339."""
    return _ENCODER.encode_lines(moments).decode().replace('"', "").split("\n")


def _json_lines(attributes: list[Mapping[str, Any]]) -> bytes:
    try:
        return _ENCODER.encode_lines(attributes)
    except (TypeError, ValueError, OverflowError):  # an integer of more than 64 bits, a mapping that is no dict
        return "\n".join(map(_json, attributes)).encode()


def _escaped_lines(lines: bytes) -> list[str]:
    """Lines of JSON, in which no control character stands as itself."""
    return lines.decode().replace("\\", "\\\\").split("\n")


def _json(attributes: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(attributes).decode()
    except TypeError:  # an integer of more than 64 bits, a mapping that is no dict
        return json.dumps(dict(attributes))


# Events into PostgreSQL by COPY, in the caller's transaction: at a fifth of the cost of INSERT.
#
# fresh = copy_new(connection, events, received, undated={"2f1c..."})

# How far the time of a record that is read again may be off: kmsg's is reckoned from the boot's.
_SLACK = timedelta(days=1)
# For how long a record without a time of its own is known again.
KNOWN_FOR = timedelta(days=30)
# Of advisory locks: records without a time come one batch after another, for no key keeps two of them apart.
_LOCK = 0x756E6474
_PART = 10_000
_NAMES = ", ".join(COLUMNS)
# Constant bounds, so that the plan holds the days between them alone; found by id, one row after another, since a plan
# that reads the days from end to end would cost more with every event of the day.
_KNOWN = """
SELECT i.id FROM json_array_elements_text(%(ids)s::json) AS i (id) CROSS JOIN LATERAL (
    SELECT 1 FROM events e WHERE e.id = i.id AND e.time BETWEEN %(first)s AND %(last)s LIMIT 1
) AS found"""
# The same for a batch that spans many days: of each row, the days around its own time alone.
_KNOWN_AROUND = """
SELECT i.id FROM unnest(%(ids)s::text[], %(times)s::timestamptz[]) AS i (id, time) CROSS JOIN LATERAL (
    SELECT 1 FROM events e WHERE e.id = i.id AND e.time BETWEEN %(first)s AND %(last)s
    AND e.time BETWEEN i.time - interval '1 day' AND i.time + interval '1 day' LIMIT 1
) AS found"""
_FEW_DAYS = timedelta(days=2)


def copy_new(
    connection: sa.Connection, events: Sequence[Event], received: datetime, undated: Collection[str]
) -> list[Event]:
    """Copy the events that are not there; returns them. Two writers at once make no duplicate.

    Args:
        events: of different ids, each with a time.
        undated: ids of those whose time is that of their receipt: only their id tells that they are there already.
    """
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with driver.cursor() as cursor:
            if undated:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            known = {
                name
                for part in _parts(events)
                for name in _known(cursor, [event for event in part if event.id not in undated])
            }
            if undated:
                known |= _known_undated(cursor, undated, received)
            fresh = [event for event in events if event.id not in known] if known else list(events)
            # In one order, so that two writers of the same events cannot wait for each other.
            fresh.sort(key=_order)
            return [event for part in _parts(fresh) for event in _copied(cursor, part, received)]
    except psycopg.Error as error:
        raise sqlalchemy_error("COPY events", error) from error


def _parts(events: Sequence[Event]) -> Iterable[Sequence[Event]]:
    return (events[start : start + _PART] for start in range(0, len(events), _PART))


def _order(event: Event) -> tuple[datetime | None, str | None]:
    return event.time, event.id


def _known(cursor: psycopg.Cursor[Any], events: Sequence[Event]) -> set[str]:
    """The ids that are there, near the time of their event."""
    times = [event.time for event in events if event.time is not None]
    if not times:
        return set()
    first, last = min(times), max(times)
    # In the order of the index, whose pages are then at hand.
    events = sorted(events, key=attrgetter("id"))
    ids = [event.id for event in events]
    asked = {"first": first - _SLACK, "last": last + _SLACK}
    # Not prepared: a plan for any bounds would be one for every day there is.
    if last - first <= _FEW_DAYS:
        cursor.execute(_KNOWN, {**asked, "ids": _json_list(ids)}, prepare=False)
    else:
        cursor.execute(_KNOWN_AROUND, {**asked, "ids": ids, "times": [event.time for event in events]}, prepare=False)
    return {row[0] for row in cursor}


def _known_undated(cursor: psycopg.Cursor[Any], ids: Collection[str], received: datetime) -> set[str]:
    """The ids that are there, of records received within the last thirty days."""
    asked = {"ids": _json_list(sorted(ids)), "first": received - KNOWN_FOR, "last": received + _SLACK}
    cursor.execute(_KNOWN, asked, prepare=False)
    return {row[0] for row in cursor}


def _json_list(ids: Sequence[str | None]) -> str:
    # The driver writes an array in Python, one by one.
    return orjson.dumps(ids).decode()


def _copied(cursor: psycopg.Cursor[Any], events: Sequence[Event], received: datetime) -> Sequence[Event]:
    """Copy events; where another writer was quicker with some of them, the rest."""
    text = copy_text(events, received)
    cursor.execute("SAVEPOINT events_in")
    try:
        with cursor.copy(f"COPY events ({_NAMES}) FROM STDIN") as copy:
            copy.write(text)
    except errors.UniqueViolation:
        cursor.execute("ROLLBACK TO SAVEPOINT events_in")
        taken = _staged(cursor, text)
        events = [event for event in events if event.id in taken]
    return events


def _staged(cursor: psycopg.Cursor[Any], text: bytes) -> set[str]:
    """Copy rows by way of a table beside, which leaves out what is there; returns the ids that were not."""
    cursor.execute("CREATE TEMPORARY TABLE IF NOT EXISTS events_in (LIKE events) ON COMMIT DELETE ROWS")
    cursor.execute("TRUNCATE events_in")
    with cursor.copy(f"COPY events_in ({_NAMES}) FROM STDIN") as copy:
        copy.write(text)
    cursor.execute(
        f"INSERT INTO events ({_NAMES}) SELECT {_NAMES} FROM events_in ORDER BY time, id"  # noqa: S608  # our own names
        " ON CONFLICT DO NOTHING RETURNING id"
    )
    return {row[0] for row in cursor}
