"""What follows a reload of the settings: limits at the edge, webhooks, and schedulers, never two at a time of one."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa
from real.patience import patience

from api.edge.admission import make_edge
from api.edge.problem import Problem
from api.loops.runner import Loop, LoopRunner
from api.loops.turns import Turns
from api.server.metrics import Metrics
from api.server.settings import ApiSettings, RequestLimits
from api.server.state import State
from cli.config.settings_file import SettingsFile
from cli.console.errors import Failure
from schedulers.policy.settings import Policy
from schedulers.webhooks.settings import WebhookSettings

from .conftest import QUIET, Clock

SECRET = "whsec_" + "c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="


@pytest.fixture
def state(engine: sa.Engine, clock: Clock) -> Iterator[State]:
    """A server's state, whose settings a test replaces."""
    waiting = [QUIET]
    source = SettingsFile(QUIET, lambda: waiting[-1], None)
    yield State(replace(QUIET, source=source), engine, clock)


def test_new_limits_hold_for_the_next_request_and_those_at_work_end_as_they_are() -> None:
    """One slot becomes two while one is held, and one again."""

    async def play() -> None:
        limits = RequestLimits(max_writes=1, slot_wait_s=0.01)
        edge = make_edge(ApiSettings(limits=limits), Metrics())
        async with edge.writes.held():
            with pytest.raises(Problem):
                async with edge.writes.held():
                    pass
            edge.follow(ApiSettings(limits=replace(limits, max_writes=2, requests_per_s=7.0)))
            async with edge.writes.held():  # beside the one that is at work
                assert edge.limiter.limits.requests_per_s == 7.0
        edge.follow(ApiSettings(limits=limits, body_limit_bytes=10**9))
        assert edge.bodies.limit_bytes == 10**9
        async with edge.writes.held():
            with pytest.raises(Problem):
                async with edge.writes.held():
                    pass

    asyncio.run(play())


def test_a_scheduler_s_old_loop_has_ended_before_the_new_one_begins(state: State) -> None:
    """Though it is in the middle of a turn; other loops go on, and the old one's end is called once."""
    told: list[str] = []
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def old(keep_on: Callable[[], bool]) -> None:
        begun.set()
        go_on.wait(patience(30))
        told.append(f"old {keep_on()}")

    def new(_keep_on: Callable[[], bool]) -> None:
        told.append("new")
        done.set()

    def loop(name: str, turn: Callable[[Callable[[], bool]], None]) -> Loop:
        wake, end = threading.Event(), f"end {name}"
        return Loop(name, 3600.0, turn, leased=False, wake=wake, end=lambda: told.append(end))

    runner = LoopRunner(state, (loop("scheduler-a", old), loop("other", lambda _keep_on: None)))
    runner.start()
    assert begun.wait(patience(30))
    fresh = loop("scheduler-a", new)
    changing = threading.Thread(target=runner.exchange, args=("scheduler-", [fresh]))
    changing.start()
    go_on.set()
    changing.join(patience(30))
    assert done.wait(patience(30))
    assert told == ["old False", "end scheduler-a", "new"]
    runner.stop()
    assert sorted(told[3:]) == ["end other", "end scheduler-a"]


def test_webhooks_of_a_reload_are_the_ones_that_are_sent_to(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the next turn on; those that stay as they are are not made anew."""
    sent: list[list[str]] = []

    def note(means: object, _now: object, _keep_on: object) -> list[object]:
        sent.append([one.name for one in means.schedulers])  # type: ignore[attr-defined]
        return []

    monkeypatch.setattr("api.loops.turns.run_dispatch", note)
    turns = Turns(state, lambda: 0.0)
    turns.dispatch(lambda: True)
    source = state.started.source
    assert isinstance(source, SettingsFile)
    hook = WebhookSettings("ops", "https://ops.example/x", SECRET)
    source._read = lambda: replace(QUIET, webhooks=(hook,))
    assert source.reload()
    turns.dispatch(lambda: True)
    assert sent == [[], ["ops"]]


def test_a_refused_reload_leaves_everything_and_the_policy_follows_its_own_source(engine: sa.Engine) -> None:
    """The next one that holds clears the problem; what waits for a restart is named."""

    class Source:
        """A policy that changes by itself."""

        place, errors, problem = "p.yaml", 0, None
        policy = Policy()

        def current(self) -> Policy:
            return self.policy

    policy, answers = Source(), [QUIET]
    started = replace(QUIET, policy_source=policy)

    def read() -> ApiSettings:
        if not answers:
            raise Failure("f.yaml:3, limits: no")
        return answers.pop()

    source = SettingsFile(started, read, None)
    policy.policy = Policy(mode="approve")
    assert source.current().mode == "approve"
    answers[:] = [replace(QUIET, processes=3, body_limit_bytes=77)]
    assert source.reload()
    assert (source.current().body_limit_bytes, source.current().processes, source.restart) == (77, 1, ("processes",))
    assert source.current().mode == "approve"
    assert not source.reload()
    assert (source.errors, source.problem) == (1, "f.yaml:3, limits: no")
    assert source.current().body_limit_bytes == 77
    answers[:] = [QUIET]
    assert source.reload()
    assert (source.problem, source.restart) == (None, ())
