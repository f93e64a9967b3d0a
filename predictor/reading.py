"""The store's tables into `History` arrays: plain column selects, no record objects.

A year of a large fleet is millions of rows; making a frozen dataclass of each would cost more than all the rest.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.history import (
    EVENT_WINDOW_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    HOUR_MS,
    INCIDENT_GAP_MS,
    MEASURE_WINDOW_MS,
    TELEMETRY_COLUMNS,
    TELEMETRY_WINDOW_H,
    Fleet,
    History,
    Ints,
    Jobs,
    OutageLog,
    Precursors,
    Telemetry,
    from_ms,
    to_ms,
)
from predictor.measures import read_measures
from predictor.precursor_log import Columns, PrecursorLog, milliseconds, precursor_query
from store import schema
from store.bulk_rows import among
from store.event import RecordError
from store.hostlist import expand

_FETCH = 20_000
_NOTHING = np.empty(0, dtype=np.int64)


def read_history(connection: sa.Connection, first: datetime, last: datetime) -> History:
    """All that features between two moments need: nothing at or after `last` is read."""
    fleet = read_fleet(connection)
    first_ms, last_ms = to_ms(first), to_ms(last)
    span = data_span(connection)
    hours = (first_ms // HOUR_MS - TELEMETRY_WINDOW_H, last_ms // HOUR_MS)
    return History(
        fleet=fleet,
        precursors=read_precursors(connection, fleet, (first_ms - EVENT_WINDOW_MS - INCIDENT_GAP_MS, last_ms)),
        outages=read_outage_log(connection, fleet, last_ms),
        telemetry=read_telemetry(connection, fleet, *hours),
        jobs=read_jobs(connection, fleet, hours[0] * HOUR_MS, last_ms),
        start_ms=first_ms if span is None else min(to_ms(span[0]), first_ms),
        # A row stands until the next one, however long that takes.
        measures=read_measures(connection, fleet.index, first_ms - MEASURE_WINDOW_MS, hours[1] * HOUR_MS),
    )


def read_fleet(connection: sa.Connection) -> Fleet:
    """Every known node, by name."""
    table = schema.nodes
    since, until = (milliseconds(connection, table.c[name]) for name in ("in_service_since", "in_service_until"))
    query = sa.select(table.c.node, table.c.leaf, table.c.rack, table.c.gpus, table.c.gpu_model, since, until)
    rows = connection.execute(query.order_by(table.c.node)).all()
    names, leaf, rack, gpus, model, begun, ended = zip(*rows, strict=True) if rows else ((),) * 7
    return Fleet(
        names=names,
        leaf=_groups(leaf),
        rack=_groups(rack),
        gpus=np.array([np.nan if count is None else count for count in gpus], dtype=np.float64),
        since_ms=np.array([FAR_PAST_MS if at is None else at for at in begun], dtype=np.int64),
        until_ms=np.array([FAR_FUTURE_MS if at is None else at for at in ended], dtype=np.int64),
        model=_ranks(model),
    )


def _groups(names: Sequence[str | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: dict[str, int] = {}
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _ranks(names: Sequence[str | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Names numbered in their order, -1 for none."""
    ranks = {name: i for i, name in enumerate(sorted({name for name in names if name is not None}))}
    return np.array([-1 if name is None else ranks[name] for name in names], dtype=np.int64)


def read_precursors(
    connection: sa.Connection, fleet: Fleet, window_ms: tuple[int, int], only: Sequence[str] | None = None
) -> Precursors:
    """Precursor events of known nodes (`only` some) with window_ms[0] <= time < window_ms[1], in order of time."""
    first, last = (from_ms(moment) for moment in window_ms)
    time, ident = schema.events.c.time, schema.events.c.id
    log = PrecursorLog()
    query = precursor_query(connection, first).where(time < last).order_by(time, ident)
    log.take(connection.execute(query if only is None else query.where(among(connection, schema.events.c.node, only))))
    return log.precursors(fleet, *window_ms)


def read_outage_log(connection: sa.Connection, fleet: Fleet, until_ms: int | None = None) -> OutageLog:
    """Outages that began before `until_ms`; an end at or after it is hidden, since nobody knew it then."""
    table = schema.outages
    query = sa.select(
        table.c.node,
        milliseconds(connection, table.c.start),
        milliseconds(connection, table.c.end),
        table.c.planned,
        table.c.cause,
    ).order_by(table.c.start, table.c.node)
    if until_ms is not None:
        query = query.where(table.c.start < from_ms(until_ms))
    index = fleet.index
    rows = [row for row in connection.execute(query) if row[0] in index]
    end_ms = np.array([FAR_FUTURE_MS if row[2] is None else row[2] for row in rows], dtype=np.int64)
    start_ms = np.array([row[1] for row in rows], dtype=np.int64)
    if until_ms is not None:
        end_ms = np.where(end_ms >= until_ms, FAR_FUTURE_MS, end_ms)
    planned = np.array([row[3] for row in rows], dtype=np.bool_)
    return OutageLog(
        node=np.array([index[row[0]] for row in rows], dtype=np.int64),
        start_ms=start_ms,
        # An end before its start is a clock's error: such an outage has no length.
        end_ms=np.maximum(end_ms, start_ms),
        planned=planned,
        driver=planned & np.array([row[4] == "driver" for row in rows], dtype=np.bool_),
    )


def read_telemetry(
    connection: sa.Connection, fleet: Fleet, first_hour: int, end_hour: int, only: Sequence[str] | None = None
) -> Telemetry:
    """Known nodes' roll-ups of the hours first_hour <= h < end_hour (hours since 1970): all have ended by end_hour.

    Of some nodes alone (`only`), the lit hours are theirs.
    """
    names = dict(fleet.index)
    found = read_rollups(connection, names, first_hour, end_hour, only)
    kept = np.flatnonzero(found.node < len(fleet.names))
    order = kept[np.lexsort((found.time_ms[kept], found.node[kept]))]
    time_ms = found.time_ms[order]
    return Telemetry(found.node[order], time_ms, found.values[order], lit_hours(time_ms))


def read_rollups(
    connection: sa.Connection, names: dict[str, int], first_hour: int, end_hour: int, only: Sequence[str] | None = None
) -> Telemetry:
    """Roll-ups of the hours first_hour <= h < end_hour, in any order; a node that `names` does not know is added."""
    table = schema.telemetry
    query = (
        sa.select(table.c.node, milliseconds(connection, table.c.time), *(table.c[name] for name in TELEMETRY_COLUMNS))
        .where(table.c.time >= from_ms(first_hour * HOUR_MS), table.c.time < from_ms(end_hour * HOUR_MS))
        .where(table.c.samples > 0)  # a source without GPUs says nothing of how many there are
    )
    if only is not None:
        query = query.where(among(connection, table.c.node, only))
    nodes, ends, cells = [_NOTHING], [_NOTHING], [np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)]
    for part in connection.execute(query.execution_options(yield_per=_FETCH)).partitions():
        told, times, *columns = zip(*part, strict=True)
        nodes.append(np.array([names.setdefault(name, len(names)) for name in told], dtype=np.int64))
        ends.append((np.array(times, dtype=np.int64) // HOUR_MS + 1) * HOUR_MS)
        cells.append(np.array(columns, dtype=np.float32).T)
    return Telemetry(np.concatenate(nodes), np.concatenate(ends), np.concatenate(cells), _NOTHING)


def lit_hours(end_ms: Ints) -> Ints:
    """The ends of the hours in which half as many nodes reported as in the best hour of the week up to then."""
    return lit_of(*np.unique(end_ms, return_counts=True))


def lit_of(ends: Ints, reporters: Ints) -> Ints:
    """The same of hours that are counted already: their ends, ascending, and how many nodes reported in each."""
    if not len(ends):
        return _NOTHING
    first = np.searchsorted(ends, ends - 7 * 24 * HOUR_MS, side="right")
    best = [reporters[start : i + 1].max() for i, start in enumerate(first)]
    lit: Ints = ends[2 * reporters >= np.array(best)]
    return lit


def read_jobs(connection: sa.Connection, fleet: Fleet, first_ms: int, last_ms: int) -> Jobs:
    """The attempts that held nodes between two moments; a host list that cannot be read holds none."""
    table = schema.jobs
    query = (
        sa.select(milliseconds(connection, table.c.start), milliseconds(connection, table.c.end), table.c.node_list)
        .where(table.c.start < from_ms(last_ms))
        .where(table.c.end.is_(None) | (table.c.end >= from_ms(first_ms)))
        .order_by(table.c.start, table.c.job_id, table.c.attempt)
    )
    index = fleet.index
    rows = Columns("qqqq")
    for attempt, (start, end, node_list) in enumerate(connection.execute(query)):
        for name in _hosts(node_list):
            if name in index:
                rows.add((index[name], attempt, start, FAR_FUTURE_MS if end is None else end))
    return Jobs(*rows.arrays())


def _hosts(node_list: str) -> list[str]:
    try:
        return expand(node_list)
    except RecordError:
        return []


def data_span(connection: sa.Connection) -> tuple[datetime, datetime] | None:
    """The first and last moment that the store has data of; None for an empty one.

    Events that bear no time of their own stand at the moment of their receipt, years after an old archive's
    last record: where any other event is, they do not count.
    """
    events, telemetry, outages = schema.events, schema.telemetry, schema.outages
    dated = sa.select(events.c.time).where(events.c.source != "training", events.c.time != events.c.received)
    found = [
        connection.scalar(dated.order_by(events.c.time).limit(1)),
        connection.scalar(dated.order_by(events.c.time.desc()).limit(1)),
    ]
    for column in (telemetry.c.time, outages.c.start, outages.c.end):
        for extreme in ("min", "max"):
            found.append(connection.scalar(sa.select(getattr(sa.func, extreme)(column, type_=schema.UtcTime()))))
    newest_hour = connection.scalar(sa.select(sa.func.max(telemetry.c.time, type_=schema.UtcTime())))
    if newest_hour is not None:
        found.append(newest_hour + timedelta(hours=1))  # a roll-up speaks of its whole hour
    known = [moment for moment in found if moment is not None]
    return (min(known), max(known)) if known else None
