"""The loop of the verdicts: what came in is explained at once, and who waits for it is told."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson
import sqlalchemy as sa

from api.answers.reply import dump
from api.server.state import State
from diagnosis.verdicts.engine import EngineTurn, HandedOverError, VerdictEngine
from schedulers.reconcile.delivery import verdict_delivery
from schedulers.webhooks.formats.alertmanager import FIRES_FOR
from schedulers.webhooks.webhook import takes_verdicts
from store.database.connections import writing
from store.database.coordination import VERDICTS, read_marks
from store.hints.outbox import queue_deliveries
from store.records.verdict import Verdict
from store.verdicts.verdict_log import VerdictChange, open_verdicts
from wire.verdicts import verdict_object

# Between two turns, in a flood: so many times as long as the last one took, and no longer than this.
_REST = 0.5
_REST_S = 0.5
# Hints look at all nodes each time: in a storm they are brought up to the verdicts so often.
_POLICY_S = 2.0
# Alerts of Alertmanager end by themselves after an hour.
_RENEW = FIRES_FOR / 4
_log = logging.getLogger(__name__)


def _plain(verdict: Verdict) -> dict[str, Any]:
    """The JSON object of a verdict, its times as text."""
    found: dict[str, Any] = orjson.loads(dump(verdict_object(verdict, rank=0)))
    return found


class VerdictTurns:
    """The turns of one server: those of the engine, counted."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._engine = VerdictEngine(state.engine, state.clock, self._owe)
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

    def _turn(self) -> EngineTurn:
        try:
            turned = self._engine.turn()
        except HandedOverError as error:
            _log.warning("verdicts: %s", error)
            return EngineTurn()
        if turned.changes:
            self._state.wakes.changed_verdicts()
            self._for_policy = True
        if self._for_policy and time.monotonic() - self._woken >= _POLICY_S:
            self._for_policy, self._woken = False, time.monotonic()
            self._state.wakes.policy.set()
        return replace(turned, changes=tuple(turned.changes))

    def _owe(self, connection: sa.Connection, changes: Sequence[VerdictChange], now: datetime) -> None:
        """What each receiver of verdicts is to be told, beside the verdicts themselves: nothing is lost on the way."""
        receivers = [one.name for one in self._state.settings.webhooks if takes_verdicts(one)]
        if receivers:
            told = [(_plain(change.verdict), change.what) for change in changes]
            owed = [verdict_delivery(*one, receiver, now) for one in told for receiver in receivers]
            queue_deliveries(connection, owed)

    def _renew(self) -> None:
        """Tell every Alertmanager of what stands once more: one that was started anew knows of nothing."""
        now = self._state.clock()
        receivers = [one.name for one in self._state.settings.webhooks if one.format == "alertmanager"]
        if not receivers or (self._renewed is not None and now - self._renewed < _RENEW):
            return
        self._renewed = now
        mark = f"~{int(now.timestamp())}"
        with writing(self._state.engine).begin() as connection:
            standing = [_plain(one) for one in open_verdicts(connection)]
            again = [verdict_delivery(one, "it stands", name, now, mark) for one in standing for name in receivers]
            queue_deliveries(connection, again)

    def _count(self, turned: EngineTurn, took: float) -> None:
        metrics = self._state.metrics
        metrics.explained.inc(turned.events)
        metrics.explain_seconds.observe(took)
        metrics.symptoms.set(self._engine.symptoms)
        if turned.oldest is not None:
            waited_s = max(0.0, (self._state.clock() - turned.oldest).total_seconds())
            for change in turned.changes:
                metrics.verdict_changes.labels(change.verdict.state).inc()
                metrics.verdict_seconds.observe(waited_s)


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
