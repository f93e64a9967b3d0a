"""The runs: one after another, on healthy nodes, in whole seconds."""

from itertools import pairwise

from simulator.faults.hazard import Availability
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import DAY_MS, HOUR_MS, SimulationSettings
from simulator.training.run import plan_runs


def test_long_archives_have_more_runs() -> None:
    """One, two or three; the last ends before the archive does."""
    for days, count in ((10, 1), (30, 2), (120, 3)):
        runs = plan_runs(SimulationSettings(days=days))
        assert len(runs) == count
        assert all(a.stop_ms < b.start_ms for a, b in pairwise(runs))
        assert runs[-1].stop_ms < days * DAY_MS


def test_attempts_follow_each_other(large: SimulatedCluster) -> None:
    """Queued again the moment the one before ended."""
    for run in large.runs:
        for before, after in pairwise(run.attempts):
            assert before.end_ms == after.submit_ms < after.start_ms
        ids = [attempt.job_id for attempt in run.attempts]
        assert ids == sorted(set(ids))


def test_every_time_of_an_attempt_is_a_whole_second(large: SimulatedCluster) -> None:
    """The log prints seconds; nothing may be lost by it."""
    for attempt in (attempt for run in large.runs for attempt in run.attempts):
        times = [attempt.submit_ms, attempt.start_ms, attempt.first_ms, attempt.end_ms]
        times += [time for step in attempt.steps for time in (step.begin_ms, step.end_ms)]
        assert all(time % 1000 == 0 for time in times)


def test_steps_leave_no_gap(large: SimulatedCluster) -> None:
    """From the first iteration on."""
    for attempt in (attempt for run in large.runs for attempt in run.attempts):
        now = attempt.first_ms
        for step in attempt.steps:
            assert step.begin_ms == now
            now = step.end_ms
        assert now <= attempt.end_ms


def test_nodes_are_usable_at_the_start_and_their_number_never_changes(large: SimulatedCluster) -> None:
    """Spares are left, broken nodes are not taken."""
    availability = Availability(large.layout, large.outages)
    sizes = set()
    for attempt in (attempt for run in large.runs for attempt in run.attempts):
        assert all(availability.usable(node, attempt.start_ms) for node in attempt.nodes)
        sizes.add(len(set(attempt.nodes)))
    assert len(sizes) == 1
    assert sizes.pop() <= large.layout.nodes * 0.95


def test_an_attempt_goes_on_from_the_newest_save(large: SimulatedCluster) -> None:
    """What came after it is done again."""
    for run in large.runs:
        loaded = None
        for attempt in run.attempts:
            assert attempt.loaded == loaded
            assert attempt.steps[0].iteration == (loaded or 0) + 50
            loaded = attempt.saved


def test_a_broken_attempt_ends_after_its_fault_was_noticed(large: SimulatedCluster) -> None:
    """Within the class's detection time; the outage begins with the job's end."""
    for attempt in (attempt for run in large.runs for attempt in run.attempts if attempt.fault):
        fault = attempt.fault
        assert fault is not None
        low, high = fault.kind.detect_s
        assert low * 1000 <= attempt.end_ms - fault.fault_ms <= (high + 1) * 1000
        assert attempt.last_line_ms < fault.fault_ms
        if fault.outage:
            assert fault.start_ms == attempt.end_ms
        assert attempt.state in ("FAILED", "NODE_FAIL")


def test_the_driver_roll_stops_a_run_and_it_goes_on() -> None:
    """Cancelled by the scheduler after a save, started again within hours."""
    cluster = simulate(SimulationSettings(nodes=32, days=10, seed=1, rate_per_1000_node_days=0.5))
    (run,) = cluster.runs
    place = next(i for i, attempt in enumerate(run.attempts) if attempt.state == "CANCELLED by 0")
    stopped, after = run.attempts[place], run.attempts[place + 1]
    assert stopped.fault is None
    assert stopped.steps[-1].kind == "save"
    assert cluster.roll_ms < stopped.end_ms < cluster.roll_ms + HOUR_MS
    assert HOUR_MS < after.start_ms - cluster.roll_ms < 6 * HOUR_MS


def test_nothing_starts_in_the_hour_before_planned_work(large: SimulatedCluster) -> None:
    """Or it would print nothing."""
    for attempt in (attempt for run in large.runs for attempt in run.attempts):
        assert not large.roll_ms - HOUR_MS <= attempt.start_ms <= large.roll_ms
        assert any(step.kind == "iteration" for step in attempt.steps)
