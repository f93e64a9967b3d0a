"""Every way to be refused is a problem document, on every address; and what intake refuses record by record."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from store.database.connections import writing
from store.events.append import append_events
from store.records.event import Event
from store.tables import hint_tables

from .conftest import NOW, Clock

READS = (
    *("events", "incidents", "cluster", "nodes", "nodes/n1", "scores", "runs", "runs/r1/goodput", "hints", "audit"),
    *("topology", "map", "advice/checkpoint", "advice/spares"),
)
ALERT = {"labels": {"alertname": "A", "node": "n1"}, "startsAt": "2025-03-01T11:00:00Z", "fingerprint": "f"}


def assert_problem(answer: Any, status: int) -> dict[str, Any]:
    """The answer is a problem of this status, in every member; returns the document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == "about:blank"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == answer.request.url.path
    return document


@pytest.fixture
def broken(engine: sa.Engine, client: TestClient) -> Iterator[TestClient]:
    """A server whose database has lost its tables."""
    with engine.begin() as connection:
        for table in hint_tables.metadata.sorted_tables:
            connection.execute(sa.text(f"DROP TABLE {table.name}"))
    yield client


@pytest.mark.parametrize("path", READS)
def test_a_database_that_fails_is_a_503_to_every_reader(broken: TestClient, path: str) -> None:
    """With when to come back; the SQL stays in the log."""
    answer = broken.get(f"/api/v1/{path}")
    document = assert_problem(answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    assert "SELECT" not in document["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("events", [{"time": "2025-03-01T11:00:00Z", "node": "n1", "source": "kernel", "kind": "xid"}]),
        ("outages", [{"node": "n1", "start": "2025-03-01T11:00:00Z"}]),
        ("telemetry", [{"node": "n1", "time": "2025-03-01T11:00:00Z", "samples": 1, "gpus_seen": 8}]),
        ("alerts", {"alerts": [ALERT]}),
        ("hints/h1/approve", None),
        ("hints/h1/withdraw", None),
    ],
)
def test_a_database_that_fails_is_a_503_to_every_writer(broken: TestClient, path: str, body: Any) -> None:
    """The sender keeps its batch and tries again."""
    assert_problem(broken.post(f"/api/v1/{path}", json=body), 503)


def test_a_batch_that_fails_half_way_leaves_nothing_behind(client: TestClient, engine: sa.Engine) -> None:
    """Events and what incidents are to be made of are one transaction: sent again, all are new."""
    body = [{"time": "2025-03-01T11:00:00Z", "node": "n1", "source": "kernel", "kind": "xid", "severity": "fatal"}]
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE intake RENAME TO elsewhere"))
    assert_problem(client.post("/api/v1/events", json=body), 503)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO intake"))
    assert client.post("/api/v1/events", json=body).json()["accepted"] == 1
    assert 'foreshock_events_accepted_total{source="kernel"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/hints/h1/approve", "/livez", "/metrics"])
def test_a_method_that_is_not_taken_is_a_problem_with_those_that_are(
    client: TestClient, method: str, path: str
) -> None:
    """405 and `Allow`."""
    answer = client.request(method, path)
    assert "Allow" in assert_problem(answer, 405)["detail"]
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/api/v2/events", "/api/v1/events/1", "/api/v1/hints/h1/burn"]
)
def test_an_address_that_is_none_is_a_problem(client: TestClient, path: str) -> None:
    """404 that says where the list is."""
    assert "/docs" in assert_problem(client.get(path), 404)["detail"]


def test_every_parameter_that_does_not_fit_is_named(client: TestClient) -> None:
    """All at once, each with its place, so that one try is enough."""
    answer = client.get("/api/v1/events", params={"limit": "0", "since": "yesterday", "node": ""})
    document = assert_problem(answer, 422)
    assert {error["pointer"] for error in document["errors"]} == {"query/limit", "query/since", "query/node"}
    assert all(error["detail"] for error in document["errors"])


@pytest.mark.parametrize("year", ["1969-12-31T23:59:59Z", "9999-01-01", "0001-01-01"])
def test_a_year_that_no_log_bears_is_refused_in_a_query(client: TestClient, year: str) -> None:
    """Arithmetic around it would overflow."""
    assert (
        "between 1970 and 9998" in assert_problem(client.get("/api/v1/events", params={"since": year}), 422)["detail"]
    )


@pytest.mark.parametrize("path", ["nodes/" + "n" * 256, "runs/" + "r" * 256 + "/goodput", "nodes/%00"])
def test_a_name_that_cannot_be_is_refused(client: TestClient, path: str) -> None:
    """Too long for any index, or with a NUL."""
    answer = client.get(f"/api/v1/{path}")
    assert_problem(answer, 404 if "%00" in path else 422)


@pytest.mark.parametrize("word", ["approve", "withdraw"])
@pytest.mark.parametrize(("ident", "status"), [("a%00b", 422), ("x" * 256, 422), ("none", 404), ("..%2f..", 404)])
def test_a_hint_that_is_none_is_a_problem(client: TestClient, word: str, ident: str, status: int) -> None:
    """404 where it could have been one."""
    assert_problem(client.post(f"/api/v1/hints/{ident}/{word}"), status)


def test_what_a_handler_raises_itself_keeps_its_words_and_headers(app: FastAPI) -> None:
    """Also a validation error without any detail, and an HTTP error with a plain phrase."""

    @app.get("/teapot")
    def teapot() -> None:
        raise HTTPException(418, "short and stout", {"x-pot": "1"})

    @app.get("/plain")
    def plain() -> None:
        raise HTTPException(409)

    @app.get("/odd")
    def odd() -> None:
        raise RequestValidationError([])

    @app.get("/locked")
    def locked() -> None:
        raise OperationalError("INSERT secret", {}, Exception("database is locked"))

    with TestClient(app, raise_server_exceptions=False) as client:
        pot = client.get("/teapot")
        assert assert_problem(pot, 418)["detail"] == "short and stout"
        assert pot.headers["x-pot"] == "1"
        assert assert_problem(client.get("/plain"), 409)["detail"] == "Conflict"
        assert assert_problem(client.get("/odd"), 422)["errors"] == []
        assert "secret" not in assert_problem(client.get("/locked"), 503)["detail"]


def test_an_outage_that_is_planned_does_not_make_its_node_seen_in_the_future(
    client: TestClient, engine: sa.Engine, clock: Clock
) -> None:
    """A reservation of next week: a node that falls silent today is still found silent."""
    with writing(engine).begin() as connection:
        append_events(connection, [Event(NOW, "other", "kernel", "note")], NOW)
    plan = {"node": "n1", "start": "2025-03-08T00:00:00Z", "state": "MAINT", "reason": "firmware"}
    assert client.post("/api/v1/outages", json=[plan]).json()["accepted"] == 1
    shown = client.get("/api/v1/nodes/n1").json()
    assert (shown["state"], shown["last_seen"]) == ("ok", "2025-03-01T12:00:00.000000Z")
    clock.forward(minutes=20)
    with writing(engine).begin() as connection:
        append_events(connection, [Event(clock.now, "other", "kernel", "note")], clock.now)
    assert client.get("/api/v1/nodes/n1").json()["state"] == "silent"


def test_a_roll_up_of_the_future_is_refused(client: TestClient) -> None:
    """A node whose clock says 2999 must not make the newest moment of the store; a zone's error is let pass."""
    rollup = {"node": "n1", "samples": 1, "gpus_seen": 8}
    late = datetime.now(UTC) + timedelta(days=2)
    body = [{**rollup, "time": time.isoformat()} for time in (NOW, late, datetime(2999, 1, 1, tzinfo=UTC))]
    taken = client.post("/api/v1/telemetry", json=body).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (1, [2, 3])
    assert "lies in the future" in taken["rejected"][0]["detail"]
    soon = {**rollup, "time": (datetime.now(UTC) + timedelta(hours=12)).isoformat()}
    assert client.post("/api/v1/telemetry", json=[soon]).json()["accepted"] == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "alertname"),
        ({"labels": {}}, "alertname"),
        ({"labels": []}, "'labels' must be an object"),
        ({"labels": {f"l{i}": "x" for i in range(65)}}, "at most 64"),
        ({"annotations": "text"}, "'annotations' must be an object"),
        ({"startsAt": "now"}, "now"),
        ({"startsAt": None}, "startsAt"),
        ({"startsAt": "0001-01-01T00:00:00Z"}, "between 1970 and 9998"),
        ({"fingerprint": 7}, "fingerprint"),
        ({"status": "resolved", "endsAt": "soon"}, "soon"),
        ({"labels": {"alertname": "A", "node": "n" * 256}}, "'node' must have"),
    ],
)
def test_an_alert_that_does_not_fit_is_named_by_its_place(client: TestClient, changes: Any, words: str) -> None:
    """The one behind it is taken."""
    taken = client.post("/api/v1/alerts", json={"alerts": [{**ALERT, **changes}, {**ALERT, "fingerprint": "g"}]}).json()
    assert taken["accepted"] == 1
    ((line, detail),) = [(entry["line"], entry["detail"]) for entry in taken["rejected"]]
    assert line == 1
    assert words in detail


@pytest.mark.parametrize(
    ("labels", "node", "device"),
    [
        ({"instance": "n7:9400"}, "n7", "node"),
        ({"instance": "n7"}, "n7", "node"),
        ({"node": "n1", "instance": "n7:9400"}, "n1", "node"),
        ({"Hostname": "n3", "gpu": "2"}, "n3", "gpu"),
        ({"hostname": "n4", "UUID": "GPU-1"}, "n4", "gpu"),
        ({"host": "n5", "gpu": "two"}, "n5", "node"),
        ({"node": "", "nodename": "n6"}, "n6", "node"),
        ({}, None, "node"),
    ],
)
def test_the_labels_of_an_alert_say_where_it_is(client: TestClient, labels: Any, node: Any, device: str) -> None:
    """By the names that exporters use; a port is no part of a host."""
    body = {"alerts": [{**ALERT, "labels": {"alertname": "A", **labels}}]}
    assert client.post("/api/v1/alerts", json=body).json()["accepted"] == 1
    (event,) = client.get("/api/v1/events").json()["items"]
    assert (event["node"], event["device"]["type"]) == (node, device)
