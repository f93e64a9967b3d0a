"""Scoring: of a small fleet here; of a large one in a process beside, whose arithmetic holds up no request.

    scorer = FleetScorer(engine)
    scorer.score(now)      # how many scores were saved

The process keeps the history from one scoring to the next. It ends with this one: when the pipe between them does.
"""

import multiprocessing
import os
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import sqlalchemy as sa

from api.loops.large_fleet import APART_FROM, is_large
from predictor.live.scoring import Scorer
from predictor.model.forest import ModelError
from store.database.connections import open_database

_NICE = 5
# The first scoring of a large fleet reads 28 days.
_DEADLINE_S = 1800.0


class LostError(ModelError):
    """The process beside ended, or did not answer."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """A process that scores, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def score(self, at: datetime) -> int:
        """Ask it, and wait.

        Raises:
            ModelError: it said why it could not.
            LostError: it ended, or took half an hour.
        """
        try:
            self.pipe.send(at)
            if not self.pipe.poll(_DEADLINE_S):
                raise LostError(f"the process that scores the fleet gave no answer in {_DEADLINE_S:.0f} s")
            answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise LostError(f"the process that scores the fleet ended with status {self.end()}") from error
        if isinstance(answer, int):
            return answer
        raise ModelError(answer)

    def end(self) -> int | None:
        """End it. Returns its status."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()
        return self.process.exitcode


class FleetScorer:
    """Scores the fleet again and again, for one thread."""

    def __init__(self, engine: sa.Engine, apart_from: int = APART_FROM) -> None:
        self._engine = engine
        self._apart_from = apart_from
        self._here: Scorer | None = None
        self._beside: _Beside | None = None

    def score(self, at: datetime) -> int:
        """Score every node and save the scores. Returns how many there are.

        Raises:
            ModelError: there is no model, it cannot be used, or the process beside was lost: the next call begins anew.
        """
        if not is_large(self._engine, self._apart_from):
            self._here = self._here or Scorer(self._engine)
            return self._here.score(at)
        self._here, self._beside = None, self._beside or _begin(self._engine.url)
        try:
            return self._beside.score(at)
        except LostError:
            self._beside.end()
            self._beside = None
            raise


def _begin(url: sa.URL) -> _Beside:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    given = (theirs, url.render_as_string(hide_password=False))
    process = context.Process(target=_serve, args=given, daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of what comes
    return _Beside(process, ours)


def _serve(pipe: Connection, url: str) -> None:
    """Score whenever a moment comes, until the pipe ends."""
    os.nice(_NICE)
    engine = open_database(url)
    scorer = Scorer(engine)
    try:
        while True:
            at = pipe.recv()
            try:
                pipe.send(scorer.score(at))
            except (ModelError, sa.exc.SQLAlchemyError) as error:
                pipe.send(str(error))
    except EOFError:
        engine.dispose()
