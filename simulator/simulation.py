"""A whole simulated cluster in memory: what failed, what was seen of it, what the training runs did.

cluster = simulate(Settings(nodes=64, days=30, seed=1))
"""

from collections.abc import Mapping

import numpy as np

from simulator.calibration import calibration
from simulator.faults.decoy import DecoyContext, leave_decoys
from simulator.faults.fault import CLASSES, NodeFailure, PlannedDrain
from simulator.faults.hazard import draw_failures
from simulator.faults.precursor import leave_signs
from simulator.faults.trace import KernelLine, LinkLoss, Trace, xid_line
from simulator.mechanisms.mechanism import (
    Precursor,
    WorldPlan,
    changed_figures,
    changed_kinds,
    planned,
    precursors_of,
    rewrite,
)
from simulator.mechanisms.registry import mechanisms_of
from simulator.site import (
    DAY_MS,
    DRIVERS,
    HOUR_MS,
    MINUTE_MS,
    Parameters,
    SimulationSettings,
    SiteLayout,
    lay_out,
    leaf_of,
)
from simulator.state import SimulatedCluster
from simulator.training.accounting import account
from simulator.training.attempt import SimulatedRun, Variety
from simulator.training.run import TrainingScheduler, hide_records, plan_runs

__all__ = ["SimulatedCluster", "simulate"]

_ROLL_WAVES = 3


def simulate(settings: SimulationSettings) -> SimulatedCluster:
    """Simulate a cluster; the same settings give the same cluster.

    Raises:
        ValueError: a mechanism is not known.
    """
    mechanisms = mechanisms_of(settings.mechanisms)
    parameters = changed_figures(calibration(settings.calibration).parameters, mechanisms)
    seeds = np.random.SeedSequence(settings.seed).spawn(7)
    rngs = [np.random.default_rng(seed) for seed in seeds]
    layout = lay_out(settings, parameters, rngs[0])
    world = planned(settings, parameters, layout, mechanisms)
    hazard = draw_failures(settings, parameters, layout, rngs[1], changed_kinds(mechanisms), world.factor)
    failures = hazard.failures + _contained(hazard.failures, parameters, rngs[2])
    failures += _leaf_failures(settings, parameters, layout, rngs[2])
    for failure in failures:
        low, high = parameters.health_check_s
        failure.start_ms = -(-failure.fault_ms // 1000) * 1000 + int(rngs[2].integers(low, high)) * 1000
    variety = Variety(rngs[6]) if settings.training == "varied" else None
    training = TrainingScheduler(settings, layout, failures, rngs[3], variety)
    roll_ms = hazard.shock_day * DAY_MS + 8 * HOUR_MS
    _work_as_planned(training, roll_ms, world)
    submitted = plan_runs(settings)
    for run in submitted:
        training.simulate(run, [roll_ms])
        if variety is not None:
            hide_records(run, variety)
    runs = [run for run in submitted if run.attempts]
    failures.sort(key=lambda f: (f.fault_ms, f.node))
    drains = training.availability.all_drains()
    trace = _with_all_signs(world.trace, failures, layout, (rngs[4], precursors_of(mechanisms)))
    frailty = hazard.rate.mean(axis=0)
    leave_decoys(DecoyContext(settings, layout, parameters, training.availability, rngs[5], trace, frailty))
    _boots(settings, failures, drains, roll_ms, trace)
    _ends_of_jobs(runs, trace, rngs[4])
    _clear(settings, runs, trace)
    rewrite(trace, settings, mechanisms)
    usual_ms = parameters.print_interval_s * 1000
    return SimulatedCluster(
        settings=settings,
        parameters=parameters,
        layout=layout,
        hazard=hazard,
        failures=tuple(failures),
        drains=tuple(drains),
        runs=tuple(runs),
        accounts=tuple(account(run, usual_ms) for run in runs),
        trace=trace,
        roll_ms=roll_ms,
    )


def _with_all_signs(
    trace: Trace,
    failures: list[NodeFailure],
    layout: SiteLayout,
    how: tuple[np.random.Generator, Mapping[str, Precursor] | None],
) -> Trace:
    rng, before = how
    for failure in failures:
        if failure.leaf is None:
            leave_signs(failure, trace, rng, before)
        else:
            _leaf_down(failure, layout, trace)
    return trace


def _contained(failures: list[NodeFailure], parameters: Parameters, rng: np.random.Generator) -> list[NodeFailure]:
    """Memory errors that cost the job and not the node (Xid 94), some time before the memory fails for good."""
    found = []
    for f in failures:
        if f.kind.name == "hbm_ecc" and f.visible and rng.random() < parameters.contained_share:
            at = int(rng.integers(f.warning_ms, f.fault_ms - HOUR_MS // 2))
            found.append(NodeFailure(f.node, f.gpu, f.kind, at, at, 0, "reboot", False, at, outage=False))
    return found


def _leaf_failures(
    settings: SimulationSettings, parameters: Parameters, layout: SiteLayout, rng: np.random.Generator
) -> list[NodeFailure]:
    """Leaf switches that restart: all their hosts are cut off for a minute or two, no node is at fault."""
    mean = parameters.leaf_event_per_leaf_month * layout.leaves * settings.days / 30
    found = []
    for _ in range(max(1, int(rng.poisson(mean)))):
        leaf, at = int(rng.integers(0, layout.leaves)), int(rng.integers(DAY_MS, settings.length_ms))
        node = next(n for n in range(layout.nodes) if leaf_of(n) == leaf)
        repair = int(rng.integers(60, 240)) * 1000
        found.append(
            NodeFailure(node, 0, CLASSES["link_optics"], at, at, repair, "reboot", False, at, leaf=leaf, outage=False)
        )
    return found


def _leaf_down(failure: NodeFailure, layout: SiteLayout, trace: Trace) -> None:
    up = failure.fault_ms + failure.repair_ms
    for node in range(layout.nodes):
        if leaf_of(node) == failure.leaf:
            trace.links.append(LinkLoss(failure.fault_ms, up, node, root=True))


def _roll_driver(training: TrainingScheduler, roll_ms: int) -> None:
    """The new driver goes onto all nodes in waves; nodes that are broken then get it with their repair."""
    for node in range(training.layout.nodes):
        end = roll_ms + (2 + node % _ROLL_WAVES) * 30 * MINUTE_MS
        if training.availability.free(node, roll_ms - HOUR_MS, end + HOUR_MS):
            reason = f"driver release {DRIVERS[1]} (rolling)"
            training.availability.add(PlannedDrain(node, roll_ms, end, reason, "ops"))


def _work_as_planned(training: TrainingScheduler, roll_ms: int, world: WorldPlan) -> None:
    """The driver, and what mechanisms plan, where the node is well; one that is broken then gets it with its repair."""
    _roll_driver(training, roll_ms)
    for drain in world.drains:
        if training.availability.free(drain.node, drain.start_ms - HOUR_MS, drain.end_ms + HOUR_MS):
            training.availability.add(drain)


def _boots(
    settings: SimulationSettings, failures: list[NodeFailure], drains: list[PlannedDrain], roll_ms: int, trace: Trace
) -> None:
    """A node that comes back has booted: its log says so, and which driver it loaded."""
    backs = [(f.end_ms - 9 * MINUTE_MS, f.node) for f in failures if f.outage]
    backs += [(d.end_ms - 9 * MINUTE_MS, d.node) for d in drains]
    for time, node in backs:
        if time < settings.length_ms:
            driver = DRIVERS[time > roll_ms]
            trace.kernel.append(KernelLine(time, node, "Linux version 5.15.0-1061-nvidia (gcc 11.4.0) #62-Ubuntu SMP"))
            words = f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build"
            trace.kernel.append(KernelLine(time + 41_000, node, words))


def _ends_of_jobs(runs: list[SimulatedRun], trace: Trace, rng: np.random.Generator) -> None:
    """A job that dies leaves application Xids: its own error's on one node, torn-down channels here and there."""
    for attempt in (a for run in runs for a in run.attempts if a.fault is not None):
        fault = attempt.fault
        assert fault is not None  # noqa: S101  # for the type checker: the line above filters
        if fault.kind.name == "software" and fault.variant < 60:
            code = (13, 31)[fault.variant % 2]
            trace.kernel.append(xid_line(fault.fault_ms, fault.node, fault.gpu, code, rng))
            trace.kernel.append(xid_line(fault.fault_ms + 300, fault.node, fault.gpu, 43, rng))
        for node in rng.choice(np.array(attempt.nodes), min(2, len(attempt.nodes)), replace=False).tolist():
            if node != fault.node:
                trace.kernel += [xid_line(attempt.end_ms + 900, node, gpu, 45, rng) for gpu in range(8)]


def _clear(settings: SimulationSettings, runs: list[SimulatedRun], trace: Trace) -> None:
    """Sort, cut at the end, and keep other nodes' signs out of the minutes in which a job dies.

    Between a run's last line and the fault that ends it nothing else may look like that fault: the truth names one.
    """
    windows = [
        (a.last_line_ms, a.fault.fault_ms, frozenset(a.nodes))
        for run in runs
        for a in run.attempts
        if a.fault is not None
    ]
    windows.sort()
    starts = np.array([window[0] for window in windows], dtype=np.int64)

    def hidden(time: int, node: int) -> bool:
        at = int(np.searchsorted(starts, time, side="right")) - 1
        return at >= 0 and time < windows[at][1] and node in windows[at][2]

    end = settings.length_ms
    trace.kernel = [k for k in trace.kernel if k.time_ms < end and not (k.confounds and hidden(k.time_ms, k.node))]
    trace.counts = [count for count in trace.counts if count.time_ms < end]
    trace.links = _disjoint([loss for loss in trace.links if loss.root or not hidden(loss.down_ms, loss.node)])
    trace.sort()


def _disjoint(losses: list[LinkLoss]) -> list[LinkLoss]:
    """No port goes down while it is down: a fault's loss hides the flaps within it."""
    kept: dict[int, list[LinkLoss]] = {}
    for loss in sorted(losses, key=lambda loss: (not loss.root, loss.down_ms)):
        others = kept.setdefault(loss.node, [])
        if all(loss.up_ms + 1000 < other.down_ms or other.up_ms + 1000 < loss.down_ms for other in others):
            others.append(loss)
    return [loss for losses_of_node in kept.values() for loss in losses_of_node]
