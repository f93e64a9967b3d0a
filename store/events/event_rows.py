"""Events as rows of the table `events`: tuples for SQLite's executemany, text for PostgreSQL's COPY."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import orjson
import psycopg
import sqlalchemy as sa
from psycopg import errors

from store.records.event import Event, owner_of, to_us, with_bound_id
from store.tables.bulk_rows import escaped, sqlalchemy_error

COLUMNS = (
    *("id", "time", "received", "node", "run", "source", "kind", "code"),
    *("severity", "cause", "action", "device", "message", "attributes", "file", "line"),
)


def sqlite_rows(events: Sequence[Event], received: datetime) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of COLUMNS; times as microseconds since 1970. Made a column at a time."""
    now = to_us(received)
    return zip(
        [event.id for event in events],
        [now if event.time is None else to_us(event.time) for event in events],
        repeat(now),
        [event.node for event in events],
        [event.run() for event in events],
        [event.source for event in events],
        [event.kind for event in events],
        [event.code for event in events],
        [event.severity for event in events],
        [event.cause for event in events],
        [event.action for event in events],
        _device_lines(events),
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
        [line.replace("\\", "\\\\") for line in _device_lines(events)],
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


class _KnownFields(dict[str, str]):
    """JSON of devices without what is not known of them, which is most (`store.tables.pages.whole_device`).

    Within a text each quote has a backslash before it: none looks like a field.
    """

    def __missing__(self, text: str) -> str:
        known = _UNKNOWN.sub("", text)
        self[text] = known
        return known


_UNKNOWN = re.compile(',"(?:pci|index|uuid|port)":null')


def _device_lines(events: Sequence[Event]) -> list[str]:
    """One more than there are events. Few devices are told of again and again."""
    lines = _ENCODER.encode_lines([event.device for event in events]).decode().split("\n")
    return list(map(_KnownFields().__getitem__, lines))


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


# Whose event has an id already: an id that another node's event has is no reason to leave one out.

Owners: TypeAlias = Mapping[str, set[str]]


def owners_by_id(rows: Iterable[Sequence[Any]]) -> dict[str, set[str]]:
    """The owners of stored ids, of rows of id, node and run."""
    found: dict[str, set[str]] = {}
    for ident, node, run in rows:
        found.setdefault(ident, set()).add(owner_of(node, run))
    return found


def new_ones(
    events: Sequence[Event],
    look: Callable[[Sequence[Event]], Owners],
    note: Callable[[Event, Event], None] = lambda _event, _bound: None,
) -> Sequence[Event]:
    """The events that are not there; one whose id another owner's event has comes with an id of its own.

    Args:
        look: the stored owners of the ids of some events.
        note: told of each event that gets another id.
    """
    owners = look(events)
    if not owners:
        return events
    fresh = [event for event in events if event.id not in owners]
    clashing = []
    for event in events:
        taken = owners.get(event.id or "")
        if taken is not None and owner_of(event.node, event.run()) not in taken:
            clashing.append(with_bound_id(event))
            note(event, clashing[-1])
    there = look(clashing) if clashing else {}
    return fresh + [event for event in clashing if event.id not in there]


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
SELECT i.id, found.node, found.run FROM json_array_elements_text(%(ids)s::json) AS i (id) CROSS JOIN LATERAL (
    SELECT e.node, e.run FROM events e WHERE e.id = i.id AND e.time BETWEEN %(first)s AND %(last)s LIMIT 8
) AS found"""
# The same for a batch that spans many days: of each row, the days around its own time alone.
_KNOWN_AROUND = """
SELECT i.id, found.node, found.run
FROM unnest(%(ids)s::text[], %(times)s::timestamptz[]) AS i (id, time) CROSS JOIN LATERAL (
    SELECT e.node, e.run FROM events e WHERE e.id = i.id AND e.time BETWEEN %(first)s AND %(last)s
    AND e.time BETWEEN i.time - interval '1 day' AND i.time + interval '1 day' LIMIT 8
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
            timeless = set(undated)

            def look(asked: Sequence[Event]) -> Owners:
                """Those that bear no time are at the moment of their receipt."""
                dated = [event for event in asked if event.id not in timeless]
                found = owners_by_id(row for part in _parts(dated) for row in _stored_ids(cursor, part))
                without = [event.id for event in asked if event.id in timeless]
                return found | owners_by_id(_known_undated(cursor, without, received)) if without else found

            def note(event: Event, bound: Event) -> None:
                timeless.update({bound.id or ""} if event.id in timeless else ())

            # In one order, so that two writers of the same events cannot wait for each other.
            fresh = sorted(new_ones(events, look, note), key=_order)
            added = [event for part in _parts(fresh) for event in _copied(cursor, part, received)]
            if len(added) < len(fresh):  # another writer was quicker: with the same events, or with their ids alone
                names = {event.id for event in added}
                rest = new_ones([event for event in fresh if event.id not in names], look, note)
                added += [
                    event for part in _parts(sorted(rest, key=_order)) for event in _copied(cursor, part, received)
                ]
            return added
    except psycopg.Error as error:
        raise sqlalchemy_error("COPY events", error) from error


def _parts(events: Sequence[Event]) -> Iterable[Sequence[Event]]:
    return (events[start : start + _PART] for start in range(0, len(events), _PART))


def _order(event: Event) -> tuple[datetime | None, str | None]:
    return event.time, event.id


def _stored_ids(cursor: psycopg.Cursor[Any], events: Sequence[Event]) -> Sequence[Sequence[Any]]:
    """The ids that are there, near the time of their event, each with node and run."""
    times = [event.time for event in events if event.time is not None]
    if not times:
        return []
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
    return cursor.fetchall()


def _known_undated(
    cursor: psycopg.Cursor[Any], ids: Sequence[str | None], received: datetime
) -> Sequence[Sequence[Any]]:
    """The ids that are there, of records received within the last thirty days, each with node and run."""
    asked = {"ids": _json_list(ids), "first": received - KNOWN_FOR, "last": received + _SLACK}
    cursor.execute(_KNOWN, asked, prepare=False)
    return cursor.fetchall()


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
