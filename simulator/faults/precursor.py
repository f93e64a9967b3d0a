"""What is seen of a failure: the signs before it where it is a visible one, and the trace of the moment itself.

FIELD D5 and D7: ECC counts, row remaps and contained errors hours to weeks before; NVLink replays; link flaps; heat.
"""

from collections.abc import Callable, Mapping

import numpy as np

from simulator.faults.fault import NodeFailure
from simulator.faults.trace import Count, Gap, Heat, LinkLoss, Trace, recovery_line, sxid_line, xid_line
from simulator.site import DAY_MS, GPUS, HOUR_MS, MINUTE_MS


def leave_signs(
    failure: NodeFailure,
    trace: Trace,
    rng: np.random.Generator,
    before: Mapping[str, Callable[[NodeFailure, Trace, np.random.Generator], None]] | None = None,
) -> None:
    """Write a failure's precursors (if it is visible), its moment and what its outage hides into the trace.

    Args:
        before: what a world's mechanism leaves before failures, by class; None is as usual.
    """
    if failure.visible:
        (_BEFORE if before is None else before).get(failure.kind.name, _no_sign)(failure, trace, rng)
    _MOMENT[failure.kind.name](failure, trace, rng)
    if failure.outage:
        _hide(failure, trace)


def _times(failure: NodeFailure, per_day: float, rng: np.random.Generator) -> list[int]:
    """Moments between warning and fault, denser towards the fault."""
    span = failure.fault_ms - failure.warning_ms
    count = 1 + int(rng.poisson(per_day * span / DAY_MS))
    places = 1.0 - rng.random(count) ** 1.6
    return sorted(failure.warning_ms + int(place * (span - 5 * MINUTE_MS)) for place in places)


def _no_sign(_failure: NodeFailure, _trace: Trace, _rng: np.random.Generator) -> None:
    """A class without precursors."""


def _ecc_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    node, gpu = failure.node, failure.gpu
    for time in _times(failure, 5.0, rng):
        trace.counts.append(Count(time, node, gpu, "ecc_sbe", 1 + int(rng.geometric(0.15))))
    for time in _times(failure, 0.3, rng)[:4]:
        trace.kernel.append(xid_line(time, node, gpu, 63, rng))
        trace.counts.append(Count(time, node, gpu, "row_remap_correctable", 1))
    if rng.random() < 0.25:
        trace.kernel.append(xid_line(_times(failure, 0.1, rng)[0], node, gpu, 92, rng))
    if rng.random() < 0.08:
        trace.kernel.append(xid_line(_times(failure, 0.0, rng)[0], node, gpu, 64, rng))


def _nvlink_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    node, gpu = failure.node, failure.gpu
    for time in _times(failure, 6.0, rng):
        trace.counts.append(Count(time, node, gpu, "nvlink_crc", int(rng.geometric(0.05))))
        trace.counts.append(Count(time, node, gpu, "nvlink_replay", int(rng.geometric(0.3))))
    for time in _times(failure, 0.4, rng)[:3]:
        trace.kernel.append(sxid_line(time, node, gpu, fatal=False))
    if rng.random() < 0.3:
        trace.kernel.append(xid_line(_times(failure, 0.0, rng)[0], node, gpu, 74, rng))


def _link_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for time in _times(failure, 4.0, rng)[:60]:
        down = int(rng.integers(1_000, 15_000))
        trace.links.append(LinkLoss(time, time + down, failure.node))


def _heat_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    gpu = failure.gpu if failure.variant < 50 else None
    rise_c = float(rng.uniform(8.0, 18.0))
    trace.heat.append(Heat(failure.warning_ms, failure.fault_ms, failure.node, gpu, rise_c))
    for time in _times(failure, 1.0, rng):
        trace.counts.append(
            Count(time, failure.node, failure.gpu, "thermal_violation", int(rng.integers(1, 200)) * 10**6)
        )


def _bus_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for time in _times(failure, 4.0, rng):
        trace.counts.append(Count(time, failure.node, failure.gpu, "pcie_replay", int(rng.geometric(0.1))))


def _gsp_before(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for time in _times(failure, 2.0, rng)[:4]:
        trace.gaps.append(Gap(time, time + HOUR_MS, failure.node, failure.gpu))


def _ecc_moment(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    code = 48 if failure.variant < 60 else 95
    at, node, gpu = failure.fault_ms, failure.node, failure.gpu
    if not failure.outage:
        trace.kernel.append(xid_line(at, node, gpu, 94, rng))
        return
    trace.kernel.append(xid_line(at, node, gpu, code, rng))
    trace.kernel.append(xid_line(at + 12, node, gpu, 63 if failure.variant % 2 else 64, rng))
    trace.kernel.append(recovery_line(at + 40, node, gpu, 1))
    trace.kernel.append(xid_line(at + 950, node, gpu, 45, rng))
    trace.counts.append(Count(at, node, gpu, "ecc_dbe", 1))


def _nvlink_moment(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    at, node, gpu = failure.fault_ms, failure.node, failure.gpu
    trace.kernel.append(xid_line(at, node, gpu, 74, rng))
    trace.kernel.append(sxid_line(at + 3, node, gpu, fatal=True))
    if rng.random() < 0.3:  # FIELD D5: spreads to a neighbour
        trace.kernel.append(xid_line(at + 140, node, (gpu + 1) % GPUS, 74, rng))
    trace.kernel.append(xid_line(at + 1800, node, gpu, 45, rng))


def _silent_moment(failure: NodeFailure, trace: Trace, _rng: np.random.Generator) -> None:
    back = max(failure.end_ms - 10 * MINUTE_MS, failure.fault_ms + 1_000)
    trace.links.append(LinkLoss(failure.fault_ms, back, failure.node, root=True))


def _heat_moment(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    if failure.variant < 50:
        _bus_moment(failure, trace, rng)
    else:
        _silent_moment(failure, trace, rng)


def _bus_moment(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    at, node, gpu = failure.fault_ms, failure.node, failure.gpu
    trace.kernel.append(xid_line(at, node, gpu, 79, rng))
    if not failure.whole_board:
        trace.kernel.append(recovery_line(at + 55, node, gpu, 2))
    else:  # the tapes' gauge stays at 79: no Xid 154 comes after it
        others = [other for other in range(GPUS) if other != gpu]
        trace.kernel += [xid_line(at + 90 + other, node, other, 79, rng) for other in others]


def _gsp_moment(failure: NodeFailure, trace: Trace, rng: np.random.Generator) -> None:
    for repeat in range(1 + failure.variant % 3):
        trace.kernel.append(xid_line(failure.fault_ms + repeat * 6_000, failure.node, failure.gpu, 119, rng))


def _hide(failure: NodeFailure, trace: Trace) -> None:
    """What cannot be sampled while the node is out, and the counters that begin anew."""
    gone = failure.gpu if failure.kind.name in ("off_bus", "gsp") and not failure.whole_board else None
    silent = failure.kind.name == "host" or (failure.kind.name == "thermal_psu" and failure.variant >= 50)
    if gone is not None or silent or failure.whole_board:
        trace.gaps.append(Gap(failure.fault_ms + failure.lag_ms, failure.end_ms, failure.node, gone))
    if failure.tier != "reboot" and not failure.lag_ms:
        trace.gaps.append(Gap(failure.start_ms + HOUR_MS // 2, failure.end_ms, failure.node, None))
    trace.resets.append((failure.end_ms - 10 * MINUTE_MS, failure.node))


_BEFORE = {
    "hbm_ecc": _ecc_before,
    "nvlink": _nvlink_before,
    "link_optics": _link_before,
    "thermal_psu": _heat_before,
    "off_bus": _bus_before,
    "gsp": _gsp_before,
}
_MOMENT = {
    "hbm_ecc": _ecc_moment,
    "nvlink": _nvlink_moment,
    "link_optics": _silent_moment,
    "thermal_psu": _heat_moment,
    "off_bus": _bus_moment,
    "gsp": _gsp_moment,
    "host": _silent_moment,
    "storage": _no_sign,
    "software": _no_sign,
}
