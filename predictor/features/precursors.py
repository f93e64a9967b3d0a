"""Features of precursor events: how many, how recent, how concentrated, whether they grow, for each family.

For the family `ecc_sbe`: `ecc_sbe_6h _1d _7d _28d` (events), `ecc_sbe_age_d` (days since the last one, NaN: none in
28 days), `ecc_sbe_sum_1d _sum_7d _sum_28d` (errors, where events carry a count), `ecc_sbe_device_7d` (most of one
device) and `ecc_sbe_growth` (log of the last day's rate over that of the week before).
Concentration: few GPUs give nearly all errors (FIELD D5, D6), a decoy spreads over the node.
"""

import numpy as np

from predictor.history.arrays import (
    DAY_MS,
    HOUR_MS,
    INCIDENT_GAP_MS,
    NAN,
    Bools,
    DeviceIndex,
    Feature,
    Floats,
    History,
    Ints,
    Precursors,
    Rows,
    WindowIndex,
    largest_of_row,
    sum_within,
)
from predictor.history.families import FAMILIES, INCIDENT, PrecursorFamily

WINDOWS_D = (1, 7, 28)
_WINDOWS_MS = (6 * HOUR_MS, *(window * DAY_MS for window in WINDOWS_D))


def _features_of(family: PrecursorFamily) -> list[Feature]:
    name, up = family.name, 1 if family.rising else 0
    found = [Feature(f"{name}_6h", name, monotonic=up)]
    found += [Feature(f"{name}_{window}d", name, monotonic=up) for window in WINDOWS_D]
    found += [Feature(f"{name}_age_d", name, reference=NAN, monotonic=-up), Feature(f"{name}_growth", name)]
    if family.counted:
        found += [Feature(f"{name}_sum_{window}d", name, monotonic=up) for window in WINDOWS_D]
    if family.per_device:
        found.append(Feature(f"{name}_device_7d", name, monotonic=up))
    return found


FEATURES: tuple[Feature, ...] = tuple(feature for family in (*FAMILIES, INCIDENT) for feature in _features_of(family))


def compute(history: History, rows: Rows) -> dict[str, Floats]:
    """Every precursor feature."""
    events, found = history.precursors, {}
    # By family once: fifteen masks of all events would take longer than all the rest.
    order = np.argsort((events.family + 1).astype(np.uint8), kind="stable")
    first = np.searchsorted(events.family[order], np.arange(len(FAMILIES) + 1))
    for number, family in enumerate(FAMILIES):
        found.update(_of_family(history, rows, family, order[first[number] : first[number + 1]]))
    found.update(_of_family(history, rows, INCIDENT, np.flatnonzero(incidents(events))))
    return found


def _of_family(history: History, rows: Rows, family: PrecursorFamily, kept: Ints) -> dict[str, Floats]:
    """The features of the events at some positions, each node's in order of time."""
    events, name = history.precursors, family.name
    line = WindowIndex.of(events.node[kept], events.time_ms[kept])
    end = line.before(rows.node, rows.time_ms)
    hours, *first = (line.before(rows.node, rows.time_ms - window) for window in _WINDOWS_MS)
    amounts = [(end - one).astype(np.float64) for one in first]
    found = {f"{name}_{window}d": count for window, count in zip(WINDOWS_D, amounts, strict=True)}
    found[f"{name}_6h"] = (end - hours).astype(np.float64)
    found[f"{name}_age_d"] = line.since_last_d(first[-1], end, rows.time_ms)
    if family.counted:
        ordered = line.ordered(events.weight[kept])
        amounts = [sum_within(ordered, one, end) for one in first]
        found |= {f"{name}_sum_{window}d": sums for window, sums in zip(WINDOWS_D, amounts, strict=True)}
    found[f"{name}_growth"] = _growth(amounts[0], amounts[1])
    if family.per_device:
        found[f"{name}_device_7d"] = _most_of_a_device(history, rows, kept, family.counted)
    return found


def _growth(day: Floats, week: Floats) -> Floats:
    """How fast it grows: the log of the last day over the daily mean of the six before, half an event added to both."""
    return np.log((day + 0.5) / (np.maximum(week - day, 0.0) / 6 + 0.5))


def _most_of_a_device(history: History, rows: Rows, kept: Ints, counted: bool) -> Floats:
    """The most that one device of the node gave in 7 days; events that name no device are one together."""
    events = history.precursors
    parts = DeviceIndex.number(events.node[kept], events.device[kept], len(history.fleet.names))
    line = WindowIndex.of(parts.of, events.time_ms[kept])
    row, part = parts.each(rows.node)
    at = rows.time_ms[row]
    if counted:
        amount = line.sums(part, at, 7 * DAY_MS, line.ordered(events.weight[kept]))
    else:
        amount = line.count(part, at, 7 * DAY_MS)
    return largest_of_row(amount, row, len(rows), 0.0)


def incidents(events: Precursors) -> Bools:
    """Which events open a serious incident: serious, and none on the node in the minute before (FIELD A3.3).

    Whether an event opens one depends on its past alone.
    """
    opens = np.zeros(len(events.node), dtype=np.bool_)
    serious = np.flatnonzero(events.serious)
    if len(serious):
        order = serious[np.argsort(events.node[serious], kind="stable")]
        same_node = np.diff(events.node[order], prepend=-1) == 0
        close = np.diff(events.time_ms[order], prepend=events.time_ms[order[0]]) <= INCIDENT_GAP_MS
        opens[order] = ~(same_node & close)
    return opens
