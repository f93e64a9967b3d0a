"""Attempts laid onto one wall time, and the GPU time that each of them held."""

from dataclasses import replace

from hand_made_run import attempt, fault, iteration, ledger, ms, said

from goodput.wall_time.attempts import RunAttempt
from goodput.wall_time.wall import gpus_of


def test_the_next_attempts_time_begins_when_it_starts_and_the_first_ones_work_is_over() -> None:
    """The first is still being cleared away: its detection ends where the next one starts."""
    jobs = [attempt(0, 60, "FAILED"), attempt(40, 90, number=2)]
    made = ledger(jobs, [iteration(10, 1), iteration(20, 2), iteration(80, 1), iteration(90, 2)], [fault(25)])
    assert ms(made) == {"lost_work": 25_000, "detection": 15_000, "startup": 30_000, "productive": 20_000}
    assert made.bounds_ms["detection"] == (15_000, 35_000)  # or until it was gone
    assert made.gpu_ms is not None
    held = {name: value // 16 for name, value in made.gpu_ms.items() if value}
    assert held == {"lost_work": 25_000, "detection": 35_000, "startup": 30_000, "productive": 20_000}


def test_an_attempt_that_works_keeps_its_time_until_its_last_line() -> None:
    """Two jobs of one run at once: the second one's work counts from where the first one's ends."""
    jobs = [attempt(0, 50), attempt(10, 70, number=2)]
    log = [iteration(number * 10, number) for number in range(1, 8)]
    made = ledger(jobs, log)
    assert made.wall_ms == 70_000
    assert sum(ms(made).values()) == 70_000


def test_a_job_within_another_one_gives_the_rest_back() -> None:
    """The outer one was silent; the inner one's time is its own, then the outer one's goes on."""
    jobs = [attempt(0, 100, "FAILED"), attempt(20, 50, "FAILED", number=2)]
    made = ledger(jobs, [iteration(10, 1), iteration(40, 1), iteration(50, 2)])
    assert made.wall_ms == 100_000
    assert ms(made)["lost_work"] == 20_000 + 20_000 + 50_000
    assert ms(made)["startup"] == 10_000


def test_a_job_that_waits_in_the_queue_hides_none_that_runs() -> None:
    """It was submitted first, started last, or never."""
    jobs = [attempt(60, 90, submit=0), attempt(10, 50, "CANCELLED by 1", submit=5, number=2)]
    log = [iteration(40, 1), iteration(50, 2), iteration(80, 3), iteration(90, 4)]
    assert ms(ledger(jobs, log)) == {"waiting": 20_000, "startup": 30_000, "productive": 40_000}
    never = [attempt(None, 70, "CANCELLED by 1", submit=0), attempt(10, 50, submit=5, number=2)]
    made = ledger(never, log[:2])
    assert ms(made) == {"waiting": 30_000, "startup": 20_000, "productive": 20_000}
    assert made.wall_ms == 70_000


def test_gpu_time_counts_each_attempt_with_its_size_and_a_wait_with_what_was_asked_for() -> None:
    """A run that shrinks from two nodes to one."""
    small = replace(attempt(30, 70, submit=20, nodes="gpu-1", number=2), nodes=1)
    log = [iteration(10, 1), iteration(20, 2), iteration(60, 3), iteration(70, 4)]
    made = ledger([attempt(0, 20, "CANCELLED by 1"), small], log)
    assert made.gpu_ms is not None
    told = {name: value for name, value in made.gpu_ms.items() if value}
    assert told == {"productive": 20_000 * 16 + 20_000 * 8, "waiting": 10_000 * 8, "startup": 20_000 * 8}
    assert sum(told.values()) == 20_000 * 16 + 50_000 * 8
    assert made.to_json()["gpu_hours"]["waiting"] == 80 / 3600


def test_a_size_that_is_unknown_makes_the_gpu_time_unknown() -> None:
    """A node whose GPUs nobody counted; a job that names neither nodes nor their number."""
    assert ledger([attempt(0, 20, nodes="gpu-[1-3]")], [iteration(20, 1)]).gpu_ms is None
    assert ledger([], [iteration(20, 1)]).to_json()["gpu_hours"] is None
    waiting = RunAttempt(0, None, None, "PENDING", node_count=3)
    assert gpus_of(waiting, {"a": 8, "b": 8}) == 24
    assert gpus_of(waiting, {"a": 8, "b": 4}) is None
    assert gpus_of(RunAttempt(0, 1, 2, "FAILED", frozenset({"a", "b"})), {"a": 8, "b": 4}) == 12
    assert gpus_of(RunAttempt(0, 1, 2, "FAILED"), {"a": 8}) is None


def test_what_an_overlap_costs_the_interruption_is_counted_once() -> None:
    """The way back is the next one's startup; its own detection is until it was gone."""
    jobs = [attempt(0, 60, "FAILED"), attempt(40, 90, number=2)]
    made = ledger(jobs, [iteration(10, 1), iteration(80, 1), iteration(90, 2)], [fault(15)])
    (cut,) = made.interruptions
    assert (cut.lost_work_ms, cut.restart_ms) == (15_000, 45_000 + 30_000)


def test_the_later_one_waits_for_the_earlier_ones_work_to_end() -> None:
    """Its startup lies beneath the iterations of the first until their last line."""
    jobs = [attempt(0, 50, "CANCELLED by 1"), attempt(15, 90, number=2)]
    log = [*(iteration(10 * n, n) for n in range(1, 5)), said("training_start", 45), iteration(80, 5), iteration(90, 6)]
    made = ledger(jobs, log)
    assert ms(made) == {"productive": 60_000, "startup": 30_000}
    assert made.bounds_ms["productive"] == (15_000 + 20_000, 70_000)


def test_a_start_that_only_the_log_tells_may_have_begun_before_the_last_job_was_gone() -> None:
    """Its first line came ten seconds after; its launch may lie beneath the detection."""
    log = [iteration(10, 1), iteration(20, 2), said("training_start", 130), iteration(150, 1)]
    made = ledger([attempt(0, 50, "FAILED")], log, [fault(30)])
    assert ms(made)["detection"] == 20_000
    assert made.bounds_ms["detection"] == (0, 20_000 + 80_000)
    assert made.bounds_ms["startup"][1] >= 10_000 + 80_000 + 20_000


def test_a_job_that_changes_its_size_goes_on() -> None:
    """Slurm begins a new record: no interruption, and each size counts for its own time."""
    jobs = [attempt(0, 30, "RESIZING"), replace(attempt(30, 60, nodes="gpu-1", number=2), nodes=1)]
    made = ledger(jobs, [iteration(10 * n, n) for n in range(1, 7)])
    assert (ms(made), made.interruptions, made.attempts) == ({"productive": 60_000}, (), 2)
    assert made.gpu_ms is not None
    assert made.gpu_ms["productive"] == 30_000 * 16 + 30_000 * 8
