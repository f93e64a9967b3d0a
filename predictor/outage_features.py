"""Features of a node's own history of outages: the strongest single sign in published work (FIELD A1, A3.5).

`outage_hazard` is the posterior mean of a node's daily hazard under gamma frailty, (k + n) / (k / hazard + days):
k = 0.12 and 3.8 per 1000 node-days are FIELD D6 and D7.
"""

import numpy as np

from predictor.feature import NAN, Feature
from predictor.history import DAY_MS, FAR_FUTURE_MS, FAR_PAST_MS, Floats, Grid, History, Ints, OutageLog
from predictor.windows import WindowIndex, days, spread

FRAILTY_SHAPE = 0.12
BASE_HAZARD_PER_DAY = 3.8e-3

FEATURES: tuple[Feature, ...] = (
    Feature("outages_7d", "outages", monotonic=1),
    Feature("outages_28d", "outages", monotonic=1),
    Feature("outages_90d", "outages", monotonic=1),
    Feature("outages_all", "outages", monotonic=1),
    Feature("outage_hazard", "outages", reference=None, monotonic=1),
    Feature("outage_age_d", "outages", reference=NAN),
    Feature("repair_age_d", "outages", reference=NAN),
    Feature("out_share_28d", "outages"),
    Feature("planned_28d", "maintenance"),
    Feature("driver_age_d", "maintenance", reference=NAN),
    Feature("service_age_d", "age", reference=None),
)


def compute(history: History, moments_ms: Ints) -> dict[str, Grid]:
    """Every feature of outages and age, each (moments, nodes)."""
    size = len(history.fleet.names)
    unplanned = history.outages.only(~history.outages.planned)
    planned = history.outages.only(history.outages.planned)
    begun = WindowIndex.of(unplanned.node, unplanned.start_ms)

    def counts(index: WindowIndex, window_ms: int) -> Grid:
        return spread(index.sums(moments_ms, window_ms), index.present, size, 0.0)

    whole = 2**50  # longer than any history, short enough to subtract
    observed_d = _observed_days(history, moments_ms)
    found = {f"outages_{window}d": counts(begun, window * DAY_MS) for window in (7, 28, 90)}
    found["outages_all"] = counts(begun, whole)
    hazard = (FRAILTY_SHAPE + found["outages_all"]) / (FRAILTY_SHAPE / BASE_HAZARD_PER_DAY + observed_d)
    found["outage_hazard"] = hazard.astype(np.float32)
    found["outage_age_d"] = spread(days(begun.age_ms(moments_ms, whole)), begun.present, size, NAN)
    found["repair_age_d"] = _repair_age_days(unplanned, moments_ms, size)
    found["out_share_28d"] = _out_share(history.outages, moments_ms, size)
    found["planned_28d"] = counts(WindowIndex.of(planned.node, planned.start_ms), 28 * DAY_MS)
    drivers = planned.only(planned.driver)
    changed = WindowIndex.of(drivers.node, drivers.start_ms)
    found["driver_age_d"] = spread(days(changed.age_ms(moments_ms, whole)), changed.present, size, NAN)
    since = np.where(history.fleet.since_ms == FAR_PAST_MS, np.nan, history.fleet.since_ms)
    found["service_age_d"] = days(moments_ms[:, None] - since[None, :]).astype(np.float32)
    return found


def _observed_days(history: History, moments_ms: Ints) -> Floats:
    """How long each node has been watched, (moments, nodes): from its start or the store's, whichever is later."""
    since = np.maximum(history.fleet.since_ms, history.start_ms)
    return np.maximum(days((moments_ms[:, None] - since[None, :]).astype(np.float64)), 0.0)


def _repair_age_days(unplanned: OutageLog, moments_ms: Ints, size: int) -> Grid:
    """Days since the last unplanned outage ended; an end that lies at or after the moment is not known."""
    closed = unplanned.only(unplanned.end_ms < FAR_FUTURE_MS)
    ended = WindowIndex.of(closed.node, closed.end_ms)
    return spread(days(ended.age_ms(moments_ms, 2**50)), ended.present, size, NAN)


def _out_share(outages: OutageLog, moments_ms: Ints, size: int) -> Grid:
    """The share of the last 28 days that a node was out for any reason, overlaps counted twice, at most 1."""
    shares = np.zeros((len(moments_ms), size), dtype=np.float32)
    for row, moment in enumerate(moments_ms):
        # An outage that is not known to have ended lasts until now.
        end = np.minimum(outages.end_ms, moment)
        start = np.maximum(outages.start_ms, moment - 28 * DAY_MS)
        length = np.maximum(end - start, 0)
        shares[row] = np.bincount(outages.node, weights=length, minlength=size) / (28 * DAY_MS)
    return np.minimum(shares, 1.0)
