"""The store's tables into `History` arrays: plain column selects, no record objects.

A year of a large fleet is millions of rows; making a frozen dataclass of each would cost more than all the rest.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import orjson
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.history.arrays import (
    EVENT_WINDOW_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    GAUGE_GAP_MS,
    HOUR_MS,
    MEASURE_WINDOW_MS,
    TELEMETRY_COLUMNS,
    TELEMETRY_WINDOW_H,
    FleetArrays,
    Grid,
    History,
    Ints,
    Jobs,
    OutageLog,
    Population,
    Precursors,
    Telemetry,
    from_ms,
    to_ms,
)
from predictor.history.device_telemetry import read_measures
from predictor.history.precursor_log import ColumnBuffer, PrecursorLog, milliseconds, precursor_query
from store.database.known_nodes import is_counted
from store.nodes.repairs import repair_place
from store.records.event import RecordError
from store.records.event_sources import WORK
from store.records.hostlist import expand
from store.tables import schema
from store.tables.bulk_rows import is_one_of

# How long before all others one node's data may begin: the pilot of a cluster.
ALONE = timedelta(days=7)
_FETCH = 1_000
_NOTHING = np.empty(0, dtype=np.int64)


def read_history(connection: sa.Connection, first: datetime, last: datetime) -> History:
    """All that features between two moments need: nothing at or after `last` is read."""
    fleet = read_fleet(connection)
    first_ms, last_ms = to_ms(first), to_ms(last)
    span = data_span(connection)
    hours = (first_ms // HOUR_MS - TELEMETRY_WINDOW_H, last_ms // HOUR_MS)
    return History(
        fleet=fleet,
        precursors=read_precursors(connection, fleet, (first_ms - EVENT_WINDOW_MS - GAUGE_GAP_MS, last_ms)),
        outages=read_outage_log(connection, fleet, last_ms),
        telemetry=read_telemetry(connection, fleet, *hours),
        jobs=read_jobs(connection, fleet, hours[0] * HOUR_MS, last_ms),
        start_ms=first_ms if span is None else min(to_ms(span[0]), first_ms),
        # A row stands until the next one, however long that takes.
        measures=read_measures(connection, fleet.index, first_ms - MEASURE_WINDOW_MS, hours[1] * HOUR_MS),
    )


def read_fleet(connection: sa.Connection) -> FleetArrays:
    """Every node that counts, by name."""
    table = schema.nodes
    since, until = (milliseconds(connection, table.c[name]) for name in ("in_service_since", "in_service_until"))
    query = sa.select(table.c.node, table.c.leaf, table.c.rack, table.c.gpus, table.c.gpu_model, since, until)
    rows = connection.execute(query.where(is_counted(table.c.node)).order_by(table.c.node)).all()
    names, leaf, rack, gpus, model, begun, ended = zip(*rows, strict=True) if rows else ((),) * 7
    return FleetArrays(
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
    connection: sa.Connection, fleet: FleetArrays, window_ms: tuple[int, int], only: Sequence[str] | None = None
) -> Precursors:
    """Precursor events of known nodes (`only` some) with window_ms[0] <= time < window_ms[1], in order of time."""
    first, last = (from_ms(moment) for moment in window_ms)
    time, ident = schema.events.c.time, schema.events.c.id
    log = PrecursorLog()
    query = precursor_query(connection, first).where(time < last).order_by(time, ident)
    if only is not None:
        query = query.where(is_one_of(connection, schema.events.c.node, only))
    with connection.execute(query) as rows:
        log.take(rows)
    return log.precursors(fleet, *window_ms)


def read_outage_log(connection: sa.Connection, fleet: FleetArrays, until_ms: int | None = None) -> OutageLog:
    """Outages that began before `until_ms`; an end at or after it is hidden, since nobody knew it then."""
    table = schema.outages
    query = sa.select(
        table.c.node,
        milliseconds(connection, table.c.start),
        milliseconds(connection, table.c.end),
        table.c.planned,
        table.c.cause,
        table.c.reason,
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
        repair=np.array([repair_place(row[5]) for row in rows], dtype=np.int64),
    )


def read_telemetry(
    connection: sa.Connection, fleet: FleetArrays, first_hour: int, end_hour: int, only: Sequence[str] | None = None
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
    kept = [
        table.c.time >= from_ms(first_hour * HOUR_MS),
        table.c.time < from_ms(end_hour * HOUR_MS),
        table.c.samples > 0,  # a source without GPUs says nothing of how many there are
    ]
    if only is not None:
        kept.append(is_one_of(connection, table.c.node, only))
    read = _packed_hours if connection.dialect.name == "postgresql" else _rolled_up
    nodes, ends, cells = [_NOTHING], [_NOTHING], [np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)]
    for reported, end_ms, columns in read(connection, kept):
        nodes.append(np.array([names.setdefault(name, len(names)) for name in reported], dtype=np.int64))
        ends.append(end_ms)
        cells.append(columns.T)
    return Telemetry(np.concatenate(nodes), np.concatenate(ends), np.concatenate(cells), _NOTHING)


# Roll-ups: the names of their nodes, the ends of their hours, and (TELEMETRY_COLUMNS, roll-ups).
_RolledUp: TypeAlias = tuple[Sequence[str], Ints, Grid]


def _rolled_up(connection: sa.Connection, kept: Sequence[sa.ColumnElement[bool]]) -> Iterator[_RolledUp]:
    """Roll-ups row by row."""
    table = schema.telemetry
    columns = (table.c[name] for name in TELEMETRY_COLUMNS)
    query = sa.select(table.c.node, milliseconds(connection, table.c.time), *columns).where(*kept)
    with connection.execute(query.execution_options(yield_per=_FETCH)) as rows:
        for part in rows.partitions():
            reported, times, *values = zip(*part, strict=True)
            end_ms = (np.array(times, dtype=np.int64) // HOUR_MS + 1) * HOUR_MS
            yield reported, end_ms, _single(np.array(values, dtype=np.float64))


# An array of doubles as PostgreSQL sends it: 20 bytes of head, then the length of each in front of it.
_HEAD_BYTES, _DOUBLE = 20, np.dtype([("bytes", ">i4"), ("value", ">f8")])
# Hours of a large fleet at once: a megabyte each for 12,500 nodes.
_FETCH_HOURS = 8


def _packed_hours(connection: sa.Connection, kept: Sequence[sa.ColumnElement[bool]]) -> Iterator[_RolledUp]:
    """Roll-ups hour by hour, each column of an hour in one piece: a tenth of the work of a million rows."""
    table = schema.telemetry
    unknown: sa.ColumnElement[float] = sa.literal_column("'NaN'::float8")
    doubles = (sa.func.coalesce(sa.cast(table.c[name], sa.Double), unknown) for name in TELEMETRY_COLUMNS)
    columns = (sa.func.array_send(sa.func.array_agg(column), type_=sa.LargeBinary) for column in doubles)
    names = sa.cast(sa.func.json_agg(table.c.node), sa.Text)
    query = sa.select(milliseconds(connection, table.c.time), names, *columns).where(*kept).group_by(table.c.time)
    with connection.execute(query.execution_options(yield_per=_FETCH_HOURS)) as rows:
        for began_ms, reported, *packed in rows:
            nodes = orjson.loads(reported)
            values = np.array([np.frombuffer(one, _DOUBLE, offset=_HEAD_BYTES)["value"] for one in packed])
            yield nodes, np.full(len(nodes), (began_ms // HOUR_MS + 1) * HOUR_MS, dtype=np.int64), _single(values)


def _single(values: NDArray[np.float64]) -> Grid:
    """Figures in single precision: what is too large for it is infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def lit_hours(end_ms: Ints) -> Ints:
    """The ends of the hours in which half as many nodes reported as in the best hour of the week up to then."""
    if not len(end_ms):
        return _NOTHING
    first = int(end_ms.min()) // HOUR_MS
    reporters = np.bincount(end_ms // HOUR_MS - first)
    hours = np.flatnonzero(reporters)
    return lit_of((hours + first) * HOUR_MS, reporters[hours])


def lit_of(ends: Ints, reporters: Ints) -> Ints:
    """The same of hours that are counted already: their ends, ascending, and how many nodes reported in each."""
    if not len(ends):
        return _NOTHING
    first = np.searchsorted(ends, ends - 7 * 24 * HOUR_MS, side="right")
    best = [reporters[start : i + 1].max() for i, start in enumerate(first)]
    lit: Ints = ends[2 * reporters >= np.array(best)]
    return lit


def read_jobs(connection: sa.Connection, fleet: FleetArrays, first_ms: int, last_ms: int) -> Jobs:
    """The attempts that held nodes between two moments; a host list that cannot be read holds none."""
    table = schema.jobs
    query = (
        sa.select(milliseconds(connection, table.c.start), milliseconds(connection, table.c.end), table.c.node_list)
        .where(table.c.start < from_ms(last_ms))
        .where(table.c.end.is_(None) | (table.c.end >= from_ms(first_ms)))
        .order_by(table.c.start, table.c.job_id, table.c.attempt)
    )
    index = fleet.index
    rows = ColumnBuffer("qqqq")
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
    last record: where any other event is, they do not count. What one node alone tells of long ago does not, either.
    """
    events, telemetry, outages = schema.events, schema.telemetry, schema.outages
    own_time = (events.c.source != "training", events.c.time != events.c.received)
    # What a program says without a node is anybody's word.
    said = events.c.node.is_not(None) | events.c.source.not_in(WORK)
    dated = sa.select(events.c.time).where(*own_time)
    begun = _begun(
        [
            *_earliest(connection, events.c.time, *own_time, said),
            *_earliest(connection, telemetry.c.time),
            *_earliest(connection, outages.c.start),
        ]
    )
    found = [begun, connection.scalar(dated.order_by(events.c.time.desc()).limit(1))]
    for column in (outages.c.start, outages.c.end):
        found.append(connection.scalar(sa.select(sa.func.max(column, type_=schema.UtcTime()))))
    newest_hour = connection.scalar(sa.select(sa.func.max(telemetry.c.time, type_=schema.UtcTime())))
    if newest_hour is not None:
        found.append(newest_hour + timedelta(hours=1))  # a roll-up speaks of its whole hour
    known = [moment for moment in found if moment is not None]
    return (begun or min(known), max(known)) if known else None


def _earliest(
    connection: sa.Connection, column: sa.Column[Any], *where: sa.ColumnElement[bool]
) -> list[tuple[datetime, str | None]]:
    """The first moment of a table's column with its node, and the first of another node."""
    node = column.table.c.node
    query = sa.select(column, node).where(*where).order_by(column).limit(1)
    first = connection.execute(query).one_or_none()
    if first is None:
        return []
    other = connection.execute(query.where(node.is_distinct_from(first[1]))).one_or_none()
    return [(row[0], row[1]) for row in (first, other) if row is not None]


def _begun(told: Sequence[tuple[datetime, str | None]]) -> datetime | None:
    """The first moment that a second node bears out, and ALONE before that at the most.

    A node's clock, or its word, of 1970 would make all others' outages those of half a century.
    """
    if not told:
        return None
    first, alone = min(told, key=lambda one: one[0])
    others = [moment for moment, node in told if node != alone]
    return max(first, min(others) - ALONE) if others else first


def read_population(connection: sa.Connection, end_ms: int) -> Population:
    """Every node, and every outage, the future included."""
    fleet = read_fleet(connection)
    return Population(fleet, read_outage_log(connection, fleet), end_ms)
