"""One telemetry file of an archive: a Parquet table of samples, summed up column by column.

    time                      node     gpu  DCGM_FI_DEV_GPU_TEMP  DCGM_FI_DEV_ECC_SBE_VOL_TOTAL
    2025-03-01 04:00:00+00:00 gpu-017  3    61.0                  4

    time                      node     port  node_infiniband_link_downed_total  node_boot_time_seconds
    2025-03-01 04:00:00+00:00 gpu-017  1     4                                  1740667567

`summarise` gives the file's roll-ups, and the pages from which the watch makes events. A row without a GPU is of its
node; columns of text that are labels (`port`, `device`, `sensor` ...) tell which part of it. Other text, booleans and
times are left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from store.plural import many
from store.records.event import RecordError, to_us
from store.records.telemetry import COUNTERS, GAUGES, MAX_DEVICE_NAME
from store.telemetry.measures import NodeMeasure, find_metric, measure_of, node_measure
from store.telemetry.pages import DevicePlace

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Reader: TypeAlias = Callable[[], Floats]

# A day of 10,000 GPUs at a sample each 30 s; above it, a file must be split, so that memory stays bounded.
MAX_ROWS = 30_000_000
# The most devices of one table that have a place in it; a key is node * GPU_SLOTS + device.
GPU_SLOTS = 1024
# DCGM writes a blank (not found, not supported, not permitted) as a huge number. Source: DCGM's dcgm_structs.
_BLANKS = [float(first + i) for first in (2_147_483_632, 140_737_488_355_328) for i in range(4)]
_BLANK_GAUGE = 2_147_483_632.0
_BLANK_INT64 = 2.0**63 - 1024

_OWN = {field: name for field, (name, _) in GAUGES.items()} | dict(COUNTERS)
_KEYS = ("time", "node", "gpu")
# Columns that tell which part of a node a row is of, the whole before its part.
LABELS = ("device", "chip", "controller", "csrow", "channel", "port", "sensor", "lane")
_MEMORY = (("controller", "mc"), ("csrow", "csrow"), ("channel", "ch"))
_MOST_DIGITS = 10
# What pandas writes of an index that has no name: a number of the row.
_INDEX = re.compile(r"__index_level_\d+__")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """Columns of equal length: `node` indexes the file's nodes; times in microseconds since 1970; absent is NaN.

    Attributes:
        device: a GPU's index, or a position in `devices` where there are any.
        gauges, counters: of GPUs, what a roll-up has columns and the catalogue has events for.
        measures: each other measure by its name, read when it is called: together they may be too large.
        known: those of them that the catalogue names.
    """

    node: Ints
    device: Ints
    time_us: Ints
    gauges: Mapping[str, Floats] = field(default_factory=dict)
    counters: Mapping[str, Floats] = field(default_factory=dict)
    measures: Mapping[str, Reader] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    devices: tuple[DevicePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class TelemetryTable:
    """What a file holds: GPUs' samples first, then those of each kind of device of its nodes.

    `skipped` counts rows without a time or node, and those that cannot be read; `left_out` has a sentence of each
    column of numbers that is not among them, and of each thing else that was left out.
    """

    nodes: tuple[str, ...]
    samples: tuple[DeviceSamples, ...]
    skipped: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _FileColumns:
    """A file's row groups that can be read."""

    file: pq.ParquetFile
    groups: tuple[int, ...]

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self.file.schema_arrow
        return schema

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.file.read_row_groups(list(self.groups), columns=list(names), use_threads=False)


T = TypeVar("T")


def read_file(path: Path, step: Callable[[TelemetryTable], T]) -> T:
    """What a step makes of the samples of a Parquet file.

    Raises:
        RecordError: it is no Parquet file, lacks a column, or is larger than MAX_ROWS.
    """
    with named_errors():
        file = pq.ParquetFile(path)
        if file.metadata.num_rows > MAX_ROWS:
            raise RecordError(f"{file.metadata.num_rows} rows are more than {MAX_ROWS}: split the file by time")
        groups = tuple(range(file.num_row_groups))
        try:
            return step(_samples_of(_FileColumns(file, groups)))
        except _UNREADABLE:
            kept, lost, problems = _readable(file, groups)
            if not kept or not lost:
                raise
        found = _samples_of(_FileColumns(file, kept))
        return step(replace(found, skipped=found.skipped + lost, left_out=(*problems, *found.left_out)))


def _readable(file: pq.ParquetFile, groups: Sequence[int]) -> tuple[tuple[int, ...], int, tuple[str, ...]]:
    """The row groups that can be read, how many rows the others have, and a sentence of each of those."""
    broken: dict[int, str] = {}
    for group in groups:
        try:
            file.read_row_group(group, use_threads=False)
        except _UNREADABLE as error:
            broken[group] = f"row group {group} cannot be read ({_first_line(error)}): write it anew"
    lost = sum(file.metadata.row_group(group).num_rows for group in broken)
    return tuple(group for group in groups if group not in broken), lost, tuple(broken.values())


@contextmanager
def named_errors() -> Iterator[None]:
    """A reader's own errors as ours."""
    try:
        yield
    except _UNREADABLE as error:
        raise RecordError(f"no readable Parquet table ({_first_line(error)}): write it anew") from error


def time_span(path: Path) -> tuple[int, int]:
    """The file's earliest and latest time in microseconds, from its footer alone, so that files can be put in order.

    (0, 0) where the footer does not tell, or where there is no footer: reading the file will say what is wrong.
    """
    try:
        metadata = pq.ParquetFile(path).metadata
        place = metadata.schema.to_arrow_schema().get_field_index("time")
        if place < 0:
            return 0, 0
        groups = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
        told = [group for group in groups if group is not None and group.has_min_max]
        times = [moment for group in told for moment in (group.min, group.max)]
    except (pa.ArrowException, OSError, OverflowError, ValueError):
        return 0, 0
    moments = [moment.replace(tzinfo=moment.tzinfo or UTC) for moment in times if isinstance(moment, datetime)]
    found = [to_us(moment) for moment in moments]
    return (min(found), max(found)) if found and len(told) == len(groups) else (0, 0)


def _samples_of(source: _FileColumns) -> TelemetryTable:
    """The samples of some columns.

    Raises:
        RecordError: a column that is needed is missing, twice there, or of a type that cannot be meant.
    """
    names = Counter(source.schema.names)
    if missing := {"time", "node"} - set(names):
        raise RecordError(f"no column {', '.join(sorted(missing))}: the table needs time and node, and gpu for GPUs")
    labels = tuple(name for name in LABELS if names[name] == 1 and _is_label(source.schema.field(name).type))
    keys = [name for name in _KEYS if name in names]
    if twice := [name for name in (*keys, *GAUGES, *COUNTERS) if names[name] > 1]:
        raise RecordError(f"two columns {', '.join(twice)}: leave one of each")
    table = source.read([*keys, *labels])
    rows = _RowPlaces.of(table)
    samples: list[DeviceSamples] = []
    left_out: list[str] = []
    if len(rows.of_gpus):
        gpu = table["gpu"].cast(pa.int64()).fill_null(0).to_numpy()[rows.of_gpus]
        if not (gpu.min() >= 0 and gpu.max() < GPU_SLOTS):
            raise RecordError(f"a gpu index is outside 0..{GPU_SLOTS - 1}: write the index within its node")
        found, told = _gpu_samples(source, rows, gpu)
        samples.append(found)
        left_out += told
    if len(rows.of_nodes):
        others, told = _node_samples(source, rows, table.select(list(labels)))
        samples += others
        left_out += told
    skipped = len(table) - len(rows.of_gpus) - len(rows.of_nodes)
    return TelemetryTable(rows.nodes, tuple(samples), skipped, tuple(dict.fromkeys(left_out)))


@dataclass(frozen=True, slots=True)
class _RowPlaces:
    """Where rows belong: the positions of those of GPUs, and of those of nodes."""

    nodes: tuple[str, ...]
    node: Ints
    time_us: Ints
    of_gpus: Ints
    of_nodes: Ints

    @classmethod
    def of(cls, table: pa.Table) -> "_RowPlaces":
        kept = pc.and_(pc.is_valid(table["time"]), pc.is_valid(table["node"])).to_numpy()
        if "gpu" in table.column_names:
            has_gpu = pc.is_valid(table["gpu"]).to_numpy()
        else:
            has_gpu = np.zeros(len(table), dtype=bool)
        node = table["node"].combine_chunks()
        if not pa.types.is_dictionary(node.type):
            node = node.cast(pa.string()).dictionary_encode()
        names = node.dictionary.cast(pa.string()).to_pylist()
        index = node.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        of_gpus, of_nodes = np.flatnonzero(kept & has_gpu), np.flatnonzero(kept & ~has_gpu)
        return cls(tuple(names), index, _time_us(table["time"]), of_gpus, of_nodes)

    def picked(self, column: pa.ChunkedArray, rows: Ints) -> Floats:
        """The values of some rows."""
        values: Floats = column.cast(pa.float64(), safe=False).to_numpy()
        return values.copy() if len(rows) == len(self.node) else values[rows]


def _gpu_samples(source: _FileColumns, rows: _RowPlaces, gpu: Ints) -> tuple[DeviceSamples, tuple[str, ...]]:
    columns, place = set(source.schema.names), rows.of_gpus
    own, no_numbers = _as_numbers(source.read([name for name in (*GAUGES, *COUNTERS) if name in columns]))
    measures, left_out = other_columns(source.schema)
    left_out, columns = (*no_numbers, *left_out), set(own.column_names)
    gauges = {
        name: _gauge(rows.picked(own[column], place)) * factor
        for column, (name, factor) in GAUGES.items()
        if column in columns
    }
    counters = {
        name: _counter(rows.picked(own[column], place)) for column, name in COUNTERS.items() if column in columns
    }
    readers: dict[str, Reader] = {name: partial(_measure, source, rows, place, one) for name, one in measures.items()}
    readers = _measures_with_values(readers) if len(rows.of_nodes) else readers
    found = DeviceSamples(
        node=rows.node[place],
        device=gpu,
        time_us=rows.time_us[place],
        gauges=gauges,
        counters=counters,
        measures=readers,
        known=frozenset(name for name in readers if _is_known(measures[name][0])),
    )
    return found, left_out


def _is_known(column: str) -> bool:
    known = find_metric("dcgm", column)
    return known is not None and known.named({}) is not None


def _node_samples(
    source: _FileColumns, rows: _RowPlaces, labels: pa.Table
) -> tuple[list[DeviceSamples], tuple[str, ...]]:
    """The samples of nodes and their parts: one table of each kind of part."""
    groups, left_out = node_columns(source.schema, labels.column_names)
    part, parts = _parts(labels, rows.of_nodes)
    if len(parts) > GPU_SLOTS:
        kept = part < GPU_SLOTS
        left_out = (*left_out, f"{len(parts) - GPU_SLOTS} ports or sensors: a file has room for {GPU_SLOTS}")
        part, place = part[kept], rows.of_nodes[kept]
    else:
        place = rows.of_nodes
    found = []
    for (kind, name), columns in groups.items():
        measures: dict[str, Reader] = {
            name: partial(_measure, source, rows, place, (column, one.factor))
            for name, (column, one) in columns.items()
        }
        if len(rows.of_gpus) or len({one.source for _, one in columns.values()}) > 1:
            measures = _measures_with_values(measures)
        if not measures:
            continue
        exporter = _exporter({measure: columns[measure] for measure in measures})
        devices = tuple(_device(kind, name, exporter, one) for one in parts[:GPU_SLOTS])
        found.append(
            DeviceSamples(
                node=rows.node[place],
                device=part,
                time_us=rows.time_us[place],
                measures=measures,
                known=frozenset(measure for measure in measures if columns[measure][1].known),
                devices=devices,
            )
        )
    return found, left_out


def _parts(labels: pa.Table, place: Ints) -> tuple[Ints, list[dict[str, str]]]:
    """Of each row the number of its part, and each part's labels; a row without labels is of the node itself."""
    part = np.zeros(len(place), dtype=np.int64)
    parts: list[dict[str, str]] = [{}]
    for name in labels.column_names:
        encoded = labels[name].cast(pa.string()).combine_chunks().dictionary_encode()
        words = [None, *encoded.dictionary.to_pylist()]
        word = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)[place] + 1
        pairs, part = np.unique(part * len(words) + word, return_inverse=True)
        parts = [
            {**parts[pair // len(words)], **({name: said} if (said := words[pair % len(words)]) else {})}
            for pair in pairs.tolist()
        ]
    return part, parts


def _device(kind: str, name: str | None, exporter: str, labels: Mapping[str, str]) -> DevicePlace:
    """The part of a node that a row's labels tell; `kind` and `name` are what its columns tell of it."""
    if not labels:
        return DevicePlace(kind, name=name, source=exporter)
    port = labels.get("port", "")
    if kind == "hca" or (labels.get("device") and port):
        number = int(port) if port.isascii() and port.isdecimal() and len(port) < _MOST_DIGITS else None
        return DevicePlace("hca", name=_printable(labels.get("device") or name or port), port=number, source=exporter)
    if kind == "dimm":
        words = [f"{short}{labels[label]}" for label, short in _MEMORY if label in labels]
        return DevicePlace("dimm", name=_printable("/".join(words) or name or "mc"), source=exporter)
    most = next(label for label in ("sensor", "chip", "lane", "port", "device", *labels) if label in labels)
    whole = "/".join(labels[label] for label in LABELS if label in labels)
    return DevicePlace("sensor" if most == "chip" else most, name=_printable(whole), source=exporter)


def _printable(name: str) -> str:
    return _CONTROL.sub("?", name)[:MAX_DEVICE_NAME]


def _exporter(columns: Mapping[str, tuple[str, NodeMeasure]]) -> str:
    """Who tells most of what the catalogue knows; of what it does not know, whose the names are."""
    known = Counter(one.source for _, one in columns.values() if one.known)
    every = Counter(one.source for _, one in columns.values())
    return (known or every).most_common(1)[0][0]


def _measures_with_values(measures: Mapping[str, Reader]) -> dict[str, Reader]:
    """The measures of which these rows say anything: a file of GPUs and nodes has columns of both."""
    return {name: read for name, read in measures.items() if not np.isnan(read()).all()}


# Of each kind of part and device its measures: by their names the column, and what it is.
NodeColumns: TypeAlias = dict[tuple[str, str | None], dict[str, tuple[str, NodeMeasure]]]


def node_columns(columns: pa.Schema, labels: Sequence[str] = ()) -> tuple[NodeColumns, tuple[str, ...]]:
    """The measures of a node's rows, and a sentence of each column of numbers left out."""
    counts = Counter(columns.names)
    groups: NodeColumns = {}
    left_out = []
    for column in dict.fromkeys(columns.names):
        if column in _KEYS or column in labels or _INDEX.fullmatch(column):
            continue
        if counts[column] == 1 and not _is_number(columns.field(column).type):
            continue
        one = node_measure(column)
        group = groups.setdefault((one.type, one.device), {})
        if one.name in group:
            one = replace(one, name=column[:MAX_DEVICE_NAME], factor=1.0, known=False)
        if counts[column] > 1:
            left_out.append(f"column {column!r}: there are {counts[column]} of that name")
        elif not one.name or _CONTROL.search(one.name):
            left_out.append(f"column {column!r}: give it a name that can be printed")
        elif one.name in group:
            left_out.append(f"column {column!r}: {group[one.name][0]!r} has the same name, {one.name!r}")
        else:
            group[one.name] = (column, one)
    return {key: group for key, group in groups.items() if group}, tuple(left_out)


def other_columns(columns: pa.Schema) -> tuple[dict[str, tuple[str, float]], tuple[str, ...]]:
    """Of each measure of GPUs its column and the factor to its unit, and a sentence of each column left out."""
    counts = Counter(columns.names)
    taken = {name: own for own, name in _OWN.items() if own in counts}
    measures: dict[str, tuple[str, float]] = {}
    left_out = []
    for column in dict.fromkeys(columns.names):
        if column in _KEYS or column in _OWN or _INDEX.fullmatch(column):
            continue
        if counts[column] == 1 and not _is_number(columns.field(column).type):
            continue
        named = measure_of(column)
        if named is None:
            continue
        name, factor = named
        if counts[column] > 1:
            left_out.append(f"column {column!r}: there are {counts[column]} of that name")
        elif not name or _CONTROL.search(name):
            left_out.append(f"column {column!r}: give it a name that can be printed")
        elif name in taken:
            left_out.append(f"column {column!r}: {taken[name]!r} has the same name, {name!r}")
        else:
            taken[name], measures[name] = column, (column, factor)
    return measures, tuple(left_out)


def _as_numbers(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Numbers that were written as text are numbers; a sentence of each column that loses values, or is lost."""
    columns, left_out = {}, []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            is_one = pc.match_substring_regex(column, _NUMBER)
            lost = pc.sum(pc.and_(pc.is_valid(column), pc.invert(is_one))).as_py() or 0
            left_out += [f"column {name!r}: {many(lost, 'value')} are text and no numbers"] if lost else []
            column = pc.if_else(is_one, column, pa.scalar(None, column.type)).cast(pa.float64())
        elif not (_is_number(column.type) or pa.types.is_boolean(column.type) or pa.types.is_null(column.type)):
            left_out.append(f"column {name!r} is {column.type}: write it as numbers")
            continue
        columns[name] = column
    return pa.table(columns), left_out


def _is_number(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _is_label(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_one(plain) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer))


def _time_us(column: pa.ChunkedArray) -> Ints:
    if not pa.types.is_timestamp(column.type):
        raise RecordError(f"the column time is {column.type}: write it as a timestamp in UTC")
    zone = column.type.tz
    # A cast between units of one zone keeps the moment; one without a zone is UTC already.
    cast = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    moments: Ints = cast.fill_null(0).to_numpy()
    return moments


def _gauge(values: Floats) -> Floats:
    values[values >= _BLANK_GAUGE] = np.nan
    return values


def _counter(values: Floats) -> Floats:
    values[np.isin(values, _BLANKS) | (values >= _BLANK_INT64) | (values < 0)] = np.nan
    return values


def _measure(source: _FileColumns, rows: _RowPlaces, place: Ints, measure: tuple[str, float]) -> Floats:
    name, factor = measure
    values = rows.picked(source.read([name])[name], place)
    values[np.isin(values, _BLANKS) | (np.abs(values) >= _BLANK_INT64)] = np.nan
    return values if factor == 1 else values * factor


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
