"""The loop of the verdicts: what came in is explained at once, and who waits for it is told."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from api.server.state import State
from diagnosis.verdicts.engine import EngineTurn, HandedOverError, VerdictEngine
from store.database.coordination import VERDICTS, read_marks

# Between two turns, in a flood: so many times as long as the last one took, and no longer than this.
_REST = 0.5
_REST_S = 0.5
_log = logging.getLogger(__name__)


class VerdictTurns:
    """The turns of one server: those of the engine, counted."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._engine = VerdictEngine(state.engine, state.clock)

    def turn(self, keep_on: Callable[[], bool]) -> None:
        """Explain what came in, until nothing waits."""
        while keep_on():
            began = time.perf_counter()
            turned = self._turn()
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
        return replace(turned, changes=tuple(turned.changes))

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
