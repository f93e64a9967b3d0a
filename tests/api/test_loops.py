"""The background loops: turns, leases, failures, the end; and the ledgers that are kept."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.loops.runner import Loop, LoopRunner
from api.loops.scoring import FleetScorer
from api.loops.turns import Turns
from api.server.settings import Intervals
from api.server.state import State
from schedulers.policy.settings import Policy
from schedulers.webhooks.settings import WebhookSettings
from store.database.connections import writing
from store.database.coordination import acquire, release
from store.events.append import append_events, append_nodes
from store.hints.hint_log import read_hints
from store.records.event import Event
from store.records.node import Node
from store.tables import schema

from .conftest import NOW, QUIET, Clock

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
def state(engine: sa.Engine, clock: Clock) -> State:
    """A server's state, without a server."""
    return State(QUIET, engine, clock)


def always() -> bool:
    """Go on."""
    return True


def count(state: State, name: str, loop: str) -> float:
    """A counter of a loop."""
    return state.metrics.registry.get_sample_value(f"foreshock_loop_{name}_total", {"loop": loop}) or 0.0


def test_a_lease_has_one_holder(engine: sa.Engine) -> None:
    """Until it lapses or is given back."""
    assert acquire(engine, "policy", "a", NOW, 60)
    assert acquire(engine, "policy", "a", NOW, 60)
    assert not acquire(engine, "policy", "b", NOW + timedelta(seconds=59), 60)
    assert acquire(engine, "score", "b", NOW, 60)
    assert acquire(engine, "policy", "b", NOW + timedelta(seconds=60), 60)
    release(engine, "policy", "a")
    assert not acquire(engine, "policy", "a", NOW + timedelta(seconds=61), 60)
    release(engine, "policy", "b")
    assert acquire(engine, "policy", "a", NOW + timedelta(seconds=61), 60)


def test_a_turn_that_fails_is_counted_and_the_next_one_comes(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """A loop outlives whatever a turn meets."""
    told: list[int] = []

    def turn(_keep_on: Callable[[], bool]) -> None:
        told.append(1)
        raise ValueError("broken")

    runner = LoopRunner(state, ())
    runner.keeper.renew()
    loop = Loop("odd", 1.0, turn)
    with caplog.at_level(logging.ERROR):
        runner.turn(loop)
        runner.turn(loop)
    assert (len(told), count(state, "failures", "odd"), count(state, "turns", "odd")) == (2, 2.0, 2.0)
    assert "a turn of loop odd failed" in caplog.text


def test_of_two_servers_one_runs_a_loop(engine: sa.Engine, clock: Clock) -> None:
    """The other follows once the first has stopped."""
    first, second = (State(QUIET, engine, clock) for _ in range(2))
    loop = Loop("policy", 1.0, lambda _keep_on: None)
    one, two = LoopRunner(first, (loop,)), LoopRunner(second, (loop,))
    for runner in (one, two):
        runner.keeper.renew()
        runner.turn(loop)
    assert (count(first, "turns", "policy"), count(second, "turns", "policy")) == (1.0, 0.0)
    one.stop()
    two.keeper.renew()
    two.turn(loop)
    assert count(second, "turns", "policy") == 1.0


def test_loops_start_and_stop_with_the_server(engine: sa.Engine, clock: Clock) -> None:
    """A turn of each is seen; afterwards no thread is left."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1")])
        row = {"node": "n1", "horizon_h": 24, "time": NOW, "score": 0.5, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert().values(**row))
    app = create_app(replace(QUIET, intervals=Intervals(0.01, 0.01, 0.01)), engine, clock)
    with TestClient(app) as client:
        for _ in range(1000):
            if client.get("/api/v1/hints").json()["items"]:
                break
        assert client.get("/api/v1/hints").json()["items"][0]["state"] == "shadow"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loop-")]


def test_a_loop_with_no_interval_does_not_run(state: State) -> None:
    """0 switches it off."""
    runner = LoopRunner(state, (Loop("off", 0.0, lambda _keep_on: None),))
    runner.start()
    runner.stop()
    assert count(state, "turns", "off") == 0.0


def test_scoring_waits_for_something_and_then_for_news(
    state: State, engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For no model: the prior serves from the first hour. It comes again after an hour of silence, a sign, too."""
    scored: list[object] = []

    def score(_scorer: FleetScorer, at: object) -> int:
        scored.append(at)
        row = {"node": "n1", "horizon_h": 24, "time": at, "score": 0.1, "reasons": [], "model": "m"}
        with writing(engine).begin() as connection:
            connection.execute(schema.scores.insert().values(**row))
        return 1

    monkeypatch.setattr(FleetScorer, "score", score)
    turns = Turns(state, lambda: 0.0)
    turns.score(always)
    assert scored == []
    with writing(engine).begin() as connection:
        append_events(connection, [Event(NOW, "n1", "kernel", "note")], NOW)
    for _ in range(2):
        turns.score(always)
    assert len(scored) == 1
    clock.forward(minutes=5)
    state.news.set()
    for _ in range(2):
        turns.score(always)
    assert len(scored) == 2
    clock.forward(minutes=61)
    turns.score(always)
    assert len(scored) == 3


def test_a_scoring_that_fails_is_tried_again(state: State, engine: sa.Engine) -> None:
    """The news is not lost: here the stored model is not one."""
    with writing(engine).begin() as connection:
        append_events(connection, [Event(NOW, "n1", "kernel", "note")], NOW)
        model = {"id": "m", "created": NOW, "trained_until": NOW, "horizon_h": 24, "features": [], "metrics": {}}
        connection.execute(schema.models.insert().values(**model, blob=b"x", sha256="y"))
    turns = Turns(state, lambda: 0.0)
    with pytest.raises(ValueError, match="is damaged"):
        turns.score(always)
    assert state.news.is_set()


def test_a_look_that_fails_keeps_no_other_from_its_turn(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What one cannot read is told once all have looked; of several that fail each is."""
    looked: list[str] = []

    def look(name: str, *_: object, **__: object) -> int:
        looked.append(name)
        if name in ("note_outliers", "note_recurring"):
            raise ValueError(f"a figure of {name} that is none")
        return 0

    for name in ("note_outliers", "note_flappers", "note_recurring", "note_slow"):
        monkeypatch.setattr(f"api.loops.turns.{name}", partial(look, name))
    with pytest.raises(ValueError, match="a figure of note_outliers that is none"):
        Turns(state, lambda: 0.0).links(always)
    assert "a figure of note_recurring that is none" in caplog.text
    assert looked == ["note_outliers", "note_flappers", "note_recurring", "note_slow"]


def test_the_policy_and_the_dispatcher_have_their_turns(engine: sa.Engine, clock: Clock) -> None:
    """A hint is made and approved; nobody answers at the address, which is counted."""
    hook = WebhookSettings("ops", "http://127.0.0.1:1/", SECRET, timeout_s=1.0)
    state = State(replace(QUIET, policy=Policy(mode="act"), webhooks=(hook,)), engine, clock)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1")])
        row = {"node": "n1", "horizon_h": 24, "time": NOW, "score": 0.5, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert().values(**row))
    turns = Turns(state, lambda: 0.0)
    turns.policy(always)
    turns.dispatch(always)
    with engine.connect() as connection:
        assert [hint.state for hint in read_hints(connection)] == ["approved"]
    assert state.metrics.registry.get_sample_value("foreshock_hint_deliveries_total", {"outcome": "retry"}) == 1.0
