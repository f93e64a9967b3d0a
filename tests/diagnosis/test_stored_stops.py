"""Stops, blast radius and ranking from a store, on both databases."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa
from fault_events import at, iteration, job, lost_port, program_error, xid

from diagnosis.culprits.culprit import MOST, Culprit, rank
from diagnosis.culprits.plausibility import read_topology
from diagnosis.causes.stop import LONGEST, Stoppage, ended, stop_of
from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents, with_blast_radius
from store.database.connections import writing
from store.events.append import (
    append_events,
    append_jobs,
    append_links,
    append_nodes,
    append_outages,
)
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.hostlist import hosts
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
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


def ranked(engine: sa.Engine, run: str | None = "llm", seconds: float | None = None) -> list[Culprit]:
    """The suspects."""
    with engine.begin() as connection:
        return rank(connection, run, None if seconds is None else at(seconds))


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
    suspects = ranked(any_engine)
    assert [one.node or one.device.uuid for one in suspects] == [
        "gpu-002",
        "0xb2",
        "gpu-003",
        "gpu-004",
        None,
        "gpu-001",
    ]
    assert [one.rank for one in suspects] == [1, 2, 3, 4, 5, 6]
    assert [one.score for one in suspects] == sorted((one.score for one in suspects), reverse=True)
    assert suspects[0].events == ("gpu-002-79-00100.000", "gpu-002-45-00100.200")
    assert suspects[1].events == ("None-port_removed-0xb2-00104.000",)


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
    assert [one.node for one in ranked(engine, "llm", 200)] == ["gpu-001"]
    assert stop(engine, "llm", -1) is None
    cluster = stop(engine, None, 200)
    assert (cluster and cluster.run, cluster and cluster.nodes) == (None, None)


def test_no_more_than_twenty_suspects_are_named(engine: sa.Engine) -> None:
    """Of thirty nodes, those that failed first; equal ones by name."""
    nodes = [f"gpu-{n:03d}" for n in range(1, 31)]
    told(engine, [iteration(90), *(xid(79, 100, n) for n in nodes)], [job(0, 700, "FAILED", "gpu-[001-030]")])
    suspects = ranked(engine)
    assert len(suspects) == MOST == 20
    assert [one.node for one in suspects] == nodes[:20]


def test_evidence_is_ten_events_at_most_and_never_mere_information(engine: sa.Engine) -> None:
    """The first ones of the incident, in order."""
    flood = [xid(92, 100 + n / 10) for n in range(30)]
    told(engine, [iteration(90), xid(43, 100), *flood], [job(0, 700, "FAILED")])
    (suspect,) = ranked(engine)
    assert suspect.events == tuple(event.id for event in flood[:10])


def test_a_node_that_went_down_after_its_own_fault_is_named_once(engine: sa.Engine) -> None:
    """The outage adds nothing to an incident; half an hour after the end it is no part of the stop."""
    outages = [
        Outage("gpu-001", at(720), None, "DOWN", "Xid 79", None, planned=False, cause="hardware"),
        Outage("gpu-002", at(700 + 1800), None, "DOWN", "Not responding", None, planned=False, cause="host"),
        Outage("gpu-003", at(700 + 1801), None, "DOWN", "Not responding", None, planned=False, cause="host"),
    ]
    told(engine, [iteration(90), xid(79, 100, "gpu-001")], [job(0, 700, "NODE_FAIL")], outages)
    assert [one.node for one in ranked(engine)] == ["gpu-001", "gpu-002"]


def test_a_consequence_that_is_reported_first_does_not_name_the_programs_error(engine: sa.Engine) -> None:
    """Unless nothing else was said; a cause that the line tells is taken over."""
    watchdog = program_error(100, "Watchdog caught collective operation timeout", "nccl_watchdog")
    told(engine, [iteration(90), watchdog], [job(0, 700, "FAILED")])
    assert ranked(engine)[0].reason == "the program reported: Watchdog caught collective operation timeout"
    cuda = replace(program_error(120, "CUDA error: uncorrectable ECC", "cuda"), cause="hardware")
    told(engine, [cuda, program_error(80, "before the last line", "x"), program_error(701, "after the end", "x")])
    (suspect,) = ranked(engine)
    assert (suspect.reason, suspect.cause) == ("the program reported: CUDA error: uncorrectable ECC", "hardware")
    assert len(suspect.events) == 2


def test_the_node_table_tells_better_than_the_cables_where_a_node_hangs(any_engine: sa.Engine) -> None:
    """A cable to a switch is none to a node; the first cable of a node holds where the table is silent."""
    links = [
        {"switch": "sw-1", "port": 1, "peer": "gpu-001", "peer_port": 1, "peer_type": "hca"},
        {"switch": "sw-1", "port": 2, "peer": "gpu-002", "peer_port": 1, "peer_type": "hca"},
        {"switch": "sw-1", "port": 9, "peer": "sw-2", "peer_port": 9, "peer_type": "switch"},
    ]
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("gpu-001", leaf="leaf-01"), Node("gpu-002"), Node("gpu-003")])
        append_links(connection, links)
    with any_engine.begin() as connection:
        topology = read_topology(connection)
    assert topology.leaf == {"gpu-001": "leaf-01", "gpu-002": "sw-1"}
    assert topology.switches == {"sw-1"}
    assert topology.switch_of("leaf-01").key() == "switch:leaf-01"
