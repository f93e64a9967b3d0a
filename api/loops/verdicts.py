"""The loop of the verdicts: what came in is explained at once, and who waits for it is told."""

import time
from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa

from api.loops.scoring import APART_FROM
from api.loops.verdict_process import EngineBeside, LocalEngine, TurnReport, plain
from api.server.state import State
from schedulers.reconcile.delivery import verdict_delivery
from schedulers.webhooks.formats.alertmanager import FIRES_FOR
from schedulers.webhooks.webhook import takes_verdicts
from store.database.connections import writing
from store.database.coordination import VERDICTS, read_marks
from store.hints.outbox import queue_deliveries
from store.tables import schema
from store.verdicts.verdict_log import open_verdicts

# Between two turns, in a flood: so many times as long as the last one took, and no longer than this.
_REST = 0.5
_REST_S = 0.5
# Hints look at all nodes each time: in a storm they are brought up to the verdicts so often.
_POLICY_S = 2.0
# Alerts of Alertmanager end by themselves after an hour.
_RENEW = FIRES_FOR / 4


class VerdictTurns:
    """The turns of one server: those of the engine, counted."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._engine: LocalEngine | EngineBeside | None = None
        self._renewed: datetime | None = None
        self._for_policy = False
        self._woken = float("-inf")

    def turn(self, keep_on: Callable[[], bool]) -> None:
        """Explain what came in, until nothing waits."""
        while keep_on():
            began = time.perf_counter()
            turned = self._turn()
            self._renew()
            took = time.perf_counter() - began
            if turned.events == 0:
                return
            self._count(turned, took)
            time.sleep(min(_REST * took, _REST_S))

    def end(self) -> None:
        """No turn comes any more."""
        if self._engine is not None:
            self._engine.end()

    def _turn(self) -> TurnReport:
        receivers = [one.name for one in self._state.settings.webhooks if takes_verdicts(one)]
        turned = self._at_work().turn(self._state.clock(), receivers)
        if turned.states:
            self._state.wakes.changed_verdicts()
            self._for_policy = True
        if self._for_policy and time.monotonic() - self._woken >= _POLICY_S:
            self._for_policy, self._woken = False, time.monotonic()
            self._state.wakes.policy.set()
        return turned

    def _at_work(self) -> LocalEngine | EngineBeside:
        """The engine: beside, once the fleet is large; of memory nobody else can read."""
        engine = self._state.engine
        if isinstance(self._engine, EngineBeside) and self._engine.is_alive():
            return self._engine
        with engine.connect() as connection:
            nodes = connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0
        if nodes >= APART_FROM and engine.url.database not in (None, "", ":memory:"):
            self._engine = EngineBeside(engine)
        elif not isinstance(self._engine, LocalEngine):
            self._engine = LocalEngine(engine)
        return self._engine

    def _renew(self) -> None:
        """Tell every Alertmanager of what stands once more: one that was started anew knows of nothing."""
        now = self._state.clock()
        receivers = [one.name for one in self._state.settings.webhooks if one.format == "alertmanager"]
        if not receivers or (self._renewed is not None and now - self._renewed < _RENEW):
            return
        self._renewed = now
        mark = f"~{int(now.timestamp())}"
        with writing(self._state.engine).begin() as connection:
            standing = [plain(one) for one in open_verdicts(connection)]
            again = [verdict_delivery(one, "it stands", name, now, mark) for one in standing for name in receivers]
            queue_deliveries(connection, again)

    def _count(self, turned: TurnReport, took: float) -> None:
        metrics = self._state.metrics
        metrics.explained.inc(turned.events)
        metrics.explain_seconds.observe(took)
        metrics.symptoms.set(turned.symptoms)
        for state in turned.states:
            metrics.verdict_changes.labels(state).inc()
            if turned.oldest is not None:  # else nothing new led to it, but time
                metrics.verdict_seconds.observe(max(0.0, (self._state.clock() - turned.oldest).total_seconds()))


class VerdictStream:
    """Wakes this process's listeners, whichever process writes the verdicts."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._mark = 0

    def turn(self) -> None:
        """Look whether verdicts have changed, where anybody listens."""
        if not len(self._state.feed):
            return
        with self._state.engine.connect() as connection:
            mark = read_marks(connection).get(VERDICTS, 0)
        if mark != self._mark:
            self._mark = mark
            self._state.feed.wake()
