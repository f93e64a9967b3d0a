"""Transactions that write: in turn where the database has one writer, again where it ended one for another's sake.

transact(engine, lambda connection: append_events(connection, events, received))
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from store.database import writing

# serialization_failure, deadlock_detected: nothing was written. Source: PostgreSQL 15, appendix A.
_AGAIN = ("40001", "40P01")
TRIES = 4

T = TypeVar("T")

# SQLite has one writer, and who finds it busy sleeps up to a tenth of a second before asking again.
# Within a process the next one is woken at once.
_TURNS: "weakref.WeakKeyDictionary[sa.Dialect, threading.Lock]" = weakref.WeakKeyDictionary()


@contextmanager
def in_turn(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that writes."""
    turn = _TURNS.setdefault(engine.dialect, threading.Lock()) if engine.dialect.name == "sqlite" else nullcontext()
    with turn, writing(engine).begin() as connection:
        yield connection


def transact(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    """Run `work` in one transaction; up to four times, while it is only that another one was preferred.

    Raises:
        SQLAlchemyError: anything else that went wrong; nothing was written.
    """
    for left in reversed(range(TRIES)):
        try:
            with in_turn(engine) as connection:
                return work(connection)
        except DBAPIError as error:
            if not left or getattr(error.orig, "sqlstate", None) not in _AGAIN:
                raise
    raise AssertionError("the last try returns or raises")
