"""A transaction that writes, run again where PostgreSQL ended it for another's sake.

transact(engine, lambda connection: append_events(connection, events, received))
"""

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from store.database import writing

# serialization_failure, deadlock_detected: nothing was written. Source: PostgreSQL 15, appendix A.
_AGAIN = ("40001", "40P01")
TRIES = 4

T = TypeVar("T")


def transact(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    """Run `work` in one transaction; up to four times, while it is only that another one was preferred.

    Raises:
        SQLAlchemyError: anything else that went wrong; nothing was written.
    """
    for left in reversed(range(TRIES)):
        try:
            with writing(engine).begin() as connection:
                return work(connection)
        except DBAPIError as error:
            if not left or getattr(error.orig, "sqlstate", None) not in _AGAIN:
                raise
    raise AssertionError("the last try returns or raises")
