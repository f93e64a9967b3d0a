"""GET /breaker, POST /breaker/{seq}/reset, GET and POST /stop; and the gauges of both."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from api.server.settings import Token, expand_scopes
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.hints.hint_log import audit_page
from store.hints.stops import note_trip
from store.nodes.tokens import digest_of
from wire.message import Page
from wire.policy import StopJson, TripJson

from .conftest import NOW, QUIET, Clock


@pytest.fixture
def stop_file(tmp_path: Path) -> Path:
    """Where a stop file would be."""
    return tmp_path / "stop"


@pytest.fixture
def client(engine: sa.Engine, clock: Clock, stop_file: Path) -> Iterator[TestClient]:
    """A server with two tokens."""
    tokens = (
        Token("alice", digest_of("alice-secret"), expand_scopes({"read", "act"})),
        Token("reader", digest_of("reader-secret"), frozenset({"read"})),
    )
    settings = replace(QUIET, tokens=tokens, policy=Policy(mode="act", stop_file=stop_file))
    with TestClient(create_app(settings, engine, clock), headers={"authorization": "Bearer alice-secret"}) as client:
        yield client


def trip(engine: sa.Engine, *names: str) -> None:
    """Leaves trip."""
    with writing(engine).begin() as connection:
        for name in names:
            note_trip(connection, ("leaf", name), f"breaker: {name}", 4, NOW, "policy")


def test_trips_are_listed_page_by_page(client: TestClient, engine: sa.Engine) -> None:
    """The newest first; those in force alone where asked."""
    trip(engine, "a", "b", "c")
    assert client.post("/api/v1/breaker/2/reset", json={"backlog": "drop"}).status_code == 200
    first = client.get("/api/v1/breaker", params={"limit": 2}).json()
    check_answer(Page[TripJson], first)
    assert [item["name"] for item in first["items"]] == ["c", "b"]
    rest = client.get("/api/v1/breaker", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert ([item["name"] for item in rest["items"]], rest["next_cursor"]) == (["a"], None)
    held = client.get("/api/v1/breaker", params={"in_force": True}).json()["items"]
    assert [item["name"] for item in held] == ["c", "a"]


def test_a_reset_is_done_once_by_a_token_that_may_act(client: TestClient, engine: sa.Engine) -> None:
    """Again: the same answer; the other word: 409; unknown: 404; no word: 422; a reader: 403."""
    trip(engine, "a")
    reader = {"authorization": "Bearer reader-secret"}
    assert client.post("/api/v1/breaker/1/reset", json={"backlog": "drop"}, headers=reader).status_code == 403
    answers = [client.post("/api/v1/breaker/1/reset", json={"backlog": "review"}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert (answers[0]["reset_by"], answers[0]["backlog"]) == ("alice", "review")
    for path, body, status in (
        ("1", {"backlog": "drop"}, 409),
        ("9", {"backlog": "drop"}, 404),
        ("1", {}, 422),
        ("0", {"backlog": "drop"}, 422),
        ("99999999999999999999", {"backlog": "drop"}, 422),
    ):
        assert client.post(f"/api/v1/breaker/{path}/reset", json=body).status_code == status


def test_everybody_may_read_what_is_stopped_and_actors_stop(
    client: TestClient, engine: sa.Engine, stop_file: Path
) -> None:
    """The strongest source counts, and lifting one does not lift the other."""
    reader = {"authorization": "Bearer reader-secret"}
    assert client.get("/api/v1/stop", headers=reader).json() == {"stop": "none", "sources": []}
    body = {"stop": "holds", "reason": "fabric work"}
    assert client.post("/api/v1/stop", json=body, headers=reader).status_code == 403
    answer = client.post("/api/v1/stop", json=body).json()
    check_answer(StopJson, answer)
    (source,) = answer["sources"]
    assert (answer["stop"], source["source"], source["by"], source["reason"]) == (
        "holds",
        "switch",
        "alice",
        "fabric work",
    )
    stop_file.write_text("all")
    lifted = client.post("/api/v1/stop", json={"stop": "none", "reason": "done"}).json()
    assert (lifted["stop"], [one["source"] for one in lifted["sources"]]) == ("all", ["file"])
    assert client.get("/api/v1/cluster").json()["stop"] == "all"
    with engine.connect() as connection:
        assert [entry["actor"] for entry in audit_page(connection, 9, None, "switch")] == ["alice", "alice"]
    for wrong in (
        {"stop": "holds"},
        {"stop": "holds", "reason": " "},
        {"stop": "perhaps", "reason": "x"},
        {"stop": "all", "reason": "\0"},
    ):
        assert client.post("/api/v1/stop", json=wrong).status_code == 422


def test_both_are_gauges(client: TestClient, engine: sa.Engine) -> None:
    """Also where they are zero: an alert sees them come."""
    page = client.get("/metrics").text
    assert 'foreshock_breaker_tripped{kind="leaf"} 0.0' in page
    assert 'foreshock_hints_stopped{stop="holds"} 0.0' in page
    trip(engine, "a", "b")
    client.post("/api/v1/stop", json={"stop": "all", "reason": "fire"})
    page = client.get("/metrics").text
    assert 'foreshock_breaker_tripped{kind="leaf"} 2.0' in page
    assert 'foreshock_breaker_tripped{kind="driver"} 0.0' in page
    assert 'foreshock_hints_stopped{stop="holds"} 0.0' in page
    assert 'foreshock_hints_stopped{stop="all"} 1.0' in page
