"""Events into PostgreSQL by COPY, in the caller's transaction: at a fifth of the cost of INSERT.

fresh = copy_new(connection, events, received, undated={"2f1c..."})
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import orjson
import psycopg
import sqlalchemy as sa
from psycopg import errors

from store.bulk_rows import told
from store.event import Event
from store.event_rows import COLUMNS, copy_text

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
        raise told("COPY events", error) from error


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
        cursor.execute(_KNOWN, {**asked, "ids": _json(ids)}, prepare=False)
    else:
        cursor.execute(_KNOWN_AROUND, {**asked, "ids": ids, "times": [event.time for event in events]}, prepare=False)
    return {row[0] for row in cursor}


def _known_undated(cursor: psycopg.Cursor[Any], ids: Collection[str], received: datetime) -> set[str]:
    """The ids that are there, of records received within the last thirty days."""
    asked = {"ids": _json(sorted(ids)), "first": received - KNOWN_FOR, "last": received + _SLACK}
    cursor.execute(_KNOWN, asked, prepare=False)
    return {row[0] for row in cursor}


def _json(ids: Sequence[str | None]) -> str:
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
