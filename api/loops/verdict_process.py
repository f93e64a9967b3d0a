"""The engine of the verdicts: of a small fleet in this process, of a large one beside, where it holds up no request.

    engine = LocalEngine(database)                  # or EngineBeside(database)
    told = engine.turn(now, receivers)             # what it came to; `receivers` are owed each change

The process beside ends with this one: when the pipe between them does. What it was about to write then waits in the
store, and whoever comes next reads all anew. It asks for each write: SQLite has one writer, and writers of a process
take turns (`write_turn`), while another process's would find its moment by luck alone.
"""

import gc
import logging
import multiprocessing
import signal
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
from diagnosis.verdicts.engine import HandedOverError, VerdictEngine
from schedulers.reconcile.delivery import verdict_delivery
from store.database.connections import open_database, write_turn
from store.hints.outbox import queue_deliveries
from store.records.verdict import Verdict, VerdictState
from store.verdicts.verdict_log import VerdictChange
from wire.verdicts import verdict_object

# Records have no cycles: see `foreshock serve`.
_GC_AFTER = (50_000, 20, 100)
_MAY_WRITE = "may write"
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
            while (answer := self._pipe.recv()) == _MAY_WRITE:
                with write_turn(self._engine):
                    self._pipe.send(_MAY_WRITE)
                    self._pipe.recv()  # it is written, or will not be
        except (EOFError, OSError) as error:
            self.end()
            raise EngineProcessError(f"the process of the verdicts ended ({self.process.exitcode})") from error
        if isinstance(answer, TurnReport):
            return answer
        raise EngineProcessError(f"a turn of the verdicts failed in their process: {answer}")

    def end(self) -> None:
        """End it."""
        self._pipe.close()
        self.process.terminate()
        self.process.join()

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._pipe.closed and self.process.is_alive()


def _serve(pipe: Connection, url: str) -> None:
    """Take a turn whenever a moment comes, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, and its end is ours
    gc.set_threshold(*_GC_AFTER)
    database = open_database(url)
    engine = LocalEngine(database, partial(_asked, pipe))
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
def _asked(pipe: Connection) -> Iterator[None]:
    """A write that the other process lends its turn for."""
    pipe.send(_MAY_WRITE)
    pipe.recv()
    try:
        yield
    finally:
        pipe.send("over")
