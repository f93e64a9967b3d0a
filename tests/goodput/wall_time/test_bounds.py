"""What the records leave open: each bucket's least and most on runs made by hand."""

from dataclasses import replace

from hand_made_run import attempt, fault, iteration, ledger, ms, reported, said, saved

from goodput.ledger import Ledger
from goodput.timeline import BUCKETS, RUNNING, Segment, bounds_ms


def open_buckets(made: Ledger) -> dict[str, tuple[int, int]]:
    """The buckets whose least and most differ; what they hold lies within."""
    for bucket, (least, most) in made.bounds_ms.items():
        assert 0 <= least <= made.buckets_ms[bucket] <= most <= made.wall_ms
    return {bucket: (least, most) for bucket, (least, most) in made.bounds_ms.items() if least != most}


def test_the_most_counts_what_may_be_and_the_least_only_what_is_beyond_doubt() -> None:
    """Of three stretches, one of them certain."""
    made = bounds_ms(
        [
            Segment(0, 10, "startup"),
            Segment(10, 15, "startup", frozenset({"waiting", "startup"})),
            Segment(15, 18, "unknown", frozenset({"startup"})),
        ]
    )
    assert (made["startup"], made["waiting"], made["unknown"]) == ((10, 18), (0, 5), (0, 3))
    assert list(made) == list(BUCKETS)


def test_a_log_and_a_fault_leave_nothing_open() -> None:
    """Every bucket's least and most are what it holds."""
    log = [iteration(20, 1), *saved(None, 1, 2.0), iteration(32, 2), iteration(42, 3)]
    assert open_buckets(ledger([attempt(5, 60, "FAILED", submit=0)], log, [fault(45)])) == {}


def test_a_job_without_any_log_did_anything_but_wait() -> None:
    """From nothing to its whole length, for each bucket."""
    made = ledger([attempt(5, 60, submit=0)], [])
    assert made.bounds_ms["waiting"] == (5_000, 5_000)
    assert open_buckets(made) == dict.fromkeys((b for b in BUCKETS if b in RUNNING), (0, 55_000))


def test_a_log_that_misses_for_one_attempt_leaves_that_and_the_save_it_loaded_open() -> None:
    """The second attempt is unknown; the work of the first may have been lost, if it loaded an older save."""
    jobs = [attempt(0, 42, "FAILED"), attempt(42, 100, "FAILED", number=2), attempt(100, 130, number=3)]
    log = [iteration(20, 1), iteration(30, 2), *saved(None, 2, 5.0), said("training_start", 105)]
    log += [said("checkpoint_load", iteration=4, duration_ms=0), iteration(120, 5), iteration(130, 6)]
    made = ledger(jobs, log, [fault(40)])
    assert ms(made)["unknown"] == 58_000
    assert made.bounds_ms["productive"] == (20_000, 20_000 + 20_000 + 58_000)
    assert made.bounds_ms["lost_work"] == (5_000, 5_000 + 20_000 + 58_000)


def test_a_fault_that_nobody_saw_may_have_stopped_the_work_any_time_after_the_last_line() -> None:
    """As one that the program only noticed; its own error is the fault."""
    job, log = attempt(0, 60, "FAILED"), [iteration(10, 1), *saved(None, 1, 1.0), iteration(21, 2)]
    assert open_buckets(ledger([job], log)) == {"lost_work": (10_000, 49_000), "detection": (0, 39_000)}
    noticed = reported(50, "Watchdog caught collective operation timeout")
    assert open_buckets(ledger([job], log, [noticed]))["detection"] == (10_000, 39_000)
    own = replace(noticed, cause="application")
    assert open_buckets(ledger([job], log, [own])) == {}


def test_the_log_alone_leaves_the_time_between_two_starts_open() -> None:
    """The end of the one, the wait and the start of the other."""
    log = [iteration(10, 1), iteration(20, 2), said("training_start", 50), iteration(70, 1), iteration(80, 2)]
    made = ledger([], log)
    assert made.bounds_ms["waiting"] == (0, 30_000)
    assert made.bounds_ms["detection"][1] >= 30_000
    assert made.bounds_ms["startup"] == (10_000, 40_000)


def test_a_gap_that_nobody_accounts_for_and_a_stall_without_a_length_are_open() -> None:
    """What lies between two lines may be any work of the program."""
    made = ledger([attempt(0, 30)], [iteration(10, 1), iteration(30, 2)])
    assert made.bounds_ms["unknown"] == (0, 10_000)
    assert made.bounds_ms["evaluation"] == (0, 10_000)
    made = ledger([attempt(0, 30)], [iteration(10, 1), said("evaluation"), iteration(30, 2)])
    assert (ms(made)["evaluation"], made.bounds_ms["evaluation"]) == (10_000, (0, 10_000))


def test_a_load_whose_length_is_not_told_lies_somewhere_in_the_startup() -> None:
    """Of a start that began anew there is none."""
    later = ledger([attempt(0, 40)], [said("checkpoint_load", iteration=7), iteration(30, 8), iteration(40, 9)])
    assert later.bounds_ms["checkpoint_load"] == (0, 20_000)
    anew = ledger([attempt(0, 40)], [iteration(30, 1), iteration(40, 2)])
    assert anew.bounds_ms["checkpoint_load"] == (0, 0)


def test_lost_work_is_open_where_no_save_is_ever_told() -> None:
    """The log of a program that says nothing of its saves; the next start settles it."""
    log = [iteration(10, 11), iteration(20, 12)]
    made = ledger([attempt(0, 20, "FAILED")], log, [fault(20)])
    assert made.bounds_ms["lost_work"] == (0, 20_000)
    jobs = [attempt(0, 20, "FAILED"), attempt(20, 40, number=2)]
    settled = ledger(jobs, [*log, iteration(30, 12), iteration(40, 13)], [fault(20)])
    assert settled.bounds_ms["lost_work"] == (10_000, 10_000)
