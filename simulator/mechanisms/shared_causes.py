"""What several nodes hang on: the cooling of a rack, the power of a leaf's nodes, a driver; and work on a rack.

A rack's cooling shows as heat in all its nodes; power shows in nothing; a driver that suits some nodes ill is known by
those nodes alone. A rack is worked on every few weeks, and for days after it fails more often.
"""

import numpy as np

from simulator.faults.fault import PlannedDrain
from simulator.faults.trace import Heat
from simulator.mechanisms.mechanism import Mechanism, WorldPlan
from simulator.site import DAY_MS, HOUR_MS, NODES_PER_LEAF, NODES_PER_RACK

_COOLING_PER_RACK_DAY = 0.006
_COOLING_FACTOR = 40.0
_POWER_PER_LEAF_DAY = 0.003
_POWER_FACTOR = 60.0
_DRIVER_SHARE = 0.15
_DRIVER_FACTOR = 4.0
_WORK_EVERY_DAYS = 40.0
_WORK_FACTOR = 12.0
_WORK_FADES_DAYS = 4.0
_WORK_REASONS = (
    "firmware update, rack {rack}",
    "maintenance: re-seat of trays, rack {rack}",
    "BIOS update, rack {rack}",
)


def _spell(plan: WorldPlan, start_ms: int, end_ms: int, nodes: range, factor: float) -> None:
    """A higher hazard while it lasts, by the share of each day."""
    day = np.arange(plan.settings.days, dtype=np.float64) * DAY_MS
    share = np.clip(np.minimum(end_ms, day + DAY_MS) - np.maximum(start_ms, day), 0.0, DAY_MS) / DAY_MS
    plan.factor[:, nodes.start : nodes.stop] *= 1.0 + (factor - 1.0) * share[:, None]


def _groups(plan: WorldPlan, size: int, per_day: float) -> list[tuple[int, range]]:
    """When something begins in which group of nodes."""
    groups = -(-plan.layout.nodes // size)
    count = int(plan.rng.poisson(per_day * groups * plan.settings.days))
    times = plan.rng.integers(0, plan.settings.length_ms, count).tolist()
    first = (plan.rng.integers(0, groups, count) * size).tolist()
    return [(time, range(at, min(at + size, plan.layout.nodes))) for time, at in zip(times, first, strict=True)]


def _causes(plan: WorldPlan) -> None:
    for begin, nodes in _groups(plan, NODES_PER_RACK, _COOLING_PER_RACK_DAY):
        end = begin + int(plan.rng.uniform(1.0, 3.0) * DAY_MS)
        _spell(plan, begin, end, nodes, _COOLING_FACTOR)
        rise_c = float(plan.rng.uniform(7.0, 15.0))
        plan.trace.heat.extend(Heat(begin, end, node, None, rise_c) for node in nodes)
    for begin, nodes in _groups(plan, NODES_PER_LEAF, _POWER_PER_LEAF_DAY):
        _spell(plan, begin, begin + int(plan.rng.uniform(0.2, 0.8) * DAY_MS), nodes, _POWER_FACTOR)
    first = int(plan.settings.days * plan.rng.uniform(0.3, 0.6))
    ill = plan.rng.random(plan.layout.nodes) < _DRIVER_SHARE
    plan.factor[first:, ill] *= _DRIVER_FACTOR


def _work(plan: WorldPlan) -> None:
    days = np.arange(plan.settings.days, dtype=np.float64)
    for rack, first in enumerate(range(0, plan.layout.nodes, NODES_PER_RACK)):
        nodes = range(first, min(first + NODES_PER_RACK, plan.layout.nodes))
        day = int(plan.rng.uniform(0, _WORK_EVERY_DAYS))
        while day < plan.settings.days:
            reason = _WORK_REASONS[int(plan.rng.integers(0, len(_WORK_REASONS)))]
            _drain(plan, day, nodes, reason.format(rack=f"r{rack + 1:02d}"))
            since = days - day
            worse = np.where(since > 0, _WORK_FACTOR * np.exp(-since / _WORK_FADES_DAYS), 0.0)
            plan.factor[:, nodes.start : nodes.stop] *= 1.0 + worse[:, None]
            day += max(5, int(plan.rng.normal(_WORK_EVERY_DAYS, 8.0)))


def _drain(plan: WorldPlan, day: int, nodes: range, reason: str) -> None:
    start = day * DAY_MS + int(plan.rng.integers(8, 14)) * HOUR_MS
    end = start + int(plan.rng.integers(3, 9)) * HOUR_MS
    plan.drains.extend(PlannedDrain(node, start, end, reason, "ops") for node in nodes)


SHARED_CAUSES = Mechanism(
    "cooling of a rack, power of a leaf's nodes, a driver that suits some nodes ill", plan=_causes
)
MAINTENANCE = Mechanism("a rack that was worked on fails more often for some days", plan=_work)
