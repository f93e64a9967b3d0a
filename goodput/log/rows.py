"""Lines of a run's log as they are stored, and the order in which they were written.

Many lines bear no time: the store then holds the moment of receipt, or one that the ingest assumed.
The file's own line numbers give the order, unless the clock says that they do not (a log rotated or read anew).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from goodput.log.training_log import LogLine, line_of

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LogRow:
    """A line with what tells its place; `stored_us` is the time that the store has for it."""

    line: LogLine
    received_ms: int
    file: str
    number: int
    stored_us: int
    id: str


_LAST = 2**62
_BEFORE_WORK = frozenset({"training_start", "checkpoint_load"})


def _within(row: LogRow) -> Key:
    """Where neither number nor receipt tells: by time, by the iteration told of, the work before what comes of it."""
    line = row.line
    iteration = line.iteration
    if iteration is None:
        iteration = -1 if line.kind in _BEFORE_WORK else _LAST
    return row.stored_us, iteration, line.kind != "iteration", line.kind, row.id


# The orders that the records allow. In the last one the clock never runs backwards.
ORDERS: tuple[Callable[[LogRow], Key], ...] = (
    lambda x: (x.file, x.number, *_within(x)),
    lambda x: (x.received_ms, x.file, x.number, *_within(x)),
    lambda x: (x.received_ms if x.line.time_ms is None else x.line.time_ms, x.file, x.number, *_within(x)),
)


def row_of(
    told: tuple[str, int, Mapping[str, Any], str | None, int | None, str],
    received_us: int,
) -> LogRow:
    """The row of a stored event: its kind, time in microseconds, attributes, file, line number and id."""
    kind, stored_us, attributes, file, number, name = told
    undated = stored_us == received_us or attributes.get("time_assumed")
    line = line_of(kind, None if undated else stored_us // 1000, attributes)
    return LogRow(line, received_us // 1000, file or "", number or 0, stored_us, name)


def order_of(rows: Sequence[LogRow]) -> tuple[int, list[LogRow]]:
    """The first order in which the clock never runs backwards: its place in ORDERS, and the rows in it."""
    for number, key in enumerate(ORDERS[:-1]):
        ordered = sorted(rows, key=key)
        if forwards(ordered):
            return number, ordered
    return len(ORDERS) - 1, sorted(rows, key=ORDERS[-1])


def forwards(rows: Sequence[LogRow], since_ms: int | None = None) -> bool:
    """Whether the clock never runs backwards from one timed line to the next, the first of them after `since_ms`."""
    times = [] if since_ms is None else [since_ms]
    times += [row.line.time_ms for row in rows if row.line.time_ms is not None]
    return all(earlier <= later for earlier, later in pairwise(times))
