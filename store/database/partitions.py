"""On PostgreSQL the large tables are a table a day; what lies outside the days that are kept apart has one of its own.

    ensure_days(engine, {event.time for event in events}, ("events",))     # before rows of those days are written

A row whose day has no table goes to `X_other`, and moves over should its day be made later: no writer ever fails for
want of a partition. SQLite has one table each: every call here does nothing there.

Readers: give bounds of `time` wherever they are known. PostgreSQL then looks at the days between them alone. Without
bounds it plans for every day and locks every day's table and indexes: docs/store.md has the figures.
"""

import logging
import random
import re
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

# Whoever waits for a lock on a table keeps all who come after waiting too: no wait is longer than this.
LOCK_TIMEOUT_MS = 200
PAUSE_S = 0.5
# lock_not_available, deadlock_detected. Source: PostgreSQL 15, appendix A.
_AGAIN = ("55P03", "40P01")


class BusyError(RuntimeError):
    """A table whose lock was not to be had in all tries."""


def is_lock_busy(error: DBAPIError) -> bool:
    """Whether another has the lock for now, and nothing else is wrong."""
    return getattr(error.orig, "sqlstate", None) in _AGAIN


def with_lock_timeout(engine: sa.Engine, work: Callable[[sa.Connection], None], tries: int = 5) -> None:
    """Run `work` in one short transaction of its own, again while a lock is not to be had.

    Raises:
        BusyError: it was not to be had in so many tries.
        SQLAlchemyError: anything else that went wrong.
    """
    for number in range(tries):
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
                connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
                work(connection)
        except DBAPIError as error:
            if not is_lock_busy(error):
                raise
        else:
            return
        if number + 1 < tries:
            time.sleep(PAUSE_S * (0.5 + random.random()))  # noqa: S311  # jitter, no secret
    raise BusyError(f"a lock was not to be had in {tries} tries of {LOCK_TIMEOUT_MS} ms: a long transaction holds it")


DIVIDED = ("events", "telemetry", "scores")
# A host whose clock says 1971 shall not make a table a day from there on.
KEEP_BACK = timedelta(days=1500)
KEEP_AHEAD = timedelta(days=3)
# The most days of one table that one call makes; rows of the others wait in `X_other`.
MAX_NEW = 150
# One at a time makes or drops a day: any number would do, this one is ours.
LOCK = 7_301_004
_FORGET_S = 60.0
_MAX_KNOWN = 20_000
_BOUNDS = re.compile(r"FOR VALUES FROM \('([^']+)'\) TO \('([^']+)'\)")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a divided table: rows of since <= time < until. `X_other`, of all other days, has neither."""

    table: str
    name: str
    since: datetime | None
    until: datetime | None

    @property
    def is_other(self) -> bool:
        """Whether it takes the rows of all days that have no table."""
        return self.until is None

    def covers(self, day: date) -> bool:
        """Whether the whole day's rows go here."""
        begin, end = _span(day)
        return self.since is not None and self.until is not None and self.since <= begin and end <= self.until


class _KnownDays:
    """What one engine knows: days that need nothing done, and until when failing days are left alone."""

    def __init__(self) -> None:
        self.days: set[tuple[str, date]] = set()
        self.quiet_until = 0.0


_KNOWN_DAYS: "weakref.WeakKeyDictionary[sa.Dialect, _KnownDays]" = weakref.WeakKeyDictionary()


def ensure_days(
    engine: sa.Engine,
    moments: Iterable[datetime | date],
    tables: Iterable[str] = DIVIDED,
    now: datetime | None = None,
    tries: int = 2,
) -> None:
    """Create the partitions of days that have none; quick when there is nothing to do. Never raises.

    Call it before the transaction that writes: one that has read all of a table keeps new days of it waiting.

    Args:
        moments: aware moments, or days (UTC); those outside KEEP_BACK and KEEP_AHEAD of now are left to `X_other`.
        tables: of DIVIDED.
        tries: to get the lock, of half a second each at most. After a failure days are left alone for a minute.
    """
    if engine.dialect.name != "postgresql":
        return
    known = _KNOWN_DAYS.setdefault(engine.dialect, _KnownDays())
    days = {moment.astimezone(UTC).date() if isinstance(moment, datetime) else moment for moment in moments}
    wanted = {(table, day) for table in tables for day in days} - known.days
    if not wanted or time.monotonic() < known.quiet_until:
        return
    try:
        _make_days(engine, wanted, known, (now or datetime.now(UTC), tries))
    except (BusyError, SQLAlchemyError) as error:
        known.quiet_until = time.monotonic() + _FORGET_S
        _log.warning("no partition could be made, rows go to the table of others for now: %s", error)


def _make_days(engine: sa.Engine, wanted: set[tuple[str, date]], known: _KnownDays, how: tuple[datetime, int]) -> None:
    now, tries = how
    if len(known.days) > _MAX_KNOWN:
        known.days.clear()
    first, last = (now - KEEP_BACK).date(), (now + KEEP_AHEAD).date()
    for table in sorted({table for table, _day in wanted}):
        days = {day for name, day in wanted if name == table}
        with engine.connect() as connection:
            there = partitions(connection, table)
        missing = {day for day in days if first <= day <= last and not any(part.covers(day) for part in there)}
        for day in sorted(missing, reverse=True)[:MAX_NEW]:
            with_lock_timeout(engine, partial(create_day, table=table, day=day), tries)
            known.days.add((table, day))
        known.days.update((table, day) for day in days - missing)


def partitions(connection: sa.Connection, table: str) -> list[Partition]:
    """The parts of a divided table, the oldest first, `X_other` last; none on SQLite."""
    if connection.dialect.name != "postgresql":
        return []
    query = sa.text(
        "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(:table) AND NOT i.inhdetachpending"
    )
    found = [_partition(table, name, bound) for name, bound in connection.execute(query, {"table": table})]
    old = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda part: (part.is_other, part.since or old))


def _partition(table: str, name: str, bound: str) -> Partition:
    match = _BOUNDS.fullmatch(bound)
    if match is None:
        return Partition(table, name, None, None)
    since, until = map(datetime.fromisoformat, match.groups())
    return Partition(table, name, since, until)


def name_of(table: str, day: date) -> str:
    """What the partition of a day is called."""
    return f"{table}_p{day:%Y%m%d}"


def create_day(connection: sa.Connection, table: str, day: date) -> None:
    """Make the partition of a day, in the caller's transaction; rows of it that lie in `X_other` move over.

    A table of its own is made first and then attached: unlike PARTITION OF, that keeps nobody from reading and writing
    the other days meanwhile. `X_other` alone is locked, briefly: PostgreSQL looks whether it holds rows of the day.
    """
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    if any(part.covers(day) for part in partitions(connection, table)):
        return
    name, (begin, end) = name_of(table, day), (f"'{moment.isoformat()}'" for moment in _span(day))
    inside = f"time >= {begin} AND time < {end}"
    for statement in (
        f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING INDEXES,"
        f" CONSTRAINT {name}_day CHECK ({inside}))",
        f"LOCK TABLE {table}_other IN ACCESS EXCLUSIVE MODE",
        f"WITH moved AS (DELETE FROM {table}_other WHERE {inside} RETURNING *)"  # noqa: S608 - names of ours
        f" INSERT INTO {name} SELECT * FROM moved",
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})",
        f"ALTER TABLE {name} DROP CONSTRAINT {name}_day",
    ):
        connection.execute(sa.text(statement))


def _span(day: date) -> tuple[datetime, datetime]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return begin, begin + timedelta(days=1)
