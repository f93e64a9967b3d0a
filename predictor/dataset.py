"""As-of datasets: one row per node at risk and moment, one column per feature.

    frame = build(connection, [datetime(2025, 3, 1, tzinfo=UTC)])   # MultiIndex (time, node)

A `Dataset` is the same as plain arrays. Its rows are asked for one by one: of the rows to learn from, where hardly
one in a hundred is positive, a share of the negatives is enough, and only for these features are computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.executor import Executor, Progress
from predictor.feature import Feature
from predictor.features import features_of, matrix
from predictor.history import Fleet, History, OutageLog, from_ms
from predictor.labels import Labels, at_risk, label
from predictor.parts import can_share, values_in_parts
from predictor.reading import read_fleet, read_history, read_outage_log
from predictor.rows import Rows, every

# Rows to learn from: as many negatives as this are enough for every fold (a fit draws at most 20,000 a booster).
MOST_NEGATIVES = 100_000
_SEED = 11

Reader: TypeAlias = Callable[[sa.Connection, datetime, datetime], History]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Features of rows: `values` is (rows, features), float32, NaN where unknown."""

    fleet: Fleet
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


@dataclass(frozen=True, slots=True)
class Population:
    """Who can fail, and when they did: what rows are chosen by, before any feature is computed."""

    fleet: Fleet
    outages: OutageLog
    end_ms: int  # the last moment that the data speak of


def read_population(connection: sa.Connection, end_ms: int) -> Population:
    """Every node, and every outage, the future included."""
    fleet = read_fleet(connection)
    return Population(fleet, read_outage_log(connection, fleet), end_ms)


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows to learn from: all positives and a share of the negatives, so that a model must take the share back."""

    rows: Rows
    labels: Labels
    negative_share: float


def sample(population: Population, moments: Sequence[datetime], horizon_h: int, most: int = MOST_NEGATIVES) -> Sample:
    """The rows of moments whose answer is known: every positive, at most `most` negatives, drawn by a fixed seed."""
    rows = every(len(population.fleet.names), moments)
    labels = label(population.fleet, population.outages, rows, horizon_h, population.end_ms)
    negatives = np.flatnonzero(labels.known & ~labels.positive)
    drawn = negatives
    if len(negatives) > most:
        drawn = np.random.default_rng(_SEED).choice(negatives, size=most, replace=False)
    kept = np.sort(np.concatenate([np.flatnonzero(labels.positive), drawn]))
    share = len(drawn) / len(negatives) if len(negatives) else 1.0
    return Sample(rows.only(kept), labels.only(kept), share)


def rows_at(population: Population, moments: Sequence[datetime]) -> Rows:
    """Every row of some moments whose node is at risk."""
    rows = every(len(population.fleet.names), moments)
    return rows.only(at_risk(population.fleet, population.outages, rows))


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
