"""Features of any numeric measure that telemetry holds, without code of its own: SMART values, optics, other makers'.

For a measure `m`, each the largest among the node's devices:

    m.last      its last value, however old: a row stands until the next one
    m.high_7d   the highest of the last 7 days
    m.mean_1d   the mean of the last day
    m.up_1d _7d _28d   by how much it rose, falls (a counter that began anew) left out
    m.rises_28d how often it rose
    m.rise_age_d  days since it last rose
    m.untold_d  days since the newest hour in which any device told it

It counts only hours that have ended. A measure that never differs gives no features.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

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
)


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
        Feature(f"{name}.{suffix}", name, reference=NAN if suffix in ("rise_age_d", "untold_d") else None)
        for name in names
        for suffix in SUFFIXES
    )


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
    return found


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
