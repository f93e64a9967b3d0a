"""Events into PostgreSQL by COPY, in the caller's transaction: at a fifth of the cost of INSERT.

fresh = copy_new(connection, events, received, undated={"2f1c..."})
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors
from sqlalchemy.dialects import postgresql

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
# Row by row, so that each looks at the days around its own time alone; the constant bounds do so for the plan.
_KNOWN = """
SELECT i.id FROM unnest(%s::text[], %s::timestamptz[], %s::timestamptz[]) AS i (id, since, until)
CROSS JOIN LATERAL (
    SELECT 1 FROM events e WHERE e.id = i.id AND e.time BETWEEN i.since AND i.until AND e.time BETWEEN %s AND %s LIMIT 1
) AS found"""


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
            known: set[str] = set()
            for part in _parts(events):
                known |= _known(cursor, part, received, undated)
            fresh = [event for event in events if event.id not in known] if known else list(events)
            # In one order, so that two writers of the same events cannot wait for each other.
            fresh.sort(key=_order)
            return [event for part in _parts(fresh) for event in _copied(cursor, part, received)]
    except psycopg.Error as error:
        raise _told(error) from error


def _parts(events: Sequence[Event]) -> Iterable[Sequence[Event]]:
    return (events[start : start + _PART] for start in range(0, len(events), _PART))


def _order(event: Event) -> tuple[datetime | None, str | None]:
    return event.time, event.id


def _known(
    cursor: psycopg.Cursor[Any], events: Sequence[Event], received: datetime, undated: Collection[str]
) -> set[str]:
    """The ids that are there, near the time of their event."""
    times = [event.time or received for event in events]
    oldest = received - KNOWN_FOR
    since = [oldest if event.id in undated else time - _SLACK for event, time in zip(events, times, strict=True)]
    until = [time + _SLACK for time in times]
    # Not prepared: a plan for any bounds would be one for every day there is.
    cursor.execute(_KNOWN, [[event.id for event in events], since, until, min(since), max(until)], prepare=False)
    return {row[0] for row in cursor}


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
    cursor.execute("RELEASE SAVEPOINT events_in")
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


def _told(error: psycopg.Error) -> sa.exc.DBAPIError:
    """The driver's error as SQLAlchemy raises it, which is what callers know."""
    return sa.exc.DBAPIError.instance(  # type: ignore[return-value]
        "COPY events",
        None,
        error,
        psycopg.Error,
        dialect=postgresql.dialect(),  # type: ignore[no-untyped-call]
    )
