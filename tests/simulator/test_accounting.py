"""The account of a run, by hand."""

import pytest

from simulator.faults.fault import CLASSES, NodeFailure
from simulator.simulation import SimulatedCluster
from simulator.training.accounting import BUCKETS, account
from simulator.training.attempt import SimulatedAttempt, SimulatedRun, TrainingStep

S = 1000
USUAL_MS = 400 * S


def fault(at_s: float) -> NodeFailure:
    """A GPU that falls off the bus."""
    at = round(at_s * S)
    return NodeFailure(3, 1, CLASSES["off_bus"], at, at + 60 * S, 3600 * S, "reboot", False, at)


def attempt(
    job_id: int, times_s: tuple[int, int, int], steps: list[TrainingStep], broken: NodeFailure | None = None
) -> SimulatedAttempt:
    """Submitted, started and ended; 100 s of startup, 50 s of load unless it is the first."""
    submit, start, end = (second * S for second in times_s)
    loaded = None if job_id == 1 else 50
    return SimulatedAttempt(
        job_id, "r", submit, start, (1, 2, 3), 100 * S, 0 if loaded is None else 50 * S, loaded, steps, broken, end
    )


def iterations(begin_s: int, *lengths_s: int) -> list[TrainingStep]:
    """Print intervals one after another."""
    found, now = [], begin_s
    for number, length in enumerate(lengths_s, start=1):
        found.append(TrainingStep("iteration", now * S, length * S, 50 * number))
        now += length
    return found


def seconds(*attempts: SimulatedAttempt) -> dict[str, float]:
    """The buckets of a run in seconds, without those that are empty."""
    found = account(SimulatedRun("r", 0, 0, list(attempts)), USUAL_MS)
    assert sum(found.buckets_ms.values()) == found.wall_ms
    return {bucket: length / S for bucket, length in found.buckets_ms.items() if length}


def test_a_good_run_is_productive() -> None:
    """Wait, startup, work, and the last save."""
    steps = [*iterations(160, 400, 400), TrainingStep("save", 960 * S, 30 * S, 100)]
    assert seconds(attempt(1, (0, 60, 990), steps)) == {
        "waiting": 60,
        "startup": 100,
        "productive": 800,
        "checkpoint_save": 30,
    }


def test_a_fault_takes_what_no_save_keeps() -> None:
    """Since the save: an interval, an evaluation, and what was not printed yet; then nobody noticed for a minute."""
    steps = iterations(160, 400)
    steps += [TrainingStep("save", 560 * S, 30 * S, 50), TrainingStep("iteration", 590 * S, 400 * S, 100)]
    steps += [TrainingStep("evaluation", 990 * S, 40 * S, 100)]
    assert seconds(attempt(1, (0, 60, 1160), steps, fault(1100.5))) == {
        "waiting": 60,
        "startup": 100,
        "productive": 400,
        "checkpoint_save": 30,
        "lost_work": 400 + 40 + 70.5,
        "detection": 59.5,
    }


def test_a_save_that_did_not_finish_saves_nothing() -> None:
    """The work before it is lost with it."""
    steps = [*iterations(160, 400), TrainingStep("save_unfinished", 560 * S, 0, 50)]
    assert seconds(attempt(1, (0, 60, 600), steps, fault(570)))["lost_work"] == 410


def test_slow_work_is_degraded_by_its_excess() -> None:
    """Above 1.2 times the usual; the rest of it is work."""
    steps = [*iterations(160, 400, 600, 480), TrainingStep("save", 1640 * S, 30 * S, 150)]
    found = seconds(attempt(1, (0, 60, 1670), steps))
    assert found["degraded"] == 200
    assert found["productive"] == 400 + 400 + 480


def test_an_interruption_costs_until_the_next_attempt_iterates() -> None:
    """Lost work, detection, the wait, the startup and the load."""
    first = attempt(1, (0, 60, 660), iterations(160, 400), fault(600))
    second = attempt(2, (660, 700, 1300), [*iterations(850, 400), TrainingStep("save", 1250 * S, 50 * S, 100)])
    found = account(SimulatedRun("r", 0, 0, [first, second]), USUAL_MS)
    assert [cut.lost_ms / S for cut in found.interruptions] == [440 + 60 + 40 + 100 + 50]
    assert found.buckets_ms["checkpoint_load"] == 50 * S


def test_a_planned_stop_is_no_interruption() -> None:
    """It saves before it ends: nothing is lost, and the wait after it is no failure's cost."""
    steps = [*iterations(160, 400), TrainingStep("save", 560 * S, 30 * S, 50)]
    second = attempt(2, (590, 4000, 4600), [*iterations(4150, 400), TrainingStep("save", 4550 * S, 50 * S, 100)])
    assert account(SimulatedRun("r", 0, 0, [attempt(1, (0, 60, 590), steps), second]), USUAL_MS).interruptions == ()


@pytest.mark.parametrize("name", ["small", "large"])
def test_the_buckets_of_every_run_sum_to_its_wall_time(name: str, request: pytest.FixtureRequest) -> None:
    """To the millisecond, and none is negative."""
    cluster: SimulatedCluster = request.getfixturevalue(name)
    assert cluster.accounts
    for found in cluster.accounts:
        assert tuple(found.buckets_ms) == BUCKETS
        assert sum(found.buckets_ms.values()) == found.wall_ms
        assert min(found.buckets_ms.values()) >= 0
        assert found.buckets_ms["unknown"] == 0


def test_goodput_of_a_big_run_is_as_published(large: SimulatedCluster) -> None:
    """FIELD B1 and B4: 3.8 failures per 1000 node-days and an hour between checkpoints leave 90-97 %."""
    for found in large.accounts:
        assert 0.85 < found.buckets_ms["productive"] / found.wall_ms < 0.98
