"""Turns of the policy over a real database: release after a test, replaced machines, running jobs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import look, run_policy
from schedulers.policy.decision import Decision
from schedulers.policy.fact_queries import gather
from schedulers.policy.settings import JobWatch, Policy, Release
from schedulers.reconcile.dispatch import Dispatch, run_dispatch
from store.database.connections import writing
from store.events.append import append_jobs, append_nodes
from store.hints.hint_log import audit_page, change_state, read_hints
from store.hints.validations import report_validation, validations_of
from store.records.hint import Hint, RepairCase
from store.records.job import Job
from store.records.node import Node
from store.tables import hint_tables, schema

from .cluster import HOUR, NOW, show
from .receivers import Scripted
from .test_turn import incident, score

TESTED = Release(healthy_s=3600.0, validate=("check", "{node}"))
POLICY = Policy(mode="act", release=TESTED)


def nodes(engine: sa.Engine, *names: str, **more: Any) -> None:
    """Nodes of one leaf and rack."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "r1", "l1", gpus=8, **more) for name in names])


def hints(engine: sa.Engine, action: str | None = None) -> list[Hint]:
    """All hints, or those of an action."""
    with engine.connect() as connection:
        return [hint for hint in read_hints(connection) if action in (None, hint.action)]


def words(engine: sa.Engine) -> list[tuple[str, Any]]:
    """The policy's part of the audit, oldest first: who, and what it did or why."""
    with engine.connect() as connection:
        entries = reversed(audit_page(connection, 99, None, None))
    found = [(entry["actor"], entry["detail"].get("change") or entry["detail"].get("why")) for entry in entries]
    return [entry for entry in found if entry[1] is not None]


def confirm(engine: sa.Engine, action: str = "cordon") -> None:
    """A scheduler has done as asked."""
    (hint,) = hints(engine, action)
    with writing(engine).begin() as connection:
        sent = change_state(connection, hint, "sent", NOW, "scheduler:s")
        change_state(connection, sent, "confirmed", NOW, "scheduler:s")


def report(engine: sa.Engine, passed: bool, hours: float) -> None:
    """What a test said."""
    (hint,) = hints(engine, "cordon")
    with writing(engine).begin() as connection:
        report_validation(connection, hint, "ci", NOW + hours * HOUR, (passed, "row remap failed"))


def test_a_held_node_is_released_after_its_healthy_time_and_its_test(any_engine: sa.Engine) -> None:
    """Never before; each step stands in the audit, and a turn that changes nothing writes nothing."""
    nodes(any_engine, "a")
    incident(any_engine, "a", hours_ago=0.5)
    run_policy(any_engine, POLICY, NOW)
    confirm(any_engine)
    run_policy(any_engine, POLICY, NOW + 0.4 * HOUR)
    assert hints(any_engine)[0].evidence.release is None
    for hours in (0.6, 0.7, 0.8):
        assert run_policy(any_engine, POLICY, NOW + hours * HOUR).released == ()
    (waiting,) = hints(any_engine)
    assert (waiting.state, waiting.evidence.release and waiting.evidence.release.waits) == ("confirmed", "for its test")
    report(any_engine, True, 0.9)
    assert [hint.id for hint in run_policy(any_engine, POLICY, NOW + HOUR).released] == [waiting.id]
    assert hints(any_engine)[0].state == "released"
    assert words(any_engine) == [("policy", "made"), ("policy", "waits for its test")]


def test_a_node_that_fails_its_test_stays_held_until_a_person_s_word(engine: sa.Engine) -> None:
    """Renewed as long as it takes; the case for repair is noted once."""
    nodes(engine, "a")
    incident(engine, "a", hours_ago=0.5)
    run_policy(engine, POLICY, NOW)
    confirm(engine)
    for hours in (1, 2, 3):
        report(engine, False, hours)
        run_policy(engine, POLICY, NOW + hours * HOUR)
    for hours in range(4, 60, 4):
        run_policy(engine, POLICY, NOW + hours * HOUR)
    (hint,) = hints(engine)
    assert (hint.state, hint.valid_until > NOW + 56 * HOUR) == ("confirmed", True)
    assert (hint.evidence.repair and replace(hint.evidence.repair, since=NOW)) == RepairCase(NOW, 3, "row remap failed")
    assert [word for _, word in words(engine)].count("case for repair") == 1
    report(engine, True, 60)
    run_policy(engine, POLICY, NOW + 60 * HOUR)
    assert hints(engine)[0].state == "released"


def test_without_a_test_the_healthy_time_is_enough_where_a_scheduler_saw_it(engine: sa.Engine) -> None:
    """Of a shadow it always is."""
    nodes(engine, "a")
    incident(engine, "a", hours_ago=0.5)
    cases: tuple[tuple[Any, Release], ...] = (("shadow", TESTED), ("act", Release(healthy_s=3600.0)))
    for mode, release in cases:
        policy = replace(POLICY, mode=mode, release=release)
        run_policy(engine, policy, NOW)
        if mode == "act":
            confirm(engine)
            assert run_policy(engine, policy, NOW + HOUR).released == ()
            assert (found := hints(engine)[0].evidence.release) is not None
            assert found.waits == "for its healthy time with heartbeats, or a person"
            show(engine, "a", since=NOW - HOUR, until=NOW + HOUR)
        assert len(run_policy(engine, policy, NOW + HOUR).released) == 1
        with writing(engine).begin() as connection:
            connection.execute(hint_tables.hints.delete())


def test_a_new_machine_is_let_go_once_it_has_passed_and_not_held_again(any_engine: sa.Engine) -> None:
    """What the old one did is nothing to it, what it does itself is; but a message alone lets no held node go."""
    nodes(any_engine, "a")
    incident(any_engine, "a", hours_ago=0.5)
    run_policy(any_engine, POLICY, NOW)
    confirm(any_engine)
    nodes(any_engine, "a", in_service_since=NOW + 0.1 * HOUR)
    run_policy(any_engine, POLICY, NOW + 0.2 * HOUR)
    assert hints(any_engine)[0].state == "confirmed"
    report(any_engine, True, 0.25)
    for hours in (0.3, 0.4):
        run_policy(any_engine, POLICY, NOW + hours * HOUR)
    (hint,) = hints(any_engine)
    assert hint.state == "withdrawn"
    assert words(any_engine)[-1] == ("policy:replaced", "a is another machine since 2025-03-01T12:06:00.000000Z")


def test_another_gpu_in_the_same_place_is_let_go_and_not_held_for_the_old_one(engine: sa.Engine) -> None:
    """The incident is within the healthy time still."""
    nodes(engine, "a")
    incident(engine, "a", hours_ago=0.5)
    event = {"source": "kernel", "kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware"}
    event |= {"action": "reset_gpu", "message": "gone", "node": "a"}
    with writing(engine).begin() as connection:
        for ident, hours, serial in (("i-a", -0.5, "S1"), ("later", 0.1, "S2")):
            moment = NOW + hours * HOUR
            device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
            row = event | {"id": ident, "time": moment, "received": moment, "device": device}
            connection.execute(schema.events.insert().values(**row, attributes={"serial": serial}))
    run_policy(engine, POLICY, NOW)
    for minutes in (10, 11, 12):
        run_policy(engine, POLICY, NOW + timedelta(minutes=minutes))
        assert [hint.state for hint in hints(engine)] == ["withdrawn"]
    assert words(engine)[-1][1] == "a has another device at 0000:0f:00.0: its serial was S1, and is S2"


def running(engine: sa.Engine, job: str, node_list: str, end: Any = None) -> None:
    """A job that began two hours ago."""
    begin = NOW - 2 * HOUR
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job(job, f"run-{job}", "RUNNING", begin, begin, end, 2, node_list)])


def test_a_job_on_a_culprit_is_hinted_beside_its_node(any_engine: sa.Engine) -> None:
    """Once; and no more when it has ended. The node's own hint is another."""
    nodes(any_engine, "a1", "a2", "a3", "a4")
    nodes(any_engine, "a0", in_service_until=NOW - HOUR)
    running(any_engine, "7", "a[1-2]")
    incident(any_engine, "a1", hours_ago=0.2)
    for minutes in (0, 1, 2):
        run_policy(any_engine, POLICY, NOW + timedelta(minutes=minutes))
    assert sorted((hint.node, hint.action, hint.job) for hint in hints(any_engine)) == [
        ("a1", "cordon", None),
        ("a1", "swap", "7"),
    ]
    (swap,) = hints(any_engine, "swap")
    assert (swap.state, swap.evidence.spare) == ("approved", "a3")
    running(any_engine, "7", "a[1-2]", NOW + timedelta(minutes=3))
    run_policy(any_engine, POLICY, NOW + timedelta(minutes=4))
    assert hints(any_engine, "swap")[0].state == "released"
    assert words(any_engine)[-1] == ("policy", "job 7 has ended")
    assert hints(any_engine, "cordon")[0].state == "approved"


def test_a_job_hint_lapses_and_owes_no_release(engine: sa.Engine) -> None:
    """A receiver that took it is not told to release the node."""
    nodes(engine, "a1", "a2", "a3")
    running(engine, "7", "a[1-2]")
    incident(engine, "a1")
    run_policy(engine, POLICY, NOW)
    scripted = Scripted()
    means = Dispatch(engine, (scripted,), "act", lambda: 0.0, lambda: NOW)
    run_dispatch(means, NOW, lambda: True)
    run_policy(engine, POLICY, NOW + timedelta(minutes=16))
    assert hints(engine, "swap")[0].state == "expired"
    run_dispatch(means, NOW + timedelta(minutes=16), lambda: True)
    sent = sorted(delivery.payload["data"]["action"] for delivery in scripted.got)
    assert sent == ["cordon", "swap"]


def test_a_risky_node_asks_its_job_to_save(engine: sa.Engine) -> None:
    """Past the break-even of a checkpoint, which no job size changes: 60 s against 540 s, 11 %."""
    nodes(engine, "a1", "a2")
    running(engine, "7", "a[1-2]")
    score(engine, "a1", 0.12)
    run_policy(engine, POLICY, NOW)
    (save,) = hints(engine, "checkpoint")
    assert (save.job, save.node, save.evidence.threshold) == ("7", "a1", pytest.approx(60 / 540))
    quiet = replace(POLICY, job_watch=JobWatch(checkpoint=False, swap=False, requeue=False))
    run_policy(engine, quiet, NOW + 25 * HOUR)
    assert len(hints(engine, "checkpoint")) == 1


def test_nothing_is_asked_of_jobs_while_that_is_stopped(engine: sa.Engine) -> None:
    """By the setting; shadows are written down."""
    nodes(engine, "a1", "a2", "a3")
    running(engine, "7", "a[1-2]")
    incident(engine, "a1")
    run_policy(engine, replace(POLICY, stop="holds"), NOW)
    assert hints(engine, "swap") == []
    run_policy(engine, replace(POLICY, stop="holds", mode="shadow"), NOW)
    assert [hint.state for hint in hints(engine, "swap")] == ["shadow"]


def test_looking_changes_nothing(engine: sa.Engine) -> None:
    """It is done without holding up those who write."""
    nodes(engine, "a1")
    with engine.connect() as connection:
        assert look(connection, gather(connection, POLICY, NOW), Decision(), POLICY).is_nothing
        assert validations_of(connection, []) == {}
