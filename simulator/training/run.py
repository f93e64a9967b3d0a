"""The training runs of the archive: attempts, one after the other, over most of the healthy nodes.

A fault of one of its nodes stops the run; after its detection the job is queued again, waits for healthy nodes,
starts, loads its newest checkpoint and repeats what was lost (FIELD B3 and C for the times).
"""

import numpy as np

from simulator.calibration import calibration
from simulator.faults.fault import CLASSES, FAULT_CLASSES, JOB_CLASSES, NodeFailure, PlannedDrain
from simulator.faults.hazard import Availability
from simulator.site import DAY_MS, HOUR_MS, MINUTE_MS, NODES_PER_LEAF, SimulationSettings, SiteLayout
from simulator.training.attempt import SimulatedAttempt, SimulatedRun, StepPace, Variety, advance

_DRAIN_REASONS = ("maintenance: fan tray inspection", "scheduled firmware upgrade", "maintenance: cable tidy-up")


def plan_runs(settings: SimulationSettings) -> list[SimulatedRun]:
    """One run in a short archive, two in a longer one, three in a long one; a small one first."""
    length = settings.length_ms - HOUR_MS
    shares = {"llm-70b": 1.0}
    if settings.days >= 20:
        shares = {"llm-7b": 0.22, "llm-70b": 1.0}
    if settings.days >= 90:
        shares = {"llm-7b": 0.15, "llm-70b": 0.65, "moe-8x22b": 1.0}
    runs, begin = [], 2 * HOUR_MS
    for name, share in shares.items():
        stop = int(length * share) // 1000 * 1000
        runs.append(SimulatedRun(name, begin, stop, []))
        begin = stop + HOUR_MS
    return runs


def newest_checkpoint(run: SimulatedRun, variety: Variety | None) -> tuple[int, int] | None:
    """Whose checkpoint the next attempt loads, as (place of the attempt, place of its step): the newest finished one.

    With variety it may be broken, or gone with the memory of a lost node: then the one before it.
    """
    place = len(run.attempts) - 1
    last = run.attempts[place]
    kept = [number for number, step in enumerate(last.steps) if step.keeps]
    if variety is not None:
        lost_node = last.fault is not None and last.fault.outage
        if lost_node and last.save_mode == "memory" and variety.loses_memory():
            kept = [number for number in kept if last.steps[number].kind != "save_memory"]
        if variety.loads_older() and len(kept) > 1:
            kept.pop()
    return (place, kept[-1]) if kept else last.checkpoint


def hide_records(run: SimulatedRun, variety: Variety) -> None:
    """Take attempts' logs or jobs away, but for the first and last one: they bound the run's wall time."""
    for attempt in run.attempts[1:-1]:
        attempt.hidden = variety.hidden()


class TrainingScheduler:
    """The scheduler's side of the runs: who gets which nodes when, and what ends an attempt."""

    def __init__(
        self,
        settings: SimulationSettings,
        layout: SiteLayout,
        failures: list[NodeFailure],
        rng: np.random.Generator,
        variety: Variety | None = None,
    ) -> None:
        """Take what will fail; `failures` is moved and added to while runs are simulated."""
        self.variety = variety
        self.settings = settings
        self.parameters = calibration(settings.calibration).parameters
        self.layout = layout
        self.failures = failures
        self.availability = Availability(layout, failures)
        self._rng = rng
        self._pace = StepPace(settings.length_ms, self.parameters, rng, variety)
        at_start = sum(since == 0 for since in layout.since_ms)
        self._need = at_start - max(2, round(self.parameters.spare_share * layout.nodes))
        self._next_job = 1001
        self._drained_ms = 0

    def simulate(self, run: SimulatedRun, pauses_ms: list[int]) -> None:
        """Fill in the attempts of a run. At a pause it saves, ends and is queued again (planned work)."""
        submit = run.start_ms
        previous: tuple[int, ...] = ()
        checkpoint: tuple[int, int] | None = None
        early = 0
        while True:
            start, chosen = self._allocate(submit, previous, pauses_ms)
            if early and start - run.attempts[-1].end_ms < HOUR_MS:
                start = max(submit + 1000, run.attempts[-1].end_ms - early // 2000 * 1000)
            if start > run.stop_ms - HOUR_MS:
                return
            stop = min([pause for pause in pauses_ms if pause > start] + [run.stop_ms])
            attempt = self._attempt(run, submit, start, chosen, checkpoint)
            self._run_until(attempt, stop)
            run.attempts.append(attempt)
            if attempt.fault is None and stop == run.stop_ms:
                attempt.state = "COMPLETED"
                return
            if attempt.fault is None:
                attempt.state = "CANCELLED by 0"
            self._drain_some(attempt)
            submit, previous = attempt.end_ms, attempt.nodes
            checkpoint = newest_checkpoint(run, self.variety)
            early = 0 if self.variety is None or attempt.fault is None else self.variety.early_ms()
            if early and attempt.fault is not None:  # queued again, and begun, while the old one is being cleared away
                submit = max(attempt.fault.fault_ms // 1000 * 1000 + 2000, submit - early)

    def _allocate(self, submit_ms: int, previous: tuple[int, ...], pauses_ms: list[int]) -> tuple[int, tuple[int, ...]]:
        """The moment at which enough nodes are usable, and the nodes: the old ones first, then spares by lot.

        Nothing is started in the last hour before planned work.
        """
        start = submit_ms + self._pace.seconds(self.parameters.requeue_s)
        need = self._need if self.variety is None else self.variety.size(self._need)
        while start < self.settings.length_ms:
            start = next((pause + MINUTE_MS for pause in pauses_ms if pause - HOUR_MS <= start <= pause), start)
            kept = [node for node in previous if self.availability.usable(node, start)]
            others = [
                node
                for node in self._rng.permutation(self.layout.nodes).tolist()
                if node not in set(previous) and self.availability.usable(node, start)
            ]
            if len(kept) + len(others) >= need:
                return start, tuple(sorted((kept + others)[:need]))
            start = max(start + MINUTE_MS, self.availability.next_return_ms(start))
        return start, ()

    def _attempt(
        self, run: SimulatedRun, submit: int, start: int, nodes: tuple[int, ...], checkpoint: tuple[int, int] | None
    ) -> SimulatedAttempt:
        self._next_job += 1
        loaded = None if checkpoint is None else run.attempts[checkpoint[0]].steps[checkpoint[1]].iteration
        return SimulatedAttempt(
            job_id=self._next_job - 1,
            run=run.name,
            submit_ms=submit,
            start_ms=start,
            nodes=nodes,
            startup_ms=self._pace.seconds(self.parameters.startup_s),
            load_ms=0 if loaded is None else self._pace.seconds(self.parameters.load_s),
            loaded=loaded,
            checkpoint=checkpoint,
            save_mode="sync" if self.variety is None else self.variety.save_mode(),
        )

    def _run_until(self, attempt: SimulatedAttempt, stop_ms: int) -> None:
        first_span = self._pace.span_ms(attempt.first_ms, first=True)
        attempt.fault = self._first_fault(attempt, attempt.first_ms + first_span, stop_ms)
        advance(attempt, stop_ms, self._pace, first_span)
        fault = attempt.fault
        if fault is None:
            return
        detect = self._pace.seconds(fault.kind.detect_s)
        attempt.end_ms = -(-fault.fault_ms // 1000) * 1000 + detect
        fault.start_ms = attempt.end_ms
        lost_node = fault.outage and fault.kind.name in ("host", "link_optics")
        attempt.state, attempt.exit_code = ("NODE_FAIL", "0:0") if lost_node else ("FAILED", "1:0")
        if fault.kind in JOB_CLASSES:
            self.failures.append(fault)

    def _first_fault(self, attempt: SimulatedAttempt, first_line_ms: int, stop_ms: int) -> NodeFailure:
        """What ends the attempt first: one of its nodes, its leaf, or itself.

        A fault before the first line is put off until after it: a start that prints nothing is a story of its own.
        """
        nodes = set(attempt.nodes)
        candidates = [self._own_fault(attempt, first_line_ms, stop_ms)]
        for failure in self.failures:
            if not failure.ends_job or failure.fault_ms <= attempt.start_ms or not self._touches(failure, nodes):
                continue
            if failure.fault_ms < first_line_ms + 30_000:
                delay = first_line_ms + 30_000 + int(self._rng.integers(0, 240_000)) - failure.fault_ms
                failure.fault_ms += delay
                failure.warning_ms += 0 if failure.visible else delay
                failure.start_ms += delay // 1000 * 1000
            candidates.append(failure)
        return min(candidates, key=lambda failure: failure.fault_ms)

    def _touches(self, failure: NodeFailure, nodes: set[int]) -> bool:
        if failure.leaf is None:
            return failure.node in nodes
        first = failure.leaf * NODES_PER_LEAF
        return any(node in nodes for node in range(first, first + NODES_PER_LEAF))

    def _own_fault(self, attempt: SimulatedAttempt, first_line_ms: int, stop_ms: int) -> NodeFailure:
        """The software or storage error that ends the attempt if nothing else does before."""
        hardware = sum(kind.per_mgpuh for kind in FAULT_CLASSES)
        own = sum(kind.per_mgpuh for kind in JOB_CLASSES)
        per_day = self.settings.rate_per_1000_node_days / 1000 * len(attempt.nodes) * own / hardware
        after_ms = int(self._rng.exponential(1.0 / per_day) * DAY_MS)
        name = "storage" if self._rng.random() < CLASSES["storage"].per_mgpuh / own else "software"
        at = min((first_line_ms + 30_000 + after_ms) // 1000 * 1000, stop_ms + 30 * DAY_MS)
        node = int(self._rng.choice(np.array(attempt.nodes)))
        gpu, variant = (int(x) for x in self._rng.integers(0, (8, 100)))
        return NodeFailure(node, gpu, CLASSES[name], at, at, 0, "reboot", False, at, variant, outage=False)

    def _drain_some(self, attempt: SimulatedAttempt) -> None:
        """Planned work waits for a job's end (FIELD C: low severity drains after the job)."""
        elapsed = (attempt.end_ms - self._drained_ms) / DAY_MS
        self._drained_ms = attempt.end_ms
        spares = self.layout.nodes - self._need
        count = min(
            int(self._rng.poisson(self.parameters.drain_per_node_day * self.layout.nodes * elapsed)), spares // 3
        )
        for node in self._rng.choice(np.array(attempt.nodes), count, replace=False).tolist():
            start = attempt.end_ms + 1000
            end = start + int(self._rng.integers(60, 480)) * MINUTE_MS
            if self.availability.free(node, start - HOUR_MS, end + HOUR_MS):
                reason = _DRAIN_REASONS[int(self._rng.integers(0, len(_DRAIN_REASONS)))]
                self.availability.add(PlannedDrain(node, start, end, reason, "ops"))
