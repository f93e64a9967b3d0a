"""The loop that makes incidents of what came in, and what /metrics says of it."""

import threading

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from folding import fold_all
from real.patience import patience
from real.programs import wait_for

from api.loops import runner as loops_module
from api.loops.runner import Loop, LoopRunner
from api.server.state import State
from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node
from store.tables import schema

from .conftest import NOW, QUIET, Clock
from .test_events_route import record


def value(client: TestClient, name: str) -> float:
    """A metric of the server."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_what_was_sent_becomes_incidents_by_itself(any_client: TestClient) -> None:
    """Nobody asks for it; every event is counted once."""
    for number in range(3):
        assert any_client.post("/api/v1/events", json=[record(number), record(number + 1)]).status_code == 200

    def count() -> int:
        return sum(incident["count"] for incident in any_client.get("/api/v1/incidents").json()["items"])

    wait_for("all four events are in an incident", lambda: count() == 4)
    assert value(any_client, "foreshock_intake_events_folded_total") == 4
    assert value(any_client, "foreshock_intake_events") == 0


def test_what_waits_is_told(app: FastAPI, engine: sa.Engine, clock: Clock) -> None:
    """Without the loop: how many, since when; and how many are set aside."""
    client = TestClient(app)  # not entered: its loops do not run
    client.post("/api/v1/events", json=[record(0), record(1), record(2, severity="info")])
    clock.forward(seconds=7)
    client.post("/api/v1/events", json=[record(3)])
    clock.forward(seconds=3)
    assert (value(client, "foreshock_intake_events"), value(client, "foreshock_intake_age_seconds")) == (3, 10)
    with engine.begin() as connection:
        connection.execute(sa.update(schema.intake).where(schema.intake.c.seq == 1).values(error="odd"))
    assert value(client, "foreshock_intake_set_aside_events") == 2
    fold_all(engine)
    assert (value(client, "foreshock_intake_events"), value(client, "foreshock_intake_age_seconds")) == (0, 0)
    assert client.get("/api/v1/incidents").json()["items"][0]["count"] == 1


def test_a_loop_is_woken_at_once_and_ends_at_once(engine: sa.Engine, clock: Clock) -> None:
    """It would sleep for an hour otherwise."""
    state = State(QUIET, engine, clock)
    turned = threading.Semaphore(0)
    runner = LoopRunner(state, (Loop("x", 3600.0, lambda _on: turned.release(), leased=False, wake=state.faults),))
    runner.start()
    for _ in range(3):
        assert turned.acquire(timeout=patience(60))
        state.faults.set()
    assert turned.acquire(timeout=patience(60))
    runner.stop()
    wait_for("it has ended", lambda: not any(t.name == "loop-x" for t in threading.enumerate()))


def test_after_a_failure_a_loop_rests_before_it_tries_again(
    engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log shall not fill up: however often it is woken."""
    state = State(QUIET, engine, clock)
    failed = threading.Semaphore(0)
    monkeypatch.setattr(loops_module, "_AFTER_FAILURE_S", 3600.0)

    def fails(_on: object) -> None:
        failed.release()
        state.faults.set()
        raise ValueError("broken")

    runner = LoopRunner(state, (Loop("y", 0.001, fails, leased=False, wake=state.faults),))
    runner.start()
    assert failed.acquire(timeout=patience(60))
    assert not failed.acquire(timeout=0.3)
    runner.stop()


def test_events_that_are_folded_are_those_of_the_store(any_client: TestClient, any_engine: sa.Engine) -> None:
    """What is dated by its receipt counts at that moment."""
    assert any_client.post("/api/v1/events", json=[record(0, time=None)]).status_code == 200
    fold_all(any_engine)
    (incident,) = any_client.get("/api/v1/incidents").json()["items"]
    assert incident["start"] == NOW.isoformat(timespec="microseconds").replace("+00:00", "Z")


def test_a_failed_nvlink_is_one_incident_over_http_in_any_order(any_client: TestClient, any_engine: sa.Engine) -> None:
    """Each node's sidecar posts what its own GPUs printed, the culprit's last; the answer tells link and domain."""
    nodes = [f"n{number:02}" for number in range(4)]
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(node, nvlink_domain="rack-1") for node in nodes])
    for number, node in enumerate([*nodes[1:], nodes[0]]):
        code, link = (149, 14) if node == "n00" else (145, -1)
        what = {"kind": "xid", "code": code, "severity": "fatal", "cause": "hardware", "action": "reset_gpu"}
        place = {"node": node, "source": "kernel", "device": {"type": "gpu", "pci": "0008:01:00.0"}}
        event = {**what, **place, "id": f"e{number}", "time": NOW.isoformat(), "message": f"Xid {code}"}
        answer = any_client.post("/api/v1/events", json=[{**event, "attributes": {"link": link}}])
        assert answer.status_code == 200
        fold_all(any_engine)
    (incident,) = any_client.get("/api/v1/incidents").json()["items"]
    assert (incident["node"], incident["code"], incident["link"]) == ("n00", 149, 14)
    assert (incident["domain"], incident["nodes"], incident["blast_radius"]) == ("rack-1", nodes, 4)
