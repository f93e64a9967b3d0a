"""What a telemetry file says, small enough to hand from a worker to the writer: roll-ups, measures, and pages.

    file = read_telemetry(Path("telemetry/2025-03-01.parquet"))

A row's time is the end of what it tells of. Where rows lie further apart than an hour, a row is the roll-up of the hour
that ends with it, so that a day's row is known at the day's end; else of the hour in which it lies.
A device that is told twice of the same moment counts once, with the larger value where two differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from store.plural import many
from store.records.event import from_us
from store.records.telemetry import Sample
from store.telemetry.archive_table import GPU_SLOTS, DeviceSamples, TelemetryTable, read_file
from store.telemetry.pages import DevicePlace, PageTable, pages_of
from store.telemetry.rollups import (
    HOUR_US,
    DeviceRows,
    DeviceTable,
    RollupTable,
    devices_of,
    group_starts,
    roll_up,
)

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Reader: TypeAlias = Callable[[], Floats]


@dataclass(frozen=True, slots=True)
class TelemetryFile:
    """What a file says. Positions of nodes are those in `nodes`."""

    nodes: tuple[str, ...]
    rows: int
    skipped: int
    rollups: RollupTable
    devices: tuple[DeviceTable, ...] = ()
    pages: tuple[PageTable, ...] = ()
    left_out: tuple[str, ...] = ()  # a sentence each: columns and rows that had to be left out
    ends_us: int = 0  # the newest moment of a page


def read_telemetry(path: Path) -> TelemetryFile:
    """Read and sum up a file.

    Raises:
        RecordError: it is no Parquet file, lacks a column, or is too large.
    """
    return read_file(path, summarise)


@dataclass(frozen=True, slots=True)
class _SampleOrder:
    """One kind of devices' rows in order of node, device and time; those told twice are one."""

    samples: DeviceSamples
    order: Ints
    starts: Ints | None  # where rows of one device and moment begin; None: each is alone
    interval_us: int

    @classmethod
    def of(cls, samples: DeviceSamples) -> "_SampleOrder":
        order = np.lexsort((samples.time_us, samples.device, samples.node))
        node, device, time_us = samples.node[order], samples.device[order], samples.time_us[order]
        starts: Ints | None = group_starts(node, device, time_us)
        if starts is not None and len(starts) == len(order):
            starts = None
        return cls(samples, order, starts, _interval_us(samples))

    def keys(self) -> tuple[Ints, Ints, Ints]:
        """Node, device and time of each row."""
        kept = self.order if self.starts is None else self.order[self.starts]
        return self.samples.node[kept], self.samples.device[kept], self.samples.time_us[kept]

    def hours(self) -> Ints:
        """The hour of each row."""
        time_us = self.keys()[2]
        return (time_us - 1 if self.interval_us > HOUR_US else time_us) // HOUR_US

    def values(self, column: Floats) -> Floats:
        """A column in this order."""
        found = column[self.order]
        return found if self.starts is None else np.fmax.reduceat(found, self.starts)

    def read(self, reader: Reader) -> Floats:
        """A column that is read now, in this order."""
        return self.values(reader())

    def conflicts(self, columns: Mapping[str, Reader]) -> int:
        """How many moments of devices are told with two values of one measure."""
        if self.starts is None:
            return 0
        differs = np.zeros(len(self.starts), dtype=bool)
        for read in columns.values():
            found = read()[self.order]
            differs |= np.fmax.reduceat(found, self.starts) > np.fmin.reduceat(found, self.starts)
        return int(differs.sum())


def _interval_us(samples: DeviceSamples) -> int:
    """How far apart a device's rows usually are; 0: each has but one."""
    order = np.lexsort((samples.time_us, samples.device, samples.node))
    node, device, time_us = samples.node[order], samples.device[order], samples.time_us[order]
    same = (node[1:] == node[:-1]) & (device[1:] == device[:-1])
    apart = np.diff(time_us)[same]
    apart = apart[apart > 0]
    return int(np.median(apart)) if len(apart) else 0


def summarise(table: TelemetryTable) -> TelemetryFile:
    """Roll-ups, measures and pages of a file's samples, in whatever order they come."""
    ordered = [_SampleOrder.of(samples) for samples in table.samples]
    gpus = [one for one in ordered if one.samples.gauges or not one.samples.devices]
    rollups, places = _roll_ups(ordered, gpus)
    devices: list[DeviceTable] = []
    pages: list[PageTable] = []
    left_out = list(table.left_out)
    skipped = table.skipped
    for one, place in zip(ordered, places, strict=True):
        node, device, time_us = one.keys()
        readers: dict[str, Reader] = {
            **{name: partial(one.values, column) for name, column in one.samples.gauges.items()},
            **{name: partial(one.values, column) for name, column in one.samples.counters.items()},
            **{name: partial(one.read, read) for name, read in one.samples.measures.items()},
        }
        own = {name: readers[name] for name in one.samples.measures}
        rows = DeviceRows(node, device, one.hours(), place, _names(one.samples.devices))
        if (found := devices_of(rows, len(rollups.node), own)) is not None:
            devices.append(found)
            left_out += found.left_out
        if conflicts := one.conflicts(_columns(one.samples)):
            skipped += conflicts
            left_out.append(
                f"{many(conflicts, 'moment')} of devices are told twice with other values (two nodes of one name?): "
                "the larger one counts"
            )
        watched = {
            name: read
            for name, read in readers.items()
            if name not in one.samples.measures or name in one.samples.known
        }
        if watched and len(node):
            pages.append(_pages(one, (node, device, time_us), watched))
    return TelemetryFile(
        nodes=table.nodes,
        rows=sum(len(one.keys()[0]) for one in ordered),
        skipped=skipped,
        rollups=rollups,
        devices=tuple(devices),
        pages=tuple(pages),
        left_out=tuple(dict.fromkeys(left_out)),
        ends_us=max((int(one.samples.time_us.max()) for one in ordered if len(one.order)), default=0),
    )


def _columns(samples: DeviceSamples) -> dict[str, Reader]:
    held = {**samples.gauges, **samples.counters}
    return {**{name: partial(_same, column) for name, column in held.items()}, **samples.measures}


def _same(column: Floats) -> Floats:
    return column


def _pages(one: _SampleOrder, keys: tuple[Ints, Ints, Ints], columns: Mapping[str, Reader]) -> PageTable:
    node, device, time_us = keys
    devices = one.samples.devices
    if not devices:
        gpus = np.unique(device)
        devices, device = tuple(DevicePlace("gpu", gpu) for gpu in gpus.tolist()), np.searchsorted(gpus, device)
    stream = "/".join((devices[0].type, devices[0].source, *sorted(columns)))
    return pages_of(stream, (node, device, time_us), devices, columns, one.interval_us)


def _names(devices: Sequence[DevicePlace]) -> tuple[str, ...] | None:
    return tuple(device_name(one) for one in devices) if devices else None


def device_name(device: DevicePlace) -> str:
    """What a device is called within its node."""
    return sample_of(device, 0, "", {}).device_name()


def sample_of(device: DevicePlace, time_us: int, node: str, values: Mapping[str, float]) -> Sample:
    """What a row says of a device."""
    return Sample(
        time=from_us(time_us),
        node=node,
        gpu=device.index,
        values=values,
        type=device.type,
        name=device.name,
        port=device.port,
        source=device.source,
    )


def _roll_ups(ordered: Sequence[_SampleOrder], gpus: Sequence[_SampleOrder]) -> tuple[RollupTable, list[Ints]]:
    """A row of each node and hour of which anything is told, and the place of each sample's in it.

    What is no accelerator counts as no sample; those of several makers are several.
    """
    node = np.concatenate([one.keys()[0] for one in ordered]) if ordered else np.empty(0, np.int64)
    hour = np.concatenate([one.hours() for one in ordered]) if ordered else np.empty(0, np.int64)
    base, span = (int(hour.min()), int(hour.max() - hour.min()) + 1) if len(hour) else (0, 1)
    whole, place = np.unique(node * span + (hour - base), return_inverse=True)
    ends = np.cumsum([len(one.keys()[0]) for one in ordered])
    places = [part.astype(np.int64) for part in np.split(place, ends[:-1])] if ordered else []
    nothing = np.zeros(len(whole), dtype=np.int64)
    table = RollupTable(whole // span, (whole % span + base) * HOUR_US, nothing, nothing, {})
    if not gpus:
        return table, places
    of_node = np.concatenate([one.keys()[0] for one in gpus])
    of_gpu = np.concatenate([one.keys()[1] + number * GPU_SLOTS for number, one in enumerate(gpus)])
    names = dict.fromkeys(name for one in gpus for name in one.samples.gauges)
    gauges = {name: np.concatenate([_gauge(one, name) for one in gpus]) for name in names}
    own = roll_up(of_node, of_gpu, np.concatenate([one.hours() for one in gpus]), gauges)
    if len(own.node) == len(whole):
        return own, places
    at = np.searchsorted(whole, own.node * span + (own.time_us // HOUR_US - base))
    samples, seen = nothing.copy(), nothing.copy()
    samples[at], seen[at] = own.samples, own.gpus_seen
    return replace(table, samples=samples, gpus_seen=seen, values=_spread(own.values, at, len(whole))), places


def _gauge(one: _SampleOrder, name: str) -> Floats:
    column = one.samples.gauges.get(name)
    return np.full(len(one.keys()[0]), np.nan) if column is None else one.values(column)


def _spread(values: Mapping[str, Floats], at: Ints, size: int) -> dict[str, Floats]:
    found = {}
    for name, column in values.items():
        found[name] = np.full(size, np.nan)
        found[name][at] = column
    return found
