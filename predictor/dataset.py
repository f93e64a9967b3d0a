"""As-of datasets: one row per (moment, node at risk), one column per feature.

    frame = build(connection, [datetime(2025, 3, 1, tzinfo=UTC)])   # MultiIndex (time, node)

`Cube` is the same on a dense grid, which training and backtests slice by time without copying frames about.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.features import NAMES, feature_grid
from predictor.history import HOUR_MS, Fleet, Ints, OutageLog, to_ms
from predictor.labels import at_risk
from predictor.reading import read_fleet, read_history, read_outage_log

# What is read at once: at most this many node-hours (40 bytes each) and this many moments.
_CHUNK_NODE_HOURS = 12_000_000
_CHUNK_MOMENTS = 256

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Cube:
    """Features of every moment and node: `values` is (moments, nodes, features), float32, NaN where unknown."""

    moments_ms: Ints
    fleet: Fleet
    outages: OutageLog  # whole, the future included: for labels alone
    values: NDArray[np.float32]


def build_cube(connection: sa.Connection, moments: Sequence[datetime], progress: Progress | None = None) -> Cube:
    """The features at moments (ascending), read from the store in steps.

    Args:
        progress: told how many moments are done, and of how many.
    """
    fleet = read_fleet(connection)
    values = np.empty((len(moments), len(fleet.names), len(NAMES)), dtype=np.float32)
    moments_ms: Ints = np.array([to_ms(moment) for moment in moments], dtype=np.int64)
    for part in _chunks(moments_ms, len(fleet.names)):
        history = read_history(connection, moments[part][0], moments[part][-1])
        values[part] = feature_grid(history, moments_ms[part])
        if progress is not None:
            progress(part.stop, len(moments))
    return Cube(moments_ms, fleet, read_outage_log(connection, fleet), values)


def _chunks(moments_ms: Ints, nodes: int) -> Iterator[slice]:
    """Runs of moments that are read together."""
    longest_ms = max(_CHUNK_NODE_HOURS // max(nodes, 1), 24) * HOUR_MS
    start = 0
    while start < len(moments_ms):
        end = int(np.searchsorted(moments_ms, moments_ms[start] + longest_ms, side="right"))
        end = min(end, start + _CHUNK_MOMENTS)
        yield slice(start, min(end, len(moments_ms)))
        start = end


def build(connection: sa.Connection, moments: Sequence[datetime], nodes: Sequence[str] | None = None) -> pd.DataFrame:
    """Features of the nodes at risk at each moment, as a frame with a MultiIndex (time, node).

    Args:
        moments: aware; in any order.
        nodes: only these; neighbours still count where they are not among them.
    """
    ordered = sorted(set(moments))
    cube = build_cube(connection, ordered)
    kept = at_risk(cube.fleet, cube.outages, cube.moments_ms)
    if nodes is not None:
        kept &= np.isin(np.array(cube.fleet.names, dtype=object), list(nodes))[None, :]
    row, column = np.nonzero(kept)
    times = pd.DatetimeIndex(ordered, tz="UTC")[row] if ordered else pd.DatetimeIndex([], tz="UTC")
    names = np.array(cube.fleet.names, dtype=object)[column]
    index = pd.MultiIndex.from_arrays([times, names], names=["time", "node"])
    return pd.DataFrame(cube.values[row, column], index=index, columns=list(NAMES))
