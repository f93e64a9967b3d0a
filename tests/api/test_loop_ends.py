"""Background loops when things go wrong: a lost lease, a database that is gone, a server that dies."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from real.patience import patience
from real.programs import wait_for

from api.loops.runner import LEASE, Loop, LoopRunner, make_loops
from api.server.settings import Intervals
from api.server.state import State
from store.database.connections import writing
from store.database.coordination import acquire
from store.tables import schema

from .conftest import QUIET, Clock


@pytest.fixture
def state(engine: sa.Engine, clock: Clock) -> State:
    """A server's state, without a server."""
    return State(QUIET, engine, clock)


def value(state: State, name: str, loop: str = "x") -> float | None:
    """A sample of a loop."""
    return state.metrics.registry.get_sample_value(f"foreshock_loop_{name}", {"loop": loop})


def runner_of(state: State, *loops: Loop) -> LoopRunner:
    """The loops of a server that has just asked for the lease."""
    runner = LoopRunner(state, loops)
    runner.keeper.renew()
    return runner


def test_a_turn_that_ends_with_the_server_is_no_failure(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """A training that is ended since the server stops: one sentence, no traceback, nothing counted."""

    def turn(_keep_on: Callable[[], bool]) -> None:
        runner.stop()
        raise ValueError("the server stops")

    runner = runner_of(state)
    with caplog.at_level(logging.WARNING):
        assert runner.turn(Loop("x", 1.0, turn)) is False
    assert value(state, "failures") in (None, 0.0)
    assert caplog.messages == ["loop x ends within a turn: the server stops"]
    assert caplog.records[0].exc_info is None


def test_a_turn_is_told_when_its_lease_was_taken_over(state: State, engine: sa.Engine) -> None:
    """A server that slept too long must not go on sending beside its heir."""
    told: list[bool] = []

    def turn(keep_on: Callable[[], bool]) -> None:
        told.append(keep_on())
        with writing(engine).begin() as connection:
            connection.execute(sa.update(schema.leases).values(holder="heir"))
        runner.keeper.renew()
        told.append(keep_on())

    runner = runner_of(state)
    runner.turn(Loop("x", 1.0, turn))
    assert told == [True, False]


def test_a_turn_is_told_when_the_server_stops(state: State) -> None:
    """So that the end does not wait for a long queue."""
    told: list[bool] = []

    def turn(keep_on: Callable[[], bool]) -> None:
        told.append(keep_on())
        runner.stop()
        told.append(keep_on())

    runner = runner_of(state)
    runner.turn(Loop("x", 1.0, turn))
    assert told == [True, False]


def test_who_does_not_hold_the_lease_does_nothing_and_counts_nothing(state: State, engine: sa.Engine) -> None:
    """Neither a turn nor a success: the metrics tell who works."""
    assert acquire(engine, LEASE, "other", None, 600.0)
    runner_of(state).turn(Loop("x", 1.0, lambda _keep_on: pytest.fail("not ours")))
    assert (value(state, "turns_total"), value(state, "last_success_timestamp_seconds")) == (None, None)


def test_a_loop_without_a_lease_runs_everywhere(state: State, engine: sa.Engine) -> None:
    """Beside the holder."""
    assert acquire(engine, LEASE, "other", None, 600.0)
    runner_of(state).turn(Loop("x", 1.0, lambda _keep_on: None, leased=False))
    assert value(state, "turns_total") == 1.0


def test_the_metrics_tell_who_leads(state: State) -> None:
    """1 from the first renewal on, 0 when it is given back."""
    held = threading.Event()
    runner = LoopRunner(state, (Loop("x", 60.0, lambda _keep_on: held.set()),))
    runner.start()
    assert held.wait(patience(60))
    assert state.metrics.registry.get_sample_value("foreshock_leader") == 1.0
    runner.stop()
    assert state.metrics.registry.get_sample_value("foreshock_leader") == 0.0


def test_a_loop_ends_after_its_last_turn_and_before_the_runner_has_stopped(state: State) -> None:
    """What it gives back is not taken from under a turn; the last turn may have failed."""
    begun, told = threading.Event(), list[str]()

    def turn(keep_on: Callable[[], bool]) -> None:
        begun.set()
        wait_for("the runner stops", lambda: not keep_on())
        told.append("turn")
        raise RuntimeError("broken")

    runner = LoopRunner(state, (Loop("x", 60.0, turn, leased=False, end=lambda: told.append("end")),))
    runner.start()
    assert begun.wait(patience(60))
    runner.stop()
    assert told == ["turn", "end"]


def test_a_failed_turn_is_no_success(state: State, caplog: pytest.LogCaptureFixture) -> None:
    """The alert on the last success goes off."""

    def turn(_keep_on: Callable[[], bool]) -> None:
        raise RuntimeError("broken")

    with caplog.at_level(logging.ERROR):
        runner_of(state).turn(Loop("x", 1.0, turn))
    assert (value(state, "failures_total"), value(state, "last_success_timestamp_seconds")) == (1.0, None)


def test_a_database_that_is_gone_ends_the_belief_and_not_the_loop(
    state: State, engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Once the database is back, so is the loop."""
    runner, loop = LoopRunner(state, ()), Loop("x", 1.0, lambda _keep_on: None)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE leases RENAME TO elsewhere"))
    with caplog.at_level(logging.WARNING):
        runner.keeper.renew()
        runner.turn(loop)
    assert "the lease cannot be renewed" in caplog.text
    assert value(state, "turns_total") is None
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE elsewhere RENAME TO leases"))
    runner.keeper.renew()
    runner.turn(loop)
    assert value(state, "turns_total") == 1.0


def test_the_end_goes_on_when_the_lease_cannot_be_given_back(
    state: State, engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It lapses by itself."""
    runner = runner_of(state)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE leases"))
    with caplog.at_level(logging.WARNING):
        runner.stop()
    assert caplog.text.count("lapses by itself") == 1


def test_two_servers_of_one_host_are_told_apart(engine: sa.Engine, clock: Clock) -> None:
    """Even in one process: a restart does not take itself for the one before."""
    state = State(replace(QUIET, intervals=Intervals(0, 3600, 0)), engine, clock)
    one, two = make_loops(state), make_loops(state)
    loop = Loop("policy", 3600.0, lambda _keep_on: None)
    for runner in (one, two):
        runner.keeper.renew()
        runner.turn(loop)
    assert value(state, "turns_total", "policy") == 1.0
    two.stop()
    two.turn(loop)
    assert value(state, "turns_total", "policy") == 1.0, "the second had nothing to give back"
    one.stop()
