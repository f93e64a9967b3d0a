"""Asking what happened in a window that ends just before a moment, for many groups and moments at once.

    line = Timeline.of(groups=node, times_ms=time)
    line.count(rows.node, rows.time_ms, 7 * DAY_MS)   # how many in [t - 7 d, t), one figure a row

What happened is sorted once by (group, time); a window is then two binary searches.
A group below 0 stands for none: nothing ever happened in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# One feature: its name, the group it is explained with, and how the model may use it.

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of the dataset.

    Attributes:
        name: the column; carries its unit or window (`ecc_sbe_7d`, `gpu_temp_max_c`).
        group: features of one group are explained together.
        reference: its value where nothing has happened; NaN = unknown, None = what is usual in the fleet at the moment.
        monotonic: 1 where more of it never lowers the risk, -1 where it never raises it, 0 free.
    """

    name: str
    group: str
    reference: float | None = 0.0
    monotonic: int = 0


# What is known of a fleet, as compact arrays: read once, asked at many moments.
#
# Times are int64 milliseconds since 1970 (UTC), rounded down: an event in the millisecond of a moment is not before it.

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Grid: TypeAlias = NDArray[np.float32]  # (rows, features)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FAR_FUTURE_MS = 2**62
FAR_PAST_MS = -(2**62)
# How far back features look at events and telemetry (28 days: Meta's lemon snapshot, FIELD A1 and A3.5).
EVENT_WINDOW_MS = 28 * DAY_MS
TELEMETRY_WINDOW_H = 8 * 24
# A measure that is told only when it changes stands for ever; retention decides how much there is to read.
MEASURE_WINDOW_MS = 3650 * DAY_MS
# Events closer than this to the one before are one incident (FIELD A3.3): that much more is read than the window.
INCIDENT_GAP_MS = 60_000
# An exporter's gauge shows an Xid up to an interval later, a day at most: another word of it so far back counts.
GAUGE_GAP_MS = DAY_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Numbers are marked in a range that holds so many times their count; in a longer one they are sorted.
_MOST_SPARSE = 32


def to_ms(moment: datetime) -> int:
    """A moment as milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(value: int) -> datetime:
    """Milliseconds since 1970 as an aware moment."""
    return _EPOCH + timedelta(milliseconds=int(value))


@dataclass(frozen=True, slots=True)
class FleetArrays:
    """The nodes, by name; the arrays have one entry a node.

    `leaf`, `rack` and `model` are group numbers, -1 unknown; models are numbered in the order of their names, so that
    those of one maker are neighbours. `gpus` is NaN where unknown.
    `until_ms` decides who is at risk and what is censored, and is never a feature: it knows the future.
    """

    names: tuple[str, ...]
    leaf: Ints
    rack: Ints
    gpus: Floats
    since_ms: Ints
    until_ms: Ints
    model: Ints

    @property
    def index(self) -> Mapping[str, int]:
        """The position of each name."""
        return {name: i for i, name in enumerate(self.names)}


@dataclass(frozen=True, slots=True)
class Precursors:
    """Precursor events, sorted by (node, time); one entry an event. `device` points into `devices`."""

    node: Ints
    time_ms: Ints
    family: Ints  # position in families.FAMILIES; -1 for a serious event of none
    weight: Floats  # attributes.count, 1 where there is none
    device: Ints
    serious: Bools
    devices: tuple[str, ...]  # as an operator names it: "GPU 3", "GPU 0000:0f:00.0", ""
    ids: NDArray[np.object_]

    def only(self, kept: Bools | Ints) -> "Precursors":
        """Those that a mask or a list of positions keeps."""
        node, time_ms, family, weight = (self.node[kept], self.time_ms[kept], self.family[kept], self.weight[kept])
        return Precursors(
            node, time_ms, family, weight, self.device[kept], self.serious[kept], self.devices, self.ids[kept]
        )


@dataclass(frozen=True, slots=True)
class OutageLog:
    """Outages in order of their start. `end_ms` is FAR_FUTURE_MS while one lasts."""

    node: Ints
    start_ms: Ints
    end_ms: Ints
    planned: Bools
    driver: Bools  # a planned one that changed the driver
    repair: Ints | None = None  # what its reason says was done, a place among `repair_kinds()`; -1: it says nothing

    def only(self, kept: Bools) -> "OutageLog":
        """Those that a mask keeps."""
        times = (self.node[kept], self.start_ms[kept], self.end_ms[kept])
        repair = None if self.repair is None else self.repair[kept]
        return OutageLog(*times, self.planned[kept], self.driver[kept], repair)


TELEMETRY_COLUMNS = (
    "samples",
    "gpus_seen",
    "gpu_temp_mean_c",
    "gpu_temp_max_c",
    "gpu_temp_spread_c",
    "memory_temp_max_c",
    "power_mean_w",
    "power_max_w",
    "gpu_util_mean",
    "sm_clock_min_mhz",
)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Roll-ups of whole hours, sorted by (node, time). `time_ms` is the END of the hour: only then it is known.

    `values` is (entries, TELEMETRY_COLUMNS), NaN where nobody measured. `lit_ms` are the ends of the hours in which
    the fleet was listened to, ascending: an hour that is dark for all says nothing of one node.
    """

    node: Ints
    time_ms: Ints
    values: NDArray[np.float32]
    lit_ms: Ints

    def column(self, name: str) -> NDArray[np.float32]:
        """One quantity of every entry."""
        return self.values[:, TELEMETRY_COLUMNS.index(name)]


@dataclass(frozen=True, slots=True)
class Series:
    """One numeric measure of many devices, sorted by (subject, device, time).

    One entry an hour in which it was told; `time_ms` is the END of the hour. `last` and `high` are the hour's.
    """

    subject: Ints
    device: Ints
    time_ms: Ints
    last: NDArray[np.float32]
    high: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Which attempts held which nodes: one entry an attempt and node. `end_ms` is FAR_FUTURE_MS while one runs."""

    node: Ints
    attempt: Ints
    start_ms: Ints
    end_ms: Ints


@dataclass(frozen=True, slots=True)
class History:
    """All that features are made of. `start_ms` is the first moment that the store speaks of.

    `measures` are numeric telemetry columns that no roll-up has a column for, by name.
    """

    fleet: FleetArrays
    precursors: Precursors
    outages: OutageLog
    telemetry: Telemetry
    jobs: Jobs
    start_ms: int
    measures: Mapping[str, Series] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Population:
    """Who can fail, and when they did: what rows are chosen by, before any feature is computed."""

    fleet: FleetArrays
    outages: OutageLog
    end_ms: int  # the last moment that the data speak of


# Rows: which subject is asked at which moment. A subject is what may fail: a node, a link.


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry a row: `node` is the subject's position in the fleet, `time_ms` the moment that it is judged at."""

    node: Ints
    time_ms: Ints

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.node)

    def only(self, kept: Bools | Ints) -> "Rows":
        """Those that a mask or a list of positions keeps."""
        return Rows(self.node[kept], self.time_ms[kept])


def joined(first: Rows, second: Rows) -> Rows:
    """The rows of both, one after the other."""
    return Rows(np.concatenate([first.node, second.node]), np.concatenate([first.time_ms, second.time_ms]))


def every(size: int, moments: Sequence[datetime]) -> Rows:
    """Each of `size` subjects at each moment, in order of (time, subject)."""
    times = np.array([to_ms(moment) for moment in moments], dtype=np.int64)
    return Rows(np.tile(np.arange(size, dtype=np.int64), len(times)), np.repeat(times, size))


# Longer than any history, short enough to subtract.
EVER_MS = 2**50


@dataclass(frozen=True, slots=True)
class WindowIndex:
    """What happened, sorted. `order` gives the sorted entries' positions in the arrays that it was made of."""

    keys: Ints  # group * span + time since base, ascending
    times_ms: Ints
    order: Ints
    base_ms: int
    span_ms: int

    @classmethod
    def of(cls, groups: Ints, times_ms: Ints) -> "WindowIndex":
        """Sort entries, one group (>= 0) and time each. Groups times the span of time must stay below 2**63."""
        if not len(groups):
            nothing = np.empty(0, dtype=np.int64)
            return cls(nothing, nothing, nothing, 0, 2)
        base, span = int(times_ms.min()), int(times_ms.max() - times_ms.min()) + 2
        keys = groups * span + (times_ms - base)
        if (keys[1:] >= keys[:-1]).all():  # as what is held in order is
            return cls(keys, times_ms, np.arange(len(keys)), base, span)
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], times_ms[order], order, base, span)

    def before(self, groups: Ints, moments_ms: Ints) -> Ints:
        """How many sorted entries lie before each (group, moment); those of lower groups are counted in."""
        offset = np.clip(moments_ms - self.base_ms, 0, self.span_ms - 1)
        return np.searchsorted(self.keys, groups * self.span_ms + offset, side="left")

    def within(self, groups: Ints, moments_ms: Ints, window_ms: int) -> tuple[Ints, Ints]:
        """The sorted entries of [t - window, t): the first, and the one after the last."""
        return self.before(groups, moments_ms - window_ms), self.before(groups, moments_ms)

    def count(self, groups: Ints, moments_ms: Ints, window_ms: int) -> Floats:
        """How many entries lie in [t - window, t)."""
        first, end = self.within(groups, moments_ms, window_ms)
        return (end - first).astype(np.float64)

    def age_d(self, groups: Ints, moments_ms: Ints, window_ms: int = EVER_MS) -> Floats:
        """Days since the last entry of [t - window, t); NaN where there is none."""
        return self.since_last_d(*self.within(groups, moments_ms, window_ms), moments_ms)

    def since_last_d(self, first: Ints, end: Ints, moments_ms: Ints) -> Floats:
        """Days since the last of the sorted entries [first, end); NaN where there is none."""
        last = self.times_ms[np.maximum(end - 1, 0)] if len(self.times_ms) else np.zeros_like(end)
        return np.where(end > first, (moments_ms - last) / DAY_MS, np.nan)

    def ordered(self, weights: Floats | NDArray[np.float32]) -> Floats:
        """Weights given in the order of the entries that the line was made of, in its own; NaN counts as nothing."""
        return np.nan_to_num(weights[self.order]).astype(np.float64)

    def sums(self, groups: Ints, moments_ms: Ints, window_ms: int, ordered: Floats) -> Floats:
        """The weights of [t - window, t)."""
        return sum_within(ordered, *self.within(groups, moments_ms, window_ms))


def renumbered(known: Mapping[str, int], fleet: Sequence[str]) -> tuple[dict[str, int], Ints]:
    """Names by number as a fleet has them, others behind it as they came; and the new number of each old one."""
    numbers = {name: at for at, name in enumerate(fleet)}
    for name in known:
        numbers.setdefault(name, len(numbers))
    return numbers, np.array([numbers[name] for name in known], dtype=np.int64)


def distinct(numbers: Ints, size: int) -> tuple[Ints, Ints]:
    """The distinct ones of numbers from 0 to size - 1, ascending, and the place of each number among them.

    As `np.unique` does, but by marking instead of sorting where the range is not much longer than the numbers.
    """
    if size > _MOST_SPARSE * len(numbers):
        found, place = np.unique(numbers, return_inverse=True)
        return found, place.ravel()
    marked = np.zeros(size, dtype=np.bool_)
    marked[numbers] = True
    return np.flatnonzero(marked), (np.cumsum(marked) - 1)[numbers]


def sum_within(values: Floats, first: Ints, end: Ints) -> Floats:
    """The sum of values[first:end], one a row.

    Only these entries are added up: a difference of running sums would depend on all the others, by a rounding error.
    """
    return _reduced(np.add, np.append(values, 0.0), first, end, empty=0.0)


def largest_within(values: NDArray[np.float32], first: Ints, end: Ints) -> Floats:
    """The largest of values[first:end], NaN aside, one a row; NaN where there is none."""
    return _reduced(np.fmax, np.append(values, np.float32(np.nan)), first, end, empty=np.nan)


def _reduced(how: np.ufunc, padded: Floats | NDArray[np.float32], first: Ints, end: Ints, empty: float) -> Floats:
    """What `how` makes of padded[first:end], one a row, in order of `first`: what lies between is passed over once."""
    if not len(first):
        return np.empty(0)
    order = np.argsort(first, kind="stable")
    bounds = np.empty(2 * len(first), dtype=np.int64)
    bounds[0::2], bounds[1::2] = first[order], np.maximum(end, first)[order]
    found = np.empty(len(first))
    found[order] = how.reduceat(padded, bounds)[::2]
    return np.where(end > first, found, empty)


@dataclass(frozen=True, slots=True)
class DeviceIndex:
    """The devices of each subject that anything is known of, renumbered so that those of one are neighbours.

    `of` gives each entry's part; the parts of subject n are first[n] .. first[n + 1] - 1.
    """

    of: Ints
    first: Ints

    @classmethod
    def number(cls, subject: Ints, device: Ints, subjects: int) -> "DeviceIndex":
        """Number the (subject, device) pairs of entries."""
        most = int(device.max()) + 1 if len(device) else 1
        present, rank = np.unique(subject * most + device, return_inverse=True)
        return cls(rank.astype(np.int64), np.searchsorted(present // most, np.arange(subjects + 1)))

    def each(self, subjects: Ints) -> tuple[Ints, Ints]:
        """Every part of every row's subject: the row's position, ascending, and the part."""
        count = self.first[subjects + 1] - self.first[subjects]
        row = np.repeat(np.arange(len(subjects), dtype=np.int64), count)
        begun = np.cumsum(count) - count
        part = np.arange(len(row), dtype=np.int64) - np.repeat(begun - self.first[subjects], count)
        return row, part


def largest_of_row(values: Floats, row: Ints, size: int, fill: float) -> Floats:
    """The largest value of each row, NaN aside; `row` ascends; `fill` where a row has none."""
    found = np.full(size, fill)
    if len(row):
        first = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        found[row[first]] = np.fmax.reduceat(values, first)
    return found
