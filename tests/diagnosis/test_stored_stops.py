"""Stops, blast radius and causes from a store, on both databases."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa
from fault_events import at, iteration, job, lost_port, program_error, xid

from diagnosis.causes.explanation import MOST, explain
from diagnosis.causes.stop import LONGEST, Stoppage, ended, starts_without_work, stop_of
from diagnosis.causes.stored_scene import read_scene
from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents, with_blast_radius
from store.database.connections import writing
from store.events.append import (
    append_events,
    append_jobs,
    append_outages,
)
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.hostlist import hosts
from store.records.job import Job
from store.records.outage import Outage
from store.records.verdict import Verdict
from store.runs.jobs import read_jobs

RECEIVED = at(100_000)


def told(
    engine: sa.Engine, events: Sequence[Event] = (), jobs: Sequence[Job] = (), outages: Sequence[Outage] = ()
) -> None:
    """Store what happened as the API does."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        append_outages(connection, outages)
        update_incidents(connection, append_events(connection, events, RECEIVED).new)


def explained(engine: sa.Engine, run: str | None = "llm", seconds: float | None = None) -> list[Verdict]:
    """The causes, the likeliest first."""
    with engine.begin() as connection:
        scene = read_scene(connection, run, None if seconds is None else at(seconds))
    return [] if scene is None else explain(scene)


def nodes_of(verdicts: Sequence[Verdict], *classes: str) -> list[str | None]:
    """The nodes of the verdicts of some classes, in order, each once."""
    return list(dict.fromkeys(one.node for one in verdicts if one.cause_class in classes))


def stop(engine: sa.Engine, run: str | None = "llm", seconds: float | None = None) -> Stoppage | None:
    """What is to be explained."""
    with engine.begin() as connection:
        return stop_of(connection, run, None if seconds is None else at(seconds))


def test_a_whole_stop_on_either_database(any_engine: sa.Engine) -> None:
    """Dead GPU, cascade, application faults of peers, an outage, the program's word: ranked the same."""
    events = [
        iteration(80),
        iteration(90),
        xid(79, 100, "gpu-002"),
        xid(45, 100.2, "gpu-002"),
        xid(31, 101, "gpu-001"),
        xid(79, 110, "gpu-003"),
        xid(79, 105, "gpu-099"),
        lost_port(104, None, guid="0xb2"),
        program_error(130, "NCCL WARN: unhandled system error", "nccl"),
    ]
    down = Outage("gpu-004", at(150), None, "DOWN", "Not responding", None, planned=False, cause="host")
    told(any_engine, events, [job(0, 700, "FAILED")], [down])
    verdicts = explained(any_engine)
    assert [one.probability for one in verdicts] == sorted((one.probability for one in verdicts), reverse=True)
    first = verdicts[0]
    assert (first.cause_class, first.node, first.jobs) == ("gpu", "gpu-002", ("llm",))
    assert first.evidence_for[0].events == ("gpu-002-79-00100.000",)
    assert nodes_of(verdicts, "gpu", "node")[:3] == ["gpu-002", "gpu-003", "gpu-004"]
    assert all(one.probability < 0.1 for one in verdicts if one.node == "gpu-099")  # of no job that stopped


def test_late_events_change_the_stored_incident_as_if_they_had_come_in_time(any_engine: sa.Engine) -> None:
    """In five batches, backwards, twice: the table holds what coalescing everything gives."""
    events = [xid(63, 0), xid(45, 30), xid(48, 61), lost_port(90), xid(79, 300), lost_port(2, None), lost_port(6, None)]
    for batch in (events[5:], events[3:5], events[:1], events[1:3], events):
        told(any_engine, batch)
    with any_engine.begin() as connection:
        assert read_incidents(connection, at(-100), at(10_000)) == coalesce(events)


def test_the_blast_radius_follows_the_requeued_job(any_engine: sa.Engine) -> None:
    """Between two attempts nobody's work is touched; at the border of an attempt somebody's is."""
    jobs = [job(0, 100, "NODE_FAIL"), job(400, 800, "FAILED", "gpu-[001-008]", number=2)]
    jobs[1] = replace(jobs[1], nodes=8)
    moments = (0, 100, 250, 400, 800, 1000)
    told(any_engine, [xid(79, second) for second in moments], jobs)
    with any_engine.begin() as connection:
        found = read_incidents(connection, at(-100), at(10_000))
    assert {one.start: one.blast_radius for one in found} == dict(
        zip(map(at, moments), (4, 4, None, 8, 8, None), strict=True)
    )


def test_the_largest_of_several_jobs_on_a_node_counts(any_engine: sa.Engine) -> None:
    """A shared node; a job without a node count has as many as its list names; a broken list names none."""
    jobs = [
        replace(job(0, None, "RUNNING", "gpu-[001-002]", number=1), nodes=2),
        replace(job(0, None, "RUNNING", "gpu-[001-016]", number=2), nodes=None),
        replace(job(0, None, "RUNNING", "gpu-[001-", number=3), nodes=99),
    ]
    told(any_engine, [], jobs)
    incidents = coalesce([xid(79, 50), xid(79, 50, "gpu-017")])
    with any_engine.begin() as connection:
        assert [one.blast_radius for one in with_blast_radius(connection, incidents)] == [16, None]
        assert with_blast_radius(connection, []) == []
    assert hosts("gpu-[001-") == frozenset()


def test_jobs_of_a_window_are_those_that_ran_at_any_moment_of_it(any_engine: sa.Engine) -> None:
    """Both ends belong to it; a job that never started does not."""
    pending = Job("9", "llm", "PENDING", at(0), None, None, 4, "")
    told(any_engine, [], [job(0, 100, "FAILED"), job(100, 200, "FAILED", number=2), pending])
    with any_engine.begin() as connection:
        ran = [
            [one.job_id for one in read_jobs(connection, window=(at(since), at(until)))]
            for since, until in ((0, 0), (100, 100), (101, 900), (201, 900))
        ]
    assert ran == [["1"], ["1", "2"], ["2"], []]


def test_a_stop_lies_between_the_last_iteration_and_the_end(any_engine: sa.Engine) -> None:
    """Of that attempt: an earlier one's lines and later ones do not count, nor lines without a time of their own."""
    jobs = [job(0, 100, "FAILED"), job(200, 700, "FAILED", number=2)]
    undated = replace(iteration(0), time=None, id="undated")
    told(any_engine, [iteration(50), iteration(250), undated], jobs)
    assert stop(any_engine) == Stoppage("llm", at(250), at(700), hosts("gpu-[001-004]"))
    first = stop(any_engine, seconds=150)
    assert first is not None
    assert (first.last_work, first.end, first.since) == (at(50), at(100), at(-10))


def test_an_attempt_that_never_iterated_does_not_borrow_the_progress_of_the_one_before(any_engine: sa.Engine) -> None:
    """It stopped after its start, or at most half an hour before its end."""
    short, long = job(200, 700, "FAILED", number=2), job(800, 9800, "FAILED", number=3)
    told(any_engine, [iteration(50)], [job(0, 100, "FAILED"), short, long])
    moments = [stop(any_engine, seconds=second) for second in (700, 9800)]
    assert [found and found.last_work for found in moments] == [at(200), at(9800 - 1800)]


def test_the_moment_of_receipt_is_no_progress(any_engine: sa.Engine) -> None:
    """An undated line is stored with a time within the attempt: it tells nothing of when the work stopped."""
    told(any_engine, [iteration(90)], [job(0, 700, "FAILED")])
    with writing(any_engine).begin() as connection:
        append_events(connection, [replace(iteration(91), time=None)], at(400))
    found = stop(any_engine)
    assert found is not None
    assert found.last_work == at(90)


def test_a_cause_is_sought_for_six_hours_at_most(any_engine: sa.Engine) -> None:
    """A hang that nobody noticed for a day: what was survived for longer is not it."""
    told(any_engine, [iteration(90)], [job(0, 90_000, "CANCELLED by 1000")])
    found = stop(any_engine)
    assert found is not None
    assert found.since == found.end - LONGEST


@pytest.mark.parametrize("state", ["COMPLETED", "RUNNING", "PENDING", "SUSPENDED"])
def test_what_did_not_end_badly_is_no_stop(any_engine: sa.Engine, state: str) -> None:
    """Neither of the run nor of the cluster."""
    told(any_engine, [iteration(50)], [job(0, 100, state)])
    assert stop(any_engine) is None
    assert stop(any_engine, None) is None


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED by 1000", "OUT_OF_MEMORY"])
def test_every_other_end_is_a_stop(any_engine: sa.Engine, state: str) -> None:
    """The scheduler's word decides."""
    jobs = [job(0, 100, state)]
    told(any_engine, [iteration(50)], jobs)
    found = stop(any_engine)
    assert found is not None
    assert (found.run, found.end) == ("llm", at(100))
    assert ended([*jobs, job(0, 90, "COMPLETED"), job(0, None, "RUNNING"), job(0, 50, "FAILED")]) == [
        job(0, 50, "FAILED"),
        *jobs,
    ]


def test_without_a_run_an_old_stop_is_not_the_news(engine: sa.Engine) -> None:
    """Half an hour after it, the cluster itself is looked at."""
    told(engine, [iteration(90), xid(79, 95)], [job(0, 100, "FAILED")])
    near, far = stop(engine, None, 100 + 1800), stop(engine, None, 100 + 1800.001)
    assert (near and near.run, far and far.run) == ("llm", None)
    assert far is not None
    assert far.nodes is None


def test_a_running_job_is_looked_at_only_when_its_run_is_named(engine: sa.Engine) -> None:
    """As of now, between its last line and the moment asked for; before its start it is unknown."""
    told(engine, [iteration(90), xid(63, 120)], [job(0, None, "RUNNING")])
    found = stop(engine, "llm", 200)
    assert found is not None
    assert (found.last_work, found.end) == (at(90), at(200))
    assert nodes_of(explained(engine, "llm", 200), "gpu") == ["gpu-001"]
    assert stop(engine, "llm", -1) is None
    cluster = stop(engine, None, 200)
    assert (cluster and cluster.run, cluster and cluster.nodes) == (None, None)


def test_no_more_than_twenty_causes_are_named(engine: sa.Engine) -> None:
    """Of thirty nodes that failed at once; and "unknown", which is always an answer."""
    nodes = [f"gpu-{n:03d}" for n in range(1, 31)]
    told(engine, [iteration(90), *(xid(79, 100, n) for n in nodes)], [job(0, 700, "FAILED", "gpu-[001-030]")])
    verdicts = explained(engine)
    assert len([one for one in verdicts if one.cause_class != "unknown"]) == MOST == 20
    assert len(set(nodes_of(verdicts, "gpu"))) == 20


def test_evidence_names_ten_events_at_most(engine: sa.Engine) -> None:
    """The first ones of the symptom, in order."""
    flood = [xid(92, 100 + n / 10) for n in range(30)]
    told(engine, [iteration(90), xid(43, 100), *flood], [job(0, 700, "FAILED")])
    (first,) = [one for one in explained(engine) if one.cause_class == "gpu"]
    evidence = next(one for one in first.evidence_for if "30 times" in one.text)
    assert evidence.events == tuple(event.id for event in flood[: len(evidence.events)])
    assert 0 < len(evidence.events) <= 10


def test_a_node_that_went_down_after_its_own_fault_is_named_once(engine: sa.Engine) -> None:
    """The outage adds nothing to an incident; half an hour after the end it is no part of the stop."""
    outages = [
        Outage("gpu-001", at(720), None, "DOWN", "Xid 79", None, planned=False, cause="hardware"),
        Outage("gpu-002", at(700 + 1800), None, "DOWN", "Not responding", None, planned=False, cause="host"),
        Outage("gpu-003", at(700 + 1801), None, "DOWN", "Not responding", None, planned=False, cause="host"),
    ]
    told(engine, [iteration(90), xid(79, 100, "gpu-001")], [job(0, 700, "NODE_FAIL")], outages)
    verdicts = explained(engine)
    assert nodes_of(verdicts, "gpu", "node")[:2] == ["gpu-001", "gpu-002"]
    assert "gpu-003" not in {one.node for one in verdicts}


def test_what_the_program_says_is_told_with_its_verdict(engine: sa.Engine) -> None:
    """Lines before its last progress and after its end are not of this stop."""
    errors = [program_error(100, "ValueError: bad token", "ValueError"), program_error(701, "after the end", "x")]
    told(engine, [iteration(90), *errors], [job(0, 700, "FAILED")])
    first = explained(engine)[0]
    assert (first.cause_class, first.name, first.cause) == ("application", "llm", "application")
    assert "ValueError: bad token" in first.reason


@pytest.mark.parametrize(
    ("state", "first"), [("NODE_FAIL", "unknown"), ("BOOT_FAIL", "unknown"), ("FAILED", "application")]
)
def test_a_job_that_slurm_ended_for_a_node_is_not_put_down_to_its_program(
    any_engine: sa.Engine, state: str, first: str
) -> None:
    """Nothing else is seen: then nobody knows which node and why, and the reason has the scheduler's word."""
    told(any_engine, [iteration(80), iteration(90)], [job(0, 700, state)])
    likeliest, *others = explained(any_engine)
    assert likeliest.cause_class == first
    if first == "unknown":
        assert f"the scheduler says that a node failed ({state})" in likeliest.reason
        against = [one.text for other in others if other.cause_class == "application" for one in other.evidence_against]
        assert f"the scheduler says that a node failed: {state}" in against


def test_a_thousand_failed_starts_are_asked_for_at_once(any_engine: sa.Engine) -> None:
    """The stop before them is found, and each of them told, by as many questions as for one."""
    told(any_engine, [iteration(80), iteration(90)], [job(0, 700, "FAILED"), job(750, None, "RUNNING", number=2)])
    few = starts_told(any_engine)
    begins = range(10_000, 10_000 + 1_000 * 20, 20)
    told(any_engine, [], [job(begin, begin + 9, "FAILED", number=begin) for begin in begins])
    many = starts_told(any_engine)
    assert [number for number, _ in (few, many)] == [1, 1001]
    assert few[1] == many[1]


def starts_told(engine: sa.Engine) -> tuple[int, int]:
    """How many starts without work are told after the stop, which is at 700 s, and by how many statements."""
    asked: list[object] = []
    with engine.begin() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        found = stop_of(connection, "llm", None)
        assert found is not None
        assert found.end == at(700)
        return len(starts_without_work(connection, found)), len(asked)
