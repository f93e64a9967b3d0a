"""The background loops: score, policy, dispatch. Each in a thread, under a lease, and none stops for a failure.

Of any number of API processes on one database, one runs them: the holder of the lease (`api/loops/runner.py`).
"""

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from api.loops.turns import ActuatorTurns, Turns
from api.server.settings import ApiSettings
from api.server.state import State
from api.server.wakes import WATCH_S
from store.database.connections import open_apart
from store.database.coordination import acquire, release
from store.database.retention import RetentionPeriods

# The lease of one server: whoever holds it runs the loops that shall run once.
#
# A thread of its own renews it every `RENEW_S`; so a long turn does not lose it. A server that dies is followed within
# `TTL_S` and one `RENEW_S`, which is under 5 s. What the holder believes ends before the lease itself does, by a clock
# that also runs while the process or the machine sleeps: one that was stopped for 10 s wakes and knows that it is none.

TTL_S = 3.5
RENEW_S = 1.0
# The belief ends so much before the lease: what was begun on it has this long to reach the database.
MARGIN_S = 0.5
_lease_log = logging.getLogger(__name__)


def uptime() -> float:
    """Seconds that no change of the wall clock touches, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseKeeper:
    """Keeps asking for one lease.

    Args:
        ask: takes or renews the lease for `TTL_S`; False while another holds it; raises when the database is away.
        give_back: gives it back.
        clock: seconds, monotonic.
    """

    def __init__(
        self, ask: Callable[[], bool], give_back: Callable[[], None], clock: Callable[[], float] = uptime
    ) -> None:
        self._ask, self._give_back, self._clock = ask, give_back, clock
        self._until = float("-inf")
        self._held = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-lease", daemon=True)

    def holds(self) -> bool:
        """Whether the lease is surely ours; without the database."""
        return self._clock() < self._until

    def wait(self, timeout_s: float) -> bool:
        """Whether the lease is ours; waits for it so long at most, or until the keeper is stopped."""
        if self.holds():
            return True
        if not self._stop.is_set():
            self._held.clear()  # a belief that ran out: nobody shall take it for news, again and again
        self._held.wait(timeout_s)
        return self.holds()

    def renew(self) -> None:
        """Ask once. Without an answer, what is believed holds until its time is up."""
        began = self._clock()  # before the database takes the call: the lease is at least as long from here
        try:
            ours = self._ask()
        except SQLAlchemyError as error:
            _lease_log.warning("the lease cannot be renewed: %s", " ".join(str(error).split()))
        else:
            self._until = began + TTL_S - MARGIN_S if ours else float("-inf")
        if self.holds():
            self._held.set()
        elif not self._stop.is_set():
            self._held.clear()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def interrupt(self) -> None:
        """Ask no more, and let nobody wait; what is believed holds until its time is up."""
        self._stop.set()
        self._held.set()

    def stop(self) -> None:
        """Give the lease back, so that another has it at once."""
        self.interrupt()
        if self._thread.is_alive():
            self._thread.join(TTL_S)
        self._until = float("-inf")
        try:
            self._give_back()
        except SQLAlchemyError as error:
            _lease_log.warning("the lease lapses by itself: %s", error)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.renew()
            self._stop.wait(RENEW_S)


LEASE = "loops"
_WAIT_S = 1.0
_JOIN_S = 10.0
# How often a change of the rules, or of the policy, is written down; it holds from the next event, or turn, on.
RULES_S = 2.0
# How often it is looked whether a held node is to be tested; and whether hints are to be judged.
TESTS_S = 5.0
HINDSIGHT_S = 600.0
# How often NVLinks are compared with each other: exporters' roll-ups are of an hour.
LINKS_S = 600.0
# How often the nodes are compared whose devices left their usual level: a window of the sidecar's.
SLOW_S = 15.0
# How often each process looks for events that came in through another; its own wake it.
INCIDENTS_S = 0.25
# At the least, after a turn that failed: the log shall not fill up.
_AFTER_FAILURE_S = 1.0
# The next three days' tables are made ahead of them.
DAYS_S = 3600.0
# The hash of the audit's newest row is logged so often.
AUDIT_S = 3600.0
PRUNE_S = 86_400.0
CLOSED_DAYS_S = 3600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: its name, how often, and one turn (which is handed a check whether to go on).

    One that is not `leased` runs in every process at once. `wake` brings its next turn at once. `end` comes after the
    last turn, in the same thread.
    """

    name: str
    interval_s: float
    turn: Callable[[Callable[[], bool]], None]
    leased: bool = True
    wake: threading.Event | None = None
    end: Callable[[], None] = lambda: None


class LoopRunner:
    """Starts loops and stops them; a turn that fails is logged and counted, and the next one comes."""

    def __init__(self, state: State, loops: tuple[Loop, ...]) -> None:
        self._state = state
        self._loops = tuple(loop for loop in loops if loop.interval_s > 0)
        self._stop = threading.Event()
        self._running: list[tuple[Loop, threading.Thread]] = []
        self._over: set[int] = set()  # by identity: loops that end before the others do
        # Its own connection: requests that hold all of the pool's shall not cost the lease.
        self._apart = open_apart(state.engine)
        holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.keeper = LeaseKeeper(
            partial(acquire, self._apart, LEASE, holder, None, TTL_S), partial(release, self._apart, LEASE, holder)
        )

    def start(self) -> None:
        """Start every loop."""
        self._state.metrics.leader.set_function(lambda: float(self.keeper.holds()))
        if any(loop.leased for loop in self._loops):
            self.keeper.start()
        for loop in self._loops:
            self._begin(loop)

    def _begin(self, loop: Loop) -> None:
        thread = threading.Thread(target=self._run, args=(loop,), name=f"loop-{loop.name}", daemon=True)
        thread.start()
        self._running.append((loop, thread))

    def exchange(self, prefix: str, loops: Sequence[Loop]) -> None:
        """End the loops whose names begin so, wait for their last turns, and only then begin others in their place.

        Two of one scheduler at a time would work against each other. A turn that hangs is waited for.
        """
        ending = [(loop, thread) for loop, thread in self._running if loop.name.startswith(prefix)]
        self._over |= {id(loop) for loop, _ in ending}
        for loop, _ in ending:
            if loop.wake is not None:
                loop.wake.set()
        for _, thread in ending:
            thread.join()
        self._over -= {id(loop) for loop, _ in ending}  # an identity may come again
        self._running = [each for each in self._running if each not in ending]
        for loop in loops:
            if loop.interval_s > 0 and not self._stop.is_set():
                self._begin(loop)

    def stop(self) -> None:
        """Ask every loop to end, wait a little, and give the lease back."""
        self._stop.set()
        self.keeper.interrupt()
        running = tuple(self._running)
        for loop, _ in running:
            if loop.wake is not None:
                loop.wake.set()
        deadline = time.monotonic() + _JOIN_S
        for _, thread in running:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.keeper.stop()
        self._apart.dispose()

    def _is_over(self, loop: Loop) -> bool:
        return self._stop.is_set() or id(loop) in self._over

    def _run(self, loop: Loop) -> None:
        while not self._is_over(loop):
            if loop.leased and not self.keeper.wait(_WAIT_S):
                continue
            if loop.wake is not None:
                loop.wake.clear()
            if not self.turn(loop):
                self._stop.wait(_AFTER_FAILURE_S)
            if self._is_over(loop):  # a wake that said so may have been cleared above
                break
            (self._stop if loop.wake is None else loop.wake).wait(loop.interval_s)
        loop.end()

    def turn(self, loop: Loop) -> bool:
        """One turn, if the lease is ours. What it raises is logged and counted; returns whether nothing was raised."""
        metrics = self._state.metrics
        try:
            if self._may(loop):
                metrics.turns.labels(loop.name).inc()
                loop.turn(lambda: not self._is_over(loop) and self._may(loop))
                metrics.success.labels(loop.name).set(time.time())
                metrics.failing.discard(loop.name)
        except Exception as error:  # noqa: BLE001  # a loop outlives whatever a turn meets
            if self._is_over(loop):  # a child that was ended with the server is no failure
                _log.warning("loop %s ends within a turn: %s", loop.name, error)
                return False
            metrics.failures.labels(loop.name).inc()
            metrics.failing.add(loop.name)
            _log.exception("a turn of loop %s failed; the next one comes in %g s", loop.name, loop.interval_s)
            return False
        return True

    def _may(self, loop: Loop) -> bool:
        return not loop.leased or self.keeper.holds()


SCHEDULER_LOOP = "scheduler-"


def make_loops(state: State) -> LoopRunner:
    """The server's loops, not started. Those of schedulers follow the settings."""
    turns = Turns(state, random.Random().random)  # noqa: S311  # jitter, no secret
    every, source = state.settings.intervals, state.started.source
    runner = LoopRunner(
        state,
        (
            Loop("score", every.score_s, turns.score),
            *([Loop("days", DAYS_S, turns.days)] if state.engine.dialect.name == "postgresql" else []),
            *([Loop("prune", PRUNE_S, turns.prune)] if source or state.settings.keep != RetentionPeriods() else []),
            Loop("closed-days", CLOSED_DAYS_S, turns.closed_days),
            Loop("policy", every.policy_s, turns.policy, wake=state.wakes.policy),
            *([Loop("watch", WATCH_S, turns.watch)] if source or every.policy_s > 0 or turns.acting else []),
            Loop("audit", AUDIT_S, turns.audit),
            *([Loop("policies", RULES_S, turns.policies)] if every.policy_s > 0 else []),
            *([Loop("tests", TESTS_S, turns.tests)] if every.policy_s > 0 else []),
            *([Loop("hindsight", HINDSIGHT_S, turns.hindsight)] if every.policy_s > 0 else []),
            Loop("dispatch", every.dispatch_s, turns.dispatch, wake=state.wakes.dispatch),
            *_scheduler_loops(turns.acting, every.observe_s),
            Loop("links", LINKS_S, turns.links),
            Loop("slow", SLOW_S, turns.slow),
            Loop("ledgers", every.ledgers_s, turns.ledgers),
            Loop("models", every.models_s, turns.models),
            Loop("checks", every.models_s, turns.checks),
            Loop("lemons", every.lemons_s, turns.lemons, leased=False),
            Loop("verdicts", INCIDENTS_S, turns.verdicts, wake=state.wakes.verdicts, end=turns.end_verdicts),
            Loop("stream", INCIDENTS_S, turns.stream, leased=False, wake=state.wakes.stream),
            Loop("incidents", INCIDENTS_S, turns.incidents, leased=False, wake=state.faults),
            *([Loop("rules", RULES_S, turns.rules)] if state.settings.rules else []),
        ),
    )
    _follow_schedulers(runner, turns, state)
    return runner


def _scheduler_loops(acting: Sequence[ActuatorTurns], observe_s: float) -> list[Loop]:
    return [Loop(f"{SCHEDULER_LOOP}{one.name}", observe_s, one.turn, wake=one.wake, end=one.close) for one in acting]


def _follow_schedulers(runner: LoopRunner, turns: Turns, state: State) -> None:
    """Have the loops of schedulers made anew where the settings name others, or name them otherwise."""
    known = state.settings.actuators

    def follow(settings: ApiSettings) -> None:
        nonlocal known
        if settings.actuators != known:
            known = settings.actuators
            runner.exchange(SCHEDULER_LOOP, _scheduler_loops(turns.renew_acting(), settings.intervals.observe_s))
        state.wakes.hints()

    state.followers.append(follow)
