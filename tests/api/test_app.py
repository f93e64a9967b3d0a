"""The application as a whole: errors, the published description, probes, metrics."""

import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from api.answers.reply import dump
from api.app import create_app
from store.tables import schema

from .conftest import NOW, QUIET, Clock

METHODS = ("get", "post")


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    """Every (path, method, operation) of the published description."""
    paths = app.openapi()["paths"]
    return [(path, method, item[method]) for path, item in paths.items() for method in METHODS if method in item]


def test_every_route_of_the_contract_is_there(app: FastAPI) -> None:
    """The promises of the design."""
    v1 = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, method, _ in operations(app)}
    assert v1 >= {
        *("POST /events", "POST /logs", "POST /alerts", "POST /telemetry", "POST /outages"),
        *("GET /events", "GET /incidents", "GET /nodes", "GET /nodes/{node}", "GET /scores", "GET /runs"),
        *("GET /runs/{run}/goodput", "GET /advice/checkpoint", "GET /advice/spares", "GET /hints"),
        *("POST /hints/{hint}/approve", "POST /hints/{hint}/withdraw", "GET /topology", "GET /audit"),
        *("GET /cluster", "GET /livez", "GET /readyz", "GET /healthz", "GET /metrics"),
    }


def test_every_operation_is_described(app: FastAPI) -> None:
    """Id, tag, summary and description; errors as they are really sent."""
    ids = []
    for path, _, operation in operations(app):
        assert operation["summary"], path
        assert operation["tags"], path
        assert operation["description"], path
        ids.append(operation["operationId"])
        for status, response in operation["responses"].items():
            if status >= "400":
                assert list(response["content"]) == ["application/problem+json"], (path, status)
    assert len(ids) == len(set(ids))
    assert "HTTPValidationError" not in json.dumps(app.openapi())


def test_every_body_is_described_with_an_example(app: FastAPI) -> None:
    """And every read with the shape of its answer."""
    for path, method, operation in operations(app):
        if method == "post" and "{" not in path:
            assert operation["requestBody"]["content"]["application/json"]["example"], path
        if path.startswith("/api/v1"):
            content = operation["responses"]["200"]["content"]
            kinds = {"print": "text/html", "stream": "text/event-stream", "rma": "application/zip"}
            named = [kind for part, kind in kinds.items() if part in path.split("/")]
            assert content[named[0] if named else "application/json"], path
            assert operation["security"], path


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/api/v1/nodes/none", 404),
        ("GET", "/api/v1/runs/none/goodput", 404),
        ("GET", "/api/v1/runs/%00/goodput", 404),
        ("GET", "/api/v1/advice/checkpoint", 404),
        ("GET", "/api/v1/advice/spares", 404),
        ("GET", "/api/v1/advice/spares?confidence=2", 422),
        ("DELETE", "/api/v1/events", 405),
        ("GET", "/api/v1/nodes?sort=luck", 422),
        ("GET", "/api/v1/audit?cursor=WzAsIngiLGZhbHNlXQ", 422),
        ("GET", "/api/v1/hints?state=lost", 422),
        ("POST", "/api/v1/hints/none/approve", 404),
        ("POST", "/api/v1/hints/none/withdraw", 404),
    ],
)
def test_every_error_is_a_problem(client: TestClient, method: str, path: str, status: int) -> None:
    """RFC 9457: type, title, status, detail, instance."""
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().keys() >= {"type", "title", "status", "detail", "instance"}
    assert answer.json()["status"] == status
    assert answer.json()["detail"]
    if status == 405:
        assert "POST" in answer.headers["allow"] or "GET" in answer.headers["allow"]


def test_a_body_over_the_limit_is_refused(engine: sa.Engine, clock: Clock) -> None:
    """413: announced, streamed, and unpacked."""
    import gzip

    with TestClient(create_app(replace(QUIET, body_limit_bytes=1000), engine, clock)) as client:
        packed = gzip.compress(b" " * 100_000)
        assert len(packed) < 1000
        for content, headers in (
            (b" " * 1001, {}),
            (iter([b" " * 600, b" " * 600]), {}),
            (packed, {"content-encoding": "gzip"}),
        ):
            answer = client.post("/api/v1/events", content=content, headers=headers)
            assert answer.status_code == 413
            assert answer.headers["content-type"] == "application/problem+json"
        assert client.post("/api/v1/events", content=b" " * 1000).status_code == 200


def test_a_database_without_its_tables_is_a_503(engine: sa.Engine, client: TestClient) -> None:
    """Not a 429: Alertmanager takes that as final."""
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE nodes"))
    answer = client.get("/api/v1/nodes")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "foreshock_database_up 0.0" in client.get("/metrics").text


def test_a_crash_tells_the_client_nothing_of_the_inside(app: FastAPI) -> None:
    """The log has the details."""

    @app.get("/crash")
    def crash() -> None:
        raise ZeroDivisionError("secret inside")

    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/crash")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


def test_probes_name_their_checks(client: TestClient, engine: sa.Engine) -> None:
    """A missing model is no failure, a missing schema is."""
    assert client.get("/livez").json()["status"] == "ok"
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]["database"]) == (200, "ok")
    assert "foreshock train" in ready.json()["checks"]["model"]
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'older'"))
    behind = client.get("/healthz")
    assert behind.status_code == 503
    assert behind.json()["checks"]["migrations"].startswith("failed: the schema is at older")


def test_a_database_that_is_gone_fails_the_probe(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the check."""

    def fail(_engine: sa.Engine) -> None:
        raise OperationalError("select", {}, Exception("gone"))

    monkeypatch.setattr("api.routes.health.revision", fail)
    with TestClient(app) as client:
        answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {
        "database": "failed: OperationalError",
        "migrations": "unknown",
        "intake": "unknown",
        "model": "unknown",
        "schedulers": "unknown",
        "loops": "ok",
        "policy": "ok",
        "configuration": "ok",
        "disk": "ok",
    }


def test_metrics_tell_of_requests_nodes_and_hints(client: TestClient, engine: sa.Engine) -> None:
    """Risks as a gauge per node and horizon; requests by operation, so that names do not multiply series."""
    body = [{"time": "2025-03-01T11:59:00Z", "node": "gpu-001", "source": "tarot", "kind": "card"}]
    client.post("/api/v1/events", json=body)
    with engine.begin() as connection:
        row = {"node": "gpu-001", "horizon_h": 24, "time": NOW, "score": 0.25, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert().values(**row))
    client.get("/api/v1/nodes/gpu-001")
    client.get("/api/v1/nodes/gpu-002")
    text = client.get("/metrics").text
    assert 'foreshock_node_failure_risk_ratio{horizon="24h",node="gpu-001"} 0.25' in text
    assert 'foreshock_events_accepted_total{source="other"} 1.0' in text
    assert 'foreshock_http_requests_total{method="GET",operation="get_node",status="404"} 1.0' in text
    assert "tarot" not in text
    assert 'foreshock_nodes{state="at_risk"} 1.0' in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_metrics_please_promtool(client: TestClient, engine: sa.Engine) -> None:
    """Names, units, help: what Prometheus' own linter asks for."""
    test_metrics_tell_of_requests_nodes_and_hints(client, engine)
    page = client.get("/metrics").content
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


def test_an_answer_holds_no_value_that_json_cannot() -> None:
    """A programming mistake is loud."""
    assert dump({"a": frozenset({1})}) == b'{"a":[1]}'
    with pytest.raises(TypeError):
        dump({"a": object()})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
EVENT_KEYS = ("id", "time", "node", "source", "kind", "code", "severity", "device", "attributes", "message", "line")
OTHER_KEYS = ("start", "end", "state", "reason", "samples", "gpus_seen", "power_max_w", "alerts", "labels", "startsAt")
FIELDS = st.dictionaries(st.sampled_from((*EVENT_KEYS, *OTHER_KEYS)), JSON)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    path=st.sampled_from(["events", "telemetry", "outages", "alerts", "logs"]),
    body=st.binary(max_size=80).map(bytes)
    | st.lists(JSON | FIELDS, max_size=4).map(lambda values: json.dumps(values).encode())
    | st.lists(JSON | FIELDS, max_size=4).map(lambda values: "\n".join(map(json.dumps, values)).encode()),
)
def test_no_body_is_a_crash(client: TestClient, path: str, body: bytes) -> None:
    """Whatever comes is taken, or refused with a reason."""
    answer = client.post(f"/api/v1/{path}", content=body)
    assert answer.status_code in (200, 400, 422), answer.text
    assert client.get("/api/v1/events").status_code == 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    path=st.sampled_from(["events", "incidents", "nodes", "scores", "runs", "hints", "audit"]),
    query=st.dictionaries(
        st.sampled_from(["cursor", "limit", "since", "until", "node", "at", "horizon_h", "state", "sort"]),
        st.text(max_size=30) | st.integers().map(str),
    ),
)
def test_no_query_is_a_crash(client: TestClient, path: str, query: dict[str, str]) -> None:
    """The same for what stands behind the question mark."""
    assert client.get(f"/api/v1/{path}", params=query).status_code in (200, 422)
