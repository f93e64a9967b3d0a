"""The ledger on small hand-made runs, whose every bucket is known."""

from datetime import UTC, datetime, timedelta

import pytest

from goodput.account import account
from goodput.ledger import Ledger, RunRecords
from goodput.log.training_log import lines_of
from goodput.timeline import BUCKETS, to_ms
from store.records.event import Cause, Device, Event, Severity
from store.records.job import Job
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(seconds=seconds)


def job(submit: float | None, start: float | None, end: float | None, state: str = "COMPLETED", number: int = 1) -> Job:
    """One attempt on two nodes."""
    moments = [None if x is None else at(x) for x in (submit, start, end)]
    return Job(str(number), "run", state, *moments, nodes=2, node_list="gpu-[1-2]")


def said(kind: str, seconds: float | None = None, **attributes: int | float) -> Event:
    """One training event."""
    return Event(None if seconds is None else at(seconds), None, "training", kind, attributes=attributes)


def iteration(seconds: float | None, number: int, elapsed_s: float = 10.0, count: int = 1) -> Event:
    """One iteration line."""
    return said("iteration", seconds, iteration=number, iterations=count, elapsed_ms=elapsed_s * 1000)


def fault(
    seconds: float, node: str = "gpu-1", severity: Severity = "fatal", cause: Cause = "hardware", kind: str = "xid"
) -> Event:
    """One fault event."""
    device = Device(type="gpu", pci="0000:0f:00.0")
    return Event(at(seconds), node, "kernel", kind, code=79, severity=severity, cause=cause, device=device)


def ledger(
    jobs: list[Job], log: list[Event], faults: list[Event] | None = None, outages: list[Outage] | None = None
) -> Ledger:
    """The account, whose buckets must sum to the wall time in every test."""
    made = account(RunRecords("run", jobs, lines_of(log), faults or [], outages or [], gpus={"gpu-1": 8, "gpu-2": 8}))
    assert sum(made.buckets_ms.values()) == made.wall_ms
    return made


def seconds(made: Ledger) -> dict[str, float]:
    """The buckets that hold anything, in seconds."""
    return {name: value / 1000 for name, value in made.buckets_ms.items() if value}


def test_a_run_without_trouble_is_waiting_startup_load_and_work() -> None:
    """Waiting, startup, load and iterations are each in their bucket; the load lies right before the first one."""
    log = [said("training_start"), said("checkpoint_load", duration_ms=5000), iteration(60, 1), iteration(70, 2)]
    made = ledger([job(0, 20, 70)], log)
    assert seconds(made) == {"waiting": 20, "startup": 25, "checkpoint_load": 5, "productive": 20}
    assert made.goodput == pytest.approx(20 / 70)
    assert (made.nodes, made.gpus, made.attempts, made.is_open) == (2, 16, 1, False)
    assert [s.bucket for s in made.segments] == ["waiting", "startup", "checkpoint_load", "productive"]


def test_saves_and_evaluations_stall_and_other_gaps_are_unknown() -> None:
    """A save and an evaluation follow the line before them; what nobody accounts for is unknown."""
    log = [
        iteration(10, 1),
        said("checkpoint_save_start", iteration=1),
        said("checkpoint_save", iteration=1, duration_ms=3000),
        iteration(23, 2),
        said("evaluation", duration_ms=4000),
        iteration(37, 3),
        iteration(60, 4),
    ]
    made = ledger([job(0, 0, 60)], log)
    assert seconds(made) == {"productive": 40, "checkpoint_save": 3, "evaluation": 4, "unknown": 13}
    assert [(s.start_ms - made.start_ms, s.length_ms) for s in made.saves] == [(10_000, 3000)]


def test_a_gap_within_the_second_that_a_line_prints_is_no_gap() -> None:
    """Printed seconds make spans of 10.4 s look like gaps and overlaps: they are neither."""
    log = [iteration(int(10.4 * n), n, elapsed_s=10.4) for n in range(1, 101)]
    made = ledger([job(0, 0, 1040)], log)
    assert seconds(made) == {"productive": 1040}


def test_the_excess_of_slow_iterations_is_degraded() -> None:
    """A line 1.5 times as slow as the median gives its excess, a line 1.1 times as slow gives nothing."""
    log = [iteration(10, 1), iteration(20, 2), iteration(35, 3, 15.0), iteration(46, 4, 11.0), iteration(56, 5)]
    assert seconds(ledger([job(0, 0, 56)], log)) == {"productive": 51, "degraded": 5}


def test_a_fault_takes_back_the_work_since_the_last_save() -> None:
    """Work since the save and after the last line is lost; from the fault to the end is detection."""
    log = [
        iteration(10, 1),
        said("checkpoint_save", iteration=1, duration_ms=2000),
        iteration(22, 2),
        said("evaluation", duration_ms=3000),
        said("training_start"),
        said("checkpoint_load", duration_ms=4000),
        iteration(100, 2),
    ]
    jobs = [job(0, 0, 50, "FAILED"), job(50, 60, 100, number=2)]
    made = ledger(jobs, log, [fault(30), fault(28.5, severity="warning"), fault(29, node="other")])
    assert seconds(made) == {
        "productive": 20,
        "checkpoint_save": 2,
        "lost_work": 18,
        "detection": 20,
        "waiting": 10,
        "startup": 26,
        "checkpoint_load": 4,
    }
    (cut,) = made.interruptions
    assert cut.to_json() == {
        "time": "2025-03-01T00:00:30.000000Z",
        "cause": "hardware",
        "verdict": None,
        "culprit": {
            "type": "gpu",
            "node": "gpu-1",
            "pci": "0000:0f:00.0",
            "index": None,
            "uuid": None,
            "port": None,
            "kind": "xid",
            "code": 79,
        },
        "lost_s": 18 + 20 + 10 + 26 + 4,
        "kept": {"iteration": 1, "time": "2025-03-01T00:00:12.000000Z"},
        "torn": None,
    }


def test_a_save_that_never_finished_saves_nothing() -> None:
    """A save that was begun and not finished is lost work, and so is what it was to keep."""
    log = [iteration(10, 1), iteration(20, 2), said("checkpoint_save_start", iteration=2)]
    made = ledger([job(0, 0, 40, "FAILED")], log, [fault(30)])
    assert seconds(made) == {"lost_work": 30, "detection": 10}
    assert made.saves == ()


def test_a_fault_without_a_sign_is_dated_to_the_end_and_blamed_on_the_node_that_went_down() -> None:
    """Without a fault event the work is lost to the end; an unplanned outage then names the node."""
    outage = Outage("gpu-2", at(41), None, "DOWN", "Not responding", None, planned=False, cause="host")
    made = ledger([job(0, 0, 40, "NODE_FAIL")], [iteration(10, 1)], outages=[outage])
    assert seconds(made) == {"lost_work": 40}
    (cut,) = made.interruptions
    assert (cut.cause, cut.culprit is not None and cut.culprit.node) == ("host", "gpu-2")


@pytest.mark.parametrize(
    ("state", "cause"), [("NODE_FAIL", "host"), ("OUT_OF_MEMORY", "application"), ("TIMEOUT", "unknown")]
)
def test_without_any_sign_the_state_tells_the_cause(state: str, cause: str) -> None:
    """What the scheduler calls the end is the last resort."""
    (cut,) = ledger([job(0, 0, 40, state)], [iteration(10, 1)]).interruptions
    assert (cut.cause, cut.culprit) == (cause, None)


def test_a_reported_error_dates_the_end_but_the_machine_is_blamed_first() -> None:
    """An error line stops the work; a fault of the machine before it is the culprit."""
    error = Event(at(25), None, "training", "training_error", severity="error", cause="application")
    made = ledger([job(0, 0, 40, "FAILED")], [iteration(10, 1)], [error])
    assert (seconds(made), made.interruptions[0].cause) == ({"lost_work": 25, "detection": 15}, "application")
    made = ledger([job(0, 0, 40, "FAILED")], [iteration(10, 1)], [error, fault(20)])
    assert (seconds(made), made.interruptions[0].cause) == ({"lost_work": 20, "detection": 20}, "hardware")


def test_cancelled_is_planned_unless_a_fault_came_before() -> None:
    """A cancelled attempt keeps its work, unless someone cancelled it because of a fault."""
    log = [iteration(10, 1), iteration(20, 2)]
    planned = ledger([job(0, 0, 25, "CANCELLED by 1000")], log)
    assert (seconds(planned), planned.interruptions) == ({"productive": 25}, ())
    forced = ledger([job(0, 0, 40, "CANCELLED by 1000")], log, [fault(30)])
    assert seconds(forced) == {"lost_work": 30, "detection": 10}


def test_what_follows_the_last_line_of_a_good_end_is_unknown_when_it_is_long() -> None:
    """Longer than a print interval: nobody knows what it was."""
    assert seconds(ledger([job(0, 0, 60)], [iteration(10, 1)])) == {"productive": 10, "unknown": 50}


def test_a_run_known_from_sacct_alone_is_unknown_but_for_waiting_and_detection() -> None:
    """Without a training log nobody knows what was productive."""
    jobs = [job(0, 10, 7200, "FAILED"), job(7200, 7300, 8000, number=2)]
    made = ledger(jobs, [], [fault(100), fault(7000)])
    assert seconds(made) == {"waiting": 110, "unknown": 6990 + 700, "detection": 200}
    assert made.interruptions[0].lost_ms == 300_000


def test_a_run_known_from_its_log_alone_is_one_attempt() -> None:
    """Without sacct the log tells when it began and ended."""
    log = [iteration(10, 1), iteration(20, 2), said("training_end", 22)]
    made = ledger([], log)
    assert (seconds(made), made.attempts, made.nodes) == ({"productive": 22}, 1, None)
    assert made.to_json()["gpus"] is None


def test_a_log_without_times_is_placed_by_what_its_lines_cover() -> None:
    """Iterations follow one another from the job's start, saves between them."""
    log = [
        said("checkpoint_load", duration_ms=2000),
        iteration(None, 1),
        said("checkpoint_save", duration_ms=3000),
        iteration(None, 2),
    ]
    made = ledger([job(0, 0, 100, "FAILED")], log, [fault(50), fault(5)])
    assert seconds(made) == {
        "checkpoint_load": 2,
        "productive": 10,
        "checkpoint_save": 3,
        "lost_work": 35,
        "detection": 50,
    }
    undated = ledger([], log)
    assert (seconds(undated), undated.dated) == ({"checkpoint_load": 2, "productive": 20, "checkpoint_save": 3}, False)
    assert undated.to_json()["start"] is None


def test_a_dated_line_anchors_the_ones_without_a_date() -> None:
    """`datetime:` lines tell when the iterations after them began."""
    log = [said("training_start", 30), iteration(None, 1), iteration(None, 2)]
    assert seconds(ledger([job(0, 0, 50)], log)) == {"startup": 30, "productive": 20}


def test_a_save_in_the_background_stalls_no_one() -> None:
    """A save of 60 s between lines that follow one another is written beside the work."""
    log = [iteration(10, 1), said("checkpoint_save", duration_ms=60_000), iteration(20, 2), iteration(30, 3)]
    assert seconds(ledger([job(0, 0, 30)], log)) == {"productive": 30}


def test_a_save_that_is_timed_with_the_iterations_is_taken_out_of_them() -> None:
    """Older programs count the save in the next line's time: it is a save nevertheless."""
    log = [
        iteration(10, 1),
        iteration(20, 2),
        said("checkpoint_save", duration_ms=6000),
        iteration(36, 3, 16.0),
        iteration(46, 4),
    ]
    assert seconds(ledger([job(0, 0, 46)], log)) == {"productive": 40, "checkpoint_save": 6}


def test_a_restart_inside_a_job_is_an_interruption() -> None:
    """Iterations that go back within one job: the program started anew."""
    log = [iteration(10, 1), iteration(20, 2), said("training_start", 50), iteration(80, 1), iteration(90, 2)]
    made = ledger([job(0, 0, 90)], log)
    assert seconds(made) == {"lost_work": 50, "startup": 20, "productive": 20}
    assert (made.attempts, len(made.interruptions)) == (2, 1)


def test_an_open_run_ends_at_its_last_data_or_at_the_moment_asked_for() -> None:
    """A running job has no end; what is not known yet is not counted."""
    log = [iteration(10, 1), iteration(20, 2), iteration(30, 3)]
    made = ledger([job(0, 0, None, "RUNNING")], log)
    assert (seconds(made), made.is_open) == ({"productive": 30}, True)
    records = RunRecords("run", [job(0, 0, 90, "FAILED")], lines_of(log))
    then = account(records, to_ms(at(22)))
    assert (seconds(then), then.interruptions, then.wall_ms) == ({"productive": 22}, (), 22_000)
    assert account(records, to_ms(at(-5))).wall_ms == 0


def test_a_job_that_waits_still_or_never_started_is_waiting() -> None:
    """Pending and cancelled before its start."""
    records = RunRecords("run", [job(0, None, None, "PENDING")])
    assert seconds(account(records, to_ms(at(30)))) == {"waiting": 30}
    assert seconds(ledger([job(0, None, 40, "CANCELLED by 1")], [])) == {"waiting": 40}


def test_an_attempt_that_never_iterated_was_starting_up() -> None:
    """In a run that has a log elsewhere, an attempt without an iteration failed at its startup."""
    log = [said("training_start", 5), said("training_start", 110), iteration(140, 1)]
    jobs = [job(0, 0, 60, "FAILED"), job(60, 100, 140, number=2)]
    made = ledger(jobs, log, [fault(40)])
    assert seconds(made) == {"startup": 40 + 30, "detection": 20, "waiting": 40, "productive": 10}


def test_an_attempt_without_an_end_that_was_followed_ended_at_its_last_data() -> None:
    """A missing End: the next attempt shows that it is over."""
    jobs = [job(0, 0, None, "RUNNING"), job(50, 60, 100, number=2)]
    made = ledger(jobs, [iteration(10, 1), iteration(20, 2), iteration(90, 1), iteration(100, 2)])
    assert seconds(made) == {"lost_work": 20, "waiting": 40, "startup": 20, "productive": 20}


def test_a_broken_hostlist_or_impossible_figures_do_not_stop_the_account() -> None:
    """Figures from outside may be anything."""
    broken = Job("1", "run", "", at(0), at(0), at(30), None, "gpu-[9-1")
    log = [
        said("iteration", 10, iteration=-3, iterations=0, elapsed_ms=float("nan")),
        said("iteration", 20, iteration=2, iterations=10**9, elapsed_ms=1e30),
        said("checkpoint_save", None, duration_ms=-5),
        iteration(30, 3),
    ]
    made = ledger([broken], log)
    assert made.wall_ms == 30_000
    assert (made.nodes, made.gpus) == (None, None)


def test_the_json_object_has_every_bucket_in_order() -> None:
    """Programs rely on the keys."""
    told = ledger([job(0, 0, 20)], [iteration(10, 1), iteration(20, 2)]).to_json()
    assert list(told) == [
        "run",
        "nodes",
        "gpus",
        "start",
        "end",
        "wall_s",
        "buckets",
        "goodput",
        "scheduling_goodput",
        "runtime_goodput",
        "ettr",
        "bounds",
        "gpu_hours",
        "interruptions",
        "unfinished_saves",
        "details",
    ]
    assert list(told["buckets"]) == list(BUCKETS)
    assert (told["start"], told["wall_s"], told["goodput"]) == ("2025-03-01T00:00:00.000000Z", 20.0, 1.0)


def test_an_empty_account_has_no_goodput() -> None:
    """Nothing known: no wall time, no share."""
    made = account(RunRecords("run"))
    assert (made.wall_ms, made.goodput, made.to_json()["start"]) == (0, None, None)


def test_an_undated_load_belongs_to_the_start_line_after_it() -> None:
    """Megatron prints the load, then the dated start line: they are one start, also where nothing iterated before."""
    log = [said("checkpoint_load", duration_ms=5000), said("training_start", 20), iteration(40, 1)]
    made = ledger([], log)
    assert (made.attempts, seconds(made)) == (1, {"startup": 5, "checkpoint_load": 5, "productive": 10})
    failed = [said("checkpoint_load", duration_ms=2000), said("training_start", 5)]
    again = [said("checkpoint_load", duration_ms=3000), said("training_start", 110), iteration(140, 1)]
    both = ledger([job(0, 0, 60, "FAILED"), job(60, 100, 140, number=2)], [*failed, *again])
    assert seconds(both) == {"startup": 58 + 27, "checkpoint_load": 5, "waiting": 40, "productive": 10}


def test_the_gpus_of_jobs_that_name_no_nodes() -> None:
    """As many nodes as the widest asked for, where all nodes have as many GPUs; as its GPU time counts them."""
    jobs = [
        Job(str(n), "run", "COMPLETED", at(0), at(100 * n), at(100 * n + 50), nodes=n, node_list="") for n in (1, 3)
    ]
    made = account(RunRecords("run", jobs, gpus={"gpu-1": 8, "gpu-2": 8}))
    assert (made.nodes, made.gpus) == (3, 24)
    assert account(RunRecords("run", jobs, gpus={"gpu-1": 8, "gpu-2": 4})).gpus is None
