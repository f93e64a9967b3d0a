"""Roll-ups of a telemetry file, and what it measured of single devices, by arithmetic over sorted columns.

    {"gpu:0": {"smart_5": [0, 8, 2.5, 8, 1], "fan_speed_ratio": [0.4, 0.4, 0.4, 0.4, 0]}, "gpu:1": ...}

Of each GPU and measure within an hour: min, max, mean, last, and how often a value differed from the one before it,
also from the last one of the hour or of the file before. What nobody measured is absent. Numbers bear six digits,
whole numbers all of theirs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import orjson

from store.records.telemetry import MAX_DEVICES, MAX_MEASURES, ROLLUP_S

# Samples come sorted by node, GPU and time. A group of rows is given by the position at which it begins.
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

HOUR_US = ROLLUP_S * 1_000_000


@dataclass(frozen=True, slots=True)
class RollupTable:
    """Roll-ups as columns, sorted by node and hour; `values` bears the names of `store.records.telemetry.Rollup`."""

    node: Ints
    time_us: Ints
    samples: Ints
    gpus_seen: Ints
    values: Mapping[str, Floats]


def roll_up(node: Ints, gpu: Ints, hour: Ints, gauges: Mapping[str, Floats]) -> RollupTable:
    """One row a node and hour. A mean is over samples, the spread between the means of its hottest and coolest GPU."""
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

    `keys` are the file's devices: the position of the node, and the device's name within it. `first` and `last` are the
    first and the last value of each of them and measure, `first_row` the roll-up of the first; shape (keys, names).
    NaN: it has none.
    """

    names: tuple[str, ...]
    devices: tuple[str | None, ...]
    keys: tuple[tuple[int, str], ...]
    first: Floats
    first_row: Ints
    last: Floats
    left_out: tuple[str, ...]  # a sentence each: columns and devices beyond what a roll-up may hold


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
class DeviceRows:
    """Rows in order of node, device and time. `rollup` is the place of each row's roll-up, `hour` its hour.

    `names` is what each position of `device` is called within its node; None: a GPU by its index.
    """

    node: Ints
    device: Ints
    hour: Ints
    rollup: Ints
    names: tuple[str, ...] | None = None

    def name(self, device: int) -> str:
        """What a device is called: `gpu:3`, `nic:mlx5_0/1`."""
        return f"gpu:{device}" if self.names is None else self.names[device]


def devices_of(rows: DeviceRows, rollups: int, columns: Mapping[str, Callable[[], Floats]]) -> DeviceTable | None:
    """The table of a file's samples; None where it has no column of this kind, or no row.

    Args:
        rollups: how many there are in the file.
        columns: reads each measure in the order of the rows, when it is wanted: together they may be too large.
    """
    if not len(rows.node) or not columns:
        return None
    starts = group_starts(rows.node, rows.device, rows.hour)
    of_key = group_starts(rows.node, rows.device)
    key = np.repeat(np.arange(len(of_key)), group_sizes(of_key, len(rows.node)))
    hour_of_row = np.repeat(np.arange(len(starts)), group_sizes(starts, len(key)))
    hours = _MeasureHours(key, starts, hour_of_row, rows.rollup[starts])
    place = _places(rows, of_key)
    names, left_out = _within_limits(tuple(columns), place, len(starts), rows, of_key)
    sums: list[_MeasureSums] = []
    shape = (len(of_key), len(names))
    first, first_row, last = np.empty(shape), np.empty(shape, dtype=np.int64), np.empty(shape)
    told = place[key] < MAX_DEVICES
    for number, name in enumerate(names):
        values = np.where(told, columns[name](), np.nan)
        sums.append(_summed(values, hours))
        first[:, number], first_row[:, number], last[:, number] = _edges(values, hours, len(of_key))
    order = np.lexsort((rows.device[starts], rows.rollup[starts]))
    texts = list(_texts(names, sums, order, [rows.name(device) for device in rows.device[starts][order].tolist()]))
    devices: list[str | None] = [None] * rollups
    of_rollup = rows.rollup[starts][order]
    begins = group_starts(of_rollup)
    spans = zip(of_rollup[begins].tolist(), begins.tolist(), [*begins[1:].tolist(), len(texts)], strict=True)
    for rollup, begin, end in spans:
        devices[rollup] = _joined(texts[begin:end])
    pairs = zip(rows.node[of_key].tolist(), rows.device[of_key].tolist(), strict=True)
    keys = tuple((node, rows.name(device)) for node, device in pairs)
    return DeviceTable(names, tuple(devices), keys, first, first_row, last, left_out)


def _places(rows: DeviceRows, of_key: Ints) -> Ints:
    """The number of each device within its node: a GPU's index, another's place among those of its kind."""
    if rows.names is None:
        return rows.device[of_key]
    of_node = group_starts(rows.node[of_key])
    return np.arange(len(of_key)) - np.repeat(of_node, group_sizes(of_node, len(of_key)))


def _within_limits(
    names: tuple[str, ...], place: Ints, hours: int, rows: DeviceRows, of_key: Ints
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The measures that are kept, and a sentence of each one, and of each device, that is not."""
    told = min(int(place.max()) + 1, MAX_DEVICES)
    of_node, of_file = MAX_MEASURES // told, MAX_CELLS // hours
    what = "GPUs" if rows.names is None else "devices"
    remedy = (
        f"a node's hour holds {MAX_MEASURES} measures, {of_node} of each of {told} {what}: leave columns out"
        if of_node <= of_file
        else f"{hours} hours of {what} have room for {of_file} measures in one file: split it by time"
    )
    most = min(of_node, of_file)
    beyond = np.unique(rows.device[of_key][place >= MAX_DEVICES]).tolist()
    return names[:most], (
        *(f"column {name!r}: {remedy}" for name in names[most:]),
        *(
            f"the own columns of {rows.name(number).replace(':', ' ')}: devices up to {MAX_DEVICES - 1} are told of"
            for number in beyond
        ),
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


def _edges(values: Floats, hours: _MeasureHours, keys: int) -> tuple[Floats, Ints, Floats]:
    """Of each key the first value, its roll-up, and the last value."""
    known = np.flatnonzero(~np.isnan(values))
    begins = group_starts(hours.key[known])
    owner = hours.key[known][begins]
    first, last = np.full(keys, np.nan), np.full(keys, np.nan)
    first_row = np.full(keys, -1, dtype=np.int64)
    first[owner] = values[known[begins]]
    last[owner] = values[known[np.r_[begins[1:], len(known)] - 1]] if len(known) else np.nan
    first_row[owner] = hours.rollup_of_hour[hours.hour_of_row[known[begins]]]
    return first, first_row, last


def _texts(names: tuple[str, ...], sums: Sequence[_MeasureSums], order: Ints, devices: Sequence[str]) -> Iterator[str]:
    """`"gpu:3":{...}` of each hour of each device, in this order; empty where it has no measure."""
    for begin in range(0, len(order), _AT_ONCE):
        part = order[begin : begin + _AT_ONCE]
        columns = [_lists(one, part) for one in sums]
        for device, values in zip(devices[begin : begin + _AT_ONCE], zip(*columns, strict=True), strict=False):
            told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            yield f"{orjson.dumps(device).decode()}:{orjson.dumps(told).decode()}" if told else ""


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


def _one_more(text: str | None, measures: Sequence[tuple[str, str]]) -> str:
    """The JSON with one change more of each of these measures."""
    told = orjson.loads(text or "{}")
    for device, name in measures:
        told[device][name][4] += 1
    return orjson.dumps(told).decode()


@dataclass(slots=True)
class DeviceHistory:
    """The last value of each measure and device over the files followed; at most MAX_MEASURES names are remembered."""

    last: dict[str, Floats] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)  # of a node and device: its place in these arrays

    def follow(self, tables: Sequence[DeviceTable], nodes: Sequence[str]) -> list[str | None] | None:
        """JSON of each roll-up of the next file, with the changes since the files before it; None: nothing is told."""
        told = [self._followed(table, nodes) for table in tables]
        if len(told) < 2:
            return told[0] if told else None
        return [_one_document(parts) for parts in zip(*told, strict=True)]

    def _followed(self, table: DeviceTable, nodes: Sequence[str]) -> list[str | None]:
        rows = np.array(
            [self.rows.setdefault((nodes[node], device), len(self.rows)) for node, device in table.keys], dtype=np.int64
        )
        changed: dict[int, list[tuple[str, str]]] = {}
        for number, name in enumerate(table.names):
            if name not in self.last and len(self.last) >= MAX_MEASURES:
                continue
            held, size = self.last.get(name, np.empty(0)), int(rows.max()) + 1
            if len(held) < size:
                held = self.last[name] = np.r_[held, np.full(size - len(held), np.nan)]
            before, first, last = held[rows], table.first[:, number], table.last[:, number]
            for place in np.flatnonzero((before != first) & ~np.isnan(before) & ~np.isnan(first)).tolist():
                changed.setdefault(int(table.first_row[place, number]), []).append((table.keys[place][1], name))
            held[rows] = np.where(np.isnan(last), before, last)
        devices = list(table.devices)
        for row, measures in changed.items():
            devices[row] = _one_more(devices[row], measures)
        return devices


def _one_document(parts: Sequence[str | None]) -> str | None:
    inner = ",".join(part[1:-1] for part in parts if part)
    return f"{{{inner}}}" if inner else None
