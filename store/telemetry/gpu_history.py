"""From summed-up telemetry files, in order of time, to events: counters that rose, GPUs that vanished and came back.

    carry = Carry()
    for file in files:
        events = carry.follow(file, "telemetry/2025-03-01.parquet")

A counter's rises within an hour are one event, at the last of them, so that what it says was known at its time.
A GPU is missing at the sample of its node that ends a first whole hour without it; a gap of the node says nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from store.records.event import Action, Cause, Device, Event, Severity, event_id
from store.records.telemetry import COUNTER_EVENTS, rise_in_words
from store.telemetry.rollups import (
    COUNTER_NAMES,
    GPU_SLOTS,
    HOUR_US,
    CounterRises,
    DeviceHistory,
    TelemetryFile,
    moment_of,
)

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_ACTIONS: dict[str, Action] = {"info": "none", "warning": "watch", "error": "run_diagnostics", "fatal": "drain_node"}


def _words(counter: str) -> tuple[str, Severity, Cause]:
    kind, severity, cause = COUNTER_EVENTS[counter]
    return kind, severity, cause  # type: ignore[return-value]  # the table's words are checked by its test


@dataclass(slots=True)
class GpuHistory:
    """What is known of every GPU at the end of the last file followed."""

    nodes: dict[str, int] = field(default_factory=dict)
    last: np.ndarray[Any, np.dtype[np.float64]] = field(
        default_factory=lambda: np.full((0, len(COUNTER_NAMES)), np.nan)
    )
    seen: np.ndarray[Any, np.dtype[np.bool_]] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    missing: np.ndarray[Any, np.dtype[np.bool_]] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    slots: dict[int, int] = field(default_factory=dict)  # node number * GPU_SLOTS + gpu -> row of the arrays

    measures: DeviceHistory = field(default_factory=DeviceHistory)

    def devices(self, file: TelemetryFile) -> tuple[str | None, ...] | None:
        """What the next file tells of devices, as JSON of each of its roll-ups; None where it tells nothing."""
        return None if file.devices is None else self.measures.follow(file.devices, self._rows(file))

    def follow(self, file: TelemetryFile, name: str) -> list[Event]:
        """The events of the next file; `name` (its path in the archive) tells its events' ids from others'."""
        rows = self._rows(file)
        rises = self._joined_rises(file, rows)
        events = [*_rise_events(rises, file.nodes, name), *self._gap_events(file, rows, name)]
        known = ~np.isnan(file.edges.last)
        self.last[rows] = np.where(known, file.edges.last, self.last[rows])
        self.seen[rows] = True
        return events

    def _rows(self, file: TelemetryFile) -> Ints:
        """The row of each key of the file in the carried arrays, which grow for new ones."""
        rows = np.empty(len(file.keys), dtype=np.int64)
        numbers = [self.nodes.setdefault(node, len(self.nodes)) for node in file.nodes]
        for place, key in enumerate(file.keys.tolist()):
            whole = numbers[key // GPU_SLOTS] * GPU_SLOTS + key % GPU_SLOTS
            rows[place] = self.slots.setdefault(whole, len(self.slots))
        more = len(self.slots) - len(self.seen)
        if more:
            self.last = np.vstack([self.last, np.full((more, len(COUNTER_NAMES)), np.nan)])
            self.seen = np.r_[self.seen, np.zeros(more, dtype=bool)]
            self.missing = np.r_[self.missing, np.zeros(more, dtype=bool)]
        return rows

    def _joined_rises(self, file: TelemetryFile, rows: Ints) -> CounterRises:
        """The file's own rises and those since the file before it."""
        step = file.edges.first - self.last[rows]
        place, counter = np.nonzero(step > 0)  # a comparison with NaN is False
        own = file.rises
        return CounterRises(
            counter=np.r_[own.counter, counter],
            key=np.r_[own.key, file.keys[place]],
            time_us=np.r_[own.time_us, file.edges.first_us[place, counter]],
            count=np.r_[own.count, step[place, counter]],
        )

    def _gap_events(self, file: TelemetryFile, rows: Ints, name: str) -> Iterator[Event]:
        gaps = file.gaps
        row_of = dict(zip(file.keys.tolist(), rows.tolist(), strict=True))
        first_us = dict(zip(gaps.node.tolist(), gaps.node_first_us.tolist(), strict=True))
        for key, came_us, late in zip(file.keys.tolist(), gaps.first_us.tolist(), gaps.late.tolist(), strict=True):
            row = row_of[key]
            if self.seen[row] and late and not self.missing[row]:
                yield _gap_event("gpu_missing", file.nodes, key, first_us[key // GPU_SLOTS], name)
                self.missing[row] = True
            if self.missing[row]:
                yield _gap_event("gpu_returned", file.nodes, key, came_us, name)
                self.missing[row] = False
        inner = zip(gaps.key.tolist(), gaps.missing_us.tolist(), gaps.returned_us.tolist(), strict=True)
        for key, gone_us, back_us in inner:
            yield _gap_event("gpu_missing", file.nodes, key, gone_us, name)
            if back_us >= 0:
                yield _gap_event("gpu_returned", file.nodes, key, back_us, name)
            else:
                self.missing[row_of[key]] = True
        yield from self._wholly_absent(file, set(rows.tolist()), first_us, name)

    def _wholly_absent(
        self, file: TelemetryFile, present: set[int], first_us: dict[int, int], name: str
    ) -> Iterator[Event]:
        """GPUs known from before that a whole file never shows, though their node reports in it."""
        local = {self.nodes[node]: number for number, node in enumerate(file.nodes)}
        for whole, row in self.slots.items():
            number = local.get(whole // GPU_SLOTS)
            if number is None or number not in first_us or row in present or self.missing[row] or not self.seen[row]:
                continue
            key = number * GPU_SLOTS + whole % GPU_SLOTS
            yield _gap_event("gpu_missing", file.nodes, key, first_us[number], name)
            self.missing[row] = True


def _rise_events(rises: CounterRises, nodes: tuple[str, ...], name: str) -> Iterator[Event]:
    """One event for each counter, GPU and hour."""
    hour = rises.time_us // HOUR_US
    order = np.lexsort((rises.time_us, hour, rises.counter, rises.key))
    whole: dict[tuple[int, int, int], tuple[int, float]] = {}
    columns = (rises.key, rises.counter, hour, rises.time_us, rises.count)
    for key, counter, at, moment, count in zip(*(column[order].tolist() for column in columns), strict=True):
        _, before = whole.get((key, counter, at), (0, 0.0))
        whole[key, counter, at] = (moment, before + count)
    for (key, counter, at), (moment, count) in whole.items():
        yield _rise_event(
            COUNTER_NAMES[counter], (nodes[key // GPU_SLOTS], key % GPU_SLOTS), moment, count, f"{name}:{at}"
        )


def _rise_event(counter: str, gpu: tuple[str, int], moment_us: int, count: float, origin: str) -> Event:
    kind, severity, cause = _words(counter)
    event = Event(
        time=None,
        node=gpu[0],
        source="dcgm",
        kind=kind,
        severity=severity,
        cause=cause,
        action=_ACTIONS[severity],
        device=Device(type="gpu", index=gpu[1]),
        message=f"{counter} rose",
    )
    # The hour, not the count, makes the id: a day's file that has grown since does not count its hours twice.
    return replace(
        event,
        time=moment_of(moment_us),
        message=rise_in_words(counter, float(count)),
        attributes={"count": int(count), "counter": counter},
        id=event_id(event, origin),
    )


def _gap_event(kind: str, nodes: tuple[str, ...], key: int, moment_us: int, name: str) -> Event:
    gpu = key % GPU_SLOTS
    gone = kind == "gpu_missing"
    event = Event(
        time=moment_of(moment_us),
        node=nodes[key // GPU_SLOTS],
        source="dcgm",
        kind=kind,
        severity="warning" if gone else "info",
        device=Device(type="gpu", index=gpu),
        action="run_diagnostics" if gone else "none",
        message=f"GPU {gpu} no longer reports" if gone else f"GPU {gpu} reports again",
    )
    return replace(event, id=event_id(event, name))
