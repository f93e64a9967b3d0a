"""One telemetry file of an archive: a Parquet table of GPU samples, summed up column by column.

    time                      node     gpu  DCGM_FI_DEV_GPU_TEMP  DCGM_FI_DEV_ECC_SBE_VOL_TOTAL
    2025-03-01 04:00:00+00:00 gpu-017  3    61.0                  4

`summarise` gives the file's roll-ups, the rises of its counters and the gaps of its GPUs, with what
`store.telemetry.gpu_history` needs to join it to the file before. Other columns of numbers become measures of single
devices (`store.telemetry.rollups`); text, booleans and times are left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from store.records.event import RecordError
from store.records.telemetry import COUNTERS, GAUGES
from store.telemetry.measures import measure_of
from store.telemetry.rollups import (
    COUNTER_FIELDS,
    COUNTER_NAMES,
    GPU_SLOTS,
    CounterEdges,
    CounterRises,
    TelemetryFile,
    devices_of,
    find_gaps,
    roll_up,
)

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# A day of 10,000 GPUs at a sample each 30 s; above it, a file must be split, so that memory stays bounded.
MAX_ROWS = 30_000_000
# DCGM writes a blank (not found, not supported, not permitted) as a huge number. Source: DCGM's dcgm_structs.
_BLANKS = [float(first + i) for first in (2_147_483_632, 140_737_488_355_328) for i in range(4)]
_BLANK_GAUGE = 2_147_483_632.0
_BLANK_INT64 = 2.0**63 - 1024

_OWN = {field: name for field, (name, _) in GAUGES.items()} | dict(COUNTERS)
_KEYS = ("time", "node", "gpu")
# What pandas writes of an index that has no name: a number of the row.
_INDEX = re.compile(r"__index_level_\d+__")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class GpuSamples:
    """Columns of equal length: `node` indexes `nodes`; times in microseconds since 1970; absent is NaN."""

    nodes: tuple[str, ...]
    node: Ints
    gpu: Ints
    time_us: Ints
    gauges: Mapping[str, Floats]
    counters: Mapping[str, Floats]
    skipped: int = 0  # rows without a time, node or GPU
    # Each other measure's column by its name, read when it is called: together they may be too large.
    measures: Mapping[str, Callable[[], Floats]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # a sentence of each column of numbers that is not among them


def read_telemetry(path: Path) -> TelemetryFile:
    """Read and sum up a file.

    Raises:
        RecordError: it is no Parquet file, lacks a column, or is larger than MAX_ROWS.
    """
    with _named_errors():
        return summarise(read_samples(path))


def read_samples(path: Path) -> GpuSamples:
    """The samples of a Parquet file.

    Raises:
        RecordError: as `read_telemetry`.
    """
    with _named_errors():
        file = pq.ParquetFile(path)
        if file.metadata.num_rows > MAX_ROWS:
            raise RecordError(f"{file.metadata.num_rows} rows are more than {MAX_ROWS}: split the file by time")
        names = Counter(file.schema_arrow.names)
        missing = {"time", "node", "gpu"} - set(names)
        if missing:
            raise RecordError(f"no column {', '.join(sorted(missing))}: the table needs time, node and gpu")
        wanted = ["time", "node", "gpu", *(f for f in (*GAUGES, *COUNTERS) if f in names)]
        if twice := [name for name in wanted if names[name] > 1]:
            raise RecordError(f"two columns {', '.join(twice)}: leave one of each")
        return _samples(file, file.read(columns=wanted, use_threads=False))


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RecordError(f"no readable Parquet table ({_first_line(error)}): write it anew") from error


def first_moment(path: Path) -> int:
    """The file's earliest time in microseconds, from its footer alone, so that files can be put in order.

    0 where the footer does not tell, or where there is no footer: reading the file will say what is wrong.
    """
    try:
        metadata = pq.ParquetFile(path).metadata
        place = metadata.schema.to_arrow_schema().get_field_index("time")
        if place < 0:
            return 0
        groups = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
        times = [group.min for group in groups if group is not None and group.has_min_max]
    except (pa.ArrowException, OSError):
        return 0
    moments = [moment.replace(tzinfo=moment.tzinfo or UTC) for moment in times if isinstance(moment, datetime)]
    return min((int(moment.timestamp() * 1e6) for moment in moments), default=0)


def _samples(file: pq.ParquetFile, table: pa.Table) -> GpuSamples:
    rows = table.num_rows
    valid = _valid(table)
    if valid is not None:
        table = table.filter(valid)
    node = table["node"].combine_chunks()
    if not pa.types.is_dictionary(node.type):
        node = node.cast(pa.string()).dictionary_encode()
    names = node.dictionary.cast(pa.string()).to_pylist()
    gpu = table["gpu"].cast(pa.int64()).to_numpy()
    if len(gpu) and not (gpu.min() >= 0 and gpu.max() < GPU_SLOTS):
        raise RecordError(f"a gpu index is outside 0..{GPU_SLOTS - 1}: write the index within its node")
    columns = set(table.column_names)
    measures, left_out = other_columns(file.schema_arrow)
    return GpuSamples(
        nodes=tuple(names),
        node=node.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        gpu=gpu,
        time_us=_time_us(table["time"]),
        gauges={name: _gauge(table[field]) * factor for field, (name, factor) in GAUGES.items() if field in columns},
        counters={name: _counter(table[field]) for name, field in COUNTER_FIELDS.items() if field in columns},
        skipped=rows - table.num_rows,
        measures={name: partial(_measure, file, column, valid) for name, column in measures.items()},
        left_out=left_out,
    )


def other_columns(columns: pa.Schema) -> tuple[dict[str, tuple[str, float]], tuple[str, ...]]:
    """Of each measure its column and the factor to its unit, and a sentence of each column of numbers left out."""
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


def _is_number(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _valid(table: pa.Table) -> pa.ChunkedArray | None:
    """Which rows can be placed; None where all can."""
    keys = [table[name] for name in ("time", "node", "gpu")]
    if not any(column.null_count for column in keys):
        return None
    time, node, gpu = map(pc.is_valid, keys)
    return pc.and_(pc.and_(time, node), gpu)


def _time_us(column: pa.ChunkedArray) -> Ints:
    if not pa.types.is_timestamp(column.type):
        raise RecordError(f"the column time is {column.type}: write it as a timestamp in UTC")
    zone = column.type.tz
    # A cast between units of one zone keeps the moment; one without a zone is UTC already.
    moments: Ints = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).to_numpy()
    return moments


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy().copy()
    return values


def _gauge(column: pa.ChunkedArray) -> Floats:
    values = _floats(column)
    values[values >= _BLANK_GAUGE] = np.nan
    return values


def _counter(column: pa.ChunkedArray) -> Floats:
    values = _floats(column)
    values[np.isin(values, _BLANKS) | (values >= _BLANK_INT64) | (values < 0)] = np.nan
    return values


def _measure(file: pq.ParquetFile, measure: tuple[str, float], valid: pa.ChunkedArray | None) -> Floats:
    name, factor = measure
    column = file.read(columns=[name], use_threads=False)[name]
    values = _floats(column if valid is None else column.filter(valid))
    values[np.isin(values, _BLANKS) | (np.abs(values) >= _BLANK_INT64)] = np.nan
    return values if factor == 1 else values * factor


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def summarise(samples: GpuSamples) -> TelemetryFile:
    """Roll-ups, rises and gaps of a file's samples, in whatever order they come."""
    key = samples.node * GPU_SLOTS + samples.gpu
    order = np.lexsort((samples.time_us, key))
    key, time_us = key[order], samples.time_us[order]
    keys, starts = np.unique(key, return_index=True)
    columns = [
        samples.counters[name][order] if name in samples.counters else np.full(len(key), np.nan)
        for name in COUNTER_NAMES
    ]
    measures = {name: partial(_in_order, read, order) for name, read in samples.measures.items()}
    devices = devices_of(key, time_us, GPU_SLOTS, measures)
    rises, edges = _follow(columns, np.searchsorted(keys, key), time_us, len(keys))
    return TelemetryFile(
        nodes=samples.nodes,
        rows=len(key),
        skipped=samples.skipped,
        rollups=roll_up(samples.node[order], samples.gpu[order], time_us, _ordered(samples.gauges, order)),
        keys=keys,
        rises=CounterRises(rises.counter, keys[rises.key], rises.time_us, rises.count),
        edges=edges,
        gaps=find_gaps(keys, starts, time_us, GPU_SLOTS),
        devices=devices,
        left_out=samples.left_out if devices is None else samples.left_out + devices.left_out,
    )


def _in_order(read: Callable[[], Floats], order: Ints) -> Floats:
    return read()[order]


def _ordered(columns: Mapping[str, Floats], order: Ints) -> dict[str, Floats]:
    return {name: column[order] for name, column in columns.items()}


def _follow(columns: list[Floats], key: Ints, time_us: Ints, keys: int) -> tuple[CounterRises, CounterEdges]:
    """Each counter along each GPU's own time: a fall is a reset and no rise; an absent value changes nothing."""
    shape = (keys, len(columns))
    first, last, first_us = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    found: list[tuple[Ints, Ints, Ints, Floats]] = []
    for number, column in enumerate(columns):
        known = ~np.isnan(column)
        values, owner, moment = column[known], key[known], time_us[known]
        if not len(values):
            continue
        changes = np.flatnonzero(np.diff(owner)) + 1
        begins, ends = np.r_[0, changes], np.r_[changes, len(owner)] - 1
        first[owner[begins], number], last[owner[ends], number] = values[begins], values[ends]
        first_us[owner[begins], number] = moment[begins]
        step = np.diff(values)
        risen = np.flatnonzero((step > 0) & (owner[1:] == owner[:-1])) + 1
        found.append((np.full(len(risen), number), owner[risen], moment[risen], step[risen - 1]))
    parts = [
        np.concatenate(part) if found else np.empty(0) for part in (zip(*found, strict=True) if found else [()] * 4)
    ]
    whole = [part.astype(np.int64) for part in parts[:3]]
    return CounterRises(whole[0], whole[1], whole[2], parts[3].astype(np.float64)), CounterEdges(first, first_us, last)
