"""Each bucket of the ledger on runs made by hand, to the millisecond."""

from dataclasses import replace

import pytest
from hand_made_run import at, attempt, fault, iteration, ledger, lost_port, ms, outage, reported, said, saved

from goodput.account import account
from goodput.ledger import RunRecords
from goodput.log.training_log import lines_of


def test_waiting_begins_with_the_submit_and_startup_with_the_start() -> None:
    """Of both the milliseconds count, not the printed seconds."""
    made = ledger([attempt(7.25, 40, submit=0.125)], [iteration(30, 1), iteration(40, 2)])
    assert ms(made) == {"waiting": 7_125, "startup": 12_750, "productive": 20_000}
    assert made.start_ms % 1000 == 125


def test_without_a_submit_nothing_was_waited_for() -> None:
    """The start is the first moment known."""
    job = replace(attempt(5, 25), submit=None)
    assert ms(ledger([job], [iteration(15, 1), iteration(25, 2)])) == {"productive": 20_000}


def test_two_loads_before_the_first_iteration_are_both_loads() -> None:
    """Weights and optimizer in two lines; a load after work began is the next session's."""
    log = [
        said("checkpoint_load", duration_ms=3_000),
        said("checkpoint_load", duration_ms=4_500),
        iteration(30, 1),
        iteration(40, 2),
    ]
    assert ms(ledger([attempt(0, 40)], log)) == {"startup": 12_500, "checkpoint_load": 7_500, "productive": 20_000}


def test_a_load_longer_than_the_startup_takes_all_of_it_and_no_more() -> None:
    """What a line claims cannot reach back before the start."""
    log = [said("checkpoint_load", duration_ms=90_000), iteration(30, 1)]
    assert ms(ledger([attempt(0, 30)], log)) == {"checkpoint_load": 20_000, "productive": 10_000}


def test_a_load_without_a_duration_is_startup() -> None:
    """Nobody knows how long it took."""
    assert ms(ledger([attempt(0, 30)], [said("checkpoint_load"), iteration(30, 1)])) == {
        "startup": 20_000,
        "productive": 10_000,
    }


@pytest.mark.parametrize(("duration_s", "save_ms", "unknown_ms"), [(4.0, 4_000, 6_000), (9.5, 9_500, 0)])
def test_a_synchronous_save_stalls_for_what_it_says(duration_s: float, save_ms: int, unknown_ms: int) -> None:
    """The rest of the gap is unknown, unless it is within the second that a line prints."""
    log = [iteration(10, 1), *saved(None, 1, duration_s), iteration(30, 2)]
    made = ms(ledger([attempt(0, 30)], log))
    assert (made["checkpoint_save"], made.get("unknown", 0)) == (save_ms, unknown_ms)
    assert sum(made.values()) == 30_000


def test_a_save_without_a_duration_takes_the_whole_gap() -> None:
    """The log does not tell how long it stalled: what lies between the lines is the save's."""
    log = [iteration(10, 1), *saved(None, 1, None), iteration(35, 2)]
    made = ledger([attempt(0, 35)], log)
    assert ms(made) == {"productive": 20_000, "checkpoint_save": 15_000}
    assert made.saves == ()  # and no advice is built on it


def test_a_save_without_a_duration_keeps_the_work_before_it_all_the_same() -> None:
    """Finished is finished."""
    log = [iteration(10, 1), *saved(None, 1, None), iteration(35, 2)]
    made = ms(ledger([attempt(0, 50, "FAILED")], log, [fault(40)]))
    assert made == {"productive": 10_000, "checkpoint_save": 15_000, "lost_work": 15_000, "detection": 10_000}


def test_an_asynchronous_save_keeps_work_and_stalls_nobody() -> None:
    """Written beside the iterations: no stall, but what came before it survives the failure."""
    log = [iteration(10, 1), iteration(20, 2), *saved(None, 2, 60.0), iteration(30, 3), iteration(40, 4)]
    made = ms(ledger([attempt(0, 45, "FAILED")], log, [fault(42)]))
    assert made == {"productive": 20_000, "lost_work": 22_000, "detection": 3_000}


def test_two_saves_keep_what_came_before_the_later_one() -> None:
    """Only the work since the last save is lost; the stalls themselves are never lost work."""
    log = [iteration(10, 1), *saved(None, 1, 2.0), iteration(22, 2), *saved(None, 2, 3.0), iteration(35, 3)]
    made = ledger([attempt(0, 40, "FAILED")], log, [fault(38)])
    assert ms(made) == {"productive": 20_000, "checkpoint_save": 5_000, "lost_work": 13_000, "detection": 2_000}
    assert [save.length_ms for save in made.saves] == [2_000, 3_000]


def test_a_save_after_the_last_line_that_finished_keeps_the_work() -> None:
    """The failure came after it: only what followed the save is lost."""
    log = [iteration(10, 1), iteration(20, 2), *saved(None, 2, 6.0)]
    made = ms(ledger([attempt(0, 40, "FAILED")], log, [fault(30)]))
    assert made == {"productive": 20_000, "checkpoint_save": 6_000, "lost_work": 4_000, "detection": 10_000}


def test_a_save_that_the_fault_cut_short_is_painted_up_to_it() -> None:
    """Its line claims more time than there was before the fault."""
    log = [iteration(10, 1), *saved(None, 1, 30.0)]
    made = ms(ledger([attempt(0, 40, "FAILED")], log, [fault(25)]))
    assert made == {"productive": 10_000, "checkpoint_save": 15_000, "detection": 15_000}


def test_an_evaluation_is_taken_back_with_the_work_it_judged() -> None:
    """After the last save it must be done again."""
    log = [iteration(10, 1), *saved(None, 1, 1.0), iteration(21, 2), said("evaluation", duration_ms=5_000)]
    log += [iteration(36, 3)]
    kept = ms(ledger([attempt(0, 36)], log))
    lost = ms(ledger([attempt(0, 36, "FAILED")], log))
    assert kept == {"productive": 30_000, "checkpoint_save": 1_000, "evaluation": 5_000}
    assert lost == {"productive": 10_000, "checkpoint_save": 1_000, "lost_work": 25_000}


def test_an_evaluation_without_a_duration_takes_the_gap_after_it() -> None:
    """As a save without one does."""
    log = [iteration(10, 1), said("evaluation"), iteration(27, 2)]
    assert ms(ledger([attempt(0, 27)], log)) == {"productive": 20_000, "evaluation": 7_000}


@pytest.mark.parametrize(("elapsed_s", "degraded_ms"), [(12.0, 0), (12.001, 2_001), (25.0, 15_000)])
def test_slow_iterations_are_degraded_above_one_and_a_fifth_of_the_median(elapsed_s: float, degraded_ms: int) -> None:
    """At the border itself nothing is; beyond it the whole excess is."""
    log = [iteration(10, 1), iteration(20, 2), iteration(20 + elapsed_s, 3, elapsed_s)]
    log += [iteration(30 + elapsed_s, 4), iteration(40 + elapsed_s, 5)]
    made = ms(ledger([attempt(0, 40 + elapsed_s)], log))
    assert made.get("degraded", 0) == degraded_ms
    assert made["productive"] == 40_000 + round(elapsed_s * 1000) - degraded_ms


def test_slow_iterations_are_counted_for_each_iteration_of_a_line() -> None:
    """A line of five iterations of 15 s against a median of 10 s: 25 s too many."""
    log = [iteration(50, 5, 10.0, 5), iteration(100, 10, 10.0, 5), iteration(175, 15, 15.0, 5)]
    assert ms(ledger([attempt(0, 175)], log)) == {"productive": 150_000, "degraded": 25_000}


def test_detection_lasts_from_the_fault_to_the_schedulers_end() -> None:
    """To the millisecond; the work between last line and fault is lost with the rest."""
    made = ledger([attempt(0, 1810.5, "FAILED")], [iteration(10, 1)], [fault(10.777)])
    assert ms(made) == {"lost_work": 10_777, "detection": 1_799_723}
    (cut,) = made.interruptions
    assert (cut.lost_work_ms, cut.restart_ms, cut.lost_ms) == (10_777, 1_799_723, 1_810_500)


def test_a_fault_at_the_very_end_leaves_no_detection() -> None:
    """The window is closed: at the last line and at the end both count."""
    made = ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], [fault(40)])
    assert ms(made) == {"lost_work": 40_000}
    assert made.interruptions[0].culprit is not None
    assert ms(ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], [fault(10)])) == {
        "lost_work": 10_000,
        "detection": 30_000,
    }


def test_a_planned_cancel_keeps_its_work_and_is_no_interruption() -> None:
    """Also one that was cancelled while it started, and one that was cancelled while it waited."""
    worked = ledger([attempt(0, 24, "CANCELLED by 1000")], [iteration(10, 1), iteration(20, 2)])
    assert (ms(worked), worked.interruptions) == ({"productive": 24_000}, ())
    starting = ledger([attempt(5, 9, "CANCELLED by 1000", submit=0)], [said("training_start", 6)])
    assert (ms(starting), starting.interruptions) == ({"waiting": 5_000, "unknown": 4_000}, ())
    waiting = ledger([attempt(None, 9, "CANCELLED by 1000", submit=0)], [])
    assert (ms(waiting), waiting.interruptions) == ({"waiting": 9_000}, ())


def test_a_requeue_waits_from_the_end_of_the_attempt_before() -> None:
    """Its submit is the first one's: the wait does not count the first attempt again."""
    jobs = [attempt(2, 30, "NODE_FAIL", submit=0), attempt(45, 100, submit=0)]
    log = [iteration(20, 1), iteration(80, 1), iteration(90, 2), iteration(100, 3)]
    made = ledger(jobs, log, [fault(25)])
    assert ms(made) == {
        "waiting": 2_000 + 15_000,
        "startup": 8_000 + 25_000,
        "lost_work": 15_000,
        "detection": 5_000,
        "productive": 30_000,
    }
    assert made.interruptions[0].lost_ms == 15_000 + 5_000 + 15_000 + 25_000


def test_the_way_back_counts_every_wait_until_an_attempt_started_again() -> None:
    """An attempt that was cancelled in the queue is part of it; the next interruption pays its own."""
    jobs = [
        attempt(0, 20, "FAILED"),
        attempt(None, 30, "CANCELLED by 1", submit=20, number=2),
        attempt(35, 60, "FAILED", submit=30, number=3),
        attempt(61, 80, submit=60, number=4),
    ]
    log = [iteration(10, 1), iteration(50, 1), iteration(75, 1), iteration(80, 2, 5.0)]
    made = ledger(jobs, log, [fault(15), fault(55)])
    assert [cut.restart_ms for cut in made.interruptions] == [5_000 + 15_000 + 5_000, 5_000 + 1_000 + 4_000]


def test_overlapping_attempts_share_no_millisecond() -> None:
    """The scheduler started the next before the first had ended, by its clock."""
    jobs = [attempt(0, 30, "FAILED"), attempt(25, 60, number=2)]
    made = ledger(jobs, [iteration(10, 1), iteration(20, 2), iteration(50, 1), iteration(60, 2)])
    assert ms(made) == {"lost_work": 25_000, "startup": 15_000, "productive": 20_000}


def test_without_a_log_only_the_last_half_hour_may_hold_the_fault() -> None:
    """An Xid an hour before the end was survived; one within the half hour is the end."""
    jobs = [attempt(0, 7200, "FAILED")]
    early = ledger(jobs, [], [fault(5399.999)])
    late = ledger(jobs, [], [fault(5400)])
    assert (ms(early), ms(late)) == ({"unknown": 7_200_000}, {"unknown": 5_400_000, "detection": 1_800_000})
    assert early.interruptions[0].culprit is None


def test_without_jobs_the_log_alone_tells_of_the_restart() -> None:
    """Two starts in one file: the first ended badly, at its last line; the time between is a wait."""
    log = [iteration(10, 1), iteration(20, 2), said("training_start", 50), iteration(70, 1), iteration(80, 2)]
    made = ledger([], log)
    assert ms(made) == {"lost_work": 20_000, "waiting": 30_000, "startup": 10_000, "productive": 20_000}
    assert (len(made.interruptions), made.is_open, made.nodes) == (1, True, None)


def test_a_clock_that_was_set_back_neither_restarts_nor_counts_twice() -> None:
    """An hour back in the middle of the log: what was counted stays counted, the rest is work to the end."""
    log = [iteration(3610, 1), iteration(3620, 2), iteration(30, 3), iteration(40, 4)]
    made = ledger([attempt(3600, 3640)], log)
    assert (made.attempts, made.interruptions) == (1, ())
    assert ms(made)["productive"] == 20_000
    assert made.wall_ms == 40_000


def test_lines_that_were_read_twice_count_once() -> None:
    """Each line doubled gives the same account, save, evaluation and all."""
    log = [iteration(10, 1), *saved(None, 1, 2.0), iteration(22, 2), said("evaluation", duration_ms=3_000)]
    log += [iteration(35, 3), iteration(45, 4)]
    doubled = [line for line in log for _ in range(2)]
    assert ledger([attempt(0, 45)], doubled) == ledger([attempt(0, 45)], log)


def test_a_line_that_does_not_tell_its_length_takes_the_runs_median() -> None:
    """The first as every other one."""
    bare = said("iteration", 20, iteration=1, iterations=1)
    assert ms(ledger([attempt(0, 40)], [bare, iteration(30, 2), iteration(40, 3)])) == {
        "startup": 10_000,
        "productive": 30_000,
    }


def test_lines_without_any_length_are_work_from_one_to_the_next() -> None:
    """A log of times alone: before the first nobody knows more than that it started."""
    log = [said("iteration", s, iteration=n, iterations=1) for n, s in enumerate((20, 31, 45))]
    assert ms(ledger([attempt(0, 45)], log)) == {"startup": 20_000, "productive": 25_000}


def test_an_iteration_after_the_jobs_end_is_cut_at_it() -> None:
    """Clocks differ: the scheduler's end is the end."""
    made = ledger([attempt(0, 25)], [iteration(10, 1), iteration(20, 2), iteration(30, 3)])
    assert (ms(made), made.wall_ms) == ({"productive": 25_000}, 25_000)


def test_nodes_and_gpus_are_those_of_the_widest_attempt() -> None:
    """An elastic run that shrank; a node whose GPUs are unknown makes the sum unknown."""
    jobs = [attempt(0, 10, "FAILED"), replace(attempt(10, 20, nodes="gpu-1", number=2), nodes=1)]
    made = ledger(jobs, [])
    assert (made.nodes, made.gpus) == (2, 16)
    wider = [replace(attempt(0, 10, nodes="gpu-[1-3]"), nodes=None)]
    made = ledger(wider, [])
    assert (made.nodes, made.gpus) == (3, None)


def test_a_training_error_that_names_a_node_blames_it() -> None:
    """The launcher's word where no device spoke, not of the program's own error; a mere warning is none."""
    task = reported(31, "task 1: Exited with exit code 1", "gpu-2")
    (cut,) = ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], [reported(30, "[Errno 5] EIO"), task]).interruptions
    assert (cut.cause, cut.culprit and (cut.culprit.node, cut.culprit.kind)) == ("storage", ("gpu-2", "training_error"))
    own = [reported(30, "ValueError: bad token"), task]
    (cut,) = ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], own).interruptions
    assert (cut.cause, cut.culprit) == ("application", None)
    warned = reported(30, "slurmstepd: error: *** JOB 1 CANCELLED AT ... DUE TO TIME LIMIT ***", severity="warning")
    made = ledger([attempt(0, 40, "TIMEOUT")], [iteration(10, 1)], [warned])
    assert (ms(made), made.interruptions[0].cause) == ({"lost_work": 40_000}, "unknown")


def test_a_leaf_that_dies_is_blamed_instead_of_the_nodes_under_it() -> None:
    """Three ports within ten seconds, of nodes of this job and of others."""
    ports = [lost_port(30, "gpu-1"), lost_port(35, "gpu-3"), lost_port(40, "gpu-4")]
    made = ledger([attempt(0, 60, "NODE_FAIL")], [iteration(10, 1)], ports, [outage("gpu-1", 45)])
    (cut,) = made.interruptions
    assert (cut.time_ms - made.start_ms, cut.cause) == (30_000, "fabric")
    assert cut.culprit is not None
    assert (cut.culprit.node, cut.culprit.device.type) == ("leaf-1", "switch")
    later = [ports[0], ports[1], lost_port(40.001, "gpu-4")]
    (cut,) = ledger([attempt(0, 60, "NODE_FAIL")], [iteration(10, 1)], later).interruptions
    assert cut.culprit is not None
    assert cut.culprit.node == "gpu-1"


def test_a_fault_on_a_node_of_another_run_ends_nothing_here() -> None:
    """Two runs at once on disjoint nodes: the fault is the other one's, for both accounts."""
    log, faults = [iteration(10, 1), iteration(20, 2)], [fault(25, "gpu-3")]
    mine = ledger([attempt(0, 40, "CANCELLED by 1")], log, faults)
    other = ledger([attempt(0, 40, "FAILED", nodes="gpu-[3-4]")], log, faults)
    assert (mine.interruptions, "detection" in ms(mine)) == ((), False)
    assert ms(other) == {"lost_work": 25_000, "detection": 15_000}


@pytest.mark.parametrize("event", [fault(25, severity="warning"), fault(25, cause="application"), fault(25, None)])
def test_a_warning_a_programs_own_xid_and_a_fault_nowhere_end_nothing(event: object) -> None:
    """Only a grave fault of the machine, on a node of the job, dates the end."""
    made = ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], [event])  # type: ignore[list-item]  # an Event
    assert ms(made) == {"lost_work": 40_000}


def test_a_fault_whose_time_was_assumed_dates_nothing() -> None:
    """A line without a time was stored with a guess: that is no moment of a failure."""
    guessed = replace(fault(20), attributes={"time_assumed": True})
    assert ms(ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], [guessed])) == {"lost_work": 40_000}


def test_of_faults_at_one_moment_the_machines_comes_before_the_programs() -> None:
    """And of the machine's the one of the earlier line."""
    both = [reported(20, "NCCL error"), replace(fault(20, "gpu-2"), line=9), replace(fault(20), line=3)]
    (cut,) = ledger([attempt(0, 40, "FAILED")], [iteration(10, 1)], both).interruptions
    assert (cut.cause, cut.culprit is not None and cut.culprit.node) == ("hardware", "gpu-1")


def test_the_account_of_a_run_that_was_never_dated_has_no_times() -> None:
    """Lengths alone: a wall time, no start."""
    log = [iteration(None, 1), iteration(None, 2), said("evaluation", duration_ms=500), iteration(None, 3)]
    made = account(RunRecords("run", log=lines_of(log)))
    told = made.to_json()
    assert (told["start"], told["end"], told["wall_s"]) == (None, None, 30.5)
    assert ms(made) == {"productive": 30_000, "evaluation": 500}
    assert at(0).tzinfo is not None
