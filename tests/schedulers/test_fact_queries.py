"""Grounds of a hold and of a threshold, from the store: two detectors, jobs, who is silent; now and looking back."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from diagnosis.incidents.incidents_table import update_incidents
from schedulers.policy.fact_queries import gather, look_back
from schedulers.policy.facts import Inputs, JobFacts, NodeFacts, Reporting
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.tables import schema
from store.tables.bulk_rows import upsert_last_seen

from .cluster import HOUR, NOW, show

POLICY = Policy()


def told(engine: sa.Engine, source: str, kind: str, hours_ago: float = 0.5, node: str = "a", **more: Any) -> None:
    """An event of a detector, folded into incidents as the server does."""
    facts: dict[str, Any] = {"severity": "error", "cause": "hardware"} | more
    event = Event(time=NOW - hours_ago * HOUR, node=node, source=source, kind=kind, message=kind, **facts)
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, [event], received=NOW).new)


def nodes(engine: sa.Engine, *names: str, **facts: Any) -> None:
    """Nodes in service."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, **facts) for name in names])


def seen(engine: sa.Engine, policy: Policy = POLICY, now: datetime = NOW) -> Inputs:
    """What the policy sees."""
    with engine.connect() as connection:
        return gather(connection, policy, now)


def one(engine: sa.Engine, **more: Any) -> NodeFacts:
    """What it sees of node a."""
    return next(facts for facts in seen(engine, **more).nodes if facts.node == "a")


@pytest.mark.parametrize("hours_ago", [0.5, 0.499, 1.4])
def test_two_detectors_are_seen_in_one_incident_or_in_two(any_engine: sa.Engine, hours_ago: float) -> None:
    """Events of one minute make one incident, which keeps who said what."""
    nodes(any_engine, "a", "b")
    told(any_engine, "kernel", "nvlink_error", hours_ago)
    assert one(any_engine).witnesses is None
    told(any_engine, "dcgm", "row_remap_failure")
    told(any_engine, "dcgm", "row_remap_failure", node="b")
    pair = one(any_engine).witnesses
    assert pair is not None
    assert {sign.source for sign in pair} == {"kernel", "dcgm"}
    assert {facts.node for facts in seen(any_engine).nodes if facts.witnesses} == {"a"}
    assert one(any_engine).is_confirmed
    assert one(any_engine, policy=replace(POLICY, corroborate_s=0.0)).witnesses is None


def test_two_detectors_too_far_apart_or_before_a_repair_say_nothing(any_engine: sa.Engine) -> None:
    """After an outage that a scheduler saw end the node has been seen to; a drain of ours is none."""
    nodes(any_engine, "a")
    told(any_engine, "kernel", "nvlink_error", 3)
    told(any_engine, "dcgm", "row_remap_failure", 1.5)
    assert one(any_engine).witnesses is None
    assert one(any_engine, policy=replace(POLICY, corroborate_s=2 * 3600.0)).witnesses is not None
    told(any_engine, "opensm", "link_down", 1, cause="fabric")
    assert one(any_engine).witnesses is not None
    with writing(any_engine).begin() as connection:
        ours = Outage("a", NOW - 0.9 * HOUR, NOW - 0.8 * HOUR, "DRAIN", "foreshock: x id=1", None, True, "unknown")
        append_outages(connection, [ours])
    assert one(any_engine).witnesses is not None
    with writing(any_engine).begin() as connection:
        append_outages(
            connection, [Outage("a", NOW - 0.7 * HOUR, NOW - 0.6 * HOUR, "DOWN", "x", None, False, "hardware")]
        )
    assert one(any_engine).witnesses is not None, "that it has ended is only told"
    show(any_engine, "a", since=NOW - 30 * HOUR, until=NOW, back=NOW - 2 * HOUR)
    assert one(any_engine).witnesses is not None, "a scheduler saw it come back before the fault"
    show(any_engine, "a", since=NOW - 30 * HOUR, until=NOW, back=NOW - 0.6 * HOUR)
    assert one(any_engine).witnesses is None


def test_two_detectors_are_forgotten_after_the_healthy_time(any_engine: sa.Engine) -> None:
    """As a confirmed fault is."""
    nodes(any_engine, "a")
    told(any_engine, "kernel", "nvlink_error", 1)
    told(any_engine, "dcgm", "row_remap_failure", 0.5)
    healthy = timedelta(seconds=POLICY.healthy_s)
    assert one(any_engine, now=NOW + healthy - HOUR).witnesses is not None
    assert one(any_engine, now=NOW + healthy).witnesses is None


def job(name: str, node_list: str, started: float = 1, ended: float | None = None) -> Job:
    """A job, by hours ago."""
    end = None if ended is None else NOW - ended * HOUR
    start = NOW - started * HOUR
    return Job(name, f"run-{name}", "RUNNING", start, start, end, None, node_list)


def test_each_node_has_its_job_and_the_largest_is_known(any_engine: sa.Engine) -> None:
    """GPUs are those of the job's nodes; 8 where a node's are not known; the larger job where two run."""
    nodes(any_engine, "a", "n1", "n2", gpus=4)
    nodes(any_engine, "n3")
    jobs = [
        job("1", "n[1-3]"),
        job("2", "n1"),
        job("ended", "a", ended=0.5),
        job("future", "a", started=-1),
        job("broken", "n["),
    ]
    with writing(any_engine).begin() as connection:
        append_jobs(connection, jobs)
    found = {facts.node: (facts.job, facts.idle) for facts in seen(any_engine).nodes}
    mine = JobFacts("1", "run-1", 3, 16)
    assert found == {"a": (None, True), "n1": (mine, False), "n2": (mine, False), "n3": (mine, False)}
    assert seen(any_engine).largest_job_gpus == 16
    early = seen(any_engine, now=NOW - 0.7 * HOUR)
    assert next(facts.job for facts in early.nodes if facts.node == "a") == JobFacts("ended", "run-ended", 1, 4)


def test_where_no_job_is_known_nobody_is_idle(any_engine: sa.Engine) -> None:
    """Missing is missing."""
    nodes(any_engine, "a")
    assert (one(any_engine).idle, one(any_engine).job, seen(any_engine).largest_job_gpus) == (None, None, None)


def reported(engine: sa.Engine, node: str, seconds_ago: float) -> None:
    """A heartbeat of a node's sidecar."""
    moment = NOW - timedelta(seconds=seconds_ago)
    row = {"node": node, "received": moment, "time": moment, "version": "1", "started": moment}
    with writing(engine).begin() as connection:
        connection.execute(schema.sidecars.insert().values(**row, troubled=False, report={}))
        upsert_last_seen(connection, {node: moment})


def test_silent_is_who_reported_before_and_does_no_more(any_engine: sa.Engine) -> None:
    """A node without a sidecar, or out of service, is not counted."""
    nodes(any_engine, "a", "b", "bare")
    nodes(any_engine, "old", in_service_until=NOW - HOUR)
    assert seen(any_engine).reporting is None
    reported(any_engine, "a", 901)
    reported(any_engine, "b", 900)
    reported(any_engine, "old", 9000)
    with writing(any_engine).begin() as connection:
        upsert_last_seen(connection, {"bare": NOW - 9 * HOUR})
    found = seen(any_engine)
    assert {facts.node for facts in found.nodes if facts.silent} == {"a"}
    assert found.reporting == Reporting(expected=2, heard=1)


def test_looking_back_sees_what_had_begun(any_engine: sa.Engine) -> None:
    """Neither a later fault, nor a later word of the same incident, nor who is silent now."""
    nodes(any_engine, "a")
    reported(any_engine, "a", 99_999)
    told(any_engine, "kernel", "nvlink_error", 2)
    told(any_engine, "dcgm", "row_remap_failure", 2 - 1 / 120)
    told(any_engine, "kernel", "xid", 1, code=79, severity="fatal")
    with any_engine.connect() as connection:
        backs = [look_back(connection, POLICY, NOW - hours * HOUR).nodes[0] for hours in (2.5, 2, 1.9, 1)]
    assert [facts.witnesses is not None for facts in backs] == [False, False, True, True]
    assert [facts.fault is not None for facts in backs] == [False, False, False, True]
    assert not any(facts.silent for facts in backs)
