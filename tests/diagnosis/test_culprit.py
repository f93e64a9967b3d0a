"""Who is to blame: the ranking, on stops whose cause is known."""

import pytest
import sqlalchemy as sa
from fault_events import START, at, iteration, job, lost_port, program_error, xid

from diagnosis.culprits.culprit import Culprit, rank
from diagnosis.causes.stop import stop_of
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import (
    append_events,
    append_jobs,
    append_links,
    append_nodes,
    append_outages,
)
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

RECEIVED = at(100_000)


def told(engine: sa.Engine, events: list[Event], jobs: list[Job]) -> None:
    """Store events and jobs as the API does."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        update_incidents(connection, append_events(connection, events, RECEIVED).new)


def ranked(engine: sa.Engine, run: str | None = "llm", seconds: float | None = None) -> list[Culprit]:
    """The suspects."""
    with engine.begin() as connection:
        return rank(connection, run, None if seconds is None else at(seconds))


def test_the_dead_gpu_comes_before_the_programs_that_felt_it(engine: sa.Engine) -> None:
    """A GPU off the bus, then application faults on every peer."""
    peers = [xid(31, 101 + n, f"gpu-{n:03d}") for n in (1, 3, 4)]
    told(engine, [iteration(90), xid(79, 100, "gpu-002"), xid(45, 100.5, "gpu-002"), *peers], [job(0, 700, "FAILED")])
    suspects = ranked(engine)
    assert [one.node for one in suspects] == ["gpu-002", "gpu-001", "gpu-003", "gpu-004"]
    first = suspects[0]
    assert (first.rank, first.device.pci, first.cause, first.time) == (1, "0000:0f:00.0", "hardware", at(100))
    assert first.events == ("gpu-002-79-00100.000", "gpu-002-45-00100.500")
    assert first.score > 0.8 > suspects[1].score
    assert "fatal hardware fault xid 79, 10 s after the last progress" in first.reason
    assert first.to_json()["time"] == "2025-03-01T12:01:40.000000Z"


def test_of_two_grave_faults_the_earlier_one_leads(engine: sa.Engine) -> None:
    """The second one is a cascade."""
    told(engine, [iteration(90), xid(79, 110, "gpu-001"), xid(79, 100, "gpu-003")], [job(0, 700, "FAILED")])
    suspects = ranked(engine)
    assert [one.node for one in suspects] == ["gpu-003", "gpu-001"]
    assert "after 1 other fault of the machine" in suspects[1].reason


def test_a_fault_that_was_survived_at_first_is_less_likely(engine: sa.Engine) -> None:
    """Work went on for 40 s after it."""
    told(engine, [iteration(90), xid(79, 50, "gpu-001"), xid(79, 100, "gpu-003")], [job(0, 700, "FAILED")])
    suspects = ranked(engine)
    assert [one.node for one in suspects] == ["gpu-003", "gpu-001"]
    assert "40 s before the last progress" in suspects[1].reason


def test_faults_of_other_jobs_nodes_and_of_long_ago_are_no_suspects(engine: sa.Engine) -> None:
    """Only the job's own nodes, only after its last progress."""
    told(engine, [iteration(5000), xid(79, 5100, "gpu-009"), xid(79, 100, "gpu-001")], [job(0, 5700, "FAILED")])
    assert ranked(engine) == []


@pytest.mark.parametrize("known_by", ["nodes", "links"])
def test_several_nodes_of_a_leaf_that_vanish_at_once_point_to_the_switch(engine: sa.Engine, known_by: str) -> None:
    """Three ports under one leaf within seconds; the node table or the cabling tells where they hang."""
    names = [f"gpu-{n:03d}" for n in range(1, 5)]
    with writing(engine).begin() as connection:
        if known_by == "nodes":
            append_nodes(connection, [Node(name, leaf="leaf-01") for name in names])
        else:
            append_links(
                connection,
                [
                    {"switch": "leaf-01", "port": n, "peer": name, "peer_port": 1, "peer_type": "hca"}
                    for n, name in enumerate(names)
                ],
            )
    told(
        engine,
        [iteration(90), *(lost_port(100 + n, name) for n, name in enumerate(names))],
        [job(0, 700, "FAILED")],
    )
    suspects = ranked(engine)
    assert (suspects[0].device.type, suspects[0].device.uuid, suspects[0].node) == ("switch", "leaf-01", None)
    assert suspects[0].nodes == tuple(names)
    assert len(suspects[0].events) == 4
    assert suspects[0].reason == "4 nodes of leaf-01 lost their link within 3 s: the switch above them"
    assert all("with others under leaf-01" in one.reason for one in suspects[1:])


def test_one_lost_port_points_to_its_node(engine: sa.Engine) -> None:
    """Not the switch: the neighbours are there."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", leaf="leaf-01") for n in range(1, 5)])
    told(engine, [iteration(90), lost_port(100, "gpu-002"), lost_port(160, "gpu-003")], [job(0, 700, "FAILED")])
    assert [one.node for one in ranked(engine)] == ["gpu-002", "gpu-003"]


def test_the_fabric_between_the_nodes_is_suspect_too(engine: sa.Engine) -> None:
    """A switch that names no host."""
    told(engine, [iteration(90), lost_port(100, None, guid="0xb2")], [job(0, 700, "FAILED")])
    (suspect,) = ranked(engine)
    assert (suspect.node, suspect.device.uuid) == (None, "0xb2")


def test_a_node_that_went_down_without_a_sign_is_suspect(engine: sa.Engine) -> None:
    """Only the scheduler noticed; a planned outage and another job's node are none."""
    down = Outage("gpu-003", at(720), None, "DOWN", "Not responding", "slurm", planned=False, cause="host")
    planned = Outage("gpu-004", at(710), None, "DRAIN", "maintenance", "ops", planned=True, cause="unknown")
    other = Outage("gpu-009", at(710), None, "DOWN", "Not responding", "slurm", planned=False, cause="host")
    with writing(engine).begin() as connection:
        append_outages(connection, [down, planned, other])
    told(engine, [iteration(90)], [job(0, 700, "NODE_FAIL")])
    (suspect,) = ranked(engine)
    assert (suspect.node, suspect.cause, suspect.incident, suspect.events) == ("gpu-003", "host", None, ())
    assert "DOWN Not responding" in suspect.reason


def test_the_program_is_suspect_where_it_reported_an_error(engine: sa.Engine) -> None:
    """The error that is no mere consequence names it, the launcher the node."""
    errors = [
        program_error(100, "failed (exitcode: 1)", "process_exit"),
        program_error(100, "ValueError: bad token", "ValueError"),
        program_error(130, "srun: error: gpu-002: task 3: Exited with exit code 1", "task_killed", "gpu-002"),
    ]
    told(engine, [iteration(90), *errors], [job(0, 130, "FAILED")])
    (suspect,) = ranked(engine)
    assert (suspect.node, suspect.cause) == ("gpu-002", "application")
    assert suspect.reason == "the program reported: ValueError: bad token"
    assert len(suspect.events) == 3


def test_an_io_error_of_the_program_points_to_storage_and_to_no_node_when_all_tasks_died(engine: sa.Engine) -> None:
    """Every node reports: none of them is to blame."""
    errors = [
        program_error(100, "OSError: [Errno 5] Input/output error", "OSError"),
        program_error(101, "task 1: Killed", "task_killed", "gpu-001"),
        program_error(102, "task 2: Killed", "task_killed", "gpu-002"),
    ]
    told(engine, [iteration(90), *errors], [job(0, 130, "FAILED")])
    (suspect,) = ranked(engine)
    assert (suspect.node, suspect.cause, suspect.nodes) == (None, "storage", ("gpu-001", "gpu-002"))


def test_without_a_training_log_only_the_last_half_hour_counts(engine: sa.Engine) -> None:
    """Nobody knows when the work stopped."""
    told(engine, [xid(79, 100, "gpu-001"), xid(79, 9000, "gpu-002")], [job(0, 10_000, "FAILED")])
    assert [one.node for one in ranked(engine)] == ["gpu-002"]


def test_the_newest_interruption_is_explained_and_an_earlier_one_on_demand(engine: sa.Engine) -> None:
    """`at` goes back in time; a run that ran at that moment is looked at as of then."""
    jobs = [job(0, 700, "FAILED"), job(800, 1700, "FAILED", number=2), job(1800, 2000, "COMPLETED", number=3)]
    events = [iteration(90), xid(79, 100, "gpu-001"), iteration(900), xid(79, 1000, "gpu-002")]
    told(engine, events, jobs)
    assert ranked(engine)[0].node == "gpu-002"
    assert ranked(engine, seconds=750)[0].node == "gpu-001"
    assert ranked(engine, seconds=1010)[0].node == "gpu-002"
    assert ranked(engine, seconds=950) == []


def test_without_a_run_the_stop_that_came_last_is_explained(engine: sa.Engine) -> None:
    """Any run; where none stopped lately, the cluster's newest incident."""
    told(engine, [iteration(90), xid(79, 100, "gpu-001")], [job(0, 700, "FAILED")])
    assert ranked(engine, None)[0].node == "gpu-001"
    told(engine, [xid(48, 50_000, "gpu-009")], [])
    assert [one.node for one in ranked(engine, None, 50_060)] == ["gpu-009"]


def test_where_nothing_stopped_there_is_nothing_to_explain(engine: sa.Engine) -> None:
    """An empty store, and a run that ended well."""
    assert ranked(engine) == []
    assert ranked(engine, None) == []
    told(engine, [iteration(90), xid(79, 95)], [job(0, 100, "COMPLETED")])
    assert ranked(engine) == []
    with engine.begin() as connection:
        assert stop_of(connection, "other", None) is None
        stop = stop_of(connection, None, None)
    assert stop is not None
    assert (stop.run, stop.end) == (None, at(95))
    assert stop.since >= START - (at(3600) - at(0))
