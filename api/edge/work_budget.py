"""What one request may cost: how many records, how much processor; and that nobody works on once it is answered.

    for entry in worked(records(body)): ...       # Problem 413 once the work is too much, 503 once it is too late

A thread cannot be interrupted. So what works on a body looks up between its records, and stops by itself: the slot and
the thread are free again one record after the answer, whatever the body is made of.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from api.edge.problem import Problem

# Of one body. Real events have 150 bytes and more, so that a body of 32 MiB has fewer.
MOST_RECORDS = 250_000
# Plain lines, most of which say nothing, are cheaper.
MOST_LINES = 1_000_000
# Objects and lists: an event is three at most, a roll-up has one of each device and measure.
MOST_CONTAINERS = 2_000_000
# Each host's lines have a parser of their own.
MOST_HOSTS = 20_000

T = TypeVar("T")
_LOOK_EVERY = 64


@dataclass(slots=True)
class WorkBudget:
    """One request's: the processor seconds that its threads may spend on records, and whether it was answered."""

    limit_s: float  # 0: no limit
    spent_s: float = 0.0
    answered: bool = False

    def check(self) -> None:
        """Go on only while the work is wanted and not too much.

        Raises:
            Problem: 503, it was answered meanwhile; 413, it took too much.
        """
        if self.answered:
            raise Problem(503, "the answer was given without this: what is sent again is taken")
        if self.limit_s and self.spent_s > self.limit_s:
            detail = f"the body takes more than {self.limit_s:g} s of processor time: send it in parts"
            raise Problem(413, detail)


_current: ContextVar[WorkBudget | None] = ContextVar("work_budget", default=None)


@contextmanager
def working(budget: WorkBudget) -> Iterator[None]:
    """Everything in the block, and in the threads and tasks that it starts, is under a budget."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """What is small is not counted: to ask for a thread's time is to give up the processor, as profiles show."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def worked(items: Iterable[T]) -> Iterator[T]:
    """The same items; all that is done from one to the next, in this thread, is counted. Not one within another.

    Raises:
        Problem: as of `WorkBudget.check`.
    """
    budget = _current.get()
    if budget is None:
        yield from items
        return
    began, before = time.thread_time(), budget.spent_s
    left = 1  # the first is looked at, too: an earlier step may have spent all
    for item in items:
        left -= 1
        if not left:
            left = _LOOK_EVERY
            budget.spent_s = before + time.thread_time() - began
            budget.check()
        yield item
    budget.spent_s = before + time.thread_time() - began


@contextmanager
def counted() -> Iterator[Callable[[], None]]:
    """A block whose work in this thread is counted: what it gives is called between two steps. Not within `worked`.

    Raises:
        Problem: as of `WorkBudget.check`, at once and by each call.
    """
    budget = _current.get()
    if budget is None:
        yield _unbounded
        return
    began, before = time.thread_time(), budget.spent_s

    def look() -> None:
        budget.spent_s = before + time.thread_time() - began
        budget.check()

    look()
    yield look
    budget.spent_s = before + time.thread_time() - began


def _unbounded() -> None:
    """Without a budget there is nothing to look at."""


def check_lines(body: bytes) -> None:
    """Refuse a body of too many lines before it is taken apart.

    Raises:
        Problem: 413.
    """
    if len(body) > MOST_LINES and (count := body.count(b"\n")) > MOST_LINES:
        raise Problem(413, f"the body has {count} lines, {MOST_LINES} are the most: send it in parts")


def check_containers(body: bytes) -> None:
    """Refuse JSON that would fill the memory once it is decoded: an empty list has two bytes there, and 64 here.

    Raises:
        Problem: 413.
    """
    if len(body) > MOST_CONTAINERS and (count := body.count(b"{") + body.count(b"[")) > MOST_CONTAINERS:
        raise Problem(413, f"the body has {count} objects and lists, {MOST_CONTAINERS} are the most: send it in parts")


def limited(entries: Iterable[T]) -> Iterator[T]:
    """The records of a body, worked on under the budget of its request.

    Raises:
        Problem: 413, there are more than MOST_RECORDS; else as of `worked`.
    """
    for number, entry in enumerate(worked(entries)):
        if number >= MOST_RECORDS:
            raise too_many_records()
        yield entry


def too_many_records() -> Problem:
    """What a body of more than MOST_RECORDS is answered."""
    return Problem(413, f"the body has more than {MOST_RECORDS} records: send it in parts")
