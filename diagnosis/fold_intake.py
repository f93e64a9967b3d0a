"""From the intake to incidents: each fault event is counted once, whoever folds it, and whenever it came.

    while fold_intake(engine):
        ...

Any number of processes may call it on one database; one at a time folds.
"""

import logging
import time
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from diagnosis.incident import is_fault
from diagnosis.incidents_table import update_incidents
from store.database import writing
from store.event import Event
from store.intake import (
    MOST_EVENTS,
    Batch,
    anything_waits,
    oldest_batches,
    read_batches,
    remove_batches,
    set_aside,
    unpack,
)

# Waits of `fold_everything` while another process folds.
_PAUSE_S = 0.1
_MOST_PAUSES = 6_000
# Of advisory locks: "fold".
_LOCK = 0x666F6C64
_log = logging.getLogger(__name__)


def faults_of(events: Iterable[Event]) -> list[Event]:
    """The events that incidents are made of."""
    return [event for event in events if is_fault(event)]


def fold_intake(engine: sa.Engine, most_events: int = MOST_EVENTS) -> int:
    """Fold the oldest rows of the intake into the incidents, in one transaction.

    A row of which no incident can be made is set aside and told of; the others go on.

    Returns how many events were folded; 0 too while another process folds.

    Raises:
        SQLAlchemyError: the database is busy or gone; nothing was folded.
    """
    with engine.connect() as connection:
        if not anything_waits(connection):
            return 0
    batches: list[Batch] = []
    try:
        with writing(engine).begin() as connection:
            if not _alone(connection):
                return 0
            batches = oldest_batches(connection, most_events)
            return _fold(connection, batches)
    except Exception as error:
        if not _is_of_the_rows(error):
            raise
        _log.warning("a fold of %d rows of the intake failed; they are folded one by one", len(batches), exc_info=True)
    return sum(_fold_one(engine, batch) for batch in batches)


def fold_everything(engine: sa.Engine) -> None:
    """Fold until nothing waits, or another process that folds has not ended within ten minutes.

    Raises:
        SQLAlchemyError: the database is busy or gone; what was not folded still waits.
    """
    for _ in range(_MOST_PAUSES):
        while fold_intake(engine):
            pass
        with engine.connect() as connection:
            if not anything_waits(connection):
                return
        time.sleep(_PAUSE_S)


def _fold(connection: sa.Connection, batches: Sequence[Batch]) -> int:
    if not batches:
        return 0
    update_incidents(connection, [event for batch in batches for event in unpack(batch)])
    remove_batches(connection, batches)
    return sum(batch.count for batch in batches)


def _fold_one(engine: sa.Engine, batch: Batch) -> int:
    """Fold one row by itself, or set it aside."""
    try:
        with writing(engine).begin() as connection:
            return _fold(connection, read_batches(connection, [batch.seq])) if _alone(connection) else 0
    except Exception as error:
        if not _is_of_the_rows(error):
            raise
        _log.exception("row %d of the intake, %d events, is in no incident: it is set aside", batch.seq, batch.count)
        with writing(engine).begin() as connection:
            set_aside(connection, batch, f"{type(error).__name__}: {error}")
    return 0


def _alone(connection: sa.Connection) -> bool:
    """Whether no other process folds. SQLite has one writer anyway."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK))))


def _is_of_the_rows(error: Exception) -> bool:
    """Whether what is stored is to blame, and not the database or its schema."""
    return isinstance(error, DataError | IntegrityError) or not isinstance(
        error, SQLAlchemyError | OSError | MemoryError
    )
