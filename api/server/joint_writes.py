"""Requests that write at the same time share a transaction: of five hundred nodes in trouble each sends a few events.

    joint = JointWrites(most_items=5_000, shared=is_away)
    answer = joint.write(items, append)      # `append` is called with these and with those of others that wait

The first that comes writes; whoever comes meanwhile waits, and the next one writes for all of them. Nobody is answered
before the commit. An error of one request's items is reported to that request alone.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# While the database takes one transaction's rows another one's are prepared.
_WRITERS = 2


@dataclass(slots=True, eq=False)
class _WriteRequest(Generic[T, R]):
    """One request's items, and what came of them once `written` is set."""

    items: Sequence[T]
    written: threading.Event = field(default_factory=threading.Event)
    taken: bool = False
    answers: tuple[R, ...] = ()
    error: BaseException | None = None


class JointWrites(Generic[T, R]):
    """Safe for any number of threads.

    Args:
        most_items: of one transaction, unless a single request has more.
        shared: whether an error is everybody's (the database is away) and not of somebody's items.
    """

    def __init__(self, most_items: int, shared: Callable[[BaseException], bool]) -> None:
        self._most_items = most_items
        self._shared = shared
        self._writers = threading.Semaphore(_WRITERS)
        self._lock = threading.Lock()
        self._waiting: deque[_WriteRequest[T, R]] = deque()

    def write(self, items: Sequence[T], work: Callable[[Sequence[T]], R]) -> R:
        """What `work` answers for items among which these are; it is the same for all and stores all or nothing.

        Raises:
            Exception: what `work` raised for these items.
        """
        part: _WriteRequest[T, R] = _WriteRequest(items)
        with self._lock:
            self._waiting.append(part)
        with self._writers:
            self._write(self._taken(part), work)
        part.written.wait()
        if part.error is not None:
            raise part.error
        return part.answers[0]

    def _taken(self, own: _WriteRequest[T, R]) -> list[_WriteRequest[T, R]]:
        """This request's part and the oldest of the others that wait; nothing where another writer has it."""
        with self._lock:
            if own.taken:
                return []
            self._waiting.remove(own)
            taken, count = [own], len(own.items)
            while self._waiting and count + len(self._waiting[0].items) <= self._most_items:
                count += len(self._waiting[0].items)
                taken.append(self._waiting.popleft())
            for part in taken:
                part.taken = True
            return taken

    def _write(self, parts: Sequence[_WriteRequest[T, R]], work: Callable[[Sequence[T]], R]) -> None:
        if not parts:
            return
        try:
            answers = (work([item for part in parts for item in part.items]),)
        except BaseException as error:
            if len(parts) > 1 and isinstance(error, Exception) and not self._shared(error):
                for part in parts:
                    self._write([part], work)
                return
            _answer_all(parts, error=error)
            if not isinstance(error, Exception):
                raise
        else:
            _answer_all(parts, answers)


def _answer_all(
    parts: Sequence[_WriteRequest[T, R]], answers: tuple[R, ...] = (), error: BaseException | None = None
) -> None:
    for part in parts:
        part.answers, part.error = answers, error
        part.written.set()
