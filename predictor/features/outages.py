"""Features of a node's own history of outages: the strongest single sign in published work (FIELD A1, A3.5).

`outage_hazard` is the posterior mean of a node's daily hazard under gamma frailty, (k + n) / (k / rate + days), with
k = 0.12 of FIELD D6 and the fleet's own rate up to the moment; 3.8 per 1000 node-days (FIELD D7) where it is young.
`model_hazard` is the same of all nodes of its model, with the weight of five outages.
"""

import numpy as np

from predictor.history.arrays import (
    DAY_MS,
    EVER_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    NAN,
    Feature,
    Floats,
    History,
    Ints,
    OutageLog,
    Rows,
    WindowIndex,
)

FRAILTY_SHAPE = 0.12
MODEL_SHAPE = 5.0
BASE_HAZARD_PER_DAY = 3.8e-3
# An outage that begins this soon after the one before ended: the repair did not hold.
REFAULT_MS = 7 * DAY_MS

FEATURES: tuple[Feature, ...] = (
    Feature("outages_7d", "outages", monotonic=1),
    Feature("outages_28d", "outages", monotonic=1),
    Feature("outages_90d", "outages", monotonic=1),
    Feature("outages_all", "outages", monotonic=1),
    Feature("refaults_90d", "outages", monotonic=1),
    Feature("outage_hazard", "outages", reference=None, monotonic=1),
    Feature("outage_age_d", "outages", reference=NAN),
    Feature("repair_age_d", "outages", reference=NAN),
    Feature("out_share_28d", "outages"),
    Feature("planned_28d", "maintenance"),
    Feature("driver_age_d", "maintenance", reference=NAN),
    Feature("service_age_d", "age", reference=None),
    Feature("model_hazard", "model", reference=None, monotonic=1),
    Feature("model", "model", reference=None),
)


def compute(history: History, rows: Rows) -> dict[str, Floats]:
    """Every feature of outages, age and model."""
    node, at, fleet = rows.node, rows.time_ms, history.fleet
    unplanned = history.outages.only(~history.outages.planned)
    planned = history.outages.only(history.outages.planned)
    begun = WindowIndex.of(unplanned.node, unplanned.start_ms)
    found = {f"outages_{window}d": begun.count(node, at, window * DAY_MS) for window in (7, 28, 90)}
    found["outages_all"] = begun.count(node, at, EVER_MS)
    found |= _hazards(history, rows, unplanned, found["outages_all"])
    found["outage_age_d"] = begun.age_d(node, at)
    closed = unplanned.only(unplanned.end_ms < FAR_FUTURE_MS)
    found["repair_age_d"] = WindowIndex.of(closed.node, closed.end_ms).age_d(node, at)
    again = _refaults(unplanned)
    found["refaults_90d"] = WindowIndex.of(again.node, again.start_ms).count(node, at, 90 * DAY_MS)
    month = 28 * DAY_MS
    out_ms = _out_before(history.outages, node, at) - _out_before(history.outages, node, at - month)
    found["out_share_28d"] = np.minimum(out_ms / month, 1.0)
    found["planned_28d"] = WindowIndex.of(planned.node, planned.start_ms).count(node, at, month)
    drivers = planned.only(planned.driver)
    found["driver_age_d"] = WindowIndex.of(drivers.node, drivers.start_ms).age_d(node, at)
    since = np.where(fleet.since_ms == FAR_PAST_MS, np.nan, fleet.since_ms)
    found["service_age_d"] = (at - since[node]) / DAY_MS
    found["model"] = np.where(fleet.model[node] >= 0, fleet.model[node], np.nan)
    return found


def _hazards(history: History, rows: Rows, unplanned: OutageLog, own: Floats) -> dict[str, Floats]:
    """The daily hazard of each row's node, and of its model, as far as known at the moment."""
    fleet = history.fleet
    everyone = np.zeros(len(fleet.names), dtype=np.int64)
    fleet_days = _service_days(history, everyone, everyone[rows.node], rows.time_ms)
    fleet_outages = WindowIndex.of(everyone[unplanned.node], unplanned.start_ms).count(
        everyone[rows.node], rows.time_ms, EVER_MS
    )
    rate = (1.0 + fleet_outages) / (1.0 / BASE_HAZARD_PER_DAY + fleet_days)
    since = np.maximum(fleet.since_ms, history.start_ms)[rows.node]
    watched_d = np.maximum(rows.time_ms - since, 0) / DAY_MS
    known = fleet.model[unplanned.node] >= 0
    model = fleet.model[rows.node]
    of_model = WindowIndex.of(fleet.model[unplanned.node][known], unplanned.start_ms[known])
    model_days = _service_days(history, fleet.model, model, rows.time_ms)
    of_its_model = MODEL_SHAPE + of_model.count(model, rows.time_ms, EVER_MS)
    return {
        "outage_hazard": (FRAILTY_SHAPE + own) / (FRAILTY_SHAPE / rate + watched_d),
        "model_hazard": np.where(model >= 0, of_its_model / (MODEL_SHAPE / rate + model_days), np.nan),
    }


def _service_days(history: History, group: Ints, requested: Ints, at: Ints) -> Floats:
    """How many days all nodes of a group have been watched in service before a moment: ends that came are known."""
    fleet, kept = history.fleet, group >= 0
    since = np.maximum(fleet.since_ms, history.start_ms)[kept]
    ended = kept & (fleet.until_ms < FAR_FUTURE_MS)
    until = np.maximum(fleet.until_ms, history.start_ms)[ended]
    served = _elapsed(group[kept], since, requested, at) - _elapsed(group[ended], until, requested, at)
    return np.maximum(served / DAY_MS, 0.0)


def _elapsed(groups: Ints, times_ms: Ints, requested: Ints, at: Ints) -> Floats:
    """The sum of (t - time) over the entries of a group before t; exact, as all are whole numbers."""
    line = WindowIndex.of(groups, times_ms)
    running = np.concatenate([[0], np.cumsum(line.times_ms - line.base_ms)])
    first, end = line.within(requested, at, EVER_MS)
    elapsed: Ints = (end - first) * (at - line.base_ms) - (running[end] - running[first])
    return elapsed.astype(np.float64)


def _out_before(outages: OutageLog, node: Ints, at: Ints) -> Floats:
    """Milliseconds that a node had been out before a moment, overlaps counted twice; one without an end lasts."""
    ended = outages.only(outages.end_ms < FAR_FUTURE_MS)
    return _elapsed(outages.node, outages.start_ms, node, at) - _elapsed(ended.node, ended.end_ms, node, at)


def _refaults(unplanned: OutageLog) -> OutageLog:
    """Outages that began within a week of the end of the node's one before: only its past decides."""
    order = np.lexsort((unplanned.start_ms, unplanned.node))
    node, start, end = unplanned.node[order], unplanned.start_ms[order], unplanned.end_ms[order]
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = (node[1:] == node[:-1]) & (end[:-1] <= start[1:]) & (start[1:] - end[:-1] <= REFAULT_MS)
    return unplanned.only(np.sort(order[again]))
