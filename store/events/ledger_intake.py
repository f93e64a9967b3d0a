"""Intake of the ledgers: the new lines of runs' logs, left by each append in its own transaction.

note_lines(connection, fresh_events, received)      # by whoever appends
news = read_news(connection, ["llm-70b"])           # by whoever brings the runs' ledgers up to date, who then says
remove_news(connection, seqs)
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard

from store.records.event import Event, from_us, to_us
from store.records.event_sources import NO_FAULT, WORK
from store.tables import run_tables

# Of more lines than these in one append it is cheaper to read the log.
MOST_LINES = 20_000
_TABLE = run_tables.log_news
_LEVEL = 1
_BATCH = 1_000
# What comes in later than this is late: runs that ended meanwhile are accounted again.
LATE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class NewLogLines:
    """Some events of a run: of each line of its logs source, kind, time in microseconds, attributes, file, number, id.

    `lines` None = too many to be kept here, or unreadable: the log has them.
    """

    seq: int
    received: datetime
    count: int
    lines: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class LateReport:
    """Faults and outages of a node that came late: between which moments they were."""

    node: str
    since: datetime
    until: datetime


def note_lines(connection: sa.Connection, fresh: Sequence[Event], received: datetime) -> None:
    """Keep the new events of each run until its ledger counts them, and whose faults came late. All have a time.

    A fault that comes sooner than `LATE` finds the ledger unsettled: see `goodput/stored/computation.py`.
    """
    runs: dict[str, list[Event]] = {}
    for event in fresh:
        if run := event.run():
            runs.setdefault(run, []).append(event)
    rows: list[dict[str, Any]] = [
        {"run": run, "received": received, "count": len(lines), "lines": _packed(lines)}
        for run, lines in sorted(runs.items())
    ]
    if rows:
        connection.execute(sa.insert(_TABLE), rows)
    blaming = (event for event in fresh if event.severity != "info" and event.source not in NO_FAULT)
    reports = ((event.node, event.time) for event in blaming if event.node is not None and event.time is not None)
    note_late(connection, reports, received)


def note_late(connection: sa.Connection, reports: Iterable[tuple[str, datetime]], received: datetime) -> None:
    """Keep the (node, time) of faults and outages that are received long after: they may be why attempts ended."""
    spans: dict[str, tuple[datetime, datetime]] = {}
    for node, moment in reports:
        if moment < received - LATE:
            since, until = spans.get(node, (moment, moment))
            spans[node] = min(since, moment), max(until, moment)
    if spans:
        lines = [[node, to_us(since), to_us(until)] for node, (since, until) in spans.items()]
        row = {"run": "", "received": received, "count": len(lines), "lines": _compressed(lines)}
        connection.execute(sa.insert(_TABLE), [row])


def _packed(events: Sequence[Event]) -> bytes | None:
    if len(events) > MOST_LINES:
        return None
    try:
        return _compressed(
            [
                (e.source, e.kind, to_us(e.time), dict(e.attributes), e.file, e.line, e.id)
                for e in events
                if e.source in WORK and e.time is not None
            ]
        )
    except TypeError:  # an integer of more than 64 bits
        return None


def _compressed(lines: Any) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(orjson.dumps(lines))


def read_news(connection: sa.Connection, runs: Sequence[str]) -> dict[str, list[NewLogLines]]:
    """What no ledger of some runs counts yet, the oldest first; a run of which nothing waits is left out."""
    found: dict[str, list[NewLogLines]] = {}
    for first in range(0, len(runs), _BATCH):
        query = sa.select(_TABLE.c.run, _TABLE.c.seq, _TABLE.c.received, _TABLE.c.count, _TABLE.c.lines)
        query = query.where(_TABLE.c.run.in_(runs[first : first + _BATCH])).order_by(_TABLE.c.seq)
        for run, seq, received, count, lines in connection.execute(query):
            found.setdefault(run, []).append(NewLogLines(seq, received, count, _unpacked(lines)))
    return found


def _unpacked(packed: bytes | None) -> Sequence[Any] | None:
    if packed is None:
        return None
    try:
        lines: Sequence[Any] = orjson.loads(zstandard.ZstdDecompressor().decompress(packed))
    except (zstandard.ZstdError, orjson.JSONDecodeError):
        return None
    return lines


def runs_with_news(connection: sa.Connection) -> set[str]:
    """The runs of which events wait."""
    return set(connection.scalars(sa.select(_TABLE.c.run).where(_TABLE.c.run != "").distinct()))


def read_late(connection: sa.Connection, but: Container[int] = ()) -> tuple[list[int], list[LateReport]]:
    """The rows of late faults and outages, for `remove_news`; and what they hold.

    Args:
        but: rows that are left out.
    """
    rows = [row for row in read_news(connection, [""]).get("", ()) if row.seq not in but]
    return [row.seq for row in rows], [_late_of(span) for row in rows for span in row.lines or ()]


def _late_of(span: Any) -> LateReport:
    node, since, until = span
    return LateReport(node, from_us(int(since)), from_us(int(until)))


def remove_news(connection: sa.Connection, seqs: Sequence[int]) -> None:
    """Delete rows: their lines are counted."""
    for first in range(0, len(seqs), _BATCH):
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.seq.in_(seqs[first : first + _BATCH])))
