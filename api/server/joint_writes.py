"""Requests that write at the same time share a transaction: of five hundred nodes in trouble each sends a few events.

    joint = JointWrites(most_items=5_000, shared=is_away)
    answer = joint.write(items, append)      # `append` is called with these and with those of others that wait
    future = joint.send(items, append)       # the same for who has something else to do meanwhile

Whoever comes while others are written waits, and the next transaction is for all who wait. Nobody is answered before
the commit. An error of one request's items is reported to that request alone.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# While the database takes one transaction's rows another one's are prepared.
_WRITERS = 2
# A writer's thread that finds nothing waits so long for more.
_LINGER_S = 2.0
# More than so many items that wait, and whoever sends more holds back those who would send still more.
_MOST_WAITING = 20_000


@dataclass(slots=True, eq=False)
class _WriteRequest(Generic[T, R]):
    """One request's items, how they are written, and since when they wait."""

    items: Sequence[T]
    work: Callable[[Sequence[T]], R]
    answer: "Future[R]" = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


class JointWrites(Generic[T, R]):
    """Safe for any number of threads.

    Args:
        most_items: of one transaction, unless a single request has more.
        shared: whether an error is everybody's (the database is away) and not of somebody's items.
    """

    def __init__(self, most_items: int, shared: Callable[[BaseException], bool]) -> None:
        self._most_items = most_items
        self._shared = shared
        self._changed = threading.Condition()
        self._waiting: deque[_WriteRequest[T, R]] = deque()
        self._items = 0  # of those that wait
        self._writers = self._idle = 0
        self._wrote_at = float("-inf")  # when a transaction last ended well

    def write(self, items: Sequence[T], work: Callable[[Sequence[T]], R]) -> R:
        """What `work` answers for items among which these are; it is the same for all and stores all or nothing.

        Raises:
            Exception: what `work` raised for these items.
        """
        return self.send(items, work).result()

    def send(self, items: Sequence[T], work: Callable[[Sequence[T]], R]) -> "Future[R]":
        """The same, not waited for. One that is cancelled before its turn is not written."""
        part: _WriteRequest[T, R] = _WriteRequest(items, work)
        with self._changed:
            self._waiting.append(part)
            self._items += len(items)
            if self._idle:
                self._changed.notify()
            elif self._writers < _WRITERS:
                self._writers += 1
                threading.Thread(target=self._run, name="joint-writes", daemon=True).start()
        return part.answer

    def keeps_up(self, within_s: float) -> bool:
        """Whether little waits, and what waits sees a transaction end within so many seconds.

        A server that is overrun goes on to write: whoever holds back then makes its transactions small, and it slower.
        """
        with self._changed:
            late = bool(self._waiting) and time.monotonic() - max(self._waiting[0].since, self._wrote_at) > within_s
            return self._items <= _MOST_WAITING and not late

    def _run(self) -> None:
        """Write what waits, until nothing has come for a while."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._idle += 1
                    self._changed.wait_for(lambda: self._waiting, _LINGER_S)
                    self._idle -= 1
                    if not self._waiting:
                        self._writers -= 1
                        return
                parts = self._next_parts()
            self._write(parts)

    def _next_parts(self) -> list[_WriteRequest[T, R]]:
        """The oldest of those that wait, as many as a transaction holds."""
        taken: list[_WriteRequest[T, R]] = []
        count = 0
        while self._waiting and (not taken or count + len(self._waiting[0].items) <= self._most_items):
            part = self._waiting.popleft()
            self._items -= len(part.items)
            if part.answer.set_running_or_notify_cancel():
                count += len(part.items)
                taken.append(part)
        return taken

    def _write(self, parts: Sequence[_WriteRequest[T, R]]) -> None:
        if not parts:
            return
        try:
            answer = parts[0].work([item for part in parts for item in part.items])
        except BaseException as error:  # noqa: BLE001  # it is told to those whose items they were
            if len(parts) > 1 and isinstance(error, Exception) and not self._shared(error):
                for part in parts:
                    self._write([part])
                return
            for part in parts:
                part.answer.set_exception(error)
        else:
            self._wrote_at = time.monotonic()
            for part in parts:
                part.answer.set_result(answer)
