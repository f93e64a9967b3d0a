"""Who holds one node's token forges what happens on others: each record is refused, counted, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from api.server.settings import RequestLimits, Token, expand_scopes
from store.hints.hint_log import save_hint
from store.nodes.tokens import digest_of
from store.records.hint import Evidence, Hint
from store.records.hostlist import NodePattern
from store.tables import schema

from .token_site import NOW, TIME, bearer, beat, made_client

TOKENS = (
    Token("gpu-001", digest_of("one-node"), expand_scopes(["ingest"]), NodePattern.of("gpu-001")),
    Token("fleet", digest_of("fleet"), expand_scopes(["ingest:fleet"])),
    Token("reader", digest_of("reader"), expand_scopes(["read"])),
    Token("rack1", digest_of("rack1"), expand_scopes(["act", "read"]), NodePattern.of("gpu-[001-016]")),
)
THIEF = bearer("one-node")


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[TestClient]:
    """A server that knows these tokens."""
    with made_client(engine, TOKENS) as client:
        yield client


def xid(node: str | None, **changes: Any) -> dict[str, Any]:
    """A GPU that fell off the bus."""
    known = {"time": TIME, "node": node, "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
    return known | {"cause": "hardware", "action": "reboot_node", "message": "gone"} | changes


def count(engine: sa.Engine, table: sa.Table) -> int:
    """Rows."""
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def metric(client: TestClient, name: str, **labels: str) -> float:
    """A figure of /metrics."""
    text = client.get("/metrics", headers=bearer("reader")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = [s.value for s in samples if s.name == name and all(s.labels.get(k) == v for k, v in labels.items())]
    return sum(found)


def test_a_hundred_forged_faults_of_other_nodes_are_refused_one_by_one(client: TestClient, engine: sa.Engine) -> None:
    """The node's own, in the same body, is taken."""
    forged = [xid(f"gpu-{number:03}") for number in range(2, 102)]
    answer = client.post("/api/v1/events", json=[*forged, xid("gpu-001")], headers=THIEF).json()
    assert (answer["accepted"], len(answer["rejected"])) == (1, 100)
    assert answer["rejected"][0]["detail"] == "token 'gpu-001' does not speak for node 'gpu-002', but for 'gpu-001'"
    with engine.connect() as connection:
        assert set(connection.scalars(sa.select(schema.events.c.node))) == {"gpu-001"}
    assert metric(client, "foreshock_records_denied_total", resource="events", reason="node") == 100


def test_a_node_s_token_says_nothing_of_the_fleet(client: TestClient, engine: sa.Engine) -> None:
    """No switch, no scheduler's word, not even about the node itself; nothing that names no node."""
    forged = [xid(None), xid("gpu-001", source="opensm"), xid("gpu-001", kind="outage")]
    forged += [xid(None, source="training", kind="job"), xid(None, source="training", kind="outage")]
    answer = client.post("/api/v1/events", json=forged, headers=THIEF).json()
    assert answer["accepted"] == 0
    assert all("lacks the scope ingest:fleet" in entry["detail"] for entry in answer["rejected"])
    assert count(engine, schema.events) == 0
    assert metric(client, "foreshock_records_denied_total", resource="events", reason="fleet") == 5


@pytest.mark.parametrize("end", [None, "2025-03-01T12:00:00Z"], ids=["open", "ended"])
def test_a_forged_outage_is_refused(client: TestClient, engine: sa.Engine, end: str | None) -> None:
    """An ended one would release a held node, an open one would hide a real fault."""
    body = [{"node": "gpu-002", "start": TIME, "end": end, "state": "DOWN", "reason": "planned work"}]
    answer = client.post("/api/v1/outages", json=body, headers=THIEF)
    assert (answer.status_code, count(engine, schema.outages)) == (403, 0)
    assert client.post("/api/v1/outages", json=body, headers=bearer("fleet")).json()["accepted"] == 1


def test_twenty_thousand_invented_heartbeats_make_no_node(client: TestClient, engine: sa.Engine) -> None:
    """Quorum and percentages would be lifted by them, and nothing held any more."""
    body = [beat(f"ghost-{number:05}") for number in range(20_000)]
    answer = client.post("/api/v1/heartbeats", json=[*body, beat("gpu-001")], headers=THIEF).json()
    assert answer["accepted"] == 1
    client.app.state.foreshock.heartbeats.write(engine)  # type: ignore[attr-defined]
    with engine.connect() as connection:
        assert set(connection.scalars(sa.select(schema.sidecars.c.node))) == {"gpu-001"}
    assert metric(client, "foreshock_records_denied_total", resource="heartbeats", reason="node") == 20_000


def test_telemetry_of_another_node_is_refused(client: TestClient, engine: sa.Engine) -> None:
    """A forged hot GPU would move another node's score."""
    rollup = {"time": "2025-03-01T10:00:00Z", "samples": 960, "gpus_seen": 8, "gpu_temp_max_c": 99.0}
    body = [{"node": "gpu-002", **rollup}, {"node": "gpu-001", **rollup}]
    answer = client.post("/api/v1/telemetry", json=body, headers=THIEF).json()
    assert (answer["accepted"], len(answer["rejected"])) == (1, 1)
    assert metric(client, "foreshock_records_denied_total", resource="telemetry", reason="node") == 1


def test_an_alert_takes_the_scope_of_the_fleet(client: TestClient) -> None:
    """Alertmanager speaks of many nodes."""
    notice = {"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "X"}, "startsAt": TIME}]}
    assert client.post("/api/v1/alerts", json=notice, headers=THIEF).status_code == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("hints/{}/approve", None),
        ("hints/{}/withdraw", None),
        ("hints/{}/ack", {"scheduler": "slurm", "result": "confirmed"}),
        ("hints/{}/validation", {"passed": True, "detail": "forged"}),
    ],
)
def test_a_token_of_one_rack_decides_nothing_about_another(
    client: TestClient, engine: sa.Engine, path: str, body: Any
) -> None:
    """403 for the other rack's hint; its own is looked at."""
    with engine.begin() as connection:
        for node in ("gpu-016", "gpu-017"):
            hint = Hint(
                f"h-{node}", node, "cordon", "proposed", "x", "foreshock", NOW, NOW.replace(year=2026), Evidence()
            )
            save_hint(connection, hint, NOW, {})
    other = client.post(f"/api/v1/{path.format('h-gpu-017')}", json=body, headers=bearer("rack1"))
    own = client.post(f"/api/v1/{path.format('h-gpu-016')}", json=body, headers=bearer("rack1"))
    assert other.status_code == 403
    assert "is for 'gpu-[001-016]' alone" in other.json()["detail"]
    assert own.status_code != 403
    assert client.get("/api/v1/hints", headers=bearer("rack1")).json()["items"][1]["state"] == "proposed"


def test_one_node_cannot_use_up_what_a_shared_token_may_send(engine: sa.Engine) -> None:
    """The others of the token go on; what is refused counts for none of them."""
    shared = Token("rack", digest_of("shared"), expand_scopes(["ingest"]), NodePattern.of("gpu-[001-016]"))
    limits = RequestLimits(requests_per_s=0.001, bytes_per_s=1e6, burst_s=20_000, node_records_per_s=0.0001)
    with made_client(engine, (shared,), limits) as client:

        def send(node: str, number: int) -> int:
            body = [xid(node, id=f"{node}-{number}-{part}") for part in range(10)]
            answer = client.post("/api/v1/events", json=body, headers=bearer("shared"))
            assert (answer.status_code == 429) == ("retry-after" in answer.headers)
            return answer.status_code

        flood = [send("gpu-001", number) for number in range(40)]
        assert flood[:1] + flood[-1:] == [200, 429]
        assert [send("gpu-002", 0), send("gpu-003", 0)] == [200, 200]
        shed = client.app.state.foreshock.metrics.shed.labels("node_rate")._value.get()  # type: ignore[attr-defined]
        assert shed == flood.count(429) > 20


def test_a_token_of_one_rack_stops_nothing_of_the_cluster(client: TestClient) -> None:
    """The switch and the breaker concern every node."""
    stop = client.post("/api/v1/stop", json={"stop": "none", "reason": "forged"}, headers=bearer("rack1"))
    assert (stop.status_code, "this concerns every node" in stop.json()["detail"]) == (403, True)
    assert metric(client, "foreshock_callers_refused_total", reason="node") == 1
