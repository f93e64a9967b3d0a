"""Ramps: a part wears for days, and its errors grow by a steady factor until it fails."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simulator.faults.fault import FaultClass, NodeFailure
from simulator.faults.trace import Count, Heat, LinkLoss, Trace, xid_line
from simulator.mechanisms.mechanism import Mechanism, Precursor
from simulator.site import DAY_MS, MINUTE_MS

_PER_DAY = 5.0
# The rate doubles about every sixth of the warning.
_STEEPNESS = 0.25


def _kind(kind: FaultClass) -> FaultClass:
    """What wears is seen more often, and for longer; what breaks at once stays as it is."""
    if kind.visible < 0.3:
        return kind
    median_h, _ = kind.lead_h
    return replace(kind, visible=min(0.9, kind.visible + 0.2), lead_h=(2.0 * median_h, 0.6))


def growing(failure: NodeFailure, rng: np.random.Generator) -> list[int]:
    """Moments between warning and fault, ever denser."""
    span = failure.fault_ms - failure.warning_ms
    count = 2 + int(rng.poisson(_PER_DAY * span / DAY_MS))
    before = np.clip(rng.exponential(_STEEPNESS, count), 0.0, 1.0)
    return sorted(failure.fault_ms - 5 * MINUTE_MS - int(place * (span - 5 * MINUTE_MS)) for place in before)


def _counting(counter: str, spread: float) -> Precursor:
    def leave(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
        for time in growing(failure, rng):
            trace.counts.append(Count(time, failure.node, failure.gpu, counter, int(rng.geometric(spread))))

    return leave


def _memory(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    _counting("ecc_sbe", 0.1)(failure, trace, rng)
    for time in growing(failure, rng)[::8]:
        trace.kernel.append(xid_line(time, failure.node, failure.gpu, 63, rng))
        trace.counts.append(Count(time, failure.node, failure.gpu, "row_remap_correctable", 1))


def _link(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for time in growing(failure, rng)[-60:]:
        trace.links.append(LinkLoss(time, time + int(rng.integers(1_000, 15_000)), failure.node))


def _heat(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    rise_c = float(rng.uniform(10.0, 20.0))
    trace.heat.append(Heat(failure.warning_ms, failure.fault_ms, failure.node, failure.gpu, rise_c))


PRECURSORS: dict[str, Callable[[NodeFailure, Trace, np.random.Generator], None]] = {
    "hbm_ecc": _memory,
    "nvlink": _counting("nvlink_crc", 0.05),
    "link_optics": _link,
    "thermal_psu": _heat,
    "off_bus": _counting("pcie_replay", 0.1),
}
MECHANISM = Mechanism("errors that grow for days before a failure", kind=_kind, precursors=PRECURSORS)
