"""The faults that may have ended attempts, of many runs at once: a short window each, one statement for a day's.

faults = read_faults(connection, {"llm-70b": attempts})["llm-70b"]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from goodput.timeline import from_ms
from goodput.wall_time.attempts import Attempt
from goodput.wall_time.interruption import FAULT_CAUSES, FAULT_SEVERITIES, LOST_LINKS, fault_window
from store import schema
from store.event import Event
from store.read import event_of
from store.sources import NO_FAULT

# Faults of one attempt that are kept: the first decides, and a flood must not fill the memory.
MAX_FAULTS = 5_000
# Windows of one statement: the database seeks each by itself, and plans for longer the more there are.
_WINDOWS = 50
_PAGE = 5_000
# Milliseconds are rounded down: what was stored within the last one still lies in the window.
_REST = timedelta(microseconds=999)


@dataclass(slots=True)
class _Window:
    """Between an attempt's last iteration and its end, both included."""

    run: str
    since: datetime
    until: datetime
    nodes: frozenset[str]
    found: list[Event] = field(default_factory=list)

    def take(self, row: Any) -> None:
        """Keep an event within it that is the attempt's: of its nodes, or told by its run."""
        ours = row.run == self.run if row.kind == "training_error" else row.node in self.nodes
        if ours and len(self.found) < MAX_FAULTS:
            self.found.append(event_of(row))


def read_faults(connection: sa.Connection, attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, list[Event]]:
    """Of each run the faults between each attempt's last iteration and its end, on its nodes; attempt by attempt."""
    windows = {run: _windows(run, some) for run, some in attempts.items()}
    ordered = sorted((one for some in windows.values() for one in some), key=lambda one: (one.since, one.until))
    # A statement asks for windows of one day: of the partitions it opens one or two.
    for _day, some in groupby(ordered, key=lambda one: one.since.date()):
        listed = list(some)
        for first in range(0, len(listed), _WINDOWS):
            _fill(connection, listed[first : first + _WINDOWS])
    return {run: [event for one in some for event in one.found] for run, some in windows.items()}


def _windows(run: str, attempts: Sequence[Attempt]) -> list[_Window]:
    found = []
    for attempt in attempts:
        end = attempt.end_ms if attempt.end_ms is not None else attempt.last_data_ms
        if end is not None:
            since, until = fault_window(attempt, end)
            found.append(_Window(run, from_ms(since), from_ms(until) + _REST, attempt.nodes))
    return found


def _fill(connection: sa.Connection, windows: Sequence[_Window]) -> None:
    """Give each window its events. They come by time, so that few windows are open at a time."""
    waiting = list(reversed(windows))
    current: list[_Window] = []
    for row in _rows(connection, windows):
        while waiting and waiting[-1].since <= row.time:
            current.append(waiting.pop())
        current = [one for one in current if one.until >= row.time]
        for one in current:
            one.take(row)


def _rows(connection: sa.Connection, windows: Sequence[_Window]) -> Iterator[Any]:
    """Fault events of any node, and the runs' reported errors, within the windows, by time and id."""
    table = schema.events
    severe = table.c.severity.in_(FAULT_SEVERITIES) & table.c.cause.in_(FAULT_CAUSES)
    lost = table.c.kind.in_(LOST_LINKS) & (table.c.severity != "info")
    machine = table.c.source.not_in(NO_FAULT) & (table.c.kind != "training_error") & (severe | lost)
    # A line that bears no time was stored with the moment of its receipt: that is no time of a fault.
    dated = table.c.time != table.c.received
    reported = (table.c.kind == "training_error") & table.c.run.in_(sorted({one.run for one in windows})) & dated
    query = sa.select(table).where(machine | reported).order_by(table.c.time, table.c.id).limit(_PAGE)
    spans = _joined(windows)
    bounds = table.c.time.between(spans[0][0], spans[-1][1])
    within = sa.or_(*(table.c.time.between(since, until) for since, until in spans))
    after: sa.ColumnElement[bool] = sa.true()
    while True:
        rows = connection.execute(query.where(bounds, within, after)).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1]
        after = (table.c.time > last.time) | ((table.c.time == last.time) & (table.c.id > last.id))


def _joined(windows: Sequence[_Window]) -> list[tuple[datetime, datetime]]:
    """Since and until of the windows, those that overlap as one. They are sorted by their beginning."""
    spans: list[tuple[datetime, datetime]] = []
    for one in windows:
        if spans and one.since <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], one.until))
        else:
            spans.append((one.since, one.until))
    return spans
