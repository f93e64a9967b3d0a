"""The same answers from SQLite and PostgreSQL: what goes in, comes out, and is acted on."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all

from api.app import create_app
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import ApprovalRule, Policy
from store.database.connections import writing
from store.database.coordination import acquire, release
from store.database.partitions import DIVIDED
from store.database.retention import prune
from store.tables import schema

from .conftest import NOW, QUIET, Clock

READS = (
    *("events", "events?node=n1&kind=xid&since=2025-01-01&until=2026-01-01", "incidents", "incidents?since=2025-01-01"),
    *("nodes", "nodes?sort=node&state=faulty", "nodes/n1", "scores", "runs", "hints", "hints?state=open&node=n1"),
    *("audit", "audit?hint=x", "topology", "map", "cluster", "advice/spares"),
)


def xid(number: int, **changes: Any) -> dict[str, Any]:
    """A fatal event."""
    device = {"type": "gpu", "pci": "0000:0f:00.0"}
    record = {"time": f"2025-03-01T11:{number:02}:00Z", "node": "n1", "source": "kernel", "kind": "xid", "code": 79}
    return record | {"severity": "fatal", "cause": "hardware", "device": device, "message": f"m{number}"} | changes


def test_everything_is_taken_and_read(any_client: TestClient) -> None:
    """Every read answers, with and without data; NUL, the largest numbers and odd names do no harm."""
    for path in READS:
        assert any_client.get(f"/api/v1/{path}").status_code in (200, 404), path
    odd = xid(3, message="a\x00b", code=2**63 - 1, attributes={"n": 2**64 - 1, "f": 1e308, "s": "\x00"}, node="n" * 63)
    body = [xid(1), xid(2), odd, xid(4, code=2**63), xid(5, kind="k" * 256)]
    taken = any_client.post("/api/v1/events", json=body).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (3, [4, 5])
    assert any_client.post("/api/v1/events", json=body).json()["known"] == 3
    rollup = {"node": "n1", "time": "2025-03-01T04:00:00Z", "samples": 2**31 - 1, "gpus_seen": 8}
    assert any_client.post("/api/v1/telemetry", json=[rollup, rollup]).json()["accepted"] == 2
    outage = {"node": "n2", "start": "2025-03-01T04:00:00Z", "state": "DOWN", "reason": "x"}
    assert any_client.post("/api/v1/outages", json=[outage, outage]).json()["accepted"] == 2
    for path in READS:
        answer = any_client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, (path, answer.text)
    assert any_client.get("/api/v1/nodes/n1").json()["state"] == "faulty"
    assert any_client.get("/api/v1/nodes/n2").json()["state"] == "out"
    assert 'foreshock_nodes{state="faulty"} 2.0' in any_client.get("/metrics").text


def test_pages_are_whole_on_either_database(any_client: TestClient) -> None:
    """Onward and backward, with several events in one moment."""
    any_client.post("/api/v1/events", json=[xid(n // 3, id=f"e{n:02}") for n in range(20)])
    for first in ({"since": "2025-01-01T00:00:00Z"}, {}):
        found: list[str] = []
        query: dict[str, str] = {"limit": "7", **first}
        for _ in range(5):
            page = any_client.get("/api/v1/events", params=query).json()
            found += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            query["cursor"] = page["next_cursor"]
        assert sorted(found) == [f"e{n:02}" for n in range(20)]


@pytest.mark.parametrize("rule", [ApprovalRule(), ApprovalRule(two_people_above_nodes=9)], ids=["one", "two people"])
def test_hints_live_and_end_on_either_database(any_engine: sa.Engine, clock: Clock, rule: ApprovalRule) -> None:
    """From a confirmed fault to a proposal, a person's word, the audit; leases and retention beside it."""
    policy = Policy(mode="approve", approval=rule)
    with TestClient(create_app(replace(QUIET, policy=policy), any_engine, clock)) as client:
        client.post("/api/v1/events", json=[xid(1)])
        fold_all(any_engine)
        for _ in range(2):
            run_policy(any_engine, policy, NOW)
        (hint,) = client.get("/api/v1/hints").json()["items"]
        assert (hint["node"], hint["state"]) == ("n1", "proposed")
        assert client.post(f"/api/v1/hints/{hint['id']}/approve").json()["state"] == "approved"
        assert client.get("/api/v1/nodes/n1").json()["state"] == "cordoned"
        assert client.post(f"/api/v1/hints/{hint['id']}/withdraw").json()["state"] == "withdrawn"
        assert [entry["action"] for entry in client.get("/api/v1/audit").json()["items"]] == [
            "withdrawn",
            "approved",
            "proposed",
        ]
    assert acquire(any_engine, "x", "a", NOW, 60)
    assert not acquire(any_engine, "x", "b", NOW, 60)
    release(any_engine, "x", "a")
    with writing(any_engine).begin() as connection:
        row = {"node": "n1", "horizon_h": 24, "time": NOW, "score": 0.5, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert().values(**row))
    assert prune(any_engine, dict.fromkeys(DIVIDED, NOW)) == {"events": 1, "telemetry": 0, "scores": 0}
