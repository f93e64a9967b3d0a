"""Features of the neighbourhood: what befell the other nodes of the same leaf and rack lately.

Failures come in groups (a leaf switch, a PDU, a driver; FIELD D4, D7): the node's own share is taken out. Outages are
the scheduler's word; of links each node tells itself.
"""

import numpy as np

from predictor.history.arrays import DAY_MS, Feature, Floats, History, Ints, Rows, WindowIndex
from predictor.history.families import FAMILY_INDEX

FEATURES: tuple[Feature, ...] = (
    Feature("leaf_outages_24h", "neighbours", monotonic=1),
    Feature("leaf_outages_28d", "neighbours", monotonic=1),
    Feature("leaf_flaps_24h", "neighbours", monotonic=1),
    Feature("rack_outages_24h", "neighbours", monotonic=1),
    Feature("rack_outages_28d", "neighbours", monotonic=1),
)

# One node that lies is not enough.
_LEAST = 2
# Pairs of a node and a row that are looked at together, some hundred bytes each.
_MOST_PAIRS = 1_000_000


def compute(history: History, rows: Rows) -> dict[str, Floats]:
    """Every neighbour feature; NaN where a node's leaf or rack is unknown."""
    fleet, events = history.fleet, history.precursors
    unplanned = history.outages.only(~history.outages.planned)
    flapped = events.family == FAMILY_INDEX["link_flap"]
    found = {
        "leaf_flaps_24h": _flapping(events.node[flapped], events.time_ms[flapped], rows, fleet.leaf),
    }
    for name, group in (("leaf", fleet.leaf), ("rack", fleet.rack)):
        found[f"{name}_outages_24h"] = _others(unplanned.node, unplanned.start_ms, rows, group, 1)
        found[f"{name}_outages_28d"] = _others(unplanned.node, unplanned.start_ms, rows, group, 28)
    return found


def _flapping(node: Ints, time_ms: Ints, rows: Rows, group: Ints) -> Floats:
    """How many other nodes of each row's group lost a link within a day; 0 where fewer than _LEAST did.

    Nodes and not losses: a node tells of its own links, and one that makes them up raises nobody's risk.
    """
    own, of_row = WindowIndex.of(node, time_ms), group[rows.node]
    found, by_group = np.zeros(len(rows)), np.argsort(of_row, kind="stable")
    ordered = of_row[by_group]
    told = np.unique(node[group[node] >= 0])
    begin = np.searchsorted(ordered, group[told])
    count = np.searchsorted(ordered, group[told], side="right") - begin
    for part in np.split(np.arange(len(told)), np.flatnonzero(np.diff(np.cumsum(count) // _MOST_PAIRS)) + 1):
        # Each node that told of a loss beside each row of its group.
        pair = np.arange(int(count[part].sum())) - np.repeat(np.cumsum(count[part]) - count[part], count[part])
        beside = by_group[np.repeat(begin[part], count[part]) + pair]
        name = np.repeat(told[part], count[part])
        other = rows.node[beside] != name
        beside, name = beside[other], name[other]
        lost = own.count(name, rows.time_ms[beside], DAY_MS) > 0
        found += np.bincount(beside[lost], minlength=len(rows))
    found[found < _LEAST] = 0.0
    return np.where(of_row >= 0, found, np.nan)


def _others(node: Ints, time_ms: Ints, rows: Rows, group: Ints, window_d: int) -> Floats:
    """How many entries the other nodes of each row's group have in the window."""
    grouped = group[node] >= 0
    together = WindowIndex.of(group[node][grouped], time_ms[grouped])
    own = WindowIndex.of(node, time_ms)
    all_of_it = together.count(group[rows.node], rows.time_ms, window_d * DAY_MS)
    mine = own.count(rows.node, rows.time_ms, window_d * DAY_MS)
    return np.where(group[rows.node] >= 0, all_of_it - mine, np.nan)
