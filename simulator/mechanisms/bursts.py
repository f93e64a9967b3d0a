"""Bursts: a part says nothing for weeks, then all at once, and either fails within hours or never."""

from dataclasses import replace

import numpy as np

from simulator.faults.fault import FaultClass, NodeFailure
from simulator.faults.trace import Count, LinkLoss, Trace, xid_line
from simulator.mechanisms.mechanism import Mechanism, Precursor, WorldPlan
from simulator.site import GPUS, HOUR_MS, MINUTE_MS

_LENGTH_MS = 40 * MINUTE_MS
# Bursts that nothing follows: about four for each that is followed by a failure.
_HARMLESS_PER_NODE_DAY = 0.006
_COUNTERS = {"hbm_ecc": "ecc_sbe", "nvlink": "nvlink_crc", "off_bus": "pcie_replay", "thermal_psu": "thermal_violation"}


def _kind(kind: FaultClass) -> FaultClass:
    """Half a day ahead in the middle."""
    return replace(kind, lead_h=(12.0, 0.8)) if kind.visible else kind


def _burst(begin_ms: int, where: tuple[int, int], counter: str, trace: Trace, rng: np.random.Generator) -> None:
    node, gpu = where
    for time in np.sort(begin_ms + rng.integers(0, _LENGTH_MS, 5 + int(rng.geometric(0.05)))).tolist():
        trace.counts.append(Count(time, node, gpu, counter, int(rng.geometric(0.1))))


def _counting(counter: str) -> Precursor:
    def leave(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
        begins = [failure.warning_ms]
        latest = failure.fault_ms - _LENGTH_MS - 5 * MINUTE_MS
        if latest > failure.warning_ms + HOUR_MS and rng.random() < 0.4:
            begins.append(int(rng.integers(failure.warning_ms + HOUR_MS, latest + 1)))
        for begin in begins:
            _burst(begin, (failure.node, failure.gpu), counter, trace, rng)
        if counter == "nvlink_crc":
            trace.kernel.append(xid_line(failure.warning_ms, failure.node, failure.gpu, 74, rng))

    return leave


def _link(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for time in np.sort(failure.warning_ms + rng.integers(0, _LENGTH_MS, 4 + int(rng.poisson(10)))).tolist():
        trace.links.append(LinkLoss(time, time + int(rng.integers(800, 5_000)), failure.node))


def _harmless(plan: WorldPlan) -> None:
    """Bursts of healthy nodes."""
    rng, days = plan.rng, plan.settings.days
    counters = sorted(_COUNTERS.values())
    for _ in range(int(rng.poisson(_HARMLESS_PER_NODE_DAY * plan.layout.nodes * days))):
        begin = int(rng.integers(0, plan.settings.length_ms))
        where = int(rng.integers(0, plan.layout.nodes)), int(rng.integers(0, GPUS))
        _burst(begin, where, counters[int(rng.integers(0, len(counters)))], plan.trace, rng)


PRECURSORS: dict[str, Precursor] = {kind: _counting(counter) for kind, counter in _COUNTERS.items()}
PRECURSORS["link_optics"] = _link
MECHANISM = Mechanism(
    "a burst of errors hours before a failure, and more bursts that nothing follows",
    kind=_kind,
    precursors=PRECURSORS,
    plan=_harmless,
)
