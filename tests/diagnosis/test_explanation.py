"""What explains a stop: causes with what speaks for and against them, on stops whose cause is known."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from fault_events import START, at, iteration, job, lost_port, program_error, xid

from diagnosis.causes.explanation import explain
from diagnosis.causes.stop import stop_of
from diagnosis.causes.stored_scene import read_scene
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import (
    append_events,
    append_jobs,
    append_links,
    append_nodes,
    append_outages,
)
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.verdict import Verdict

RECEIVED = at(100_000)


def told(engine: sa.Engine, events: list[Event], jobs: list[Job]) -> None:
    """Store events and jobs as the API does."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        update_incidents(connection, append_events(connection, events, RECEIVED).new)


def explained(engine: sa.Engine, run: str | None = "llm", seconds: float | None = None) -> list[Verdict]:
    """The causes, the likeliest first; none where there is nothing to explain."""
    with engine.begin() as connection:
        scene = read_scene(connection, run, None if seconds is None else at(seconds))
    return [] if scene is None else explain(scene)


def causes(verdicts: list[Verdict], least: float = 0.5) -> list[tuple[str, str | None]]:
    """Class and node of whatever is more likely than not."""
    return [(one.cause_class, one.node) for one in verdicts if one.probability >= least]


def test_the_dead_gpu_comes_before_the_programs_that_felt_it(engine: sa.Engine) -> None:
    """A GPU off the bus, then application faults on every peer."""
    peers = [xid(31, 101 + n, f"gpu-{n:03d}") for n in (1, 3, 4)]
    told(engine, [iteration(90), xid(79, 100, "gpu-002"), xid(45, 100.5, "gpu-002"), *peers], [job(0, 700, "FAILED")])
    verdicts = explained(engine)
    assert causes(verdicts) == [("gpu", "gpu-002")]
    first = verdicts[0]
    assert (first.device.pci, first.cause, first.action, first.since) == (
        "0000:0f:00.0",
        "hardware",
        "reboot_node",
        at(100),
    )
    assert first.evidence_for[0].events == ("gpu-002-79-00100.000",)
    assert first.jobs == ("llm",)
    assert [one.probability for one in verdicts] == sorted((one.probability for one in verdicts), reverse=True)


def test_of_two_grave_faults_the_earlier_one_leads(engine: sa.Engine) -> None:
    """The stop is put down to it; the second one is a fault nevertheless."""
    told(engine, [iteration(90), xid(79, 110, "gpu-001"), xid(79, 100, "gpu-003")], [job(0, 700, "FAILED")])
    verdicts = [one for one in explained(engine) if one.cause_class == "gpu"]
    assert [one.node for one in verdicts] == ["gpu-003", "gpu-001"]
    assert (verdicts[0].jobs, verdicts[1].jobs) == (("llm",), ())


def test_a_fault_that_was_survived_at_first_is_less_likely(engine: sa.Engine) -> None:
    """Work went on for 40 minutes after it."""
    told(engine, [iteration(2500), xid(79, 50, "gpu-001"), xid(79, 2510, "gpu-003")], [job(0, 2700, "FAILED")])
    verdicts = [one for one in explained(engine) if one.cause_class == "gpu"]
    assert [one.node for one in verdicts] == ["gpu-003", "gpu-001"]
    assert any("before the last progress" in one.text for one in verdicts[1].evidence_against)


def test_a_flap_that_was_cured_in_seconds_does_not_outrank_a_later_fault(engine: sa.Engine) -> None:
    """Recovery speaks against it."""
    flap = [lost_port(95, "gpu-001"), replace(lost_port(101, "gpu-001", kind="port_discovered"), severity="info")]
    told(engine, [iteration(90), *flap, xid(79, 300, "gpu-003")], [job(0, 700, "FAILED")])
    verdicts = explained(engine)
    assert causes(verdicts) == [("gpu", "gpu-003")]
    (cured,) = [one for one in verdicts if one.node == "gpu-001"][:1]
    assert any("over after" in one.text for one in cured.evidence_against)


def test_a_node_whose_gpus_are_lost_at_once_is_said_to_have_lost_its_parts(engine: sa.Engine) -> None:
    """It is they that were lost, and it is the node that lost them."""
    pcis = [f"0000:{bus:02x}:00.0" for bus in (0x0F, 0x2D, 0x44, 0x5B)]
    lost = [
        replace(xid(79, 100 + n / 10, "gpu-001"), device=Device("gpu", pci=pci), id=f"e{n}")
        for n, pci in enumerate(pcis)
    ]
    told(engine, [iteration(90), *lost], [job(0, 700, "FAILED")])
    (first, *_rest) = explained(engine)
    assert (first.cause_class, first.node) == ("node", "gpu-001")
    # Nobody tells how many GPUs the node has.
    assert first.reason == "4 parts of it were lost at once: node gpu-001"
    assert "nobody tells how many parts it has; 8 are assumed" in {one.text for one in first.evidence_against}


@pytest.mark.parametrize("known_by", ["nodes", "links"])
def test_several_nodes_of_a_leaf_that_vanish_at_once_point_to_the_switch(engine: sa.Engine, known_by: str) -> None:
    """Ports under one leaf within seconds; the node table or the cabling tells where they hang."""
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
    verdicts = explained(engine)
    assert (verdicts[0].cause_class, verdicts[0].name, verdicts[0].node) == ("switch", "leaf-01", None)
    assert verdicts[0].device.type == "switch"
    assert verdicts[0].nodes == tuple(names)
    assert len(verdicts[0].evidence_for[0].events) == 4
    assert "below it lost a link within 3 s" in verdicts[0].reason
    assert verdicts[0].probability > 0.9


def test_one_lost_port_points_to_its_node_and_not_to_the_switch(engine: sa.Engine) -> None:
    """The neighbours are there: that speaks against the switch."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", leaf="leaf-01") for n in range(1, 5)])
    told(engine, [iteration(90), lost_port(100, "gpu-002"), lost_port(160, "gpu-003")], [job(0, 700, "FAILED")])
    verdicts = explained(engine)
    assert (verdicts[0].node, verdicts[0].cause) == ("gpu-002", "fabric")
    assert all(one.cause_class != "switch" or one.probability < 0.1 for one in verdicts)


def test_a_node_that_went_down_without_a_sign_is_suspect(engine: sa.Engine) -> None:
    """Only the scheduler noticed; a planned outage is no fault, another job's node is hardly one of this stop."""
    down = Outage("gpu-003", at(720), None, "DOWN", "Not responding", "slurm", planned=False, cause="host")
    planned = Outage("gpu-004", at(710), None, "DRAIN", "maintenance", "ops", planned=True, cause="unknown")
    other = Outage("gpu-009", at(710), None, "DOWN", "Not responding", "slurm", planned=False, cause="host")
    with writing(engine).begin() as connection:
        append_outages(connection, [down, planned, other])
    told(engine, [iteration(90)], [job(0, 700, "NODE_FAIL")])
    verdicts = explained(engine)
    assert causes(verdicts) == [("node", "gpu-003")]
    assert "DOWN Not responding" in verdicts[0].reason
    assert verdicts[0].evidence_for[0].events == ()
    assert "gpu-004" not in {one.node for one in verdicts}


def test_planned_work_excuses_what_its_nodes_show(engine: sa.Engine) -> None:
    """A rack that was drained before its links went: no fault, and a verdict that says whose work it is."""
    names = [f"gpu-{n:03d}" for n in range(1, 5)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, rack="r1", leaf="leaf-01") for name in names])
        append_outages(
            connection,
            [
                Outage(n, at(50), None, "DRAIN", "planned: PDU swap", "ops", planned=True, cause="unknown")
                for n in names
            ],
        )
    told(engine, [lost_port(100 + n, name) for n, name in enumerate(names)], [])
    verdicts = explained(engine, None)
    assert causes(verdicts) == [("planned", None)]
    assert (verdicts[0].name, verdicts[0].nodes, verdicts[0].action) == ("planned: PDU swap", tuple(names), "none")


def test_an_error_of_the_program_accuses_no_node(engine: sa.Engine) -> None:
    """An illegal access and exit code 1, with the rank's node in the log: the program's own."""
    wrong = "RuntimeError: CUDA error: an illegal memory access was encountered"
    errors = [
        program_error(100, wrong, "RuntimeError", "gpu-002"),
        program_error(100.5, "failed (exitcode: 1)", "process_exit", "gpu-002"),
    ]
    told(engine, [iteration(90), xid(31, 99.9, "gpu-002"), *errors], [job(0, 130, "FAILED")])
    verdicts = explained(engine)
    assert causes(verdicts) == [("application", None)]
    assert (verdicts[0].name, verdicts[0].cause, verdicts[0].action) == ("llm", "application", "restart_app")


def test_without_a_training_log_only_the_last_half_hour_counts(engine: sa.Engine) -> None:
    """Nobody knows when the work stopped."""
    told(engine, [xid(79, 100, "gpu-001"), xid(79, 9000, "gpu-002")], [job(0, 10_000, "FAILED")])
    assert causes(explained(engine)) == [("gpu", "gpu-002")]


def test_the_newest_interruption_is_explained_and_an_earlier_one_on_demand(engine: sa.Engine) -> None:
    """`at` goes back in time; a run that ran at that moment is looked at as of then."""
    jobs = [job(0, 700, "FAILED"), job(800, 1700, "FAILED", number=2), job(1800, 2000, "COMPLETED", number=3)]
    events = [iteration(90), xid(79, 100, "gpu-001"), iteration(900), xid(79, 1000, "gpu-002")]
    told(engine, events, jobs)
    assert explained(engine)[0].node == "gpu-002"
    assert explained(engine, seconds=750)[0].node == "gpu-001"
    assert explained(engine, seconds=1010)[0].node == "gpu-002"


def test_without_a_run_the_stop_that_came_last_is_explained(engine: sa.Engine) -> None:
    """Any run; where none stopped lately, the cluster's newest incident."""
    told(engine, [iteration(90), xid(79, 100, "gpu-001")], [job(0, 700, "FAILED")])
    assert explained(engine, None)[0].node == "gpu-001"
    told(engine, [xid(48, 50_000, "gpu-009")], [])
    assert explained(engine, None, 50_060)[0].node == "gpu-009"
    assert explained(engine, None)[0].node == "gpu-009"


def test_unknown_is_an_answer(engine: sa.Engine) -> None:
    """A job that failed and nothing that tells why: no empty list, and no guess that is sure."""
    told(engine, [iteration(90)], [job(0, 700, "FAILED")])
    verdicts = explained(engine)
    assert "unknown" in {one.cause_class for one in verdicts}
    assert all(one.node is None for one in verdicts)
    assert all(one.probability < 0.9 for one in verdicts)


def test_where_nothing_stopped_there_is_nothing_to_explain(engine: sa.Engine) -> None:
    """An empty store, and a run that ended well."""
    assert explained(engine) == []
    assert explained(engine, None) == []
    told(engine, [iteration(90), xid(79, 95)], [job(0, 100, "COMPLETED")])
    assert explained(engine) == []
    with engine.begin() as connection:
        assert stop_of(connection, "other", None) is None
        stop = stop_of(connection, None, None)
    assert stop is not None
    assert (stop.run, stop.end) == (None, at(95))
    assert stop.since >= START - (at(3600) - at(0))
