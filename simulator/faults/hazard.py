"""When nodes fail: a hazard per node and day, from frailty, age, season of the driver and relapse after a repair.

The scale is FIELD D7 (3.8 per 1000 node-days), the spread between nodes D6 (gamma, k = 0.12), repairs D6.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.faults.fault import FAULT_CLASSES, TIERS, FaultClass, NodeFailure, PlannedDrain
from simulator.site import DAY_MS, GPUS, HOUR_MS, Parameters, SimulationSettings, SiteLayout, draw_h

# Which nodes can be used when: in service, not failed, not drained.

# A node that comes back is checked before it takes work.
RETURN_MS = 60_000


class Availability:
    """The out-of-service times of every node; failures may be moved, drains added, while a run is simulated."""

    def __init__(self, layout: SiteLayout, failures: Iterable[NodeFailure]) -> None:
        """Index the failures that take a node out."""
        self.since_ms = layout.since_ms
        self.failures: dict[int, list[NodeFailure]] = defaultdict(list)
        self.drains: dict[int, list[PlannedDrain]] = defaultdict(list)
        for failure in failures:
            if failure.outage:
                self.failures[failure.node].append(failure)

    def usable(self, node: int, moment_ms: int) -> bool:
        """Whether work can run on the node."""
        if moment_ms < self.since_ms[node]:
            return False
        if any(failure.out_at(moment_ms) for failure in self.failures[node]):
            return False
        return not any(drain.start_ms <= moment_ms < drain.end_ms for drain in self.drains[node])

    def free(self, node: int, start_ms: int, end_ms: int) -> bool:
        """Whether the node is in service, and nothing is wrong or planned with it, over a whole time."""
        if start_ms < self.since_ms[node]:
            return False
        if any(f.fault_ms < end_ms and start_ms < f.end_ms for f in self.failures[node]):
            return False
        return not any(drain.start_ms < end_ms and start_ms < drain.end_ms for drain in self.drains[node])

    def next_return_ms(self, moment_ms: int) -> int:
        """The next moment at which some node comes back or joins, in whole seconds."""
        ends = [f.end_ms for failures in self.failures.values() for f in failures if f.out_at(moment_ms)]
        ends += [d.end_ms for drains in self.drains.values() for d in drains if d.start_ms <= moment_ms < d.end_ms]
        ends += [since for since in self.since_ms if since > moment_ms]
        return -(-min(ends, default=moment_ms + 3_600_000) // 1000) * 1000 + RETURN_MS

    def add(self, drain: PlannedDrain) -> None:
        """Note a planned time out of service."""
        self.drains[drain.node].append(drain)

    def all_drains(self) -> list[PlannedDrain]:
        """Every planned time out of service, in time order."""
        return sorted((d for drains in self.drains.values() for d in drains), key=lambda d: (d.start_ms, d.node))


Floats = NDArray[np.float64]
_SHOCKED = ("gsp", "off_bus")  # what a bad driver release makes worse


@dataclass(frozen=True, slots=True)
class Hazard:
    """The failures, and the hidden state that made them: `rate[day, node]` = failures a day as the day begins."""

    failures: list[NodeFailure]
    rate: Floats
    shock_day: int
    kinds: tuple[FaultClass, ...] = FAULT_CLASSES

    @property
    def visible_share(self) -> float:
        """The share of the failures that have a true precursor."""
        return sum(k.per_mgpuh * k.visible for k in self.kinds) / sum(k.per_mgpuh for k in self.kinds)


class _NodeFrailty:
    """Each node's factor on the hazard, mean 1 over the cluster, and how it changes."""

    def __init__(self, nodes: int, parameters: Parameters, rng: np.random.Generator) -> None:
        self._parameters = parameters
        self._rng = rng
        self._scale = 1.0
        raw = self._draw(nodes)
        self._scale = 1.0 / float(raw.mean())
        self.factor = raw * self._scale

    def _draw(self, count: int) -> Floats:
        p = self._parameters
        raw = self._rng.gamma(p.frailty_shape, 1.0 / p.frailty_shape, count)
        return np.asarray(np.clip(raw, p.frailty_floor, p.frailty_cap) * self._scale)

    def drift(self) -> None:
        """One day's slow change."""
        step = self._parameters.frailty_drift_per_day
        self.factor *= np.exp(self._rng.normal(-step * step / 2, step, self.factor.size))
        np.clip(self.factor, 0.05, 2 * self._parameters.frailty_cap * self._scale, out=self.factor)

    def repaired(self, node: int, tier: str) -> None:
        """A repair may have taken the cause away."""
        p = self._parameters
        chance = {"reboot": 0.0, "reimage": p.resample_on_reimage, "board": p.resample_on_board_swap}[tier]
        if self._rng.random() < chance:
            self.factor[node] = self._draw(1)[0]


def draw_failures(
    settings: SimulationSettings,
    parameters: Parameters,
    layout: SiteLayout,
    rng: np.random.Generator,
    kinds: tuple[FaultClass, ...] = FAULT_CLASSES,
    factor: Floats | None = None,
) -> Hazard:
    """The hardware failures of the whole archive, in time order; a node that is out does not fail again.

    Args:
        kinds: the classes as they are in this world.
        factor: (days, nodes), on the hazard; None is 1.
    """
    base = settings.rate_per_1000_node_days / 1000.0
    frailty = _NodeFrailty(layout.nodes, parameters, rng)
    shock_day = int(settings.days * parameters.shock_after_share)
    free_ms = np.array(layout.since_ms, dtype=np.int64)
    relapse_until = np.full(layout.nodes, -1.0)
    weak_gpu = rng.integers(0, GPUS, layout.nodes)
    rate = np.zeros((settings.days, layout.nodes))
    failures: list[NodeFailure] = []
    # Relapses and infants add failures: the rest is scaled so that the whole stays at the rate asked for.
    base *= parameters.rate_scale
    for day in range(settings.days):
        frailty.drift()
        relapse = np.where(relapse_until > day, parameters.relapse_factor, 1.0)
        shock = _shock(day, shock_day, parameters)
        rate[day] = base * frailty.factor * relapse * shock * _infancy(day, layout, parameters)
        if factor is not None:
            rate[day] *= factor[day]
        in_service = free_ms <= day * DAY_MS
        for node in np.flatnonzero((rng.random(layout.nodes) < -np.expm1(-rate[day])) & in_service):
            failure = _draw_failure((int(node), day), kinds, shock > 1.0, weak_gpu, rng)
            _as_measured(failure, parameters, rng)
            failures.append(_with_precursor(failure, int(free_ms[node]), rng))
            free_ms[node] = failure.end_ms + 1_800_000
            frailty.repaired(int(node), failure.tier)
            if failure.tier == "reboot" and rng.random() < parameters.relapse_share:
                relapse_until[node] = failure.end_ms / DAY_MS + parameters.relapse_days
    failures.sort(key=lambda f: (f.fault_ms, f.node))
    return Hazard(failures, rate, shock_day, kinds)


def _shock(day: int, shock_day: int, parameters: Parameters) -> float:
    """The factor on the whole rate while a driver release makes some classes worse."""
    if not shock_day <= day < shock_day + parameters.shock_days:
        return 1.0
    total = sum(kind.per_mgpuh for kind in FAULT_CLASSES)
    worse = sum(kind.per_mgpuh for kind in FAULT_CLASSES if kind.name in _SHOCKED)
    return 1.0 + (parameters.shock_factor - 1.0) * worse / total


def _infancy(day: int, layout: SiteLayout, parameters: Parameters) -> Floats:
    """Weibull's hazard of a new node, relative to its level at the end of infancy (FIELD D7: shape 0.7, 30 d)."""
    since = np.array(layout.since_ms) / DAY_MS
    age = np.array(layout.age_days) + np.maximum(day - since, 0.0)
    share = np.clip((age + 0.5) / parameters.infant_days, 1e-3, 1.0)
    return np.asarray(share ** (parameters.infant_shape - 1.0))


def _draw_failure(
    where: tuple[int, int],
    kinds: tuple[FaultClass, ...],
    shocked: bool,
    weak_gpu: NDArray[np.int64],
    rng: np.random.Generator,
) -> NodeFailure:
    """A failure of a node on a day."""
    node, day = where
    weights = np.array([k.per_mgpuh * (3.0 if shocked and k.name in _SHOCKED else 1.0) for k in kinds])
    kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
    # A weak GPU stays the weak one (FIELD D5: a DBE repeats on the same GPU).
    gpu = int(weak_gpu[node]) if rng.random() < 0.7 else int(rng.integers(0, GPUS))
    fault_ms = day * DAY_MS + int(rng.integers(0, DAY_MS))
    tier = TIERS[int(rng.choice(3, p=kind.tiers))]
    return NodeFailure(
        node=node,
        gpu=gpu,
        kind=kind,
        fault_ms=fault_ms,
        start_ms=-(-fault_ms // 1000) * 1000 + 300_000,
        repair_ms=repair_ms(tier, rng),
        tier=tier,
        visible=False,
        warning_ms=fault_ms,
        variant=int(rng.integers(0, 100)),
    )


def _as_measured(failure: NodeFailure, parameters: Parameters, rng: np.random.Generator) -> None:
    """What real sites measured, in place of what is published: nothing is drawn where nothing was measured."""
    if parameters.repair_h:
        failure.repair_ms = round(draw_h(parameters.repair_h, rng) * 3600) * 1000
    if parameters.loss_lag_h and failure.falls_off_bus:
        failure.lag_ms = round(draw_h(parameters.loss_lag_h, rng) * 3600) * 1000
        failure.whole_board = bool(rng.random() < parameters.whole_board_share)
        # It is repaired after it is gone.
        failure.repair_ms += failure.lag_ms


def repair_ms(tier: str, rng: np.random.Generator) -> int:
    """The length of a repair in whole seconds, log-uniform over its tier (FIELD D6)."""
    parameters = Parameters()
    low, high = {
        "reboot": parameters.mttr_reboot_h,
        "reimage": parameters.mttr_reimage_h,
        "board": parameters.mttr_board_h,
    }[tier]
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))) * 3600) * 1000


def _with_precursor(failure: NodeFailure, earliest_ms: int, rng: np.random.Generator) -> NodeFailure:
    """Decide whether the failure could be seen coming, and from when on."""
    lead = lead_ms(failure.kind, rng)
    failure.visible = bool(rng.random() < failure.kind.visible)
    if failure.visible:
        failure.warning_ms = max(failure.fault_ms - lead, earliest_ms, 0)
        # Too late for anybody to act on: then it is none.
        failure.visible = failure.fault_ms - failure.warning_ms >= HOUR_MS
    if not failure.visible:
        failure.warning_ms = failure.fault_ms
    return failure


def lead_ms(kind: FaultClass, rng: np.random.Generator) -> int:
    """How long before a visible failure its precursors begin: log-normal, at most three weeks (FIELD D5, D7)."""
    median_h, sigma = kind.lead_h
    return int(min(np.exp(rng.normal(np.log(median_h), sigma)), 504.0) * HOUR_MS)
