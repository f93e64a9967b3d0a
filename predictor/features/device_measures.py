"""Features of any numeric measure that telemetry holds, without code of its own: SMART values, optics, other makers'.

For a measure `m`, each the largest among the node's devices:

    m.last      its last value, however old: a row stands until the next one
    m.high_7d   the highest of the last 7 days
    m.mean_1d   the mean of the last day
    m.up_1d _7d _28d   by how much it rose, falls (a counter that began anew) left out
    m.rises_28d how often it rose
    m.rise_age_d  days since it last rose
    m.untold_d  days since the newest hour in which any device told it
    m.lost_7d   the share of its usual tellings (of the 28 days before) that the last 7 days lack
    m.change_28d  the last day's mean less that of the 28 days before
    m.above_fleet  the last day's mean less that of all devices of the fleet

and of a measure that is the time of a boot (`boot_time_s`, `boot_max`), besides:

    m.boot_age_d  days since the newest boot that is known
    m.boots_7d _28d  how often it was booted

It counts only hours that have ended. A measure that never differs gives no features.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import (
    DAY_MS,
    EVER_MS,
    NAN,
    DeviceIndex,
    Feature,
    Floats,
    History,
    Ints,
    Rows,
    Series,
    WindowIndex,
    largest_of_row,
    largest_within,
    sum_within,
)

# A site's exporter may tell hundreds; those with most entries are kept.
MAX_MEASURES = 64
_RISE_DAYS = (1, 7, 28)
SUFFIXES = (
    *("last", "high_7d", "mean_1d"),
    *(f"up_{window}d" for window in _RISE_DAYS),
    *("rises_28d", "rise_age_d", "untold_d"),
    *("lost_7d", "change_28d", "above_fleet"),
)
BOOT_SUFFIXES = ("boot_age_d", "boots_7d", "boots_28d")
# Whose value is the moment of a boot in seconds since 1970, as node_exporter's or Ganglia's, and a day's extreme of it.
_BOOT = re.compile(r"(?:^|.*_)boot(?:_?time)?(?:_s|_seconds)?(?:_min|_max|_mean|_last)?")
# A boot time moves by seconds as clocks are set, and float32 holds it to two minutes.
_BOOT_APART_S = 300.0
_EARLIEST_BOOT_S, _LATEST_BOOT_S = 9.5e8, 2.0**32
# A figure is a whole number and 2**-24ths of one: sums of both are the same in whatever order and parts they are added.
_FRACTION = 2.0**24
_LARGEST = 2.0**43
_UNKNOWN_AT_FIRST = ("rise_age_d", "untold_d", "boot_age_d")


@dataclass(frozen=True, slots=True)
class Extent:
    """How often a measure was told, and between which values: what decides whether it becomes features."""

    entries: int
    low: float
    high: float

    @classmethod
    def of(cls, series: Series) -> "Extent":
        """That of one series; NaN where it holds nothing measured."""
        if not len(series.last):
            return cls(0, NAN, NAN)
        return cls(len(series.last), float(np.fmin.reduce(series.last)), float(np.fmax.reduce(series.last)))

    def joined(self, other: "Extent") -> "Extent":
        """That of both together."""
        low, high = float(np.fmin(self.low, other.low)), float(np.fmax(self.high, other.high))
        return Extent(self.entries + other.entries, low, high)


def features_of(history: History) -> tuple[Feature, ...]:
    """The features of the history's measures."""
    return features_of_measures(chosen_measures(history.measures))


def features_of_measures(names: Iterable[str]) -> tuple[Feature, ...]:
    """The features of some measures."""
    return tuple(
        Feature(f"{name}.{suffix}", name, reference=NAN if suffix in _UNKNOWN_AT_FIRST else None)
        for name in names
        for suffix in suffixes_of(name)
    )


def suffixes_of(name: str) -> tuple[str, ...]:
    """What is made of a measure, in the order of its columns."""
    return SUFFIXES + BOOT_SUFFIXES if _BOOT.fullmatch(name) else SUFFIXES


@dataclass(frozen=True, slots=True)
class FleetHours:
    """What all devices told of a measure in each hour: sums of whole numbers and of fractions, and a count."""

    time_ms: Ints
    whole: Ints
    fraction: Ints
    count: Ints

    @classmethod
    def of(cls, series: Series) -> "FleetHours":
        """Those of some nodes."""
        whole, fraction = _exact(series.last)
        return cls(series.time_ms, whole, fraction, np.ones(len(whole), dtype=np.int64)).added()

    @classmethod
    def joined(cls, parts: Iterable["FleetHours"]) -> "FleetHours":
        """Those of all parts of a fleet."""
        columns = zip(*((part.time_ms, part.whole, part.fraction, part.count) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns)).added()

    def added(self) -> "FleetHours":
        """Entries of one hour added up."""
        time_ms, hour = np.unique(self.time_ms, return_inverse=True)
        sums = [np.zeros(len(time_ms), dtype=np.int64) for _ in range(3)]
        for total, column in zip(sums, (self.whole, self.fraction, self.count), strict=True):
            np.add.at(total, hour, column)
        return FleetHours(time_ms, *sums)

    def above(self, own: Floats | NDArray[np.float32], time_ms: Ints) -> Floats:
        """Each row's own mean of the last day less that of the fleet."""
        first = np.searchsorted(self.time_ms, time_ms - DAY_MS, side="right")
        end = np.searchsorted(self.time_ms, time_ms, side="right")
        above: Floats = own.astype(np.float32) - _mean((self.whole, self.fraction), self.count, first, end)
        return above


def _exact(values: NDArray[np.float32]) -> tuple[Ints, Ints]:
    """Figures as whole numbers and fractions."""
    bounded = np.clip(np.nan_to_num(values).astype(np.float64), -_LARGEST, _LARGEST)
    whole = np.floor(bounded)
    return whole.astype(np.int64), np.rint((bounded - whole) * _FRACTION).astype(np.int64)


def _mean(figures: tuple[Ints, Ints], count: Ints, first: Ints, end: Ints) -> Floats:
    """The mean of figures[first:end], one a row; NaN of none."""
    whole, fraction, number = (_between(column, first, end) for column in (*figures, count))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Floats = (whole + fraction / _FRACTION) / number
    return mean


def _between(column: Ints, first: Ints, end: Ints) -> Ints:
    running = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(column)])
    between: Ints = running[end] - running[first]
    return between


def chosen_measures(measures: Mapping[str, Series]) -> list[str]:
    """The measures that differ at all; of very many, those with most entries; by name."""
    return choose({name: Extent.of(series) for name, series in measures.items()})


def choose(extents: Mapping[str, Extent]) -> list[str]:
    """The same, from what is known of each measure."""
    return most_frequent({name: extent for name, extent in extents.items() if extent.low < extent.high})


def most_frequent(extents: Mapping[str, Extent]) -> list[str]:
    """Those with most entries, by name."""
    return sorted(sorted(extents, key=lambda name: (-extents[name].entries, name))[:MAX_MEASURES])


def compute(history: History, rows: Rows, names: Iterable[str] | None = None) -> dict[str, Floats]:
    """Every feature of every measure (None: of those that are `chosen`); NaN where it was never told."""
    found: dict[str, Floats] = {}
    for name in chosen_measures(history.measures) if names is None else names:
        found |= _of_measure(name, history.measures[name], rows, len(history.fleet.names))
    return found


def _of_measure(name: str, series: Series, rows: Rows, subjects: int) -> dict[str, Floats]:
    parts = DeviceIndex.number(series.subject, series.device, subjects)
    line = WindowIndex.of(parts.of, series.time_ms)
    row, part = parts.each(rows.node)
    now = rows.time_ms[row] + 1  # an hour that ends at the very moment has ended
    end = line.before(part, now)
    begun = line.before(part, np.full(len(part), line.base_ms, dtype=np.int64))
    reported = end > begun
    last, high = series.last[line.order].astype(np.float64), series.high[line.order]
    newest = np.maximum(end - 1, 0)

    def most(values: Floats) -> Floats:
        return largest_of_row(np.where(reported, values, np.nan), row, len(rows), NAN)

    found = {f"{name}.last": most(last[newest])}
    found[f"{name}.high_7d"] = most(largest_within(high, line.before(part, now - 7 * DAY_MS), end))
    day = line.before(part, now - DAY_MS)
    total = sum_within(line.ordered(series.last), day, end)
    with np.errstate(invalid="ignore", divide="ignore"):
        found[f"{name}.mean_1d"] = most(total / (end - day))
    found |= {f"{name}.{suffix}": most(values) for suffix, values in _rises(line, series, part, now).items()}
    untold_d = (now - 1 - line.times_ms[newest]) / DAY_MS
    found[f"{name}.untold_d"] = -most(-untold_d)
    found |= {f"{name}.{suffix}": most(values) for suffix, values in _past(line, series, part, (now, end)).items()}
    if _BOOT.fullmatch(name):
        boots = _boots(line, series, part, (now, newest))
        found |= {f"{name}.{suffix}": most(values) for suffix, values in boots.items()}
        # Of a node that tells of several boots the newest is meant.
        found[f"{name}.boot_age_d"] = -most(-boots["boot_age_d"])
    found[f"{name}.above_fleet"] = FleetHours.of(series).above(found[f"{name}.mean_1d"], rows.time_ms)
    return found


def _past(line: WindowIndex, series: Series, part: Ints, at: tuple[Ints, Ints]) -> dict[str, Floats]:
    """The last days against the four weeks before them: how often it was told, and what it came to."""
    now, end = at
    ones = np.ones(len(series.last), dtype=np.int64)
    week, before_week = line.before(part, now - 7 * DAY_MS), line.before(part, now - 35 * DAY_MS)
    usual = (week - before_week) / 4.0
    with np.errstate(invalid="ignore", divide="ignore"):
        lost = np.where(usual > 0, np.clip(1.0 - (end - week) / usual, 0.0, 1.0), np.nan)
    whole, fraction = _exact(series.last[line.order])
    day, before_day = line.before(part, now - DAY_MS), line.before(part, now - 29 * DAY_MS)
    recent = _mean((whole, fraction), ones, day, end)
    return {"lost_7d": lost, "change_28d": recent - _mean((whole, fraction), ones, before_day, day)}


def _boots(line: WindowIndex, series: Series, part: Ints, at: tuple[Ints, Ints]) -> dict[str, Floats]:
    """How long ago the last boot was that is known, and how often its moment moved on."""
    now, newest = at
    last = series.last[line.order].astype(np.float64)
    last = np.where((last > _EARLIEST_BOOT_S) & (last < _LATEST_BOOT_S), last, np.nan)
    group = line.keys // line.span_ms
    again = np.zeros(len(last), dtype=bool)
    again[1:] = (group[1:] == group[:-1]) & (last[1:] - last[:-1] > _BOOT_APART_S)
    booted = WindowIndex.of(group[again], line.times_ms[again])
    age_d = ((now - 1) / 1000.0 - last[newest]) / (DAY_MS / 1000.0)
    return {
        "boot_age_d": np.maximum(age_d, 0.0),
        "boots_7d": booted.count(part, now, 7 * DAY_MS),
        "boots_28d": booted.count(part, now, 28 * DAY_MS),
    }


def _rises(line: WindowIndex, series: Series, part: Ints, now: Ints) -> dict[str, Floats]:
    """How far, how often and how long ago each part rose; the first entry of a part rises from nothing known."""
    last = series.last[line.order].astype(np.float64)
    group = line.keys // line.span_ms
    by = np.zeros(len(last))
    by[1:] = np.where(group[1:] == group[:-1], np.maximum(np.nan_to_num(last[1:] - last[:-1]), 0.0), 0.0)
    found = {f"up_{window}d": line.sums(part, now, window * DAY_MS, by) for window in _RISE_DAYS}
    rose = WindowIndex.of(group[by > 0], line.times_ms[by > 0])
    found["rises_28d"] = rose.count(part, now, 28 * DAY_MS)
    found["rise_age_d"] = rose.age_d(part, now, EVER_MS)
    return found
