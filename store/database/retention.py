"""Retention: what is older than a moment goes, in steps, so that no transaction is long and nobody waits.

Events and telemetry leave their counts by the day (`store/tables/day_totals.py`). Outages, jobs, hints and their audit
stay, and so do ledgers and what nodes' sidecars said: they are small, and labels and answers rest on them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.audit_chain import cut_audit
from store.database.connections import writing
from store.database.partitions import LOCK, BusyError, Partition, partitions, with_lock_timeout
from store.tables import hint_tables, schema, verdict_tables
from store.tables.day_totals import DAYS, adding, summary
from store.tables.packed_hours import day_of

# Rows a step. Scores and incidents have no index by time alone, so that each step looks at all of them: fewer and
# larger steps.
_STEP_ROWS = {
    "events": 20_000,
    "telemetry": 20_000,
    "scores": 200_000,
    "incidents": 200_000,
    "deliveries": 20_000,
    "audit": 20_000,
    "verdicts": 20_000,
}
# When a row was over, where that is not its `time`: an incident goes on for as long as its fault comes again.
_ENDS = {"incidents": "end", "verdicts": "ended"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """How many days of each are kept; None: for ever."""

    events_days: int | None = None
    telemetry_days: int | None = None
    scores_days: int | None = None
    incidents_days: int | None = None  # since their last event
    deliveries_days: int | None = None  # the log of attempts to hand hints over; what is owed is no part of it
    verdicts_days: int | None = None  # since they ended; with each change of them
    audit_days: int | None = None  # what goes leaves a row in the audit's chain that says up to where

    def before(self, now: datetime) -> dict[str, datetime]:
        """Of each table that is not kept for ever: what is older than this goes."""
        days = {f.name.removesuffix("_days"): getattr(self, f.name) for f in fields(self)}
        return {table: now - timedelta(days=count) for table, count in days.items() if count is not None}


# The model looks back 28 days at events and 8 at telemetry (`predictor/history/arrays.py`; a test compares), and a day
# is to spare for late ones. A day of scores is what a node's state and its hints rest on.
# The repair list looks back 90 days at incidents.
# Ledgers of runs and the repair list read verdicts back to 90 days.
# Releases are sent for a week. A model learns from a year by default, and must know by the audit which nodes we held.
MINIMUM = RetentionPeriods(
    events_days=29,
    telemetry_days=9,
    scores_days=2,
    incidents_days=91,
    deliveries_days=8,
    verdicts_days=91,
    audit_days=400,
)


def too_short(keep: RetentionPeriods) -> str | None:
    """The name of a limit that is under MINIMUM; None where all are long enough."""
    for field in fields(keep):
        days, least = getattr(keep, field.name), getattr(MINIMUM, field.name)
        if days is not None and days < least:
            return field.name
    return None


def count_old(engine: sa.Engine, before: Mapping[str, datetime]) -> dict[str, int]:
    """How many rows of each table `prune` would delete."""
    counts = {}
    with engine.connect() as connection:
        for name, moment in before.items():
            table = hint_tables.metadata.tables[name]
            query = sa.select(sa.func.count()).select_from(table).where(_end(table, name) < moment)
            counts[name] = connection.scalar(query) or 0
    return counts


def prune(
    engine: sa.Engine, before: Mapping[str, datetime], keep_on: Callable[[], bool] = lambda: True
) -> dict[str, int]:
    """Delete what is older than a moment of each table; returns how many rows went. It may be cut off at any point.

    Events that are still to be counted in an incident stay for now.

    Args:
        before: of `events`, `telemetry`, `scores`, `deliveries`, `audit`: the first moment that stays.
        keep_on: asked before each step.
    """
    gone = {name: _Pruning(engine, name, moment, keep_on).run() for name, moment in before.items()}
    if "telemetry" in gone:
        with writing(engine).begin() as connection:
            _forget_dictionaries(connection)
    return gone


def _forget_dictionaries(connection: sa.Connection) -> None:
    """Let go of those of days before the first hour that is there: no other hour needs them."""
    first = connection.scalar(sa.select(sa.func.min(schema.telemetry.c.time, type_=schema.UtcTime())))
    if first is not None:
        connection.execute(sa.delete(schema.packed_days).where(schema.packed_days.c.day < day_of(first)))


@dataclass(frozen=True, slots=True)
class _Pruning:
    """One table's pruning."""

    engine: sa.Engine
    name: str
    before: datetime
    keep_on: Callable[[], bool]

    def run(self) -> int:
        """All of it; returns the rows that went."""
        table = hint_tables.metadata.tables[self.name]
        if self.engine.dialect.name != "postgresql":
            return self._delete(table)
        gone = self._drop_detached()
        with self.engine.connect() as connection:
            parts = partitions(connection, self.name)
        if not parts:
            return self._delete(table)  # a table that is not divided by days
        for part in parts:
            if part.until is not None and part.until <= self.before:
                gone += self._detach(part)
            elif part.since is None or part.since < self.before:
                gone += self._delete(self._named(part.name))
        return gone

    def _named(self, name: str) -> sa.Table:
        return hint_tables.metadata.tables[self.name].to_metadata(sa.MetaData(), name=name)

    def _detach(self, part: Partition) -> int:
        """A day goes whole: out of the table first, which is a matter of a moment; then it is summed up and dropped."""
        if not self.keep_on() or self._is_needed(part):
            return 0
        try:
            with_lock_timeout(self.engine, lambda connection: _detach(connection, part), tries=20)
        except BusyError as error:
            _log.warning("%s stays for now: %s", part.name, error)
            return 0
        return self._drop_detached()

    def _is_needed(self, part: Partition) -> bool:
        with self.engine.connect() as connection:
            waiting = _waiting_since(connection, self.name)
            found = self._named(part.name)
            return waiting is not None and bool(
                connection.scalar(sa.select(sa.exists().where(found.c.received >= waiting)))
            )

    def _drop_detached(self) -> int:
        """Sum up and drop what was taken out; what another try left behind, too."""
        gone = 0
        query = sa.text(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relispartition AND relname ~ :pattern"
            " AND relnamespace = current_schema()::regnamespace ORDER BY relname"
        )
        with self.engine.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            pattern = {"pattern": f"^{self.name}_p[0-9]{{8}}$"}
            for name in connection.scalars(query, pattern).all():
                found = self._named(name)
                gone += connection.scalar(sa.select(sa.func.count()).select_from(found)) or 0
                if self.name in DAYS:
                    connection.execute(adding(connection, self.name, summary(self.name, found)))
                connection.execute(sa.text(f"DROP TABLE {name}"))
        return gone

    def _delete(self, table: sa.Table) -> int:
        """Row by row, a bounded step a transaction."""
        gone = 0
        while self.keep_on():
            with writing(self.engine).begin() as connection:
                went = self._step(connection, table)
            gone += went
            if went == 0:
                break
        return gone

    def _step(self, connection: sa.Connection, table: sa.Table) -> int:
        if self.name == "audit":
            return cut_audit(connection, self.before, datetime.now(UTC), _STEP_ROWS[self.name])
        moment = _end(table, self.name)
        rows = sa.select(moment).where(moment < self.before).order_by(moment)
        last = connection.scalar(rows.offset(_STEP_ROWS[self.name] - 1).limit(1))
        end = self.before if last is None else min(self.before, last + timedelta(microseconds=1))
        old = [moment < end]
        waiting = _waiting_since(connection, self.name)
        if waiting is not None:
            old.append(table.c.received < waiting)
        if self.name in ("verdicts", "incidents"):
            _delete_parts(connection, self.name, sa.select(table.c.id).where(*old))
        return _delete_summed(connection, self.name, table, sa.and_(*old))


def _end(table: sa.Table, name: str) -> sa.Column[Any]:
    return table.c[_ENDS.get(name, "time")]


def _delete_summed(connection: sa.Connection, name: str, table: sa.Table, old: sa.ColumnElement[bool]) -> int:
    """Delete rows and add them to their days; on PostgreSQL in one statement, so that both see the same rows."""
    if name not in DAYS:
        return connection.execute(sa.delete(table).where(old)).rowcount
    if connection.dialect.name != "postgresql":
        chosen = sa.select(table).where(old).subquery()
        connection.execute(adding(connection, name, summary(name, chosen).where(sa.true())))
        return connection.execute(sa.delete(table).where(old)).rowcount
    gone = sa.delete(table).where(old).returning(*table.c).cte("gone")
    kept = adding(connection, name, summary(name, gone)).cte("kept")
    return connection.scalar(sa.select(sa.func.count()).select_from(gone).add_cte(kept)) or 0


def _delete_parts(connection: sa.Connection, name: str, gone: sa.Select[Any]) -> None:
    """What belongs to verdicts and incidents that go: what people did; each change of a verdict, and whom it named."""
    thread = verdict_tables.thread_entries
    # Senders of events choose the ids of incidents: one may be that of a verdict, whose entries bear its name.
    of_kind = thread.c.named != "" if name == "verdicts" else thread.c.named == ""
    connection.execute(sa.delete(thread).where(of_kind, thread.c.subject.in_(gone)))
    for table in (verdict_tables.verdict_revisions, verdict_tables.verdict_subjects) if name == "verdicts" else ():
        connection.execute(sa.delete(table).where(table.c.verdict.in_(gone)))


def _detach(connection: sa.Connection, part: Partition) -> None:
    # Not CONCURRENTLY, which PostgreSQL refuses where there is a default partition: briefly(), then.
    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    if part in partitions(connection, part.table):
        connection.execute(sa.text(f"ALTER TABLE {part.table} DETACH PARTITION {part.name}"))


def _waiting_since(connection: sa.Connection, name: str) -> datetime | None:
    """When the oldest events came in that no incident counts yet; None where none wait."""
    table = schema.intake
    if name != "events":
        return None
    found: Any = connection.scalar(
        sa.select(sa.func.min(table.c.received, type_=schema.UtcTime())).where(table.c.error.is_(None))
    )
    return found  # type: ignore[no-any-return]
