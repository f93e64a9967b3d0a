"""Features of the neighbourhood: what befell the other nodes of the same leaf and rack in the last 24 hours.

Failures come in groups (a leaf switch, a PDU, a driver; FIELD D4, D7): the node's own share is taken out.
"""

import numpy as np

from predictor.families import FAMILY_INDEX
from predictor.feature import NAN, Feature
from predictor.history import DAY_MS, Grid, History, Ints
from predictor.windows import WindowIndex, spread

FEATURES: tuple[Feature, ...] = (
    Feature("leaf_outages_24h", "neighbours", monotonic=1),
    Feature("leaf_flaps_24h", "neighbours", monotonic=1),
    Feature("rack_outages_24h", "neighbours", monotonic=1),
)


def compute(history: History, moments_ms: Ints) -> dict[str, Grid]:
    """Every neighbour feature, each (moments, nodes); NaN where a node's leaf or rack is unknown."""
    fleet, events = history.fleet, history.precursors
    unplanned = history.outages.only(~history.outages.planned)
    flapped = events.family == FAMILY_INDEX["link_flap"]
    outages = _last_day(unplanned.node, unplanned.start_ms, moments_ms, len(fleet.names))
    flaps = _last_day(events.node[flapped], events.time_ms[flapped], moments_ms, len(fleet.names))
    return {
        "leaf_outages_24h": others(outages, fleet.leaf),
        "leaf_flaps_24h": others(flaps, fleet.leaf),
        "rack_outages_24h": others(outages, fleet.rack),
    }


def _last_day(node: Ints, time_ms: Ints, moments_ms: Ints, size: int) -> Grid:
    index = WindowIndex.of(node, time_ms)
    return spread(index.sums(moments_ms, DAY_MS), index.present, size, 0.0)


def others(values: Grid, group: Ints) -> Grid:
    """The sum over the other nodes of each node's group, (moments, nodes); NaN outside any group."""
    known = group >= 0
    if not known.any():
        return np.full_like(values, NAN)
    member = (group[:, None] == np.arange(int(group.max()) + 1)[None, :]).astype(np.float32)
    totals = values @ member
    return np.where(known, totals[:, np.maximum(group, 0)] - values, NAN).astype(np.float32)
