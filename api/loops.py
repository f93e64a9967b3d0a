"""The background loops: score, policy, dispatch. Each in a thread, under a lease, and none stops for a failure.

Of any number of API processes on one database, one runs them: the holder of the lease (`api/lease_keeper.py`).
"""

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from api.lease_keeper import TTL_S, LeaseKeeper
from api.state import State
from api.turns import Turns
from api.wakes import WATCH_S
from store.database import open_apart
from store.lease import acquire, release
from store.retention import Keep

LEASE = "loops"
_WAIT_S = 1.0
_JOIN_S = 10.0
# How often a change of the rules, or of the policy, is written down; it holds from the next event, or turn, on.
RULES_S = 2.0
# How often it is looked whether a held node is to be tested; and whether hints are to be judged.
TESTS_S = 5.0
HINDSIGHT_S = 600.0
# How often each process looks for events that came in through another; its own wake it.
INCIDENTS_S = 0.25
# At the least, after a turn that failed: the log shall not fill up.
_AFTER_FAILURE_S = 1.0
# The next three days' tables are made ahead of them.
DAYS_S = 3600.0
PRUNE_S = 86_400.0
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
        self._threads: list[threading.Thread] = []
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
            thread = threading.Thread(target=self._run, args=(loop,), name=f"loop-{loop.name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Ask every loop to end, wait a little, and give the lease back."""
        self._stop.set()
        self.keeper.interrupt()
        for loop in self._loops:
            if loop.wake is not None:
                loop.wake.set()
        deadline = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.keeper.stop()
        self._apart.dispose()

    def _run(self, loop: Loop) -> None:
        while not self._stop.is_set():
            if loop.leased and not self.keeper.wait(_WAIT_S):
                continue
            if loop.wake is not None:
                loop.wake.clear()
            if not self.turn(loop):
                self._stop.wait(_AFTER_FAILURE_S)
            (self._stop if loop.wake is None else loop.wake).wait(loop.interval_s)
        loop.end()

    def turn(self, loop: Loop) -> bool:
        """One turn, if the lease is ours. What it raises is logged and counted; returns whether nothing was raised."""
        metrics = self._state.metrics
        try:
            if self._may(loop):
                metrics.turns.labels(loop.name).inc()
                loop.turn(lambda: not self._stop.is_set() and self._may(loop))
                metrics.success.labels(loop.name).set(time.time())
                metrics.failing.discard(loop.name)
        except Exception:  # noqa: BLE001  # a loop outlives whatever a turn meets
            metrics.failures.labels(loop.name).inc()
            metrics.failing.add(loop.name)
            _log.exception("a turn of loop %s failed; the next one comes in %g s", loop.name, loop.interval_s)
            return False
        return True

    def _may(self, loop: Loop) -> bool:
        return not loop.leased or self.keeper.holds()


def make_loops(state: State) -> LoopRunner:
    """The server's loops, not started."""
    turns = Turns(state, random.Random().random)  # noqa: S311  # jitter, no secret
    every = state.settings.intervals
    return LoopRunner(
        state,
        (
            Loop("score", every.score_s, turns.score),
            *([Loop("days", DAYS_S, turns.days)] if state.engine.dialect.name == "postgresql" else []),
            *([Loop("prune", PRUNE_S, turns.prune)] if state.settings.keep != Keep() else []),
            Loop("policy", every.policy_s, turns.policy, wake=state.wakes.policy),
            *([Loop("watch", WATCH_S, turns.watch)] if every.policy_s > 0 or turns.acting else []),
            *([Loop("policies", RULES_S, turns.policies)] if every.policy_s > 0 else []),
            *([Loop("tests", TESTS_S, turns.tests)] if every.policy_s > 0 else []),
            *([Loop("hindsight", HINDSIGHT_S, turns.hindsight)] if every.policy_s > 0 else []),
            Loop("dispatch", every.dispatch_s, turns.dispatch, wake=state.wakes.dispatch),
            *(
                Loop(f"scheduler-{one.name}", every.observe_s, one.turn, wake=one.wake, end=one.close)
                for one in turns.acting
            ),
            Loop("ledgers", every.ledgers_s, turns.ledgers),
            Loop("models", every.models_s, turns.models),
            Loop("lemons", every.lemons_s, turns.lemons, leased=False),
            Loop("incidents", INCIDENTS_S, turns.incidents, leased=False, wake=state.faults),
            *([Loop("rules", RULES_S, turns.rules)] if state.settings.rules else []),
        ),
    )
