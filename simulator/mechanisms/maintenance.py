"""Drift after maintenance: a rack is worked on every few weeks, and for days after it fails more often."""

import numpy as np

from simulator.faults.fault import PlannedDrain
from simulator.mechanisms.mechanism import Mechanism, WorldPlan
from simulator.site import DAY_MS, HOUR_MS, NODES_PER_RACK

_EVERY_DAYS = 40.0
_FACTOR = 12.0
_FADES_DAYS = 4.0
_REASONS = ("firmware update, rack {rack}", "maintenance: re-seat of trays, rack {rack}", "BIOS update, rack {rack}")


def _work(plan: WorldPlan) -> None:
    days = np.arange(plan.settings.days, dtype=np.float64)
    for rack, first in enumerate(range(0, plan.layout.nodes, NODES_PER_RACK)):
        nodes = range(first, min(first + NODES_PER_RACK, plan.layout.nodes))
        day = int(plan.rng.uniform(0, _EVERY_DAYS))
        while day < plan.settings.days:
            _one(plan, day, nodes, _REASONS[int(plan.rng.integers(0, len(_REASONS)))].format(rack=f"r{rack + 1:02d}"))
            since = days - day
            worse = np.where(since > 0, _FACTOR * np.exp(-since / _FADES_DAYS), 0.0)
            plan.factor[:, nodes.start : nodes.stop] *= 1.0 + worse[:, None]
            day += max(5, int(plan.rng.normal(_EVERY_DAYS, 8.0)))


def _one(plan: WorldPlan, day: int, nodes: range, reason: str) -> None:
    start = day * DAY_MS + int(plan.rng.integers(8, 14)) * HOUR_MS
    end = start + int(plan.rng.integers(3, 9)) * HOUR_MS
    plan.drains.extend(PlannedDrain(node, start, end, reason, "ops") for node in nodes)


MECHANISM = Mechanism("a rack that was worked on fails more often for some days", plan=_work)
