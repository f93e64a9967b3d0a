"""The loop of the verdicts: what came in is explained at once, and who waits for it is told.

The engine of a small fleet is in this process, of a large one beside, where it holds up no request. The process beside
ends with this one: when the pipe between them does. What it was about to write then waits in the store, and whoever
comes next reads all anew. It asks for each write: SQLite has one writer, and writers of a process take turns
(`write_turn`), while another process's would find its moment by luck alone.
"""

import gc
import logging
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import orjson
import sqlalchemy as sa

from api.answers.reply import dump
from api.loops.large_fleet import is_large
from api.server.state import State
from diagnosis.verdicts.engine import HandedOverError, VerdictEngine
from diagnosis.verdicts.stake import with_stakes_now
from schedulers.reconcile.delivery import verdict_delivery
from schedulers.webhooks.formats.alertmanager import FIRES_FOR
from schedulers.webhooks.webhook import takes_verdicts
from store.database.connections import open_database, write_turn, writing
from store.database.coordination import VERDICTS, read_marks
from store.events.incident_thread import silenced_until
from store.hints.outbox import queue_deliveries
from store.records.verdict import Verdict, VerdictState
from store.verdicts.verdict_log import VerdictChange, open_verdicts
from wire.verdicts import verdict_object

# Between two turns, in a flood: so many times as long as the last one took, and no longer than this.
_REST = 0.5
_REST_S = 0.5
# Hints look at all nodes each time: in a storm they are brought up to the verdicts so often.
_POLICY_S = 2.0
# Alerts of Alertmanager end by themselves after an hour.
_RENEW = FIRES_FOR / 4
# Records have no cycles: see `foreshock serve`.
GC_AFTER = (50_000, 20, 100)
_MAY_WRITE = "may write"
# The first turn of a large fleet reads its graph; a write holds up those of this process.
_TURN_S, _WRITE_S = 600.0, 60.0
_log = logging.getLogger(__name__)


class EngineProcessError(RuntimeError):
    """A turn beside failed, or the process ended: the next turn goes on, or begins anew."""


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What a turn came to: events folded, the states of the verdicts that changed, since when the oldest waited."""

    events: int = 0
    states: tuple[VerdictState, ...] = ()
    oldest: datetime | None = None
    symptoms: int = 0


def plain(verdict: Verdict) -> dict[str, Any]:
    """The JSON object of a verdict, its times as text."""
    found: dict[str, Any] = orjson.loads(dump(verdict_object(verdict, rank=0)))
    return found


class LocalEngine:
    """The engine in this process. `may_write` is entered for each write."""

    def __init__(self, engine: sa.Engine, may_write: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._receivers: Sequence[str] = ()
        self._engine = VerdictEngine(engine, self._clock, self._owe, may_write)

    def turn(self, now: datetime, receivers: Sequence[str]) -> TurnReport:
        """One turn as of a moment. Raises as `VerdictEngine.turn`, but for what another process has."""
        self._now, self._receivers = now, receivers
        try:
            turned = self._engine.turn()
        except HandedOverError as error:
            _log.warning("verdicts: %s", error)
            return TurnReport()
        states = tuple(change.verdict.state for change in turned.changes)
        return TurnReport(turned.events, states, turned.oldest, self._engine.symptoms)

    def end(self) -> None:
        """Nothing: it ends with this process."""

    def _clock(self) -> datetime:
        return self._now

    def _owe(self, connection: sa.Connection, changes: Sequence[VerdictChange], now: datetime) -> None:
        """What each receiver of verdicts is to be told, beside the verdicts themselves: nothing is lost on the way."""
        if self._receivers:
            told = [(plain(change.verdict), change.what) for change in changes]
            owed = [verdict_delivery(*one, receiver, now) for one in told for receiver in self._receivers]
            queue_deliveries(connection, owed)


class EngineBeside:
    """The engine in a process of its own, for one thread."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        given = (theirs, engine.url.render_as_string(hide_password=False))
        self.process = context.Process(target=_serve, args=given, daemon=True, name="verdicts")
        self.process.start()
        theirs.close()  # so that the end of the process is the end of what comes

    def turn(self, now: datetime, receivers: Sequence[str]) -> TurnReport:
        """One turn as of a moment.

        Raises:
            EngineProcessError: the turn failed there, or the process is gone.
        """
        try:
            self._pipe.send((now, tuple(receivers)))
            while (answer := self._receive(_TURN_S)) == _MAY_WRITE:
                with write_turn(self._engine):
                    self._pipe.send(_MAY_WRITE)
                    self._receive(_WRITE_S)  # it is written, or will not be
        except (EOFError, OSError) as error:
            self.end()
            raise EngineProcessError(f"the process of the verdicts ended ({self.process.exitcode})") from error
        if isinstance(answer, TurnReport):
            return answer
        raise EngineProcessError(f"a turn of the verdicts failed in their process: {answer}")

    def _receive(self, within_s: float) -> object:
        """What it says next: one that stands still holds up nobody for ever."""
        if not self._pipe.poll(within_s):
            raise TimeoutError(f"no answer in {within_s:.0f} s")
        return self._pipe.recv()

    def end(self) -> None:
        """End it, also where it stands still."""
        self._pipe.close()
        self.process.kill()
        self.process.join()

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._pipe.closed and self.process.is_alive()


def _serve(pipe: Connection, url: str) -> None:
    """Take a turn whenever a moment comes, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, and its end is ours
    gc.set_threshold(*GC_AFTER)
    database = open_database(url)
    engine = LocalEngine(database, partial(_lent_write, pipe))
    try:
        while True:
            now, receivers = pipe.recv()
            try:
                pipe.send(engine.turn(now, receivers))
            except (EOFError, BrokenPipeError):
                raise
            except Exception:  # noqa: BLE001  # whatever it meets is told; the next turn comes
                pipe.send(traceback.format_exc())
    except (EOFError, BrokenPipeError):
        database.dispose()


@contextmanager
def _lent_write(pipe: Connection) -> Iterator[None]:
    """A write that the other process lends its turn for."""
    pipe.send(_MAY_WRITE)
    pipe.recv()
    try:
        yield
    finally:
        pipe.send("over")


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
            self._count(turned, took)
            if turned.events == 0:
                return
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
        if is_large(engine):
            self._engine = EngineBeside(engine)
        elif not isinstance(self._engine, LocalEngine):
            self._engine = LocalEngine(engine)
        return self._engine

    def _renew(self) -> None:
        """Tell every Alertmanager of what stands once more: one that was started anew knows of nothing.

        Of what a person has silenced it is told again when the silence is over.
        """
        now = self._state.clock()
        receivers = [one.name for one in self._state.settings.webhooks if one.format == "alertmanager"]
        if not receivers or (self._renewed is not None and now - self._renewed < _RENEW):
            return
        self._renewed = now
        mark = f"~{int(now.timestamp())}"
        with writing(self._state.engine).begin() as connection:
            loud = [one for one in open_verdicts(connection) if silenced_until(connection, one, now) is None]
            standing = [plain(one) for one in with_stakes_now(connection, loud, now)]
            again = [verdict_delivery(one, "it stands", name, now, mark) for one in standing for name in receivers]
            queue_deliveries(connection, again)

    def _count(self, turned: TurnReport, took: float) -> None:
        metrics = self._state.metrics
        if turned.events:
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
