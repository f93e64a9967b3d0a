"""Features of precursor events: how many, how recent, how concentrated, for each family.

For the family `ecc_sbe`: `ecc_sbe_1d _7d _28d` (events), `ecc_sbe_age_d` (days since the last one, NaN: none in
28 days), `ecc_sbe_sum_7d _sum_28d` (errors, where events carry a count) and `ecc_sbe_device_7d` (most of one device).
Concentration: few GPUs give nearly all errors (FIELD D5, D6), a decoy spreads over the node.
"""

import numpy as np

from predictor.families import FAMILIES, INCIDENT, Family
from predictor.feature import NAN, Feature
from predictor.history import DAY_MS, EVENT_WINDOW_MS, INCIDENT_GAP_MS, Bools, Grid, History, Ints, Precursors
from predictor.windows import WindowIndex, days, largest, spread

WINDOWS_D = (1, 7, 28)


def _features_of(family: Family) -> list[Feature]:
    up = 1 if family.rising else 0
    found = [Feature(f"{family.name}_{window}d", family.name, monotonic=up) for window in WINDOWS_D]
    found.append(Feature(f"{family.name}_age_d", family.name, reference=NAN, monotonic=-up))
    if family.counted:
        found += [Feature(f"{family.name}_sum_{window}d", family.name, monotonic=up) for window in (7, 28)]
    if family.per_device:
        found.append(Feature(f"{family.name}_device_7d", family.name, monotonic=up))
    return found


FEATURES: tuple[Feature, ...] = tuple(feature for family in (*FAMILIES, INCIDENT) for feature in _features_of(family))


def compute(history: History, moments_ms: Ints) -> dict[str, Grid]:
    """Every precursor feature, each (moments, nodes)."""
    events, found = history.precursors, {}
    for number, family in enumerate(FAMILIES):
        found.update(_family_grids(history, moments_ms, family, events.family == number))
    found.update(_family_grids(history, moments_ms, INCIDENT, incidents(events)))
    return found


def _family_grids(history: History, moments_ms: Ints, family: Family, kept: Bools) -> dict[str, Grid]:
    events, size = history.precursors, len(history.fleet.names)
    node, time_ms, weight = events.node[kept], events.time_ms[kept], events.weight[kept]
    index = WindowIndex.of(node, time_ms)
    found = {
        f"{family.name}_{window}d": spread(index.sums(moments_ms, window * DAY_MS), index.present, size, 0.0)
        for window in WINDOWS_D
    }
    age_d = days(index.age_ms(moments_ms, EVENT_WINDOW_MS))
    found[f"{family.name}_age_d"] = spread(age_d, index.present, size, NAN)
    if family.counted:
        weighed = WindowIndex.of(node, time_ms, weight)
        for window in (7, 28):
            sums = weighed.sums(moments_ms, window * DAY_MS)
            found[f"{family.name}_sum_{window}d"] = spread(sums, weighed.present, size, 0.0)
    if family.per_device:
        devices = max(len(events.devices), 1)
        single = WindowIndex.of(node * devices + events.device[kept], time_ms, weight if family.counted else None)
        most = largest(single.sums(moments_ms, 7 * DAY_MS), single.present // devices, size)
        found[f"{family.name}_device_7d"] = most
    return found


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
