"""Reading a run's training log from the store in the order in which it was written.

Many lines bear no time: the store then holds the moment of receipt, or one that the ingest assumed.
The file's own line numbers give the order, unless the clock says that they do not (a log rotated or read anew).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from goodput.timeline import to_ms
from goodput.training_log import KINDS, LogLine, known_at, line_of
from store import schema

_FETCH = 5_000


@dataclass(frozen=True, slots=True)
class _Stored:
    """A line with what tells its place."""

    line: LogLine
    received_ms: int
    file: str
    number: int


def read_log(connection: sa.Connection, run: str, until: datetime | None = None) -> list[LogLine]:
    """The lines of a run's log, oldest first; those received or printed after `until` are left out if dated."""
    table = schema.events
    query = sa.select(
        table.c.kind, table.c.time, table.c.received, table.c.attributes, table.c.file, table.c.line
    ).where(table.c.run == run, table.c.source == "training", table.c.kind.in_(KINDS))
    stored = [_stored(row) for row in connection.execute(query.execution_options(yield_per=_FETCH))]
    lines = in_order(stored)
    return lines if until is None else known_at(lines, to_ms(until))


def _stored(row: Any) -> _Stored:
    kind, time, received, attributes, file, number = row
    received_ms = to_ms(received)
    time_ms = None if time == received or attributes.get("time_assumed") else to_ms(time)
    return _Stored(line_of(kind, time_ms, attributes), received_ms, file or "", number or 0)


def in_order(stored: Sequence[_Stored]) -> list[LogLine]:
    """The order, of those that the records allow, in which the clock runs backwards least often."""
    orders: list[Callable[[_Stored], tuple[Any, ...]]] = [
        lambda x: (x.file, x.number),
        lambda x: (x.received_ms, x.file, x.number),
        lambda x: (x.received_ms if x.line.time_ms is None else x.line.time_ms, x.file, x.number),
    ]
    best: list[LogLine] = []
    fewest: int | None = None
    for order in orders:
        lines = [x.line for x in sorted(stored, key=order)]
        back = _times_back(lines)
        if fewest is None or back < fewest:
            best, fewest = lines, back
        if fewest == 0:
            break
    return best


def _times_back(lines: Sequence[LogLine]) -> int:
    """How often the clock runs backwards from one timed line to the next."""
    times = [line.time_ms for line in lines if line.time_ms is not None]
    return sum(later < earlier for earlier, later in pairwise(times))
