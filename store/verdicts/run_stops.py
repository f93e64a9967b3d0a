"""The first verdict of each stop of a run: what `foreshock diagnose` names, kept for the run's ledger.

save_stops(connection, [StopVerdict("llm-70b", end, now, verdict)])     # by whoever explains
stops_of(connection, ["llm-70b"])["llm-70b"][end].verdict           # by whoever accounts
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
import sqlalchemy as sa

from store.records.verdict import Verdict
from store.tables import verdict_tables
from store.tables.bulk_rows import upsert

_TABLE = verdict_tables.run_stops
_DECODER = msgspec.json.Decoder(Verdict)
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class StopVerdict:
    """The end of an attempt that did not end well, the verdict on it, and when that was made."""

    run: str
    end: datetime
    made: datetime
    verdict: Verdict


def save_stops(connection: sa.Connection, stops: Iterable[StopVerdict]) -> None:
    """Keep verdicts, in the place of those on the same stops."""
    rows = [
        {"run": one.run, "end": one.end, "made": one.made, "document": msgspec.json.encode(one.verdict).decode()}
        for one in stops
    ]
    for first in range(0, len(rows), _BATCH):
        upsert(connection, _TABLE, rows[first : first + _BATCH])


def stops_of(connection: sa.Connection, runs: Sequence[str]) -> dict[str, dict[datetime, StopVerdict]]:
    """The stops of some runs by their ends; a run without any is left out."""
    found: dict[str, dict[datetime, StopVerdict]] = {}
    for first in range(0, len(runs), _BATCH):
        for row in connection.execute(sa.select(_TABLE).where(_TABLE.c.run.in_(runs[first : first + _BATCH]))):
            stop = StopVerdict(row.run, row.end, row.made, _DECODER.decode(row.document))
            found.setdefault(row.run, {})[row.end] = stop
    return found


def stop_times(connection: sa.Connection, runs: Sequence[str] | None = None) -> dict[tuple[str, datetime], datetime]:
    """When the verdict on each stop was made, of all runs or some, by run and end."""
    query = sa.select(_TABLE.c.run, _TABLE.c.end, _TABLE.c.made)
    parts = [None] if runs is None else [runs[i : i + _BATCH] for i in range(0, len(runs), _BATCH)]
    rows = (
        row
        for part in parts
        for row in connection.execute(query if part is None else query.where(_TABLE.c.run.in_(part)))
    )
    return {(row.run, row.end): row.made for row in rows}
