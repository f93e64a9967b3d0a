"""Changes of tables on PostgreSQL that keep nobody waiting: a short wait for the lock, then another try later.

Whoever waits for a lock on a table keeps all who come after waiting too. So no wait is longer than `LOCK_TIMEOUT_MS`.
"""

import random
import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

LOCK_TIMEOUT_MS = 200
PAUSE_S = 0.5
# lock_not_available, deadlock_detected. Source: PostgreSQL 15, appendix A.
_AGAIN = ("55P03", "40P01")


class BusyError(RuntimeError):
    """A table whose lock was not to be had in all tries."""


def briefly(engine: sa.Engine, work: Callable[[sa.Connection], None], tries: int = 5) -> None:
    """Run `work` in one short transaction of its own, again while a lock is not to be had.

    Raises:
        BusyError: it was not to be had in so many tries.
        SQLAlchemyError: anything else that went wrong.
    """
    for number in range(tries):
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
                connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
                work(connection)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _AGAIN:
                raise
        else:
            return
        if number + 1 < tries:
            time.sleep(PAUSE_S * (0.5 + random.random()))  # noqa: S311  # jitter, no secret
    raise BusyError(f"a lock was not to be had in {tries} tries of {LOCK_TIMEOUT_MS} ms: a long transaction holds it")
