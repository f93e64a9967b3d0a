"""Turns among callers: each has its own line, and the lines are served in rotation.

    turns = CallerTurns(12)
    await turns.take("gpu-001")       # at once while any is free, else when the rotation comes to this line
    turns.give_back()

Whoever stands in line many times waits for itself: of a hundred bodies of four nodes a fifth node waits for four.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field


class PlaceLostError(Exception):
    """Its place was given to one who had none."""


@dataclass(slots=True)
class CallerTurns:
    """So many at a time. For one event loop."""

    limit: int
    _at_work: int = 0
    _lines: OrderedDict[str, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict)

    @property
    def is_full(self) -> bool:
        """Whether another one has to wait."""
        return self._at_work >= self.limit

    async def take(self, whose: str) -> None:
        """A turn, once it is this line's.

        Raises:
            PlaceLostError: its place was needed.
        """
        if not self.is_full:
            self._at_work += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(whose, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # it came as its taker went
            else:
                self._leave(whose, turn)
            raise

    def give_back(self) -> None:
        """A turn is over: the next line has it."""
        self._at_work -= 1
        while self._lines and not self.is_full:
            whose, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[whose] = line  # behind all others
            if not turn.done():
                self._at_work += 1
                turn.set_result(None)

    def resize(self, limit: int) -> None:
        """From now on so many; those at work end as they are."""
        self.limit = limit
        self._at_work += 1
        self.give_back()

    def crowd_out(self, whose: str) -> bool:
        """Send the last of the longest line away, where that is longer than this one would be; whether it was."""
        longest = max(self._lines, key=lambda name: len(self._lines[name]), default=None)
        if longest is None or len(self._lines[longest]) <= len(self._lines.get(whose, ())) + 1:
            return False
        turn = self._lines[longest].pop()
        if not turn.done():
            turn.set_exception(PlaceLostError())
        return True

    def _leave(self, whose: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(whose)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[whose]
