"""What is seen of each class of failure, before and at its moment."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.faults.fault import CLASSES, FAULT_CLASSES, NodeFailure
from simulator.faults.precursor import leave_signs
from simulator.faults.trace import Trace
from simulator.site import DAY_MS, HOUR_MS

FAULT_MS = 10 * DAY_MS
GPU_CLASSES = ("hbm_ecc", "nvlink", "off_bus", "gsp")


def failure(name: str, visible: bool, variant: int = 10, tier: str = "reboot") -> NodeFailure:
    """One failure on GPU 2 of node 5, its precursors four days long."""
    warning = FAULT_MS - 4 * DAY_MS if visible else FAULT_MS
    start = FAULT_MS + 60_000
    return NodeFailure(5, 2, CLASSES[name], FAULT_MS, start, 3 * HOUR_MS, tier, visible, warning, variant)


def signs(of: NodeFailure, seed: int = 0) -> Trace:
    """What it leaves."""
    trace = Trace()
    leave_signs(of, trace, np.random.default_rng(seed))
    trace.sort()
    return trace


def before(trace: Trace) -> int:
    """How many signs there are before the moment itself."""
    times = [line.time_ms for line in trace.kernel] + [loss.down_ms for loss in trace.links]
    times += [count.time_ms for count in trace.counts] + [heat.start_ms for heat in trace.heat]
    times += [gap.start_ms for gap in trace.gaps]
    return sum(time < FAULT_MS for time in times)


@pytest.mark.parametrize("kind", [kind.name for kind in FAULT_CLASSES])
def test_an_invisible_failure_gives_no_sign_before_it(kind: str) -> None:
    """Nobody can foresee it, whatever the model."""
    assert before(signs(failure(kind, visible=False))) == 0


@pytest.mark.parametrize("kind", [kind.name for kind in FAULT_CLASSES if kind.visible])
def test_a_visible_failure_gives_signs_before_it(kind: str) -> None:
    """From the warning on, never earlier."""
    trace = signs(failure(kind, visible=True))
    assert before(trace) > 0
    assert min([c.time_ms for c in trace.counts] + [FAULT_MS]) >= FAULT_MS - 4 * DAY_MS


@pytest.mark.parametrize("kind", [kind.name for kind in FAULT_CLASSES])
@pytest.mark.parametrize("variant", [10, 90])
def test_every_failure_shows_itself_at_its_moment(kind: str, variant: int) -> None:
    """A kernel line or a lost port, to the millisecond."""
    trace = signs(failure(kind, visible=False, variant=variant))
    moments = [line.time_ms for line in trace.kernel if line.confounds]
    moments += [loss.down_ms for loss in trace.links if loss.root]
    assert min(moments) == FAULT_MS


@pytest.mark.parametrize(
    ("kind", "variant", "code"),
    [
        ("hbm_ecc", 10, 48),
        ("hbm_ecc", 90, 95),
        ("nvlink", 10, 74),
        ("off_bus", 10, 79),
        ("gsp", 10, 119),
        ("thermal_psu", 10, 79),
    ],
)
def test_a_class_ends_in_its_xid(kind: str, variant: int, code: int) -> None:
    """On the GPU that failed."""
    trace = signs(failure(kind, visible=False, variant=variant))
    first = next(line for line in trace.kernel if line.time_ms == FAULT_MS)
    assert first.xid == (2, code)
    assert f": {code}, " in first.text


@pytest.mark.parametrize(("kind", "variant"), [("host", 10), ("thermal_psu", 90), ("link_optics", 10)])
def test_a_silent_failure_is_seen_by_the_fabric_alone(kind: str, variant: int) -> None:
    """No line in the node's own log; the port comes back before the node does."""
    trace = signs(failure(kind, visible=False, variant=variant))
    assert not trace.kernel
    (loss,) = trace.links
    assert loss.root
    assert FAULT_MS < loss.up_ms < failure(kind, visible=False).end_ms


def test_a_contained_error_costs_the_job_and_leaves_the_node() -> None:
    """Xid 94, and nothing else."""
    contained = replace(failure("hbm_ecc", visible=False), outage=False, repair_ms=0)
    trace = signs(contained)
    assert [line.xid for line in trace.kernel] == [(2, 94)]
    assert not trace.gaps
    assert not trace.resets


@pytest.mark.parametrize("kind", ["off_bus", "gsp"])
def test_a_lost_gpu_cannot_be_sampled(kind: str) -> None:
    """From the fault to the end of the repair; its neighbours can."""
    lost = failure(kind, visible=False)
    (gap,) = signs(lost).gaps
    assert (gap.gpu, gap.start_ms, gap.end_ms) == (2, FAULT_MS, lost.end_ms)


@pytest.mark.parametrize("tier", ["reimage", "board"])
def test_a_longer_repair_takes_the_whole_node_out_of_sight(tier: str) -> None:
    """It is switched off."""
    assert any(gap.gpu is None for gap in signs(failure("hbm_ecc", visible=False, tier=tier)).gaps)


@pytest.mark.parametrize("kind", GPU_CLASSES)
def test_counters_begin_anew_after_the_repair(kind: str) -> None:
    """Volatile counts live until the driver is loaded again."""
    lost = failure(kind, visible=False)
    ((time, node),) = signs(lost).resets
    assert node == lost.node
    assert FAULT_MS < time < lost.end_ms


def test_memory_warns_by_counts_and_remaps() -> None:
    """FIELD D5: single bits, then Xid 63; now and then 92 and 64."""
    codes: set[int] = set()
    for seed in range(40):
        trace = signs(failure("hbm_ecc", visible=True), seed)
        codes |= {line.xid[1] for line in trace.kernel if line.xid and line.time_ms < FAULT_MS}
        assert sum(count.amount for count in trace.counts if count.counter == "ecc_sbe") > 0
    assert codes == {63, 64, 92}


def test_heat_rises_until_the_end() -> None:
    """By eight degrees or more, on one GPU or on the whole node."""
    for variant, gpu in ((10, 2), (90, None)):
        (heat,) = signs(failure("thermal_psu", visible=True, variant=variant)).heat
        assert heat.gpu == gpu
        assert heat.rise_c >= 8
        assert heat.end_ms == FAULT_MS
