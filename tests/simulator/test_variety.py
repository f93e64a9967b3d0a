"""Varied training: what differs, that nothing else does, and that its truth adds up."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from simulator.faults.fault import CLASSES, NodeFailure
from simulator.output.archive import jobs
from simulator.output.training_log import log_lines
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import GPUS, SimulationSettings
from simulator.training.attempt import SAVES, SimulatedAttempt, SimulatedRun, TrainingStep, Variety
from simulator.training.run import newest_checkpoint


@pytest.fixture(scope="module")
def varied() -> SimulatedCluster:
    """24 nodes over 30 days with many failures."""
    return simulate(SimulationSettings(24, 30, 2, rate_per_1000_node_days=20.0, training="varied"))


def attempts(cluster: SimulatedCluster) -> list[SimulatedAttempt]:
    """Of all runs."""
    return [attempt for run in cluster.runs for attempt in run.attempts]


def lines(cluster: SimulatedCluster) -> list[str]:
    """Every run's log."""
    settings, layout = cluster.settings, cluster.layout
    return [text for run in cluster.runs for _, text in log_lines(settings, layout, run, 50)]


def test_the_same_settings_give_the_same_runs(varied: SimulatedCluster) -> None:
    """And steady training draws nothing of the variety's stream: its kinds of steps are the old ones."""
    again = simulate(varied.settings)
    assert lines(again) == lines(varied)
    steady = simulate(SimulationSettings(24, 30, 2, rate_per_1000_node_days=20.0))
    assert {step.kind for a in attempts(steady) for step in a.steps} <= {
        "iteration",
        "save",
        "save_unfinished",
        "evaluation",
    }
    assert not any(step.data_ms or step.folded_ms for a in attempts(steady) for step in a.steps)
    assert len({len(a.nodes) for a in attempts(steady)}) == 1
    assert not any("STRAGGLER" in text or "batch-generator" in text for text in lines(steady))


def test_failures_before_the_first_start_are_those_of_steady_training(varied: SimulatedCluster) -> None:
    """The cluster itself is drawn from other streams."""
    steady = simulate(SimulationSettings(24, 30, 2, rate_per_1000_node_days=20.0))
    assert steady.layout.names == varied.layout.names
    assert [f.fault_ms for f in steady.hazard.failures][:1] == [f.fault_ms for f in varied.hazard.failures][:1]


def test_every_way_to_save_is_there_and_leaves_no_gap(varied: SimulatedCluster) -> None:
    """Steps follow one another; a save in the background ends later, or never."""
    for attempt in attempts(varied):
        now = attempt.first_ms
        for step in attempt.steps:
            assert step.begin_ms == now
            now = step.end_ms
            assert 0 <= step.data_ms <= step.length_ms
    kinds = Counter(step.kind for attempt in attempts(varied) for step in attempt.steps)
    assert set(kinds) >= SAVES
    done = [s for a in attempts(varied) for s in a.steps if s.kind == "save_async" and s.done_ms is not None]
    assert done
    assert all(step.done_ms is not None and step.done_ms > step.end_ms for step in done)


def test_what_a_line_counts_with_it_is_in_its_printed_time(varied: SimulatedCluster) -> None:
    """A save to memory is timed with the line that follows it."""
    for attempt in attempts(varied):
        for before, after in pairwise(attempt.steps):
            folded = before.length_ms if before.kind == "save_memory" else 0
            assert after.kind != "iteration" or after.folded_ms == folded


def test_the_truth_sums_to_wall_time_and_to_gpu_time(varied: SimulatedCluster) -> None:
    """Exactly, with overlaps and every size."""
    overlaps = 0
    for run, account in zip(varied.runs, varied.accounts, strict=True):
        assert sum(account.buckets_ms.values()) == account.wall_ms
        assert all(length >= 0 for length in account.buckets_ms.values())
        held = sum((a.end_ms - a.start_ms) * len(a.nodes) * GPUS for a in run.attempts)
        waits = [(max(0, b.start_ms - a.end_ms), len(b.nodes)) for a, b in pairwise(run.attempts)]
        first = run.attempts[0]
        waits.append((first.start_ms - first.submit_ms, len(first.nodes)))
        assert sum(account.gpu_ms.values()) == held + sum(wait * nodes * GPUS for wait, nodes in waits)
        overlaps += sum(b.start_ms < a.end_ms for a, b in pairwise(run.attempts))
    assert overlaps


def test_hidden_records_are_not_written_and_bound_no_run(varied: SimulatedCluster) -> None:
    """No job's row, no log's line; the first and the last attempt are always there."""
    rows = {row.split("|")[0] for row in jobs(varied, varied.settings.length_ms)}
    text = "\n".join(lines(varied))
    hidden = Counter(attempt.hidden for attempt in attempts(varied))
    for attempt in attempts(varied):
        assert (str(attempt.job_id) in rows) == (attempt.hidden != "job")
        if attempt.fault is not None:
            assert (f"JOB {attempt.job_id} ON" in text) == (attempt.hidden != "log")
    assert hidden["log"] + hidden["job"] > 0
    assert all(not run.attempts[place].hidden for run in varied.runs for place in (0, -1))


class Always(Variety):
    """A variety in which whatever may happen does."""

    def _chance(self, share: float) -> bool:
        return share > 0


def test_an_older_or_a_lost_checkpoint_is_the_one_before() -> None:
    """Memory is lost with its node; of one save alone nothing older is there."""
    steps = [
        TrainingStep("iteration", 0, 10, 50),
        TrainingStep("save", 10, 2, 50),
        TrainingStep("iteration", 12, 10, 100),
    ]
    steps += [
        TrainingStep("save", 22, 2, 100),
        TrainingStep("iteration", 24, 10, 150),
        TrainingStep("save_memory", 34, 4, 150),
    ]
    fault = NodeFailure(3, 1, CLASSES["off_bus"], 40, 60, 3600, "reboot", False, 40)
    attempt = SimulatedAttempt(1, "r", 0, 0, (1, 2), 0, 0, None, steps, fault, 60, save_mode="memory")
    run = SimulatedRun("r", 0, 0, [attempt])
    always = Always(np.random.default_rng(1))
    assert newest_checkpoint(run, None) == (0, 5)
    assert newest_checkpoint(run, always) == (0, 1)  # memory is gone, and the newest on disk is broken
    attempt.steps = steps[:2]
    assert newest_checkpoint(run, always) == (0, 1)
    attempt.steps, attempt.checkpoint = steps[:1], (7, 7)
    assert newest_checkpoint(run, always) == (7, 7)
