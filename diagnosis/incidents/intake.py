"""Into the intake, and from there to incidents: each fault event is counted once, whoever folds it, whenever it came.

    with writing(engine).begin() as connection:
        taken = append_events(connection, events, received=now)
        put_faults(connection, taken.new, received=now)
    while fold_intake(engine):
        ...

A batch is folded as far as it goes when it comes in: of a flood, each row of the intake holds a few faults.
Any number of processes may call it on one database; one at a time folds.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from diagnosis.incidents.incident import (
    FaultError,
    FaultSummary,
    decode_faults,
    encode_faults,
    faults_of,
    split_faults,
)
from diagnosis.incidents.incidents_table import merge_faults
from diagnosis.verdicts.news import put_symptoms
from store.database.connections import in_turn, is_of_the_rows, writing
from store.database.coordination import FAULTS, move_mark
from store.events.append import append_events
from store.events.incident_intake import (
    MOST_EVENTS,
    IntakeBatch,
    IntakeError,
    add_intake,
    anything_waits,
    oldest_batches,
    pack,
    read_batches,
    remove_batches,
    set_aside,
    unpack,
)
from store.records.event import Event
from store.records.incident import Incident

# Waits of `fold_everything` while another process folds.
_PAUSE_S = 0.1
_MOST_PAUSES = 6_000
# Of advisory locks: "fold".
_LOCK = 0x666F6C64
# What somebody may want to act upon at once.
_GRAVE = ("error", "fatal")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _FoldResult:
    """How many events, and whether grave ones were among them."""

    events: int
    is_grave: bool


_NOTHING = _FoldResult(0, False)


def put_faults(connection: sa.Connection, events: Sequence[Event], received: datetime) -> int:
    """Keep the fault events among new ones, all with a time, for the incidents to come; returns how many they are.

    What may be a symptom is kept for the verdicts as well.
    """
    put_symptoms(connection, events, received)
    faults = faults_of(events, in_parts=True)
    count = sum(fault.count for fault in faults)
    if count:
        add_intake(connection, encode_faults(faults), count, received)
    return count


def note_found(engine: sa.Engine, watch: Callable[[sa.Connection], Sequence[Event]], now: datetime) -> int:
    """Store what a watch over stored records finds, for the incidents and verdicts to come; returns how much is new.

    It is found again until it is over: events of one id are stored once.
    """
    with engine.connect() as connection:
        found = watch(connection)
    return keep_found(engine, found, now)


def keep_found(engine: sa.Engine, found: Sequence[Event], now: datetime) -> int:
    """Store events that the server made itself, for the incidents and verdicts to come; returns how many are new."""
    if not found:
        return 0
    with writing(engine).begin() as connection:
        new = append_events(connection, found, received=now, note_nodes=False).new
        put_faults(connection, new, received=now)
    return len(new)


def fold_intake(engine: sa.Engine, most_events: int = MOST_EVENTS, on_grave: Callable[[], None] = lambda: None) -> int:
    """Fold the oldest rows of the intake into the incidents, in one transaction.

    A row of which no incident can be made is set aside and told of; the others go on. `on_grave` is called once errors
    or fatal faults are in the incidents, for who acts on those; other processes see it by the mark `faults`.

    Returns how many events were folded; 0 too while another process folds.

    Raises:
        SQLAlchemyError: the database is busy or gone; nothing was folded.
    """
    with engine.connect() as connection:
        if not anything_waits(connection):
            return 0
    batches: list[IntakeBatch] = []
    try:
        with in_turn(engine) as connection:
            if not _alone(connection):
                return 0
            batches = oldest_batches(connection, most_events)
            folded = _fold(connection, batches)
    except Exception as error:
        if not is_of_the_rows(error):
            raise
        _log.warning("a fold of %d rows of the intake failed; they are folded one by one", len(batches), exc_info=True)
        folds = [_fold_one(engine, batch) for batch in batches]
        folded = _FoldResult(sum(fold.events for fold in folds), any(fold.is_grave for fold in folds))
    if folded.is_grave:
        on_grave()
    return folded.events


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


def _fold(connection: sa.Connection, batches: Sequence[IntakeBatch]) -> _FoldResult:
    if not batches:
        return _NOTHING
    changed = merge_faults(connection, [fault for batch in batches for fault in _faults(batch)])
    remove_batches(connection, batches)
    return _folded(connection, sum(batch.count for batch in batches), changed)


def _folded(connection: sa.Connection, events: int, changed: Sequence[Incident]) -> _FoldResult:
    is_grave = any(incident.severity in _GRAVE for incident in changed)
    if is_grave:
        move_mark(connection, FAULTS)
    return _FoldResult(events, is_grave)


def _faults(batch: IntakeBatch) -> list[FaultSummary]:
    faults = decode_faults(unpack(batch))
    count = sum(fault.count for fault in faults)
    if count != batch.count:
        raise IntakeError(f"row {batch.seq} of the intake counts {count} events, not {batch.count}")
    return faults


def _fold_one(engine: sa.Engine, batch: IntakeBatch) -> _FoldResult:
    """Fold one row by itself, or what can be folded of it."""
    try:
        with in_turn(engine) as connection:
            return _fold(connection, read_batches(connection, [batch.seq])) if _alone(connection) else _NOTHING
    except Exception as error:
        if not is_of_the_rows(error):
            raise
        _log.warning("row %d of the intake failed; its faults are folded one by one", batch.seq, exc_info=True)
        with in_turn(engine) as connection:
            if not _alone(connection):
                return _NOTHING
            # Read again: another process may have had it meanwhile.
            parts = [_fold_apart(connection, left, error) for left in read_batches(connection, [batch.seq])]
    return parts[0] if parts else _NOTHING


def _fold_apart(connection: sa.Connection, batch: IntakeBatch, error: Exception) -> _FoldResult:
    """Fold a row's faults each by itself; those of which no incident can be made are set aside.

    A row holds what several nodes told in the same moment: none of them loses its incident by another's. A row that is
    damaged as a whole is set aside as it is.
    """
    try:
        faults = [] if isinstance(error, IntakeError) else split_faults(unpack(batch))
    except FaultError:
        faults = []
    broken, count, changed = [], 0, list[Incident]()
    for text in faults:
        try:
            with connection.begin_nested():
                fault = decode_faults(text)
                changed += merge_faults(connection, fault)
                count += sum(one.count for one in fault)
        except Exception as why:
            if not is_of_the_rows(why):
                raise
            broken.append(text[1:-1])
            error = why
    if faults and not broken:
        remove_batches(connection, [batch])
        return _folded(connection, count, changed)
    if broken:
        batch = replace(batch, count=batch.count - count, packed=pack(b"[%b]" % b",".join(broken)))
    _log.error("row %d of the intake: %d events are in no incident and set aside: %s", batch.seq, batch.count, error)
    set_aside(connection, batch, f"{type(error).__name__}: {error}")
    return _folded(connection, count, changed)


def _alone(connection: sa.Connection) -> bool:
    """Whether no other process folds. SQLite has one writer anyway."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK))))
