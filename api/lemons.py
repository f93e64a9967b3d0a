"""The repair list is kept ready: a background loop of each process makes it anew, requests take what is kept."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from api.apart import made_apart
from api.reply import dump
from api.state import State
from predictor.lemon_export import report_json
from predictor.lemons import repair_list
from store import schema

# A list that was costly to make is made again only after so many times as long: a twentieth of a processor at most.
REST = 20.0
# More nodes than this are judged in a process of their own: seconds of arithmetic.
APART = 1_000


def made(state: State) -> bytes:
    """The list as of now, as it goes out."""
    with state.engine.connect() as connection:
        return listed(connection, state.clock())


def listed(connection: sa.Connection, now: datetime) -> bytes:
    """The list as of a moment."""
    return dump({**report_json(repair_list(connection, now)), "next_cursor": None})


def made_beside(state: State) -> bytes:
    """The same as of now, without holding up the requests of a large fleet."""
    with state.engine.connect() as connection:
        nodes = connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0
    if nodes <= APART or state.engine.url.database in (None, "", ":memory:"):
        return made(state)
    return made_apart(listed, state.engine.url, state.clock())


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
        self.state.lemons.renew(lambda: made_beside(self.state))
        ended = self.monotonic()
        self._due = ended + REST * (ended - began)
