"""The store's tables into `History` arrays: plain column selects, no record objects.

A year of a large fleet is millions of rows; making a frozen dataclass of each would cost more than all the rest.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import psycopg
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
from store.tables.bulk_rows import is_one_of, sqlalchemy_error

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
    of = _Hours(from_ms(first_hour * HOUR_MS), from_ms(end_hour * HOUR_MS), only)
    read = _packed_hours if connection.dialect.name == "postgresql" else _rolled_up
    nodes, began, cells = [_NOTHING], [_NOTHING], [np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)]
    for reported, began_ms, values in read(connection, names, of):
        nodes.append(reported)
        began.append(began_ms)
        with np.errstate(over="ignore"):  # what is too large for single precision is infinite
            cells.append(values.astype(np.float32))
    end_ms = (np.concatenate(began) // HOUR_MS + 1) * HOUR_MS
    return Telemetry(np.concatenate(nodes), end_ms, np.concatenate(cells), _NOTHING)


class _Hours(NamedTuple):
    """Which roll-ups: first <= time < end, of some nodes or of all."""

    first: datetime
    end: datetime
    only: Sequence[str] | None


# Roll-ups: the numbers of their nodes, the beginnings of their hours, and (roll-ups, TELEMETRY_COLUMNS).
_RolledUp: TypeAlias = tuple[Ints, Ints, NDArray[np.float64]]


def _rolled_up(connection: sa.Connection, names: dict[str, int], of: _Hours) -> Iterator[_RolledUp]:
    """Roll-ups row by row."""
    table = schema.telemetry
    columns = (table.c[name] for name in TELEMETRY_COLUMNS)
    query = (
        sa.select(table.c.node, milliseconds(connection, table.c.time), *columns)
        .where(table.c.time >= of.first, table.c.time < of.end)
        .where(table.c.samples > 0)  # a source without GPUs says nothing of how many there are
    )
    if of.only is not None:
        query = query.where(is_one_of(connection, table.c.node, of.only))
    with connection.execute(query.execution_options(yield_per=_FETCH)) as rows:
        for part in rows.partitions():
            reported, began_ms, *values = zip(*part, strict=True)
            nodes = np.array([names.setdefault(name, len(names)) for name in reported], dtype=np.int64)
            yield nodes, np.array(began_ms, dtype=np.int64), np.array(values, dtype=np.float64).T


# Hours of a large fleet at once: a megabyte each for 12,500 nodes.
_FETCH_HOURS = 8
# A roll-up as PostgreSQL sends it: a hash of its node's name, and its figures.
_SENT = np.dtype([("node", ">i8"), ("figures", ">f8", len(TELEMETRY_COLUMNS))])
_DOUBLES = [f"coalesce({name}::float8, 'NaN')" for name in TELEMETRY_COLUMNS]
# A point is two of them: half as many calls as of float8send.
_FIGURES = " || ".join(f"point_send(point({x}, {y}))" for x, y in zip(_DOUBLES[::2], _DOUBLES[1::2], strict=True))
_OF_HOURS = """FROM telemetry WHERE time >= %(first)s AND time < %(end)s AND samples > 0
    AND (%(only)s::text[] IS NULL OR node = ANY(%(only)s))"""
_PACKED = f"""SELECT time, string_agg(int8send(hashtextextended(node, %(seed)s)) || {_FIGURES}, '')
    {_OF_HOURS} GROUP BY time"""
_NAMED = f"SELECT DISTINCT node {_OF_HOURS} AND hashtextextended(node, %(seed)s) = ANY(%(hashes)s)"
_HASHED = "SELECT hashtextextended(name, %s) FROM unnest(%s::text[]) WITH ORDINALITY AS t(name, n) ORDER BY n"


def _packed_hours(connection: sa.Connection, names: dict[str, int], of: _Hours) -> Iterator[_RolledUp]:
    """Roll-ups hour by hour, each hour in one piece and with hashes for names: a tenth of the work of a million rows.

    Nobody knows the hashes' seed before: of 64 bits, two of different names are equal once in 10^11 readings.
    """
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    only = None if of.only is None else list(of.only)
    asked: dict[str, Any] = {"first": of.first, "end": of.end, "only": only, "seed": secrets.randbits(62)}
    try:
        known = _KnownHashes(driver, asked["seed"], names)
        with psycopg.ServerCursor(driver, "rollups") as cursor:
            cursor.execute(_PACKED, asked, binary=True)
            while hours := cursor.fetchmany(_FETCH_HOURS):
                for time, packed in hours:
                    sent = np.frombuffer(packed, _SENT)
                    hashes = sent["node"].astype(np.int64)
                    nodes = known.numbers(hashes)
                    if (strange := nodes < 0).any():
                        hour = {"first": time, "end": time + timedelta(hours=1), "hashes": hashes[strange].tolist()}
                        known.add(name for (name,) in driver.execute(_NAMED, {**asked, **hour}))
                        nodes = known.numbers(hashes)
                    there = nodes >= 0  # a roll-up that is gone meanwhile has no name
                    yield nodes[there], np.full(there.sum(), to_ms(time)), sent["figures"][there]
    except psycopg.Error as error:
        raise sqlalchemy_error(_PACKED, error) from error


class _KnownHashes:
    """The numbers of nodes by PostgreSQL's hashes of their names."""

    def __init__(self, driver: psycopg.Connection[Any], seed: int, names: dict[str, int]) -> None:
        self._driver, self._seed, self._names = driver, seed, names
        self._number()

    def add(self, names: Iterable[str]) -> None:
        """Number further names."""
        for name in names:
            self._names.setdefault(name, len(self._names))
        self._number()

    def numbers(self, hashes: Ints) -> Ints:
        """The number of each; -1 for an unknown one."""
        if not len(self._hashes):
            return np.full(len(hashes), -1)
        place = np.searchsorted(self._hashes, hashes).clip(max=len(self._hashes) - 1)
        return np.where(self._hashes[place] == hashes, self._of[place], -1)

    def _number(self) -> None:
        rows = self._driver.execute(_HASHED, [self._seed, list(self._names)]).fetchall()
        hashes = np.array(rows, dtype=np.int64).reshape(-1)
        order = np.argsort(hashes)
        self._hashes, self._of = hashes[order], np.array(list(self._names.values()), dtype=np.int64)[order]


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
    Nor does what is yet to come: planned work, an end or a sample of 2062 by a clock that was wrong.
    """
    events, telemetry, outages = schema.events, schema.telemetry, schema.outages
    latest = datetime.now(UTC) + timedelta(days=1)  # a clock may be ahead a little
    own_time = (events.c.source != "training", events.c.time != events.c.received)
    # What a program says without a node is anybody's word.
    said = events.c.node.is_not(None) | events.c.source.not_in(WORK)
    dated = sa.select(events.c.time).where(*own_time)
    begun = _begun(
        [
            *_earliest(connection, events.c.time, *own_time, said),
            *_earliest(connection, telemetry.c.time, telemetry.c.time <= latest),
            *_earliest(connection, outages.c.start, outages.c.start <= latest),
        ]
    )
    found = [begun, connection.scalar(dated.order_by(events.c.time.desc()).limit(1))]
    found += [_newest(connection, column, latest) for column in (outages.c.start, outages.c.end)]
    newest_hour = _newest(connection, telemetry.c.time, latest)
    if newest_hour is not None:
        found.append(newest_hour + timedelta(hours=1))  # a roll-up speaks of its whole hour
    known = [moment for moment in found if moment is not None]
    return (begun or min(known), max(known)) if known else None


def _newest(connection: sa.Connection, column: sa.Column[Any], latest: datetime) -> datetime | None:
    newest: datetime | None = connection.scalar(
        sa.select(sa.func.max(column, type_=schema.UtcTime())).where(column <= latest)
    )
    return newest


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
