"""Ledgers of runs in a store, on both databases: runs at once, requeues, faults that are another's."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hand_made_run import START, at, fault, lost_port, reported, saved

from goodput.advice.reading import checkpoint_advice, spares_advice
from goodput.reading.ledgers import NoRecordsError, no_such_run, read_ledgers
from goodput.reading.log import read_log
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Attribute, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

RECEIVED = START + timedelta(days=100)


def of_run(run: str, events: Sequence[Event]) -> list[Event]:
    """Training events as lines of a run's log."""
    return [
        replace(event, attributes={**event.attributes, "run": run}, file=f"{run}.log", line=number)
        for number, event in enumerate(events, start=1)
    ]


def line(seconds: float | None, number: int, **told: Attribute) -> Event:
    """One iteration of ten seconds."""
    attributes = {"iteration": number, "iterations": 1, "elapsed_ms": 10_000.0, **told}
    return Event(None if seconds is None else at(seconds), None, "training", "iteration", attributes=attributes)


def attempt(run: str, start: float, end: float | None, state: str, nodes: str = "gpu-[1-2]", submit: float = 0) -> Job:
    """One job of two nodes, submitted at 0."""
    return Job(f"id-{run}", run, state, at(submit), at(start), None if end is None else at(end), 2, nodes)


def stored(
    engine: sa.Engine, jobs: Sequence[Job] = (), events: Sequence[Event] = (), outages: Sequence[Outage] = ()
) -> None:
    """Four nodes of eight GPUs under one leaf, and what happened to them."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n}", leaf="leaf-1", gpus=8) for n in range(1, 5)])
        append_jobs(connection, jobs)
        append_events(connection, events, RECEIVED)
        append_outages(connection, outages)


def test_two_runs_at_once_each_pay_for_their_own_nodes(any_engine: sa.Engine) -> None:
    """A dead GPU under the one, a planned end of the other: same hours, disjoint nodes."""
    jobs = [attempt("a", 5, 60, "FAILED"), attempt("b", 5, 60, "CANCELLED by 7", "gpu-[3-4]")]
    log = [line(15, 1), line(25, 2)]
    stored(any_engine, jobs, [*of_run("a", log), *of_run("b", log), fault(40, "gpu-2")])
    with any_engine.begin() as connection:
        hit, spared = read_ledgers(connection)
        assert [one.run for one in read_ledgers(connection, "b")] == ["b"]
    assert (hit.run, spared.run) == ("a", "b")
    assert (hit.gpus, spared.gpus) == (16, 16)
    assert [cut.culprit and cut.culprit.node for cut in hit.interruptions] == ["gpu-2"]
    assert spared.interruptions == ()
    assert {name: value for name, value in hit.buckets_ms.items() if value} == {
        "waiting": 5_000,
        "lost_work": 35_000,
        "detection": 20_000,
    }
    assert spared.buckets_ms["productive"] == 20_000


def test_a_requeued_job_is_two_attempts_of_one_id(any_engine: sa.Engine) -> None:
    """Slurm keeps the id and sets the submit anew: the first attempt is not overwritten."""
    jobs = [attempt("a", 5, 40, "NODE_FAIL"), attempt("a", 50, 90, "COMPLETED", submit=41)]
    events = of_run("a", [line(15, 1), line(25, 2), line(70, 1), line(80, 2), line(90, 3)])
    stored(any_engine, jobs, events, [Outage("gpu-1", at(42), None, "DOWN", "Not responding", None, False, "host")])
    with any_engine.begin() as connection:
        (ledger,) = read_ledgers(connection)
    (cut,) = ledger.interruptions
    assert (ledger.attempts, cut.cause, cut.culprit and cut.culprit.node) == (2, "host", "gpu-1")
    assert (cut.lost_work_ms, cut.restart_ms) == (35_000, 10_000 + 10_000)
    assert ledger.wall_ms == 90_000


def test_a_job_that_still_runs_becomes_one_that_failed(any_engine: sa.Engine) -> None:
    """The later record of the same attempt replaces the earlier one."""
    events = of_run("a", [line(15, 1), line(25, 2)])
    stored(any_engine, [attempt("a", 5, None, "RUNNING")], events)
    with any_engine.begin() as connection:
        (open_one,) = read_ledgers(connection)
    stored(any_engine, [attempt("a", 5, 60, "FAILED")])
    with any_engine.begin() as connection:
        (over,) = read_ledgers(connection)
    assert (open_one.is_open, open_one.interruptions, open_one.wall_ms) == (True, (), 25_000)
    assert (over.is_open, len(over.interruptions), over.wall_ms) == (False, 1, 60_000)


def test_the_leaf_of_the_node_table_is_blamed_when_its_nodes_vanish_together(any_engine: sa.Engine) -> None:
    """Two nodes of the job and one beside it: the store finds them all."""
    ports = [lost_port(30, "gpu-1"), lost_port(31, "gpu-2"), lost_port(32, "gpu-3")]
    wide = attempt("a", 5, 60, "NODE_FAIL", "gpu-[1-3]")
    stored(any_engine, [wide], [*of_run("a", [line(15, 1), line(25, 2)]), *ports])
    with any_engine.begin() as connection:
        (ledger,) = read_ledgers(connection)
    (cut,) = ledger.interruptions
    assert cut.culprit is not None
    assert (cut.cause, cut.culprit.node, cut.culprit.device.type) == ("fabric", "leaf-1", "switch")


def test_an_error_line_of_another_run_blames_nobody_here(any_engine: sa.Engine) -> None:
    """Errors count for the run whose log reports them, at their own time, not that of their receipt."""
    jobs = [attempt("a", 5, 60, "FAILED"), attempt("b", 5, 60, "FAILED", "gpu-[3-4]")]
    log = [line(15, 1), line(25, 2)]
    errors = of_run("b", [*log, reported(30, "ValueError: bad token")])
    stored(any_engine, jobs, [*of_run("a", [*log, replace(reported(1, "lost"), time=None)]), *errors])
    with any_engine.begin() as connection:
        mine, other = read_ledgers(connection)
    assert [cut.cause for cut in mine.interruptions] == ["unknown"]
    assert mine.buckets_ms["lost_work"] == 55_000
    assert [cut.cause for cut in other.interruptions] == ["application"]
    assert other.buckets_ms["detection"] == 30_000


def test_the_moment_of_receipt_is_no_time_of_an_error(any_engine: sa.Engine) -> None:
    """The log is shipped while the job ends: an undated error line is stored with a time within the window."""
    undated = replace(reported(1, "ValueError: bad token"), time=None)
    stored(any_engine, [attempt("a", 5, 60, "FAILED")], of_run("a", [line(15, 1), line(25, 2)]))
    with writing(any_engine).begin() as connection:
        append_events(connection, of_run("a", [undated]), at(40))
    with any_engine.begin() as connection:
        (ledger,) = read_ledgers(connection)
    assert (ledger.buckets_ms["lost_work"], ledger.buckets_ms["detection"]) == (55_000, 0)
    assert ledger.interruptions[0].cause == "unknown"


def test_lines_that_arrive_in_several_files_are_read_in_the_order_of_the_clock(any_engine: sa.Engine) -> None:
    """A log that was rotated: the older part has the later name, its line numbers begin anew."""
    older = [replace(event, file="run.log.1") for event in of_run("a", [line(15, 1), line(25, 2)])]
    newer = [replace(event, file="run.log") for event in of_run("a", [line(35, 3), line(45, 4)])]
    stored(any_engine, [attempt("a", 5, 45, "COMPLETED")], [*newer, *older])
    with any_engine.begin() as connection:
        assert [one.iteration for one in read_log(connection, "a")] == [1, 2, 3, 4]
        (ledger,) = read_ledgers(connection)
    assert (ledger.attempts, ledger.buckets_ms["productive"]) == (1, 40_000)


def test_a_run_of_jobs_that_never_started_has_neither_outages_nor_faults(any_engine: sa.Engine) -> None:
    """Pending alone: it waits as of the moment asked for."""
    pending = Job("1", "a", "PENDING", at(0), None, None, 2, "")
    stored(any_engine, [pending], [fault(10)], [Outage("gpu-1", at(5), None, "DOWN", "", None, False, "host")])
    with any_engine.begin() as connection:
        (ledger,) = read_ledgers(connection, until=at(20))
    assert (ledger.buckets_ms["waiting"], ledger.wall_ms, ledger.interruptions) == (20_000, 20_000, ())


def test_an_unknown_run_is_answered_with_a_few_of_the_known(any_engine: sa.Engine) -> None:
    """Five names, and how many more there are."""
    stored(any_engine, [replace(attempt(f"run-{n}", 5, 60, "COMPLETED"), job_id=str(n)) for n in range(7)])
    with any_engine.begin() as connection:
        told = no_such_run(connection, "run")
    assert told == "the database knows no run 'run': it knows run-0, run-1, run-2, run-3, run-4 and 2 more"


def test_checkpoint_advice_is_for_the_run_that_ended_last(any_engine: sa.Engine) -> None:
    """Without a failure the way back is what its start took; without a name the newest run is meant."""
    log = [line(25, 1), *saved(None, 1, 4.0), line(39, 2), *saved(None, 2, 6.0), line(55, 3)]
    jobs = [attempt("old", 5, 55, "COMPLETED"), replace(attempt("young", 5, 56, "COMPLETED"), job_id="2")]
    stored(any_engine, jobs, [*of_run("old", log), *of_run("young", log)])
    with any_engine.begin() as connection:
        told = checkpoint_advice(connection)
    assert told["run"] == "young"
    assert (told["rate_is_measured"], told["inputs"]["failures"]) == (False, 0)
    assert (told["inputs"]["save_s"], told["inputs"]["interval_s"]) == (5.0, 10.0)
    assert told["inputs"]["restart_s"] == 10.0


def test_a_run_that_saved_once_has_no_interval_of_its_own(any_engine: sa.Engine) -> None:
    """Advice all the same: only what it does now is unknown."""
    log = of_run("a", [line(15, 1), *saved(None, 1, 4.0), line(29, 2)])
    stored(any_engine, [attempt("a", 5, 29, "COMPLETED")], log)
    with any_engine.begin() as connection:
        told = checkpoint_advice(connection, "a")
    assert (told["inputs"]["interval_s"], told["goodput_now"]) == (None, None)
    assert told["goodput_advised"] > 0


def test_service_time_ends_when_a_node_was_taken_away(any_engine: sa.Engine) -> None:
    """Observed are ten days; one node left after two of them, one came after the last."""
    day = 86_400.0
    with writing(any_engine).begin() as connection:
        nodes = [
            Node("n1"),
            Node("n2", in_service_until=at(2 * day)),
            Node("n3", in_service_since=at(30 * day)),
        ]
        append_nodes(connection, nodes)
        append_outages(connection, [Outage("n1", at(0), at(10 * day), "DOWN", "", None, False, "host")])
    with any_engine.begin() as connection:
        inputs = spares_advice(connection)["inputs"]
    assert inputs.items() >= {"nodes": 3, "outages": 1, "node_days": pytest.approx(12.0), "mttr_s": 10 * day}.items()


def test_where_every_outage_is_still_open_they_last_at_least_until_now(any_engine: sa.Engine) -> None:
    """A repair time of zero would advise no spare while nodes are down; one that ended is worth more."""
    down = [Outage(f"gpu-{n}", at(0), None, "DOWN", "", None, False, "host") for n in (1, 2)]
    stored(any_engine, events=[fault(86_400)], outages=down)
    with any_engine.begin() as connection:
        told = spares_advice(connection)
    assert (
        told["inputs"].items()
        >= {"nodes": 4, "outages": 2, "node_days": pytest.approx(4.0), "mttr_s": 86_400.0}.items()
    )
    assert told["spares"] > 0
    stored(any_engine, outages=[Outage("gpu-3", at(0), at(600), "DOWN", "", None, False, "host")])
    with any_engine.begin() as connection:
        assert spares_advice(connection)["inputs"]["mttr_s"] == 600.0


def test_a_store_that_saw_one_moment_has_observed_nothing(any_engine: sa.Engine) -> None:
    """A rate needs time."""
    stored(any_engine, events=[fault(10)])
    with any_engine.begin() as connection, pytest.raises(NoRecordsError, match="no nodes over any time"):
        spares_advice(connection)
