"""Tests of held nodes over the API, what runs are asked, and what came of hints; and a real server that runs a test."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.patience import patience
from wire_check import check_answer

from api.app import create_app
from api.server.settings import Intervals
from schedulers.policy.settings import Policy, Release
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page, change_state, close_hint, read_hint, save_hint
from store.records.hint import Evidence, Hint, ReleaseWait, RepairCase
from store.records.node import Node
from store.tables import hint_tables
from wire.hints import HindsightJson, HintJson, ValidationJson
from wire.message import Page

from .conftest import NOW, QUIET, Clock

HOUR = timedelta(hours=1)
PATIENCE_S = patience(60.0)


def put(engine: sa.Engine, ident: str, *states: Any, **changes: Any) -> Hint:
    """A hint that goes through states; of node n1, made an hour ago."""
    made = NOW - HOUR
    hint = Hint(ident, "n1", "cordon", "approved", "foreshock: test", "foreshock", made, made + 24 * HOUR)
    hint = replace(hint, **changes)
    with writing(engine).begin() as connection:
        save_hint(connection, hint, made, {"change": "made"})
        for state in states:
            end = close_hint if state in ("expired", "released") else change_state
            hint = end(connection, hint, state, made, "scheduler:s")
    return hint


def test_another_test_system_reports_what_it_saw(any_client: TestClient, any_engine: sa.Engine) -> None:
    """The report and its author are kept, as a row and in the audit."""
    put(any_engine, "h1", "sent")
    answer = any_client.post("/api/v1/hints/h1/validation", json={"passed": False, "detail": "nccl: 12 GB/s"})
    assert answer.status_code == 200, answer.text
    check_answer(ValidationJson, answer.json())
    for wrong in ({}, {"passed": None}, {"passed": True, "detail": "\0"}):
        assert any_client.post("/api/v1/hints/h1/validation", json=wrong).status_code == 422
    assert any_client.post("/api/v1/hints/h1/validation", json={"passed": True}).json()["passed"] is True
    page = any_client.get("/api/v1/hints/h1/validation").json()
    check_answer(Page[ValidationJson], page)
    told = [(one["passed"], one["output"], one["command"]) for one in page["items"]]
    assert told == [(False, "nccl: 12 GB/s", "reported by loopback"), (True, "", "reported by loopback")]
    with any_engine.connect() as connection:
        newest = audit_page(connection, 1, None, "h1")[0]
    assert (newest["actor"], newest["detail"]["test"]) == ("loopback", "passed")


@pytest.mark.parametrize(
    ("changes", "states", "status", "says"),
    [
        ({}, ("released",), 409, "has ended already"),
        ({"action": "avoid"}, (), 409, "holds no node"),
        ({"job": "7"}, (), 409, "holds no node"),
        ({"id": "other"}, (), 404, "no hint has the id"),
    ],
)
def test_only_what_is_held_can_pass(
    client: TestClient, engine: sa.Engine, changes: Any, states: Any, status: int, says: str
) -> None:
    """Else the answer says why not."""
    put(engine, "h1", *states, **changes)
    answer = client.post("/api/v1/hints/h1/validation", json={"passed": True})
    assert (answer.status_code, says in answer.text) == (status, True)


@pytest.mark.parametrize("body", [{}, {"passed": "perhaps"}, {"passed": True, "detail": "x" * 5000}, []])
def test_a_report_must_say_whether_it_passed(client: TestClient, engine: sa.Engine, body: Any) -> None:
    """And not at any length."""
    put(engine, "h1", "sent")
    assert client.post("/api/v1/hints/h1/validation", json=body).status_code == 422
    assert client.get("/api/v1/hints/h2/validation").status_code == 404
    assert client.get("/api/v1/hints/h1/validation").json()["items"] == []


def test_a_run_learns_what_it_is_asked(client: TestClient, engine: sa.Engine) -> None:
    """What is in force: no shadow, no proposal, nothing that has ended or lapsed, nothing of others."""
    asked = {"action": "checkpoint", "job": "7", "evidence": Evidence(run="r1")}
    put(engine, "yes", **asked)
    put(engine, "also", "sent", **(asked | {"job": "8"}))
    put(engine, "over", "released", **asked)
    put(engine, "shadow", **asked, state="shadow")
    put(engine, "proposed", **asked, state="proposed")
    put(engine, "lapsed", **asked, valid_until=NOW)
    put(engine, "other", **(asked | {"evidence": Evidence(run="x")}))
    put(engine, "node", evidence=Evidence(run="r1"))
    page = client.get("/api/v1/runs/r1/hints").json()
    check_answer(Page[HintJson], page)
    assert sorted(one["id"] for one in page["items"]) == ["also", "yes"]
    assert [one["id"] for one in client.get("/api/v1/runs/r1/hints?job=8").json()["items"]] == ["also"]
    assert [one["id"] for one in client.get("/api/v1/runs/x/hints").json()["items"]] == ["other"]
    assert client.get("/api/v1/runs/nobody/hints").json()["items"] == []
    put(engine, "slash", **(asked | {"evidence": Evidence(run="llm/70b")}))
    assert [one["id"] for one in client.get("/api/v1/runs/llm%2F70b/hints").json()["items"]] == ["slash"]


def test_what_came_of_hints_is_told(client: TestClient, engine: sa.Engine) -> None:
    """Over the API and to Prometheus; the page of one hint is not in its way."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1", gpus=8)])
    made = {"created": NOW - 48 * HOUR, "state": "shadow", "evidence": Evidence(acted=NOW - 48 * HOUR)}
    put(engine, "h1", "expired", **made)
    outcome = {"hint": "h1", "judged": NOW, "right": True, "lead_s": 60.0, "held_gpu_h": 8.0, "saved_gpu_h": None}
    with writing(engine).begin() as connection:
        connection.execute(hint_tables.hint_outcomes.insert().values(**outcome))
    put(engine, "waits", "sent", evidence=Evidence(release=ReleaseWait(NOW)))
    put(
        engine,
        "case",
        "sent",
        evidence=Evidence(release=ReleaseWait(NOW), repair=RepairCase(NOW, 3)),
    )
    answer = client.get("/api/v1/hints/outcomes").json()
    check_answer(HindsightJson, answer)
    (tally,) = answer["tallies"]
    assert (tally["action"], tally["basis"], tally["judged"], tally["precision"]) == ("cordon", "shadow", 1, 1.0)
    assert client.get("/api/v1/hints/outcomes", params={"days": 1}).json()["tallies"] == []
    assert client.get("/api/v1/hints/outcomes", params={"days": 0}).status_code == 422
    page = client.get("/metrics").text
    for line in (
        'foreshock_hint_outcomes{action="cordon",basis="shadow",right="true"} 1.0',
        'foreshock_hint_precision_ratio{action="cordon",basis="shadow"} 1.0',
        'foreshock_hint_gpu_hours{action="cordon",basis="shadow",what="held"} 8.0',
        'foreshock_held_nodes_waiting{what="repair"} 1.0',
        'foreshock_held_nodes_waiting{what="test"} 1.0',
        "foreshock_false_holds_per_1000_node_days 0.0",
    ):
        assert line in page
    assert 'what="saved"' not in page


def until(met: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_a_server_tests_a_held_node_and_lets_it_go(any_engine: sa.Engine, clock: Clock) -> None:
    """By its own loops: well, tested, released. While all is stopped no test is begun."""
    release = Release(healthy_s=60.0, validate=("sh", "-c", "exit 0", "{node}"))
    policy = Policy(mode="act", release=release)
    settings = replace(QUIET, policy=policy, intervals=replace(QUIET.intervals, policy_s=0.1))
    assert isinstance(settings.intervals, Intervals)
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("n1", "r1", "l1")])
    put(any_engine, "h1", "sent", "confirmed")

    def state() -> str:
        with any_engine.connect() as connection:
            hint = read_hint(connection, "h1")
        return "" if hint is None else hint.state

    with TestClient(create_app(settings, any_engine, clock)) as client:
        until(lambda: state() == "released")
        (row,) = client.get("/api/v1/hints/h1/validation").json()["items"]
        assert (row["passed"], row["command"]) == (True, "sh -c 'exit 0' n1")
        until(lambda: 'foreshock_node_tests_total{outcome="passed"} 1.0' in client.get("/metrics").text)
