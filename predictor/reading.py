"""The store's tables into `History` arrays: plain column selects, no record objects.

A year of a large fleet is millions of rows; making a frozen dataclass of each would cost more than all the rest.
"""

from array import array
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.families import FAMILY_INDEX, family_of, is_serious
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
from predictor.told import Told
from store import schema
from store.event import NAMING, RecordError
from store.hostlist import expand
from store.read import read_nodes
from store.sources import NO_SIGN

_FETCH = 20_000
_NOTHING = np.empty(0, dtype=np.int64)
# Kinds that say nothing of a node's health, and are many.
_SILENT_KINDS = ("telemetry", "link_up", "port_discovered", "gpu_returned")


class Columns:
    """Rows gathered column by column in 8 bytes a figure: millions of tuples would take all memory."""

    def __init__(self, types: str) -> None:
        self._columns: list[array[Any]] = [array(kind) for kind in types]

    def add(self, row: tuple[float, ...]) -> None:
        """One row, a figure for each column."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The columns as NumPy arrays that share their memory."""
        found = self._columns
        return [np.frombuffer(column, column.typecode) if column else np.empty(0, column.typecode) for column in found]


def read_history(connection: sa.Connection, first: datetime, last: datetime, with_ids: bool = False) -> History:
    """All that features between two moments need: nothing at or after `last` is read.

    Args:
        with_ids: read the events' ids too (for reasons).
    """
    fleet = read_fleet(connection)
    first_ms, last_ms = to_ms(first), to_ms(last)
    span = data_span(connection)
    hours = (first_ms // HOUR_MS - TELEMETRY_WINDOW_H, last_ms // HOUR_MS)
    return History(
        fleet=fleet,
        precursors=read_precursors(
            connection, fleet, (first_ms - EVENT_WINDOW_MS - INCIDENT_GAP_MS, last_ms), with_ids
        ),
        outages=read_outage_log(connection, fleet, last_ms),
        telemetry=read_telemetry(connection, fleet, *hours),
        jobs=read_jobs(connection, fleet, hours[0] * HOUR_MS, last_ms),
        start_ms=first_ms if span is None else min(to_ms(span[0]), first_ms),
        # A row stands until the next one, however long that takes.
        measures=read_measures(connection, fleet.index, first_ms - MEASURE_WINDOW_MS, hours[1] * HOUR_MS),
    )


def read_fleet(connection: sa.Connection) -> Fleet:
    """Every known node."""
    nodes = read_nodes(connection)
    return Fleet(
        names=tuple(node.node for node in nodes),
        leaf=_groups([node.leaf for node in nodes]),
        rack=_groups([node.rack for node in nodes]),
        gpus=np.array([np.nan if node.gpus is None else node.gpus for node in nodes], dtype=np.float64),
        since_ms=_times([node.in_service_since for node in nodes], FAR_PAST_MS),
        until_ms=_times([node.in_service_until for node in nodes], FAR_FUTURE_MS),
        model=_ranks([node.gpu_model for node in nodes]),
    )


def _groups(names: Sequence[str | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: dict[str, int] = {}
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _ranks(names: Sequence[str | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Names numbered in their order, -1 for none."""
    ranks = {name: i for i, name in enumerate(sorted({name for name in names if name is not None}))}
    return np.array([-1 if name is None else ranks[name] for name in names], dtype=np.int64)


def _times(moments: Sequence[datetime | None], missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([missing if moment is None else to_ms(moment) for moment in moments], dtype=np.int64)


def _ms(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A time column as a plain number of milliseconds, computed by the database."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.func.floor(sa.func.extract("epoch", column) * 1000), sa.BigInteger)
    return sa.type_coerce(column, sa.BigInteger) // 1000


def read_precursors(connection: sa.Connection, fleet: Fleet, window_ms: tuple[int, int], with_ids: bool) -> Precursors:
    """Precursor events of known nodes with window_ms[0] <= time < window_ms[1], in order of time."""
    index = fleet.index
    meaning: dict[tuple[Any, ...], tuple[int, bool]] = {}
    devices: dict[tuple[str, str | None], int] = {}
    told = Told()
    rows = Columns("qqqdqb")
    ids: list[str] = []
    for row in connection.execute(_precursor_query(connection, window_ms, with_ids)):
        what = (row[2], row[3], row[4], row[5])
        if what not in meaning:
            meaning[what] = (FAMILY_INDEX.get(family_of(*what) or "", -1), is_serious(row[4], row[5]))
        family, serious = meaning[what]
        node = index.get(row[0])
        if node is None or (family < 0 and not serious):
            continue
        if told.already(node, family, row[9], row[1]):
            continue
        weight = 1.0 if row[6] is None else float(row[6])
        device = devices.setdefault((row[7], row[8]), len(devices))
        rows.add((node, row[1], family, weight, device, serious))
        if with_ids:
            ids.append(row[10])
    columns = rows.arrays()
    return Precursors(
        node=columns[0],
        time_ms=columns[1],
        family=columns[2],
        weight=columns[3],
        device=columns[4],
        serious=columns[5].astype(np.bool_),
        devices=tuple(_device_name(*told_of) for told_of in devices),
        ids=tuple(ids),
    )


def _precursor_query(connection: sa.Connection, window_ms: tuple[int, int], with_ids: bool) -> sa.Select[Any]:
    """Columns: node, time, kind, code, severity, cause, count, device, its name, source and, if asked for, id."""
    table = schema.events
    query = (
        sa.select(
            table.c.node,
            _ms(connection, table.c.time),
            table.c.kind,
            table.c.code,
            table.c.severity,
            table.c.cause,
            table.c.attributes["count"].as_float(),
            sa.cast(table.c.device, sa.Text),
            sa.func.coalesce(*(table.c.attributes[key].as_string() for key in NAMING)),
            table.c.source,
            *((table.c.id,) if with_ids else ()),
        )
        .where(table.c.time >= from_ms(window_ms[0]), table.c.time < from_ms(window_ms[1]))
        .where(table.c.node.is_not(None), table.c.source.not_in(sorted(NO_SIGN)), table.c.kind.not_in(_SILENT_KINDS))
        .order_by(table.c.time, table.c.id)
    )
    return query.execution_options(yield_per=_FETCH)


def _device_name(text: str, name: str | None) -> str:
    """How an operator calls a device: `GPU 3`, `port 7`, by its name `disk nvme0`; empty for the node itself."""
    device = orjson.loads(text)
    if not isinstance(device, dict) or device.get("type") in (None, "node"):
        return ""
    kind = {"gpu": "GPU", "hca": "HCA", "npu": "NPU", "nvswitch": "NVSwitch"}.get(device["type"], device["type"])
    for key in ("index", "pci", "uuid", "port"):
        if device.get(key) is not None:
            return f"{kind} {device[key]}"
    return f"{kind} {name}" if name else ""


def read_outage_log(connection: sa.Connection, fleet: Fleet, until_ms: int | None = None) -> OutageLog:
    """Outages that began before `until_ms`; an end at or after it is hidden, since nobody knew it then."""
    table = schema.outages
    query = sa.select(
        table.c.node, _ms(connection, table.c.start), _ms(connection, table.c.end), table.c.planned, table.c.cause
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


def read_telemetry(connection: sa.Connection, fleet: Fleet, first_hour: int, end_hour: int) -> Telemetry:
    """Roll-ups of the hours first_hour <= h < end_hour (hours since 1970); all of them have ended by end_hour."""
    table = schema.telemetry
    query = (
        sa.select(table.c.node, _ms(connection, table.c.time), *(table.c[name] for name in TELEMETRY_COLUMNS))
        .where(table.c.time >= from_ms(first_hour * HOUR_MS), table.c.time < from_ms(end_hour * HOUR_MS))
        .where(table.c.samples > 0)  # a source without GPUs says nothing of how many there are
    )
    index = fleet.index
    nodes, ends, cells = [_NOTHING], [_NOTHING], [np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)]
    for part in connection.execute(query.execution_options(yield_per=_FETCH)).partitions():
        names, times, *columns = zip(*part, strict=True)
        node = np.fromiter((index.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        known = node >= 0
        nodes.append(node[known])
        ends.append((np.array(times, dtype=np.int64)[known] // HOUR_MS + 1) * HOUR_MS)
        cells.append(np.array(columns, dtype=np.float32).T[known])
    node, end_ms = np.concatenate(nodes), np.concatenate(ends)
    order = np.lexsort((end_ms, node))
    return Telemetry(node[order], end_ms[order], np.concatenate(cells)[order], lit_hours(end_ms))


def lit_hours(end_ms: Ints) -> Ints:
    """The ends of the hours in which half as many nodes reported as in the best hour of the week up to then."""
    ends, reporters = np.unique(end_ms, return_counts=True)
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
        sa.select(_ms(connection, table.c.start), _ms(connection, table.c.end), table.c.node_list)
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
