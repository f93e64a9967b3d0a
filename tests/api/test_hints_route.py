"""GET /hints, POST /hints/{id}/approve and withdraw, GET /audit; and the other lists that only read."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all
from wire_check import check_answer

from api.app import create_app
from api.server.settings import SCOPES, Token
from cli.replay.clock import ReplayClock
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_jobs, append_links, append_nodes
from store.hints.hint_log import save_hint
from store.hints.outcomes import HintOutcome, save_outcomes
from store.models.scores import save_scores
from store.nodes.tokens import digest_of
from store.records.event import format_time
from store.records.hint import Evidence, Hint, HintCost
from store.records.job import Job
from store.records.node import Node
from store.records.score import Score
from store.tables import schema
from wire.cluster import ClusterJson
from wire.events import AuditJson, IncidentJson
from wire.goodput import RunJson
from wire.hints import HintJson
from wire.message import Page
from wire.money.price import parse_price
from wire.nodes import ScoreJson, TopologyJson

from .conftest import NOW, QUIET, Clock

HOUR = timedelta(hours=1)


@pytest.fixture
def acting(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server in approve mode, with a token of a name."""
    token = Token("alice", digest_of("alice-secret"), frozenset(SCOPES) - {"on_behalf"})
    settings = replace(QUIET, tokens=(token,), policy=Policy(mode="approve"))
    with TestClient(create_app(settings, engine, clock), headers={"authorization": "Bearer alice-secret"}) as client:
        yield client


def put(engine: sa.Engine, ident: str, state: Any, node: str = "n1", hours_ago: float = 1) -> None:
    """Store a hint."""
    made = NOW - hours_ago * HOUR
    hint = Hint(
        ident, node, "cordon", state, "foreshock: test", "foreshock", made, made + 24 * HOUR, Evidence(score=0.5)
    )
    with writing(engine).begin() as connection:
        save_hint(connection, hint, made, {"change": "made"})


def listed(client: TestClient, path: str, model: Any, **query: Any) -> list[dict[str, Any]]:
    """Every item of a list over all pages of two; each page must be of the published shape."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(20):
        page = {"limit": 2, **query, **({"cursor": cursor} if cursor else {})}
        answer = client.get(f"/api/v1/{path}", params=page)
        assert answer.status_code == 200, answer.text
        check_answer(Page[model], answer.json())
        found += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


def test_hints_are_listed_by_state_and_node(acting: TestClient, engine: sa.Engine) -> None:
    """All pages show each once; `open` are those that have not ended."""
    for i, state in enumerate(("proposed", "sent", "expired", "shadow", "withdrawn")):
        put(engine, f"h{i}", state, node=f"n{i}", hours_ago=i)
    assert {hint["id"] for hint in listed(acting, "hints", HintJson)} == {"h0", "h1", "h2", "h3", "h4"}
    assert {hint["id"] for hint in listed(acting, "hints", HintJson, state="open")} == {"h0", "h1", "h3"}
    assert [hint["node"] for hint in listed(acting, "hints", HintJson, state="sent")] == ["n1"]
    assert [hint["id"] for hint in listed(acting, "hints", HintJson, node="n4")] == ["h4"]
    first = acting.get("/api/v1/hints", params={"limit": 2}).json()["items"]
    assert [hint["id"] for hint in first] == ["h1", "h0"]


def test_a_judged_hint_tells_what_came_of_it(acting: TestClient, engine: sa.Engine) -> None:
    """Of one that a scheduler carried out nobody can say whether it was right; of one not judged yet, nothing."""
    put(engine, "seen", "expired", hours_ago=30)
    put(engine, "held", "sent", hours_ago=29)
    put(engine, "new", "proposed")
    with writing(engine).begin() as connection:
        save_outcomes(
            connection,
            [
                HintOutcome("seen", NOW, right=True, lead_s=7200.0, saved_gpu_h=64.0),
                HintOutcome("held", NOW, right=False, held_gpu_h=8.0),
            ],
        )
    found = {hint["id"]: hint.get("outcome") for hint in listed(acting, "hints", HintJson)}
    judged = {"judged": "2025-03-01T12:00:00.000000Z"}
    assert found == {
        "seen": judged | {"basis": "shadow", "right": True, "lead_s": 7200.0, "held_gpu_h": None, "saved_gpu_h": 64.0},
        "held": judged | {"basis": "acted", "right": None, "lead_s": None, "held_gpu_h": 8.0, "saved_gpu_h": None},
        "new": None,
    }


def test_a_proposed_hint_is_approved_by_a_person(acting: TestClient, engine: sa.Engine) -> None:
    """Twice is once; the audit names the token."""
    put(engine, "h1", "proposed")
    for _ in range(2):
        answer = acting.post("/api/v1/hints/h1/approve", json={})
        assert answer.status_code == 200
        check_answer(HintJson, answer.json())
        assert answer.json()["state"] == "approved"
    entries = listed(acting, "audit", AuditJson, hint="h1")
    assert [(entry["actor"], entry["action"]) for entry in entries] == [("alice", "approved"), ("policy", "proposed")]
    assert acting.get("/api/v1/nodes").json()["items"] == []


@pytest.mark.parametrize("state", ["shadow", "withdrawn", "expired", "released"])
def test_only_a_proposed_hint_can_be_approved(acting: TestClient, engine: sa.Engine, state: str) -> None:
    """409 with the reason."""
    put(engine, "h1", state)
    answer = acting.post("/api/v1/hints/h1/approve")
    assert answer.status_code == 409
    assert state in answer.json()["detail"]


def test_a_proposal_that_has_lapsed_cannot_be_approved(acting: TestClient, engine: sa.Engine) -> None:
    """Its ground is a day old."""
    put(engine, "h1", "proposed", hours_ago=25)
    assert "lapsed" in acting.post("/api/v1/hints/h1/approve").json()["detail"]


def test_in_shadow_mode_nothing_can_be_approved(client: TestClient, engine: sa.Engine) -> None:
    """It would not be sent."""
    put(engine, "h1", "proposed")
    answer = client.post("/api/v1/hints/h1/approve")
    assert answer.status_code == 409
    assert "shadow mode" in answer.json()["detail"]


def test_withdraw_needs_no_body_and_is_idempotent(acting: TestClient, engine: sa.Engine) -> None:
    """An ended hint cannot be withdrawn."""
    put(engine, "h1", "sent")
    for _ in range(2):
        answer = acting.post("/api/v1/hints/h1/withdraw")
        assert (answer.status_code, answer.json()["state"]) == (200, "withdrawn")
    assert answer.json()["evidence"]["closed"]["by"] == "alice"
    put(engine, "h2", "expired")
    assert acting.post("/api/v1/hints/h2/withdraw").status_code == 409


def test_the_audit_is_listed_newest_first(acting: TestClient, engine: sa.Engine) -> None:
    """Over all pages."""
    for i in range(5):
        put(engine, f"h{i}", "proposed")
    entries = listed(acting, "audit", AuditJson)
    assert [entry["subject"] for entry in entries] == ["h4", "h3", "h2", "h1", "h0"]
    said = {"node": "n1", "hint": "cordon", "reason": "foreshock: test", "change": "made", "evidence": {"score": 0.5}}
    assert entries[0]["detail"] == said


def test_incidents_come_from_events(client: TestClient, engine: sa.Engine) -> None:
    """Five events within seconds are one incident; severity, node and time narrow the list."""
    moments = [NOW - timedelta(hours=h, seconds=s) for h in (1, 30, 60) for s in range(5)]
    device = {"type": "gpu", "pci": "0000:0f:00.0"}
    body = [
        {"time": m.isoformat(), "node": "n1", "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
        | {"cause": "hardware", "device": device, "message": f"gone {m}"}
        for m in moments
    ]
    assert client.post("/api/v1/events", json=body).json()["accepted"] == 15
    fold_all(engine)
    incidents = listed(client, "incidents", IncidentJson)
    assert [incident["count"] for incident in incidents] == [5, 5, 5]
    since = {"since": (NOW - 40 * HOUR).isoformat()}
    onward = listed(client, "incidents", IncidentJson, **since)
    assert [incident["start"] for incident in onward] == sorted(incident["start"] for incident in onward)
    assert len(onward) == 2
    assert listed(client, "incidents", IncidentJson, node="n2") == []
    assert listed(client, "incidents", IncidentJson, severity="info") == []
    assert client.get("/api/v1/nodes/n1").json()["state"] == "faulty"


def test_scores_are_those_of_one_scoring(client: TestClient, engine: sa.Engine) -> None:
    """The newest no later than `at`; by node, over all pages; none before the first."""
    with writing(engine).begin() as connection:
        for hours_ago, horizon_h, nodes in ((0, 24, 5), (0, 168, 1), (10, 24, 3)):
            moment = NOW - hours_ago * HOUR
            rows = [{"node": f"n{i}", "horizon_h": horizon_h, "time": moment, "score": 0.1} for i in range(nodes)]
            reasons = [{"text": "t", "contribution": 0.1, "events": []}]
            connection.execute(schema.scores.insert(), [row | {"reasons": reasons, "model": "m"} for row in rows])
    assert [score["node"] for score in listed(client, "scores", ScoreJson)] == ["n0", "n1", "n2", "n3", "n4"]
    assert len(listed(client, "scores", ScoreJson, at=(NOW - HOUR).isoformat())) == 3
    assert [score["horizon_h"] for score in listed(client, "scores", ScoreJson, horizon_h=168)] == [168]
    assert [score["node"] for score in listed(client, "scores", ScoreJson, node="n3")] == ["n3"]
    assert listed(client, "scores", ScoreJson, at=(NOW - 100 * HOUR).isoformat()) == []


def test_runs_show_their_ledger(client: TestClient, engine: sa.Engine) -> None:
    """Buckets sum to wall time; the cluster shows the newest run."""
    with writing(engine).begin() as connection:
        for i in range(3):
            begin = NOW - (10 - i) * HOUR
            job = Job(f"{i}", f"run-{i}", "FAILED", begin, begin, begin + HOUR, 2, "n[1-2]")
            append_jobs(connection, [job])
    runs = listed(client, "runs", RunJson)
    assert [run["run"] for run in runs] == ["run-0", "run-1", "run-2"]
    assert (runs[0]["state"], runs[0]["attempts"], runs[0]["wall_s"]) == ("FAILED", 1, 3600.0)
    ledger = client.get("/api/v1/runs/run-1/goodput").json()
    assert sum(ledger["buckets"].values()) == ledger["wall_s"] == 3600.0
    cluster = client.get("/api/v1/cluster").json()
    assert (cluster["run"], cluster["goodput"]) == ("run-2", 0.0)


def test_the_cluster_of_a_replay_tells_when_that_ends(engine: sa.Engine) -> None:
    """By both clocks, and when it begins again."""
    clock = ReplayClock(NOW, NOW + 2 * HOUR, epoch=NOW, speed=120.0, again_after_s=60.0)
    with TestClient(create_app(QUIET, engine, clock)) as client:
        found = client.get("/api/v1/cluster").json()
    check_answer(ClusterJson, found)
    told = {"end": NOW + 2 * HOUR, "ends": NOW + timedelta(minutes=1), "again": NOW + timedelta(minutes=2)}
    assert found["replay"] == {name: format_time(moment) for name, moment in told.items()}


def test_the_cluster_is_told_in_one_answer(client: TestClient, engine: sa.Engine) -> None:
    """Also when there is nothing yet."""
    empty = client.get("/api/v1/cluster").json()
    check_answer(ClusterJson, empty)
    assert (empty["nodes"], empty["gpus"], empty["goodput"], empty["model"]) == (0, None, None, None)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1", gpus=8), Node("n2", gpus=8)])
        model = {"id": "m1", "created": NOW, "trained_until": NOW, "horizon_h": 24, "features": [], "metrics": {"a": 1}}
        connection.execute(schema.models.insert().values(**model, blob=b"", sha256=""))
    body = [{"time": (NOW - m * HOUR).isoformat(), "node": "n1", "source": "kernel", "kind": "note"} for m in (0.5, 2)]
    client.post("/api/v1/events", json=body)
    cluster = client.get("/api/v1/cluster").json()
    check_answer(ClusterJson, cluster)
    assert (cluster["nodes"], cluster["gpus"], cluster["mode"], cluster["events_1h"]) == (2, 16, "shadow", 1)
    assert cluster["sources"][0]["events_1h"] == 1
    assert cluster["model"]["id"] == "m1"
    assert sum(cluster["states"].values()) == 2


def test_the_topology_is_whole(client: TestClient, engine: sa.Engine) -> None:
    """Nodes with their places, cables by switch and port."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1", rack="r1", leaf="leaf-1")])
        cable = {"switch": "leaf-1", "port": 1, "peer": "n1", "peer_port": 1, "peer_type": "hca"}
        append_links(connection, [cable])
    topology = client.get("/api/v1/topology").json()
    check_answer(TopologyJson, topology)
    assert topology["nodes"] == [{"node": "n1", "rack": "r1", "leaf": "leaf-1"}]
    (shown,) = topology["links"]
    assert {name: value for name, value in shown.items() if value is not None} == cable


def test_what_a_hint_holds_and_a_failure_would_cost_is_told_in_money(any_engine: sa.Engine) -> None:
    """Where a price is set, of the hours of its evidence; of a hint without them nothing."""
    cost = HintCost(192.0, 2500.0, "llm")
    made = (Hint(name, name, "cordon", "proposed", "r", "foreshock", NOW, NOW + HOUR, Evidence(cost=found))
            for name, found in (("a", cost), ("b", None)))  # fmt: skip
    with writing(any_engine).begin() as connection:
        for hint in made:
            save_hint(connection, hint, NOW, {"change": "made"})
    for price in (parse_price("2.50 EUR"), None):
        with TestClient(create_app(replace(QUIET, gpu_hour_price=price), any_engine, lambda: NOW)) as client:
            found = {one["id"]: one for one in listed(client, "hints", HintJson)}
        money = [(found["a"].get(name) or {}).get("amount") for name in ("held_money", "failure_money")]
        assert money == (["480.000", "6250.000"] if price else [None, None])
        assert "held_money" not in found["b"]


def test_an_open_hint_says_the_risk_of_now_beside_its_own(client: TestClient, engine: sa.Engine) -> None:
    """Of an ended one, and of a node whose risk nobody knows, there is none."""
    for ident, state, node in (("a", "sent", "n1"), ("b", "withdrawn", "n1"), ("c", "sent", "n2")):
        put(engine, ident, state, node)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in ("n1", "n2")])
        connection.execute(sa.update(schema.nodes).values(last_seen=NOW))
        scores = [Score("n1", moment, 24, score, (), "m") for moment, score in ((NOW - HOUR, 0.2), (NOW, 0.13))]
        save_scores(connection, scores)
    found = {one["id"]: one for one in listed(client, "hints", HintJson)}
    assert found["a"]["risk_now"] == {"score": 0.13, "time": format_time(NOW)}
    assert (found["b"]["risk_now"], found["c"]["risk_now"]) == (None, None)
