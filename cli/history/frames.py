"""Series of a window to the table that a telemetry file gives: rows of devices at moments, columns of measures.

    found = table_of_window(window.series, HistoryNames(known.canonical))

Several series of one device and measure are one column, as on an exporter's own page: the sum or the largest where the
catalogue says so, the device's own before a MIG instance's, one after the other where a label of the pod changes.
Where two targets tell of one device at the same time, two nodes bear one name: the first target's samples are kept.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from cli.history.series import SeriesPlace, place_of
from cli.history.server import SeriesSamples
from parsers.formats.dcgm import UTIL_RATIO
from parsers.text.exposition import Point
from store.plural import many
from store.records.event import RecordError
from store.records.telemetry import ACCELERATORS, COUNTERS, GAUGES, Sample
from store.telemetry.archive_table import DeviceSamples, TelemetryTable
from store.telemetry.pages import DevicePlace
from store.telemetry.telemetry_file import sample_of

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# DCGM writes a blank (not found, not supported, not permitted) as a huge number. Source: DCGM's dcgm_structs.
_BLANKS = [float(first + i) for first in (2147483632, 9223372036854775792, 140737488355328) for i in range(4)]
_GAUGES = frozenset(name for name, _factor in GAUGES.values())
_COUNTERS = frozenset(COUNTERS.values())
# Of several instances of a GPU any Xid is the GPU's; the largest is not a code of none.
_LARGEST = frozenset({"xid_last"})
_LARGE = 2.0**63 - 1024
# Rows made samples of at once: as objects they take a hundred times the room of arrays.
ROWS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class HistoryNames:
    """Whose series are: the inventory's name of a host, and the label that names it where the site says which."""

    canonical: Callable[[str], str]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class _Column:
    """The samples of one series, in the measure's unit."""

    place: SeriesPlace
    time_us: Ints
    values: Floats
    order: str  # of several, the same one is first each time


@dataclass(slots=True)
class _LeftOut:
    """What has no place, in sentences and samples."""

    sentences: dict[str, int] = field(default_factory=dict)

    def add(self, sentence: str, samples: int) -> None:
        self.sentences[sentence] = self.sentences.get(sentence, 0) + samples

    def told(self) -> tuple[str, ...]:
        return tuple(f"{many(samples, 'sample')}: {sentence}" for sentence, samples in self.sentences.items())


# Of a node and device the UUID and the PCI address that its labels bear, each from a moment on.
DeviceIdentities: TypeAlias = dict[tuple[str, DevicePlace], list[tuple[int, str | None, str | None]]]


def table_of_window(series: Sequence[SeriesSamples], names: HistoryNames) -> tuple[TelemetryTable, DeviceIdentities]:
    """The table of a window; what has no place in it is counted, with a sentence each. And who its devices are."""
    left_out = _LeftOut()
    cells: dict[tuple[str, DevicePlace], dict[str, list[_Column]]] = {}
    nodes: dict[str, str | None] = {}
    identities: DeviceIdentities = {}
    for one in series:
        place = place_of(one.labels, names.label)
        if isinstance(place, str):
            if place:
                left_out.add(place, len(one.time_ms))
            continue
        node = _canonical(place.node, names, nodes, left_out, len(one.time_ms))
        if node is not None:
            column = _Column(place, one.time_ms * 1000, _cleaned(place, one), repr(sorted(one.labels.items())))
            device = _device(place)
            cells.setdefault((node, device), {}).setdefault(place.measure, []).append(column)
            if place.device.uuid or place.device.pci:
                first = int(column.time_us[0]), place.device.uuid, place.device.pci
                identities.setdefault((node, device), []).append(first)
    return _table(cells, left_out), {
        key: sorted(set(found), key=lambda one: (one[0], repr(one))) for key, found in identities.items()
    }


def samples_of_table(table: TelemetryTable, identities: DeviceIdentities) -> Iterator[list[Sample]]:
    """What a watch looks at: of every row the measures that the catalogue names. In parts, in order of time."""
    groups: list[tuple[DeviceSamples, list[str], Floats]] = []
    for samples in table.samples:
        columns = {**samples.gauges, **samples.counters}
        columns |= {name: read() for name, read in samples.measures.items() if name in samples.known}
        if columns:
            groups.append((samples, list(columns), np.column_stack(list(columns.values()))))
    times = np.sort(np.concatenate([samples.time_us for samples, _names, _values in groups])) if groups else np.empty(0)
    edges = np.unique([*times[::ROWS_AT_ONCE].tolist(), *((times[-1:] + 1).tolist())])
    for first_us, end_us in itertools.pairwise(edges.tolist()):
        part: list[Sample] = []
        for samples, names, values in groups:
            place = np.flatnonzero((samples.time_us >= first_us) & (samples.time_us < end_us))
            part += _samples_at(table, identities, (samples, names, values), place)
        yield part


def _samples_at(
    table: TelemetryTable,
    identities: DeviceIdentities,
    group: tuple[DeviceSamples, list[str], Floats],
    place: Ints,
) -> Iterator[Sample]:
    """The samples of some rows of one kind of devices."""
    samples, names, values = group
    gpus = {index: DevicePlace("gpu", index) for index in np.unique(samples.device[place]).tolist()}
    devices: Mapping[int, DevicePlace] = dict(enumerate(samples.devices)) if samples.devices else gpus
    keys = (samples.node[place].tolist(), samples.device[place].tolist(), samples.time_us[place].tolist())
    for node, device, time_us, row in zip(*keys, values[place].tolist(), strict=True):
        name, one = table.nodes[node], devices[device]
        known = identities.get((name, one))
        told = {measure: value for measure, value in zip(names, row, strict=True) if value == value}
        sample = sample_of(one, time_us, name, told)
        yield sample if known is None else _identified(sample, known, time_us)


def _identified(sample: Sample, known: Sequence[tuple[int, str | None, str | None]], time_us: int) -> Sample:
    """The same, with what its labels say that it is."""
    own = [one for one in known if one[0] <= time_us] or known
    return replace(sample, uuid=own[-1][1], pci=own[-1][2])


def _canonical(
    name: str, names: HistoryNames, known: dict[str, str | None], left_out: _LeftOut, size: int
) -> str | None:
    if name not in known:
        try:
            known[name] = names.canonical(name)
        except RecordError as error:
            known[name] = None
            left_out.add(str(error), 0)
    if known[name] is None:
        left_out.add(f"host {name[:80]!r} has no name that a node can have: name another label with --node-label", size)
    return known[name]


def _device(place: SeriesPlace) -> DevicePlace:
    index = place.device.index or 0 if place.name is None else 0
    return DevicePlace(place.device.type, index, place.name, place.device.port, place.source)


def _cleaned(place: SeriesPlace, one: SeriesSamples) -> Floats:
    """The values in the measure's unit; NaN where a number says that there is none."""
    values = one.values
    values[np.isinf(values)] = np.nan
    name = one.labels["__name__"]
    if place.source == "dcgm":
        values[np.isin(values, _BLANKS) | (np.abs(values) >= _LARGE)] = np.nan
        if name == UTIL_RATIO and len(values) and not (values > 1).any():
            values = values * 100  # of DCGM 4.7 on it is 0.0 to 1.0
    elif place.exporter is not None:
        value = place.exporter.value
        unique, where = np.unique(values, return_inverse=True)
        read = [value(Point(name, one.labels, "", each, None)) for each in unique.tolist() if each == each]
        told = [np.nan if each is None else each for each in read]
        values = np.array([*told, *[np.nan] * (len(unique) - len(told))], dtype=np.float64)[where]
    return values if place.metric.factor == 1 else values * place.metric.factor


def _table(cells: Mapping[tuple[str, DevicePlace], Mapping[str, list[_Column]]], left_out: _LeftOut) -> TelemetryTable:
    names = tuple(sorted({node for node, _device in cells}))
    numbers = {name: number for number, name in enumerate(names)}
    groups: dict[tuple[str, str], list[_TableRows]] = {}
    for (node, device), measures in sorted(cells.items(), key=lambda cell: (cell[0][0], repr(cell[0][1]))):
        columns = {name: _merged(node, parts, left_out) for name, parts in sorted(measures.items())}
        known = frozenset(name for name, parts in measures.items() if parts[0].place.known)
        groups.setdefault((device.type, device.source), []).append(_TableRows.of(numbers[node], device, columns, known))
    samples = [_samples(groups[key], key == ("gpu", "dcgm")) for key in sorted(groups, key=lambda key: key[0] != "gpu")]
    skipped = sum(left_out.sentences.values())
    return TelemetryTable(names, tuple(samples), skipped, left_out.told())


@dataclass(frozen=True, slots=True)
class _TableRows:
    """One device's rows."""

    node: int
    device: DevicePlace
    time_us: Ints
    columns: Mapping[str, tuple[Ints, Floats]]  # of each measure the rows that have it, and its values
    known: frozenset[str]

    @classmethod
    def of(
        cls, node: int, device: DevicePlace, columns: Mapping[str, tuple[Ints, Floats]], known: frozenset[str]
    ) -> "_TableRows":
        times = [time_us for time_us, _values in columns.values()]
        longest = max(times, key=len)
        same = all(len(one) == len(longest) and np.array_equal(one, longest) for one in times)
        whole = longest if same else np.unique(np.concatenate(times))
        rows = {name: (np.searchsorted(whole, time_us), values) for name, (time_us, values) in columns.items()}
        return cls(node, device, whole, rows, known)


def _samples(rows: Sequence[_TableRows], gpus: bool) -> DeviceSamples:
    """The rows of one kind of devices, one after the other."""
    sizes = [len(one.time_us) for one in rows]
    starts = np.cumsum([0, *sizes])
    devices = tuple(dict.fromkeys(one.device for one in rows))
    position = {device: device.index if gpus else place for place, device in enumerate(devices)}
    columns = {
        name: np.full(int(starts[-1]), np.nan) for name in sorted({name for one in rows for name in one.columns})
    }
    for start, one in zip(starts[:-1].tolist(), rows, strict=True):
        for name, (place, values) in one.columns.items():
            columns[name][start + place] = values
    own = _GAUGES | _COUNTERS if gpus else _GAUGES if rows[0].device.type in ACCELERATORS else frozenset()
    return DeviceSamples(
        node=np.repeat([one.node for one in rows], sizes).astype(np.int64),
        device=np.repeat([position[one.device] for one in rows], sizes).astype(np.int64),
        time_us=np.concatenate([one.time_us for one in rows]),
        gauges={name: column for name, column in columns.items() if name in own & _GAUGES},
        counters={name: column for name, column in columns.items() if name in own & _COUNTERS},
        measures={name: partial(_same, column) for name, column in columns.items() if name not in own},
        known=frozenset(name for one in rows for name in one.known) - own,
        devices=() if gpus else devices,
    )


def _same(column: Floats) -> Floats:
    return column


def _merged(node: str, parts: Sequence[_Column], left_out: _LeftOut) -> tuple[Ints, Floats]:
    """One column of several series."""
    if len(parts) == 1:
        return parts[0].time_us, parts[0].values
    by_target: dict[str, list[_Column]] = {}
    for part in sorted(parts, key=lambda part: part.order):
        by_target.setdefault(part.place.target, []).append(part)
    found = [(target, *_of_target(own)) for target, own in sorted(by_target.items())]
    first, time_us, values = found[0]
    for target, more_us, more in found[1:]:
        inside = (more_us >= time_us[0]) & (more_us <= time_us[-1]) if len(time_us) else np.zeros(len(more_us), bool)
        if inside.any():
            left_out.add(
                f"node {node} is told of by {first!r} and {target!r} at once, so that two nodes bear one name: "
                "those of the second are left out; name a label that tells them apart with --node-label",
                int(inside.sum()),
            )
        order = np.argsort(times := np.concatenate([time_us, more_us[~inside]]), kind="stable")
        time_us, values = times[order], np.concatenate([values, more[~inside]])[order]
    return time_us, values


def _of_target(parts: Sequence[_Column]) -> tuple[Ints, Floats]:
    """One column of the series of one target."""
    place = parts[0].place
    own = [part for part in parts if not part.place.instance]
    lent = [part for part in parts if part.place.instance and not part.place.metric.of_instance]
    if place.measure in _LARGEST:
        return _joined([*own, *lent], np.fmax)
    if place.metric.how or not place.known:
        summed = place.metric.how == "sum" or (not place.known and place.measure.endswith(("_total", "_count")))
        return _joined(own or lent or parts, np.add if summed else np.fmax)
    return _joined([*own, *lent] or parts, None)


def _joined(parts: Sequence[_Column], join: np.ufunc | None) -> tuple[Ints, Floats]:
    """Values of equal moments made one; without a way the first that is known."""
    if len(parts) == 1:
        return parts[0].time_us, parts[0].values
    time_us = np.unique(np.concatenate([part.time_us for part in parts]))
    if join is np.add:  # a sum with an unknown part is unknown
        total = np.zeros(len(time_us))
        for part in parts:
            total[np.searchsorted(time_us, part.time_us)] += part.values
        return time_us, total
    values = np.full(len(time_us), np.nan)
    for part in reversed(parts):  # the first one last, so that it stands
        place = np.searchsorted(time_us, part.time_us)
        before = values[place]
        values[place] = (
            np.where(np.isnan(part.values), before, part.values) if join is None else join(before, part.values)
        )
    return time_us, values
