"""What an archive's telemetry tells beyond the store's own columns, as a live source tells it of single devices.

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

from store.telemetry import MAX_DEVICES, MAX_MEASURES
from store.telemetry_rollup import HOUR_US, group_means, group_sizes, group_starts

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

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
class _Hours:
    """Rows sorted by key and time, and where their hours lie. `hour_of_row` numbers the hours of GPUs."""

    key: Ints
    starts: Ints
    hour_of_row: Ints
    rollup_of_hour: Ints


@dataclass(frozen=True, slots=True)
class _Sums:
    """A measure over each hour of each GPU; NaN where nobody measured it."""

    low: Floats
    high: Floats
    mean: Floats
    last: Floats
    changes: Ints


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
    hours = _Hours(key, starts, hour_of_row, rollup_of_hour)
    keys = key[group_starts(key)]
    names, left_out = _within_limits(tuple(columns), keys % slots, len(starts))
    sums: list[_Sums] = []
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


def _summed(values: Floats, hours: _Hours) -> _Sums:
    known = np.flatnonzero(~np.isnan(values))
    low, high = np.fmin.reduceat(values, hours.starts), np.fmax.reduceat(values, hours.starts)
    mean = np.clip(group_means(values, hours.starts), low, high)  # the sum of many rounds
    last = np.full(len(low), np.nan)
    last[hours.hour_of_row[known]] = values[known]  # in order of time: the last one stays
    differs = (values[known][1:] != values[known][:-1]) & (hours.key[known][1:] == hours.key[known][:-1])
    changes = np.bincount(hours.hour_of_row[known][1:][differs], minlength=len(low))
    return _Sums(low, high, mean, last, changes)


def _edges(values: Floats, hours: _Hours, keys: Ints) -> tuple[Floats, Ints, Floats]:
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


def _texts(names: tuple[str, ...], sums: Sequence[_Sums], order: Ints, gpu: Ints) -> Iterator[str]:
    """`"gpu:3":{...}` of each hour of each GPU, in this order; empty where it has no measure."""
    for begin in range(0, len(order), _AT_ONCE):
        part = order[begin : begin + _AT_ONCE]
        columns = [_lists(one, part) for one in sums]
        for number, values in zip(gpu[part].tolist(), zip(*columns, strict=True), strict=False):
            told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            yield f'"gpu:{number}":{orjson.dumps(told).decode()}' if told else ""


def _lists(sums: _Sums, part: Ints) -> list[tuple[float, ...] | None]:
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
class DeviceCarry:
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
