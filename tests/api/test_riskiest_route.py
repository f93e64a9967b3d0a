"""GET /riskiest: the nodes to check first, over a store; what is not at work is no node to check."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_jobs, append_nodes, append_outages
from store.hints.hint_log import save_hint
from store.models.registry import StoredModel, save_checks, save_model
from store.records.hint import Hint
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.tables import schema
from wire.money.price import parse_price
from wire.nodes import RiskiestJson

from .conftest import NOW, QUIET, Clock

SCORES = {0: 0.5, 1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1, 5: 0.05}
CHECKS = {
    "checked": NOW.isoformat(),
    "lists": [
        {"nodes": count, "lists": 20, "hit": 8, "share": 0.4, "low": 0.2, "high": 0.6, "said": 0.45, "failing": 0.5}
        | {"lost_gpu_h": 300.0}
        for count in (1, 5, 10)
    ],
    "leads": {
        "no_sign": {"outages": 2, "foreseen": 0, "p10": None, "p50": None, "p90": None},
        "row_remap": {"outages": 5, "foreseen": 3, "p10": 1.0, "p50": 8.0, "p90": 20.0},
    },
}


@pytest.fixture
def client(any_engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """Six nodes: the riskiest is out, the next is held; a job of 16 GPUs runs on the two after these."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i:03}", gpus=8) for i in range(6)])
        connection.execute(schema.nodes.update().values(last_seen=NOW))
        append_outages(connection, [Outage("gpu-000", NOW - timedelta(hours=1), None, "DOWN", "t", None, False, "t")])
        held = Hint("h", "gpu-001", "cordon", "confirmed", "foreshock: t", "foreshock", NOW, NOW + timedelta(days=1))
        save_hint(connection, held, NOW, {})
        begun = NOW - timedelta(hours=2)
        job = Job("4711", "llm", "RUNNING", begun, begun, None, 2, "gpu-[002-003]")
        append_jobs(connection, [job])
        reasons = [{"text": "a sign", "contribution": 0.1, "events": ["e1"]}]
        rows = [
            {"node": f"gpu-{i:03}", "horizon_h": 24, "time": NOW, "score": score, "reasons": reasons, "model": "m"}
            for i, score in SCORES.items()
        ]
        connection.execute(schema.scores.insert(), rows)
        save_model(connection, StoredModel("m", NOW, NOW, 24, ("a",), {}, b"0", "d", since=NOW))
    with TestClient(create_app(replace(QUIET, policy=Policy()), any_engine, clock)) as client:
        yield client


def ask(client: TestClient, **query: Any) -> dict[str, Any]:
    """One question; the answer is of the published shape."""
    answer = client.get("/api/v1/riskiest", params=query)
    assert answer.status_code == 200, answer.text
    check_answer(RiskiestJson, answer.json())
    found: dict[str, Any] = answer.json()
    return found


def test_nodes_at_work_stand_by_their_risk_with_what_acting_is_worth(client: TestClient) -> None:
    """What is out or held already is nothing to check; a free node may get the largest job that runs."""
    found = ask(client, count=3)
    assert [one["node"] for one in found["items"]] == ["gpu-002", "gpu-003", "gpu-004"]
    assert found["chance"] == pytest.approx(1 - 0.7 * 0.8 * 0.9)
    first, _, idle = found["items"]
    assert (first["job"], first["run"], first["job_gpus"], first["reasons"][0]["text"]) == ("4711", "llm", 16, "a sign")
    # A quarter of an hour of 16 GPUs, against 2.2 h of the node's eight: it pays at no risk.
    assert (first["failure_gpu_h"], first["action_gpu_h"], first["pays"]) == (4.0, 17.6, False)
    assert first["worth_gpu_h"] == pytest.approx(0.3 * 4.0 - 17.6)
    assert (idle["job"], idle["job_gpus"], idle["failure_gpu_h"]) == (None, 16, 4.0)
    assert (found["record"], found["leads"], found["model"]) == (None, [], "m")


def test_what_came_of_such_lists_is_told_once_it_was_judged(client: TestClient, any_engine: sa.Engine) -> None:
    """Of lists as long as this one; lead times by what failed, the most frequent first."""
    with writing(any_engine).begin() as connection:
        save_checks(connection, "m", CHECKS)
    found = ask(client, count=5)
    assert (found["record"]["hit"], found["record"]["lists"], found["record"]["said"]) == (8, 20, 0.45)
    assert found["record"]["action_gpu_h"] == pytest.approx(5 * 17.6)
    assert found["record"]["worth_gpu_h"] == pytest.approx(300 - 5 * 17.6)
    assert [(one["words"], one["p50_h"]) for one in found["leads"]] == [("row remapping", 8.0), ("no fault told", None)]
    assert ask(client, count=7)["record"] is None


def test_of_equal_risks_of_a_day_that_of_seven_days_decides(client: TestClient, any_engine: sa.Engine) -> None:
    """Not the name; and where no node at work has a score the states say why."""
    with writing(any_engine).begin() as connection:
        connection.execute(schema.scores.update().where(schema.scores.c.node > "gpu-001").values(score=0.1))
        row = {"horizon_h": 168, "time": NOW, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert(), [row | {"node": "gpu-004", "score": 0.5}])
    found = ask(client, count=2)
    assert [one["node"] for one in found["items"]] == ["gpu-004", "gpu-002"]
    assert found["states"] == {}
    with writing(any_engine).begin() as connection:
        connection.execute(schema.nodes.update().values(last_seen=NOW - timedelta(days=1)))
    found = ask(client)
    assert (found["items"], found["states"]) == ([], {"out": 1, "cordoned": 1, "silent": 4})


def test_a_price_turns_hours_into_money(any_engine: sa.Engine, clock: Clock, client: TestClient) -> None:
    """Beside each amount of GPU-hours."""
    with writing(any_engine).begin() as connection:
        save_checks(connection, "m", CHECKS)
    settings = replace(QUIET, policy=Policy(), gpu_hour_price=parse_price("2.50 EUR"))
    with TestClient(create_app(settings, any_engine, clock)) as priced:
        found = ask(priced, count=5)
    assert found["items"][0]["action_money"] == {"currency": "EUR", "amount": "44.000"}
    assert found["record"]["lost_money"]["amount"] == "750.000"


def test_without_a_model_there_is_nobody_to_check(any_engine: sa.Engine, clock: Clock) -> None:
    """An empty store answers."""
    with TestClient(create_app(QUIET, any_engine, clock)) as client:
        found = ask(client)
        assert (found["items"], found["chance"], found["scored_at"], found["states"]) == ([], None, None, {})
        assert client.get("/api/v1/riskiest", params={"count": 101}).status_code == 422


def test_a_job_has_the_gpus_of_its_own_nodes(client: TestClient, any_engine: sa.Engine) -> None:
    """Nodes with fewer than usual, and one whose number nobody told, which has the usual eight."""
    with writing(any_engine).begin() as connection:
        nodes = schema.nodes
        connection.execute(nodes.update().where(nodes.c.node == "gpu-002").values(gpus=4))
        connection.execute(nodes.update().where(nodes.c.node == "gpu-003").values(gpus=None))
    assert [one["job_gpus"] for one in ask(client, count=2)["items"]] == [12, 12]
