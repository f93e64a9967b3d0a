"""The arithmetic of roll-ups and of vanished GPUs, over sorted columns.

Samples come sorted by node, GPU and time. A group of rows is given by the positions at which groups begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from store.telemetry import ROLLUP_S

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

HOUR_US = ROLLUP_S * 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RollupTable:
    """Roll-ups as columns, sorted by node and hour; `values` bears the names of `store.telemetry.Rollup`."""

    node: Ints
    time_us: Ints
    samples: Ints
    gpus_seen: Ints
    values: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class GpuGaps:
    """Which GPUs were absent while their node reported, hour by hour.

    `key`, `missing_us`, `returned_us`: gaps within the file (`returned_us` -1: it had not come back at its end).
    `first_us`: of each key of the file, its first sample; `late`: its node reported at least an hour before that.
    `node`, `node_first_us`: when each node first could have told that a GPU was missing.
    """

    key: Ints
    missing_us: Ints
    returned_us: Ints
    first_us: Ints
    late: Flags
    node: Ints
    node_first_us: Ints


def moment_of(time_us: int) -> datetime:
    """The aware UTC moment of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=time_us)


def roll_up(node: Ints, gpu: Ints, time_us: Ints, gauges: Mapping[str, Floats]) -> RollupTable:
    """One row a node and hour. A mean is over samples, the spread between the means of its hottest and coolest GPU."""
    hour = time_us // HOUR_US
    order = np.lexsort((gpu, hour, node))
    node, gpu, hour = node[order], gpu[order], hour[order]
    columns = {name: column[order] for name, column in gauges.items()}
    starts = group_starts(node, hour)
    by_gpu = group_starts(node, hour, gpu)
    gpu_starts = np.searchsorted(by_gpu, starts)
    return RollupTable(
        node=node[starts],
        time_us=hour[starts] * HOUR_US,
        samples=group_sizes(starts, len(node)),
        gpus_seen=group_sizes(gpu_starts, len(by_gpu)),
        values=_values(columns, starts, by_gpu, gpu_starts) if len(node) else {},
    )


def _values(columns: Mapping[str, Floats], starts: Ints, by_gpu: Ints, gpu_starts: Ints) -> dict[str, Floats]:
    found = {}
    if "gpu_temp_c" in columns:
        temp = columns["gpu_temp_c"]
        means = group_means(temp, by_gpu)
        found["gpu_temp_mean_c"] = group_means(temp, starts)
        found["gpu_temp_max_c"] = np.fmax.reduceat(temp, starts)
        found["gpu_temp_spread_c"] = np.fmax.reduceat(means, gpu_starts) - np.fmin.reduceat(means, gpu_starts)
    if "memory_temp_c" in columns:
        found["memory_temp_max_c"] = np.fmax.reduceat(columns["memory_temp_c"], starts)
    if "power_w" in columns:
        found["power_mean_w"] = group_means(columns["power_w"], starts)
        found["power_max_w"] = np.fmax.reduceat(columns["power_w"], starts)
    if "gpu_util_ratio" in columns:
        found["gpu_util_mean"] = group_means(columns["gpu_util_ratio"], starts)
    if "sm_clock_mhz" in columns:
        found["sm_clock_min_mhz"] = np.fmin.reduceat(columns["sm_clock_mhz"], starts)
    return found


def group_starts(*columns: Ints) -> Ints:
    """Where groups of equal neighbours begin."""
    if not len(columns[0]):
        return np.empty(0, dtype=np.int64)
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    begins: Ints = np.flatnonzero(changed)
    return begins


def group_sizes(starts: Ints, total: int) -> Ints:
    sizes: Ints = np.diff(np.r_[starts, total])
    return sizes


def group_means(values: Floats, starts: Ints) -> Floats:
    """The mean of what is known; NaN where nothing is."""
    known = ~np.isnan(values)
    total = np.add.reduceat(np.where(known, values, 0.0), starts)
    count = np.add.reduceat(known.astype(np.int64), starts)
    mean: Floats = np.divide(total, count, out=np.full(len(starts), np.nan), where=count > 0)
    return mean


def find_gaps(keys: Ints, starts: Ints, time_us: Ints, slots: int) -> GpuGaps:
    """The gaps of every GPU, against the hours in which its node reported.

    Args:
        keys: node * slots + gpu, sorted; `starts` is where each begins in `time_us` (sorted within a key).
        slots: the factor of a key.
    """
    key = np.repeat(keys, group_sizes(starts, len(time_us)))
    hour = time_us // HOUR_US
    first = group_starts(key, hour)  # one entry a key and hour in which it was seen
    seen_key, seen_hour, seen_us = key[first], hour[first], time_us[first]
    node_hour, node_last_us, place = _node_hours(key // slots, hour, time_us, seen_key // slots, seen_hour)
    node_of_hour = node_hour[0]
    is_first = np.r_[True, seen_key[1:] != seen_key[:-1]] if len(seen_key) else np.empty(0, dtype=bool)
    is_last = np.r_[seen_key[1:] != seen_key[:-1], True] if len(seen_key) else np.empty(0, dtype=bool)
    begins = group_starts(node_of_hour)
    ends = np.r_[begins[1:], len(node_of_hour)] - 1
    owner = np.searchsorted(node_of_hour[begins], seen_key // slots)
    inner = np.flatnonzero(~is_first & (place != np.r_[-2, place[:-1]] + 1)) if len(place) else place
    tail = np.flatnonzero(is_last & (place < ends[owner])) if len(place) else place
    return GpuGaps(
        key=np.r_[seen_key[inner], seen_key[tail]],
        missing_us=np.r_[node_last_us[place[inner - 1] + 1], node_last_us[place[tail] + 1]],
        returned_us=np.r_[seen_us[inner], np.full(len(tail), -1, dtype=np.int64)],
        first_us=seen_us[is_first],
        late=(place > begins[owner])[is_first] if len(place) else np.empty(0, dtype=bool),
        node=node_of_hour[begins],
        node_first_us=node_last_us[begins],
    )


def _node_hours(
    node: Ints, hour: Ints, time_us: Ints, seen_node: Ints, seen_hour: Ints
) -> tuple[tuple[Ints, Ints], Ints, Ints]:
    """The hours in which each node reported, the last sample of each, and the place of each (node, hour) seen."""
    order = np.lexsort((time_us, hour, node))
    node, hour, time_us = node[order], hour[order], time_us[order]
    starts = group_starts(node, hour)
    ends = np.r_[starts[1:], len(node)] - 1 if len(node) else starts
    low = hour.min() if len(hour) else 0
    span = (hour.max() - low + 1) if len(hour) else 1
    flat = node[starts] * span + (hour[starts] - low)
    place = np.searchsorted(flat, seen_node * span + (seen_hour - low))
    return (node[starts], hour[starts]), time_us[ends], place
