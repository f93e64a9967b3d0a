"""Roll-ups, measures of single devices and vanished GPUs of a telemetry file, by arithmetic over sorted columns.

    {"gpu:0": {"smart_5": [0, 8, 2.5, 8, 1], "fan_speed_ratio": [0.4, 0.4, 0.4, 0.4, 0]}, "gpu:1": ...}

Of each GPU and measure within an hour: min, max, mean, last, and how often a value differed from the one before it,
also from the last one of the hour or of the file before. What nobody measured is absent. Numbers bear six digits,
whole numbers all of theirs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import orjson

from store.records.telemetry import COUNTER_EVENTS, COUNTERS, MAX_DEVICES, MAX_MEASURES, ROLLUP_S

# Samples come sorted by node, GPU and time. A group of rows is given by the position at which it begins.
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

HOUR_US = ROLLUP_S * 1_000_000
# The most GPUs of one node that a table can name; a key is node * GPU_SLOTS + gpu.
GPU_SLOTS = 1024
COUNTER_FIELDS = {name: field for field, name in COUNTERS.items() if name in COUNTER_EVENTS}
COUNTER_NAMES = tuple(COUNTER_FIELDS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RollupTable:
    """Roll-ups as columns, sorted by node and hour; `values` bears the names of `store.records.telemetry.Rollup`."""

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


# Hours of GPUs times measures of one file: 320 MB of sums, and JSON of 200 MB, are what a worker may need for them.
MAX_CELLS = 8_000_000
# Hours of GPUs made lists of at once: lists take ten times the room of arrays.
_AT_ONCE = 20_000
# Whole numbers up to here keep every digit, and a power of ten up to here is exact.
_EXACT = 1e15
_MAX_PLACES = 22


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """JSON of each roll-up of a file, in their order (None: nothing is told), and what joins it to the next file.

    `first` and `last` are the first and the last value of each GPU and measure, `first_row` the roll-up of the first;
    shape (keys of the file, names). NaN: it has none.
    """

    names: tuple[str, ...]
    devices: tuple[str | None, ...]
    gpu: Ints
    first: Floats
    first_row: Ints
    last: Floats
    left_out: tuple[str, ...]  # a sentence each: columns and GPUs beyond what a roll-up may hold


@dataclass(frozen=True, slots=True)
class _MeasureHours:
    """Rows sorted by key and time, and where their hours lie. `hour_of_row` numbers the hours of GPUs."""

    key: Ints
    starts: Ints
    hour_of_row: Ints
    rollup_of_hour: Ints


@dataclass(frozen=True, slots=True)
class _MeasureSums:
    """A measure over each hour of each GPU; NaN where nobody measured it."""

    low: Floats
    high: Floats
    mean: Floats
    last: Floats
    changes: Ints


@dataclass(frozen=True, slots=True)
class CounterRises:
    """Increases of counters: which counter (index into COUNTER_NAMES), which GPU, when, by how much."""

    counter: Ints
    key: Ints
    time_us: Ints
    count: Floats


@dataclass(frozen=True, slots=True)
class CounterEdges:
    """Of each GPU of a file and each counter: the first value with its time, and the last. Shape (keys, counters)."""

    first: Floats
    first_us: Ints
    last: Floats


@dataclass(frozen=True, slots=True)
class TelemetryFile:
    """What a file says, small enough to hand from a worker to the writer. Keys are node * GPU_SLOTS + gpu, sorted."""

    nodes: tuple[str, ...]
    rows: int
    skipped: int
    rollups: RollupTable
    keys: Ints
    rises: CounterRises
    edges: CounterEdges
    gaps: GpuGaps
    devices: DeviceTable | None = None
    left_out: tuple[str, ...] = ()  # a sentence each: columns that had to be left out


def devices_of(key: Ints, time_us: Ints, slots: int, columns: Mapping[str, Callable[[], Floats]]) -> DeviceTable | None:
    """The table of a file's samples; None where it has no column of this kind, or no row.

    Args:
        key: node * slots + gpu of each row, in order; `time_us` is in order within a key.
        columns: reads each measure in the order of the rows, when it is wanted: together they may be too large.
    """
    if not len(key) or not columns:
        return None
    hour = time_us // HOUR_US
    starts = group_starts(key, hour)
    order = np.lexsort((key[starts], hour[starts], key[starts] // slots))  # as roll-ups are, then by GPU
    begins = group_starts((key[starts] // slots)[order], hour[starts][order])
    rollup_of_hour = np.empty(len(starts), dtype=np.int64)
    rollup_of_hour[order] = np.repeat(np.arange(len(begins)), group_sizes(begins, len(order)))
    hour_of_row = np.repeat(np.arange(len(starts)), group_sizes(starts, len(key)))
    hours = _MeasureHours(key, starts, hour_of_row, rollup_of_hour)
    keys = key[group_starts(key)]
    names, left_out = _within_limits(tuple(columns), keys % slots, len(starts))
    sums: list[_MeasureSums] = []
    shape = (len(keys), len(names))
    first, first_row, last = np.empty(shape), np.empty(shape, dtype=np.int64), np.empty(shape)
    for number, name in enumerate(names):
        values = np.where(key % slots < MAX_DEVICES, columns[name](), np.nan)
        sums.append(_summed(values, hours))
        first[:, number], first_row[:, number], last[:, number] = _edges(values, hours, keys)
    texts = list(_texts(names, sums, order, (key % slots)[starts]))
    spans = zip(begins.tolist(), [*begins[1:].tolist(), len(texts)], strict=True)
    devices = tuple(_joined(texts[begin:end]) for begin, end in spans)
    return DeviceTable(names, devices, keys % slots, first, first_row, last, left_out)


def _within_limits(names: tuple[str, ...], gpu: Ints, hours: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The measures that are kept, and a sentence of each one, and of each GPU, that is not."""
    told = min(int(gpu.max()) + 1, MAX_DEVICES)
    of_node, of_file = MAX_MEASURES // told, MAX_CELLS // hours
    remedy = (
        f"a node's hour holds {MAX_MEASURES} measures, {of_node} of each of {told} GPUs: leave columns out"
        if of_node <= of_file
        else f"{hours} hours of GPUs have room for {of_file} measures in one file: split it by time"
    )
    most = min(of_node, of_file)
    beyond = np.unique(gpu[gpu >= MAX_DEVICES]).tolist()
    return names[:most], (
        *(f"column {name!r}: {remedy}" for name in names[most:]),
        *(f"the own columns of gpu {number}: devices up to {MAX_DEVICES - 1} are told of" for number in beyond),
    )


def _summed(values: Floats, hours: _MeasureHours) -> _MeasureSums:
    known = np.flatnonzero(~np.isnan(values))
    low, high = np.fmin.reduceat(values, hours.starts), np.fmax.reduceat(values, hours.starts)
    mean = np.clip(group_means(values, hours.starts), low, high)  # the sum of many rounds
    last = np.full(len(low), np.nan)
    last[hours.hour_of_row[known]] = values[known]  # in order of time: the last one stays
    differs = (values[known][1:] != values[known][:-1]) & (hours.key[known][1:] == hours.key[known][:-1])
    changes = np.bincount(hours.hour_of_row[known][1:][differs], minlength=len(low))
    return _MeasureSums(low, high, mean, last, changes)


def _edges(values: Floats, hours: _MeasureHours, keys: Ints) -> tuple[Floats, Ints, Floats]:
    """Of each key the first value, its roll-up, and the last value."""
    known = np.flatnonzero(~np.isnan(values))
    begins = group_starts(hours.key[known])
    owner = np.searchsorted(keys, hours.key[known][begins])
    first, last = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    first_row = np.full(len(keys), -1, dtype=np.int64)
    first[owner] = values[known[begins]]
    last[owner] = values[known[np.r_[begins[1:], len(known)] - 1]] if len(known) else np.nan
    first_row[owner] = hours.rollup_of_hour[hours.hour_of_row[known[begins]]]
    return first, first_row, last


def _texts(names: tuple[str, ...], sums: Sequence[_MeasureSums], order: Ints, gpu: Ints) -> Iterator[str]:
    """`"gpu:3":{...}` of each hour of each GPU, in this order; empty where it has no measure."""
    for begin in range(0, len(order), _AT_ONCE):
        part = order[begin : begin + _AT_ONCE]
        columns = [_lists(one, part) for one in sums]
        for number, values in zip(gpu[part].tolist(), zip(*columns, strict=True), strict=False):
            told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            yield f'"gpu:{number}":{orjson.dumps(told).decode()}' if told else ""


def _lists(sums: _MeasureSums, part: Ints) -> list[tuple[float, ...] | None]:
    columns = (rounded(column[part]) for column in (sums.low, sums.high, sums.mean, sums.last))
    rows: list[tuple[float, ...] | None] = list(zip(*columns, sums.changes[part].tolist(), strict=True))
    for absent in np.flatnonzero(np.isnan(sums.last[part])).tolist():
        rows[absent] = None
    return rows


def _joined(texts: Sequence[str]) -> str | None:
    inner = ",".join(filter(None, texts))
    return f"{{{inner}}}" if inner else None


def rounded(values: Floats) -> list[float]:
    """Six digits, and a whole number all of its own, as the sidecar rounds; NaN is 0."""
    known = np.nan_to_num(values)
    whole = (known == np.rint(known)) & (np.abs(known) < _EXACT)
    if whole.all():
        return known.astype(np.int64).tolist()  # type: ignore[no-any-return]  # numpy's word for a list
    with np.errstate(divide="ignore"):
        digits = np.floor(np.log10(np.abs(known), where=~whole, out=np.zeros(len(known))))
    places = np.clip(5 - digits, -300, _MAX_PLACES)
    scale = 10.0 ** np.abs(places)
    short = np.where(places >= 0, np.rint(known * scale) / scale, np.rint(known / scale) * scale)
    found = short.astype(object)
    found[whole] = known[whole].astype(np.int64)
    return found.tolist()  # type: ignore[no-any-return]


@dataclass(slots=True)
class DeviceHistory:
    """The last value of each measure and GPU over the files followed; at most MAX_MEASURES names are remembered."""

    last: dict[str, Floats] = field(default_factory=dict)

    def follow(self, table: DeviceTable, rows: Ints) -> tuple[str | None, ...]:
        """The table's JSON, with the changes since the files before it. `rows` numbers its keys over all files."""
        changed: dict[int, list[tuple[str, str]]] = {}
        for number, name in enumerate(table.names):
            if name not in self.last and len(self.last) >= MAX_MEASURES:
                continue
            held, size = self.last.get(name, np.empty(0)), int(rows.max()) + 1
            if len(held) < size:
                held = self.last[name] = np.r_[held, np.full(size - len(held), np.nan)]
            before, first, last = held[rows], table.first[:, number], table.last[:, number]
            for place in np.flatnonzero((before != first) & ~np.isnan(before) & ~np.isnan(first)).tolist():
                device = f"gpu:{table.gpu[place]}"
                changed.setdefault(int(table.first_row[place, number]), []).append((device, name))
            held[rows] = np.where(np.isnan(last), before, last)
        devices = list(table.devices)
        for row, measures in changed.items():
            devices[row] = _one_more(devices[row], measures)
        return tuple(devices)


def _one_more(text: str | None, measures: Sequence[tuple[str, str]]) -> str:
    """The JSON with one change more of each of these measures."""
    told = orjson.loads(text or "{}")
    for device, name in measures:
        told[device][name][4] += 1
    return orjson.dumps(told).decode()
