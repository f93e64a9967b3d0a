"""The scores that a reader of the hidden state would reach: the ceiling for any model on this archive.

The oracle knows each node's true hazard and which true precursors are running since when; it does not know the future.
"""

import math
from collections import defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np

from simulator.availability import Availability
from simulator.fault import FAULT_CLASSES, Failure
from simulator.ranking import rank
from simulator.settings import DAY_MS, HOUR_MS
from simulator.state import Cluster

HORIZONS_H = (24, 168)
_FIRST_DAY = 7  # before, no model would have learned anything


def oracle(cluster: Cluster) -> dict[str, Any]:
    """Figures per horizon (hours, as text), with a score a day of every node that is in service then."""
    return {
        "cadence_h": 24,
        "horizons": {str(horizon_h): asdict(_judge(cluster, horizon_h)) for horizon_h in HORIZONS_H},
    }


def _judge(cluster: Cluster, horizon_h: int) -> Any:
    scores, labels, moments = hidden_scores(cluster, horizon_h)
    return rank(np.array(scores, dtype=np.float64), np.array(labels, dtype=np.bool_), np.array(moments, dtype=np.int64))


def hidden_scores(cluster: Cluster, horizon_h: int) -> tuple[list[float], list[bool], list[int]]:
    """Scores, labels (an unplanned outage within the horizon) and moments (ms) of every day and node at risk."""
    by_node: dict[int, list[Failure]] = defaultdict(list)
    for failure in cluster.outages:
        by_node[failure.node].append(failure)
    availability = Availability(cluster.layout, cluster.outages)
    for drain in cluster.drains:
        availability.add(drain)
    scores: list[float] = []
    labels: list[bool] = []
    moments: list[int] = []
    span_ms = horizon_h * HOUR_MS
    for day in range(min(_FIRST_DAY, cluster.settings.days // 3), cluster.settings.days):
        now = day * DAY_MS
        if now + span_ms > cluster.settings.length_ms:
            break
        for node in range(cluster.layout.nodes):
            if availability.usable(node, now):
                scores.append(_score(by_node[node], float(cluster.hazard.rate[day, node]), now, horizon_h))
                labels.append(any(now < failure.start_ms <= now + span_ms for failure in by_node[node]))
                moments.append(now)
    return scores, labels, moments


def _score(failures: list[Failure], rate_per_day: float, now_ms: int, horizon_h: int) -> float:
    """1 - the chance that neither an unseen fault nor a running precursor ends in an outage."""
    unseen = 1.0 - _visible_share()
    survives = math.exp(-rate_per_day * unseen * horizon_h / 24)
    for failure in failures:
        if failure.visible and failure.warning_ms <= now_ms < failure.fault_ms:
            age_h = (now_ms - failure.warning_ms) / HOUR_MS
            before, after = (_lead_cdf(failure, hours) for hours in (age_h, age_h + horizon_h))
            survives *= 1.0 - min((after - before) / max(1.0 - before, 1e-9), 0.99)
    return 1.0 - survives


def _lead_cdf(failure: Failure, hours: float) -> float:
    """The chance that a precursor of the failure's class lasts no longer."""
    median_h, sigma = failure.kind.lead_h
    return 0.5 * (1 + math.erf(math.log(max(hours, 1e-6) / median_h) / (sigma * math.sqrt(2))))


def _visible_share() -> float:
    return sum(k.per_mgpuh * k.visible for k in FAULT_CLASSES) / sum(k.per_mgpuh for k in FAULT_CLASSES)
