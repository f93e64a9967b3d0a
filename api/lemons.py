"""The repair list is kept ready: a background loop of each process makes it anew, requests take what is kept."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from api.reply import dump
from api.state import State
from predictor.lemon_export import report_json
from predictor.lemons import repair_list

# A list that was costly to make is made again only after so many times as long: a twentieth of a processor at most.
REST = 20.0


def made(state: State) -> bytes:
    """The list as of now, as it goes out."""
    with state.engine.connect() as connection:
        report = repair_list(connection, state.clock())
    return dump({**report_json(report), "next_cursor": None})


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
        self.state.lemons.renew(lambda: made(self.state))
        ended = self.monotonic()
        self._due = ended + REST * (ended - began)
