"""The goodput ledger of each run as it was last computed, and the marks that show whether the run has news since.

save_ledgers(connection, [StoredLedger("llm-70b", computed=now, until=end, records={"lines": 10}, content={...})])
ledger = read_ledger(connection, "llm-70b")
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.runs.losses import Loss, RunDay, write_losses
from store.tables import run_tables, schema
from store.tables.bulk_rows import is_one_of, upsert

_TABLE, _EVENTS = run_tables.ledgers, schema.events


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger: `until` is the newest record in it, `records` what was there of the run, `content` the account.

    `losses` and `days` are its interruptions and days as rows: written with it, read by `store/runs/losses.py`.
    """

    run: str
    computed: datetime
    until: datetime
    records: Mapping[str, Any]
    content: Mapping[str, Any]
    losses: Sequence[Loss] = field(default=(), compare=False)
    days: Sequence[RunDay] = field(default=(), compare=False)


def save_ledgers(connection: sa.Connection, ledgers: Iterable[StoredLedger]) -> None:
    """Write the ledgers of some runs over those before, with their interruptions and days.

    By their names, so that two writers cannot wait for each other.
    """
    by_run = {ledger.run: ledger for ledger in ledgers}
    rows = [
        {
            "run": ledger.run,
            "computed": ledger.computed,
            "until": ledger.until,
            "ledger": {"records": dict(ledger.records), **ledger.content},
        }
        for ledger in by_run.values()
    ]
    upsert(connection, _TABLE, rows)
    write_losses(connection, {ledger.run: (ledger.losses, ledger.days) for ledger in by_run.values()})


def read_ledger(connection: sa.Connection, run: str | None) -> StoredLedger | None:
    """A run's ledger, or that of the run that ended last; None if none was computed yet."""
    query = sa.select(_TABLE)
    query = query.order_by(_TABLE.c.until.desc(), _TABLE.c.run) if run is None else query.where(_TABLE.c.run == run)
    row = connection.execute(query.limit(1)).first()
    return None if row is None else _of(row)


def ledger_page(connection: sa.Connection, after: str, limit: int) -> list[StoredLedger]:
    """Ledgers by run, those after a name."""
    query = sa.select(_TABLE).where(_TABLE.c.run > after).order_by(_TABLE.c.run).limit(limit)
    return [_of(row) for row in connection.execute(query)]


def records_of_all(connection: sa.Connection) -> dict[str, tuple[datetime, dict[str, Any]]]:
    """Of every stored ledger: until when it goes, and what was there of the run."""
    query = sa.select(_TABLE.c.run, _TABLE.c.until, _TABLE.c.ledger["records"])
    return {run: (until, records or {}) for run, until, records in connection.execute(query)}


def records_of(connection: sa.Connection, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What was there of some runs when their stored ledgers were made; a run without one is left out."""
    query = sa.select(_TABLE.c.run, _TABLE.c.ledger["records"]).where(is_one_of(connection, _TABLE.c.run, runs))
    return {run: records or {} for run, records in connection.execute(query)}


def newest_accounts(connection: sa.Connection, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """The accounts of the runs that ended last, or still go on."""
    query = sa.select(_TABLE.c.run, _TABLE.c.ledger["account"]).order_by(_TABLE.c.until.desc(), _TABLE.c.run)
    return [(run, account or {}) for run, account in connection.execute(query.limit(limit))]


def facts_since(connection: sa.Connection, since: datetime) -> dict[str, dict[str, Any]]:
    """What was noted of runs beside their accounts (`goodput/cluster/mfu.py`), of those that went on after a moment."""
    query = sa.select(_TABLE.c.run, _TABLE.c.ledger["facts"]).where(_TABLE.c.until >= since)
    return {run: facts for run, facts in connection.execute(query) if facts is not None}


def log_marks(connection: sa.Connection, run: str | None = None) -> dict[str, tuple[int, datetime]]:
    """Of every run that events name (or of one), how many they are and the time of the newest."""
    query = sa.select(_EVENTS.c.run, sa.func.count(), sa.func.max(_EVENTS.c.time, type_=schema.UtcTime()))
    query = query.where(_EVENTS.c.run.is_not(None), _EVENTS.c.run != "").group_by(_EVENTS.c.run)
    if run is not None:
        query = query.where(_EVENTS.c.run == run)
    return {name: (count, newest) for name, count, newest in connection.execute(query)}


def archives_taken(connection: sa.Connection) -> int:
    """How many files of archives were ingested: more of them may hold lines of any time."""
    return int(connection.scalar(sa.select(sa.func.count()).select_from(schema.ingested)) or 0)


def _of(row: Any) -> StoredLedger:
    content = dict(row.ledger)
    return StoredLedger(row.run, row.computed, row.until, content.pop("records", {}), content)
