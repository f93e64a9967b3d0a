"""Telemetry of single devices as arrays: every measure that the store holds, whoever told it, without code of its own.

    measured = read_device_telemetry(connection, fleet.index, first_ms, last_ms)
    measured.series["smart_5"].last            # of each drive and hour in which it was told
    measured.devices[series.device[0]]         # "gpu:0", "nic:mlx5_0/1"

What a year of a large fleet tells is tens of millions of figures: they are gathered in 12 bytes each, beside 24 of
each hour of a device.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import HOUR_MS, Ints, Series, from_ms
from store.records.telemetry import COUNTERS, GAUGES
from store.tables import schema
from store.tables.bulk_rows import is_one_of
from store.tables.packed_hours import TOLD, PackedHours

_FETCH_ROLLUPS = 5_000
# Names of measures that are told apart; a site that has more would fill the memory with them.
MAX_NAMES = 2048
# Roll-ups read at once. Of more (a large fleet tells of every device each hour) only some hours of the day are read.
MAX_ROLLUPS = 3_000_000
_STRIDES_H = (1, 2, 3, 4, 6, 8, 12)
# What roll-ups have columns for, or what becomes events, has features of its own.
_ELSEWHERE = frozenset({*(name for name, _ in GAUGES.values()), *COUNTERS.values()})
_NOWHERE: frozenset[str] = frozenset()
# What a node's own rows say of it is in no column of GPUs.
_OF_NODE = ("node", "bmc")

# Min, max, mean, last, changes.
_Figures: TypeAlias = tuple[float | None, float | None, float | None, float | None, float | None]
_DECODER = msgspec.json.Decoder(dict[str, dict[str, _Figures]])


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """Every measure by its name, and the names of devices that `Series.device` points into.

    `left_out` counts roll-ups whose JSON nobody can read, and figures of measures beyond MAX_NAMES.
    """

    series: dict[str, Series]
    devices: tuple[str, ...]
    left_out: int = 0


def read_measures(
    connection: sa.Connection, fleet_index: Mapping[str, int], first_ms: int, last_ms: int
) -> dict[str, Series]:
    """Every measure by its name, as `read_measured`."""
    return read_device_telemetry(connection, fleet_index, first_ms, last_ms).series


def read_device_telemetry(
    connection: sa.Connection, fleet_index: Mapping[str, int], first_ms: int, last_ms: int, stride_h: int | None = None
) -> DeviceTelemetry:
    """What was told of the devices of known nodes in the hours that begin at `first_ms` or later and end by `last_ms`.

    Args:
        fleet_index: the number of each node that is wanted.
        stride_h: these nodes are a part of the fleet, of whose hours so many are one (`stride_of` the whole); None:
            they are the whole.
    """
    gathered = _DeviceRollups()
    every_h = stride_of(connection, first_ms, last_ms) if stride_h is None else stride_h
    if not every_h:
        return gathered.measured()
    query = _query(connection, first_ms, last_ms, every_h)
    if stride_h is not None:
        query = query.where(is_one_of(connection, schema.telemetry.c.node, fleet_index))
    with connection.execute(query) as rows:
        hours = PackedHours(connection)
        for node, time_ms, text, packed in rows:
            subject = fleet_index.get(node)
            if subject is not None:
                gathered.take(subject, time_ms + HOUR_MS, hours.devices(from_ms(time_ms), text, packed))
    return gathered.measured()


def _wanted(first_ms: int, last_ms: int) -> tuple[sa.ColumnElement[bool], ...]:
    time = schema.telemetry.c.time
    return (time >= from_ms(first_ms), time <= from_ms(last_ms - HOUR_MS), TOLD)


def stride_of(connection: sa.Connection, first_ms: int, last_ms: int) -> int:
    """Of how many hours one is read, so that at most MAX_ROLLUPS are; 0: none, since no hour tells of any device.

    That there are none is known by one look at the table, which ends at the first: by the index on time, which knows
    nothing of devices, SQLite takes ten times as long.
    """
    if not connection.scalar(sa.select(sa.exists().where(TOLD))):
        return 0
    wanted = _wanted(first_ms, last_ms)
    count = connection.scalar(sa.select(sa.func.count()).select_from(schema.telemetry).where(*wanted)) or 0
    return next((hours for hours in _STRIDES_H if count <= hours * MAX_ROLLUPS), 24)


def _query(connection: sa.Connection, first_ms: int, last_ms: int, stride_h: int) -> sa.Select[Any]:
    """Node, start of the hour in ms, and the devices: nothing is decoded before it is known to be wanted."""
    table = schema.telemetry
    if connection.dialect.name == "postgresql":
        time_ms: sa.ColumnElement[Any] = sa.cast(sa.func.extract("epoch", table.c.time) * 1000, sa.BigInteger)
    else:
        time_ms = sa.type_coerce(table.c.time, sa.BigInteger) // 1000
    columns = (table.c.node, time_ms, sa.cast(table.c.devices, sa.Text), table.c.packed)
    query = sa.select(*columns).where(*_wanted(first_ms, last_ms))
    if stride_h > 1:
        query = query.where(time_ms // HOUR_MS % stride_h == 0)
    return query.execution_options(yield_per=_FETCH_ROLLUPS)


@dataclass(slots=True)
class _MeasureFigures:
    """The figures of one measure: which device's hour, the last value, the highest."""

    hour: "array[int]" = field(default_factory=lambda: array("i"))
    last: "array[float]" = field(default_factory=lambda: array("f"))
    high: "array[float]" = field(default_factory=lambda: array("f"))


@dataclass(slots=True)
class _DeviceRollups:
    """Hours of devices in the order of the database, and the figures of each measure that point into them."""

    subject: "array[int]" = field(default_factory=lambda: array("q"))
    device: "array[int]" = field(default_factory=lambda: array("q"))
    time_ms: "array[int]" = field(default_factory=lambda: array("q"))
    devices: dict[str, int] = field(default_factory=dict)
    figured: dict[str, _MeasureFigures] = field(default_factory=dict)
    left_out: int = 0

    def take(self, subject: int, time_ms: int, told: Any) -> None:
        """One roll-up's devices, as JSON or read."""
        try:
            devices = _DECODER.decode(told) if isinstance(told, str) else told
        except (msgspec.ValidationError, msgspec.DecodeError):
            self.left_out += 1
            return
        for device, measures in devices.items():
            hour = len(self.time_ms)
            self.subject.append(subject)
            self.device.append(self.devices.setdefault(device, len(self.devices)))
            self.time_ms.append(time_ms)
            left_out = _NOWHERE if device in _OF_NODE else _ELSEWHERE
            for name, (_, high, _, last, _) in measures.items():
                if last is None or high is None or name in left_out:
                    continue
                figured = self.figured.get(name) or self._figured(name)
                figured.hour.append(hour)
                figured.last.append(last)
                figured.high.append(high)

    def _figured(self, name: str) -> _MeasureFigures:
        """A place for a measure that was not met before; one that is thrown away, beyond MAX_NAMES."""
        if len(self.figured) >= MAX_NAMES:
            self.left_out += 1
            return _MeasureFigures()
        return self.figured.setdefault(name, _MeasureFigures())

    def measured(self) -> DeviceTelemetry:
        """Everything in order of subject, device and time; what was gathered is given up on the way."""
        columns = [np.frombuffer(one, dtype=np.int64) if one else np.empty(0, np.int64) for one in self._columns()]
        order = np.lexsort((columns[2], columns[1], columns[0]))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        series = {}
        for name in sorted(self.figured):
            figured = self.figured.pop(name)
            if figured.hour:
                series[name] = _series(figured, columns, place)
        return DeviceTelemetry(series, tuple(self.devices), self.left_out)

    def _columns(self) -> "tuple[array[int], array[int], array[int]]":
        return self.subject, self.device, self.time_ms


def _series(figured: _MeasureFigures, columns: list[Ints], place: Ints) -> Series:
    hour = np.frombuffer(figured.hour, dtype=np.int32)
    order = np.argsort(place[hour], kind="stable")
    hour = hour[order]
    subject, device, time_ms = (column[hour] for column in columns)
    last, high = (np.frombuffer(one, dtype=np.float32)[order] for one in (figured.last, figured.high))
    return Series(subject, device, time_ms, last, high)
