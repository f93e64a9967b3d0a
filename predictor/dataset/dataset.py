"""As-of datasets: one row per node at risk and moment, one column per feature.

    frame = build(connection, [datetime(2025, 3, 1, tzinfo=UTC)])   # MultiIndex (time, node)

A `Dataset` is the same as plain arrays. Its rows are asked for one by one: of the rows to learn from, where hardly
one in a hundred is positive, a share of the negatives is enough, and only for these features are computed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, reduce
from typing import TypeAlias

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.dataset import matrix as makers
from predictor.dataset.executor import Executor, Progress
from predictor.dataset.labels import rows_at
from predictor.dataset.matrix import features_of, matrix
from predictor.features.device_measures import (
    Extent,
    FleetHours,
    choose,
    features_of_measures,
    most_frequent,
    suffixes_of,
)
from predictor.features.telemetry import COMPARED, JobHours, above_job, job_hours, joined
from predictor.history.arrays import (
    EVENT_WINDOW_MS,
    HOUR_MS,
    INCIDENT_GAP_MS,
    MEASURE_WINDOW_MS,
    TELEMETRY_WINDOW_H,
    Feature,
    FleetArrays,
    Grid,
    History,
    Ints,
    Jobs,
    OutageLog,
    Population,
    Rows,
    from_ms,
    to_ms,
)
from predictor.history.device_telemetry import read_device_telemetry, stride_of
from predictor.history.precursor_log import milliseconds
from predictor.history.store_reader import (
    data_span,
    lit_of,
    read_fleet,
    read_history,
    read_jobs,
    read_outage_log,
    read_population,
    read_precursors,
    read_telemetry,
)
from store.database.connections import open_database
from store.database.known_nodes import is_counted
from store.tables import schema

# A fleet in parts, each of whole leaves, so that features can be made by many workers with little memory each.
#
#     features, values = values_in_parts(connection, rows, run)     # the same bits as `matrix` of the whole
#
# A node's features need the telemetry and events of its leaf, which are in its part. What speaks of the whole fleet is
# small: the parent reads it once (`Shared`), and adds up what the parts tell of jobs that lie in several of them.
# Each worker reads its own part, over a connection of its own.

# Nodes of a part: fewer make readings, more make memory.
LEAST_NODES, MOST_NODES = 500, 1_000


@dataclass(frozen=True, slots=True)
class FleetContext:
    """What every worker needs of the whole fleet, between two moments."""

    url: str
    fleet: FleetArrays
    outages: OutageLog
    first_ms: int
    last_ms: int
    start_ms: int
    lit_ms: Ints
    stride_h: int


@dataclass(frozen=True, slots=True)
class FleetPart:
    """One part: its nodes, the rows asked of them, the jobs that held them; the measures to make features of, if known.

    The numbers of nodes and attempts are those of the whole fleet.
    """

    nodes: Ints
    rows: Rows
    jobs: Jobs
    measures: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartFeatures:
    """What a part gives: FIXED and the features of `measures` of its rows, and what the whole is made of."""

    values: Grid
    measures: tuple[str, ...]
    extents: dict[str, Extent]
    hours: JobHours
    fleet: dict[str, FleetHours]


def parts_of(fleet: FleetArrays, workers: int, apart: bool = False, most: int = MOST_NODES) -> list[Ints]:
    """The nodes of each part, by their positions: whole leaves, and nodes of no known leaf together.

    Args:
        apart: nodes of no known leaf need not be together, since nothing is told by which peers are compared.
        most: nodes of a part, as far as leaves allow.
    """
    nodes = len(fleet.names)
    leaf = (
        np.where(fleet.leaf < 0, fleet.leaf.max(initial=0) + 1 + np.arange(nodes), fleet.leaf) if apart else fleet.leaf
    )
    size = min(most, max(min(LEAST_NODES, most), -(-nodes // max(workers, 1))))
    count = -(-nodes // size)
    _, first, group, sizes = np.unique(leaf, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    begun = np.empty(len(order), dtype=np.int64)
    begun[order] = np.cumsum(sizes[order]) - sizes[order]
    part = (begun * count // max(nodes, 1))[group]
    return [np.flatnonzero(part == number) for number in np.unique(part)]


def can_share(connection: sa.Connection) -> bool:
    """Whether others can open the same database: one in memory is its own process's."""
    url = connection.engine.url
    return connection.dialect.name == "postgresql" or url.database not in (None, "", ":memory:")


def url_of(connection: sa.Connection) -> str:
    """The address of a database, by which others open it."""
    return connection.engine.url.render_as_string(hide_password=False)


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection of one's own."""
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def values_in_parts(
    connection: sa.Connection, rows: Rows, run: Executor, progress: Progress | None = None, most: int = MOST_NODES
) -> tuple[tuple[Feature, ...], Grid]:
    """The features of rows (at least one), as of one reading of the whole."""
    first_ms, last_ms = int(rows.time_ms.min()), int(rows.time_ms.max())
    shared, peers = _shared(connection, first_ms, last_ms)
    jobs = read_jobs(connection, shared.fleet, _first_hour(first_ms) * HOUR_MS, last_ms)
    tasks = [_task(nodes, rows, jobs) for nodes in parts_of(shared.fleet, run.workers, not peers, most)]
    tasks = [task for task in tasks if len(task.rows)]
    made = run.map(partial(part_features, shared), tasks, progress)
    extents = _all_extents(made)
    names = choose(extents)
    made = _with_measures(run, shared, tasks, made, names)
    features = makers.FIXED + features_of_measures(names)
    values = np.full((len(rows), len(features)), np.nan, dtype=np.float32)
    part_of = np.full(len(shared.fleet.names), -1, dtype=np.int64)
    for number, task in enumerate(tasks):
        part_of[task.nodes] = number
    part_of_row = part_of[rows.node]
    for number, one in enumerate(made):
        _place(values, np.flatnonzero(part_of_row == number), one, names)
    place = {feature.name: i for i, feature in enumerate(makers.FIXED)}
    own = {name: values[:, place[name]] for name in COMPARED}
    for name, column in above_job(own, jobs, rows, joined([one.hours for one in made])).items():
        values[:, place[name]] = column
    _put_above_fleet(features, values, rows, made)
    return features, values


def _put_above_fleet(features: Sequence[Feature], values: Grid, rows: Rows, made: Sequence[PartFeatures]) -> None:
    """What compares a node with the whole fleet, of which a part knows its own share."""
    place = {feature.name: i for i, feature in enumerate(features)}
    for name in {name for one in made for name in one.fleet}:
        if f"{name}.above_fleet" in place:
            told = FleetHours.joined([one.fleet[name] for one in made if name in one.fleet])
            own = values[:, place[f"{name}.mean_1d"]]
            values[:, place[f"{name}.above_fleet"]] = told.above(own, rows.time_ms)


def _first_hour(first_ms: int) -> int:
    return first_ms // HOUR_MS - TELEMETRY_WINDOW_H


def _shared(connection: sa.Connection, first_ms: int, last_ms: int) -> tuple[FleetContext, bool]:
    """What all need, and whether any telemetry tells what peers are compared by."""
    fleet, span = read_fleet(connection), data_span(connection)
    lit_ms, peers = _lit_hours(connection, _first_hour(first_ms), last_ms // HOUR_MS)
    shared = FleetContext(
        url=url_of(connection),
        fleet=fleet,
        outages=read_outage_log(connection, fleet, last_ms),
        first_ms=first_ms,
        last_ms=last_ms,
        start_ms=first_ms if span is None else min(to_ms(span[0]), first_ms),
        lit_ms=lit_ms,
        stride_h=stride_of(connection, first_ms - MEASURE_WINDOW_MS, last_ms // HOUR_MS * HOUR_MS),
    )
    return shared, peers


def _lit_hours(connection: sa.Connection, first_hour: int, end_hour: int) -> tuple[Ints, bool]:
    """The fleet's lit hours, counted by the database; and whether temperature or power were told at all."""
    table = schema.telemetry
    known = sa.select(schema.nodes.c.node).where(is_counted(schema.nodes.c.node))
    compared = sa.func.count(table.c.gpu_temp_mean_c) + sa.func.count(table.c.power_mean_w)
    query = (
        sa.select(milliseconds(connection, table.c.time), sa.func.count(), compared)
        .where(table.c.time >= from_ms(first_hour * HOUR_MS), table.c.time < from_ms(end_hour * HOUR_MS))
        .where(table.c.samples > 0, table.c.node.in_(known))
        .group_by(table.c.time)
    )
    counted = np.array(connection.execute(query).all(), dtype=np.int64).reshape(-1, 3)
    ends, hour = np.unique((counted[:, 0] // HOUR_MS + 1) * HOUR_MS, return_inverse=True)
    reporters = np.zeros(len(ends), dtype=np.int64)
    np.add.at(reporters, hour, counted[:, 1])
    return lit_of(ends, reporters), bool(counted[:, 2].any())


def _task(nodes: Ints, rows: Rows, jobs: Jobs) -> FleetPart:
    kept = np.isin(jobs.node, nodes)
    held = Jobs(jobs.node[kept], jobs.attempt[kept], jobs.start_ms[kept], jobs.end_ms[kept])
    return FleetPart(nodes, rows.only(np.isin(rows.node, nodes)), held)


def part_features(shared: FleetContext, task: FleetPart) -> PartFeatures:
    """The features of one part: a pure function of the store."""
    with connected(shared.url) as connection:
        history = read_part(connection, shared, task)
    extents = {name: Extent.of(series) for name, series in history.measures.items()}
    # Which measures differ is known of the whole alone: those that could be among them are taken.
    names = most_frequent(extents) if task.measures is None else task.measures
    told = {name: FleetHours.of(history.measures[name]) for name in names}
    return PartFeatures(makers.matrix(history, task.rows, names), tuple(names), extents, job_hours(history), told)


def read_part(connection: sa.Connection, shared: FleetContext, task: FleetPart) -> History:
    """The history of a part: all that features of its nodes need, but what its jobs' other nodes told."""
    fleet, first_ms, last_ms = shared.fleet, shared.first_ms, shared.last_ms
    only = {fleet.names[node]: int(node) for node in task.nodes}
    names = list(only)
    telemetry = read_telemetry(connection, fleet, _first_hour(first_ms), last_ms // HOUR_MS, names)
    until_ms = last_ms // HOUR_MS * HOUR_MS
    measured = read_device_telemetry(connection, only, first_ms - MEASURE_WINDOW_MS, until_ms, shared.stride_h)
    window_ms = (first_ms - EVENT_WINDOW_MS - INCIDENT_GAP_MS, last_ms)
    return History(
        fleet=fleet,
        precursors=read_precursors(connection, fleet, window_ms, names),
        outages=shared.outages,
        telemetry=replace(telemetry, lit_ms=shared.lit_ms),
        jobs=task.jobs,
        start_ms=shared.start_ms,
        measures=measured.series,
    )


def _all_extents(made: Iterable[PartFeatures]) -> dict[str, Extent]:
    """Those of the whole fleet."""
    found: dict[str, list[Extent]] = {}
    for one in made:
        for name, extent in one.extents.items():
            found.setdefault(name, []).append(extent)
    return {name: reduce(Extent.joined, extents) for name, extents in found.items()}


def _with_measures(
    run: Executor, shared: FleetContext, tasks: Sequence[FleetPart], made: list[PartFeatures], names: Sequence[str]
) -> list[PartFeatures]:
    """Parts that made features of other measures than the whole's are asked again: only where there are very many."""
    again = {}
    for number, one in enumerate(made):
        wanted = [name for name in names if name in one.extents]
        if not set(wanted) <= set(one.measures):
            again[number] = replace(tasks[number], measures=tuple(wanted))
    found = dict(zip(again, run.map(partial(part_features, shared), list(again.values())), strict=True))
    return [found.get(number, one) for number, one in enumerate(made)]


def _place(values: Grid, at: Ints, made: PartFeatures, names: Sequence[str]) -> None:
    """Put a part's columns where the whole has them."""
    fixed = len(makers.FIXED)
    values[at, :fixed] = made.values[:, :fixed]
    source, to = _columns(made.measures), _columns(names)
    for name in names:
        if name in source:
            values[at, to[name]] = made.values[:, source[name]]


def _columns(names: Sequence[str]) -> dict[str, slice]:
    """Where the columns of each measure lie."""
    found, first = {}, len(makers.FIXED)
    for name in names:
        found[name] = slice(first, first := first + len(suffixes_of(name)))
    return found


Reader: TypeAlias = Callable[[sa.Connection, datetime, datetime], History]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Features of rows: `values` is (rows, features), float32, NaN where unknown."""

    fleet: FleetArrays
    outages: OutageLog  # whole, the future included: for labels alone
    rows: Rows
    features: tuple[Feature, ...]
    values: NDArray[np.float32]

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in the order of the columns."""
        return tuple(feature.name for feature in self.features)

    def column(self, name: str) -> NDArray[np.float32]:
        """One feature of every row."""
        return self.values[:, self.names.index(name)]


def dataset(
    connection: sa.Connection,
    population: Population,
    rows: Rows,
    read: Reader = read_history,
    run: Executor | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The features of rows (ordered by time).

    Args:
        read: reads the history of what the rows are of.
        run: makes the features of nodes in parts, to the same bits; None, another `read`, or a database in memory
            make all at once.
    """
    if not len(rows):
        raise ValueError("a dataset of no rows")
    if run is not None and read is read_history and can_share(connection):
        return Dataset(population.fleet, population.outages, rows, *values_in_parts(connection, rows, run, progress))
    span = (from_ms(int(rows.time_ms.min())), from_ms(int(rows.time_ms.max())))
    return Dataset(population.fleet, population.outages, rows, *_values(connection, span, rows, read))


def build(connection: sa.Connection, moments: Sequence[datetime], nodes: Sequence[str] | None = None) -> pd.DataFrame:
    """Features of the nodes at risk at each moment, as a frame with a MultiIndex (time, node).

    Args:
        moments: aware; in any order.
        nodes: only these; neighbours still count where they are not among them.
    """
    ordered = sorted(set(moments))
    population = read_population(connection, 0)
    rows = rows_at(population, ordered)
    names = np.array(population.fleet.names, dtype=object)
    if nodes is not None:
        rows = rows.only(np.isin(names[rows.node], list(nodes)))
    features, values = _values(connection, ordered, rows)
    times = pd.to_datetime(rows.time_ms, unit="ms", utc=True)
    index = pd.MultiIndex.from_arrays([times, names[rows.node]], names=["time", "node"])
    return pd.DataFrame(values, index=index, columns=[feature.name for feature in features])


def _values(
    connection: sa.Connection, moments: Sequence[datetime], rows: Rows, read: Reader = read_history
) -> tuple[tuple[Feature, ...], NDArray[np.float32]]:
    """The features of rows and their values; of no moment there are none."""
    if not moments:
        return (), np.empty((0, 0), dtype=np.float32)
    history = read(connection, moments[0], moments[-1])
    return features_of(history), matrix(history, rows)
