"""The repair list is kept ready: a background loop of each process makes it anew, requests take what is kept."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection

import sqlalchemy as sa

from api.answers.reply import dump
from api.server.state import State
from predictor.repair.export import report_json
from predictor.repair.lemons import repair_list
from store.database.connections import open_database
from store.tables import schema

# An answer that takes seconds of arithmetic, made in a process of its own: here it would hold up every request.
#
# body = answer_by_subprocess(listed, engine.url, now)
#
# As `goodput/stored/computation.py` does it for the ledgers of long runs.

_NICE = 10
Make = Callable[[sa.Connection, datetime], bytes]


class SubprocessAnswerError(RuntimeError):
    """The process ended without an answer; its own words are on standard error."""


def answer_by_subprocess(make: Make, url: sa.URL, now: datetime) -> bytes:
    """What a function of a module makes of the database of a URL, as of a moment.

    The process ends with this one.

    Raises:
        SubprocessAnswerError: it made nothing.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    given = (sender, make, url.render_as_string(hide_password=False), now)
    process = context.Process(target=_send, args=given, daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of what comes
    try:
        return receiver.recv_bytes()
    except EOFError:
        raise SubprocessAnswerError(f"the process that was to make {make.__name__!r} ended without it") from None
    finally:
        receiver.close()
        process.join()


def _send(sender: Connection, make: Make, url: str, now: datetime) -> None:
    os.nice(_NICE)
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            sender.send_bytes(make(connection, now))
    finally:
        engine.dispose()
        sender.close()


# A list that was costly to make is made again only after so many times as long: a twentieth of a processor at most.
REST = 20.0
# More nodes than this are judged in a process of their own: seconds of arithmetic.
APART = 1_000


def repair_list_answer(state: State) -> bytes:
    """The list as of now, as it goes out."""
    with state.engine.connect() as connection:
        return listed(connection, state.clock())


def listed(connection: sa.Connection, now: datetime) -> bytes:
    """The list as of a moment."""
    return dump({**report_json(repair_list(connection, now)), "next_cursor": None})


def repair_list_by_subprocess(state: State) -> bytes:
    """The same as of now, without holding up the requests of a large fleet."""
    with state.engine.connect() as connection:
        nodes = connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0
    if nodes <= APART or state.engine.url.database in (None, "", ":memory:"):
        return repair_list_answer(state)
    return answer_by_subprocess(listed, state.engine.url, state.clock())


@dataclass(slots=True)
class LemonTurns:
    """The loop's turns, and when the next one may be."""

    state: State
    monotonic: Callable[[], float] = time.monotonic
    _due: float = float("-inf")

    def turn(self) -> None:
        """Make the list anew, unless the last one was made too short a while ago for what it cost."""
        began = self.monotonic()
        if began < self._due:
            return
        self.state.lemons.renew(lambda: repair_list_by_subprocess(self.state))
        ended = self.monotonic()
        self._due = ended + REST * (ended - began)
