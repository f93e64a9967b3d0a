"""What comes in, into the store: whole requests, together with others; a bad record leaves the others alone."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from api.intake.entries import MAX_REJECTED_SHOWN, IntakeResult, Rejected, count_rejected
from api.server.state import NewById, State
from diagnosis.incidents.intake import put_faults
from store.database.connections import transact, writing
from store.database.partitions import ensure_days
from store.events.append import append_events, append_outages, note_seen
from store.records.event import Event, bound_id, owner_of, with_id
from store.records.outage import Outage
from store.records.telemetry import Rollup
from store.tables.bulk_rows import upsert_last_seen
from store.telemetry.hours import append_rollups


@dataclass(frozen=True, slots=True)
class JointBatch:
    """Records on their way into the store, with those of others."""

    records: int
    written: "Future[Any] | None"  # None: there are none
    _wait: Callable[[], IntakeResult]

    def result(self) -> IntakeResult:
        """What came of them, once they are written.

        Raises:
            SQLAlchemyError: the database did not take them.
        """
        return self._wait()


def take_events(state: State, events: Sequence[Event], rejected: Sequence[Rejected], resource: str) -> IntakeResult:
    """Append events, and those to make incidents of to the intake, in one transaction; the loop `incidents` does so."""
    return send_events(state, events, rejected, resource).result()


def send_events(state: State, events: Sequence[Event], rejected: Sequence[Rejected], resource: str) -> JointBatch:
    """The same, not waited for."""
    count_rejected(state.metrics, resource, rejected)
    own = [with_id(event) for event in events]
    written = state.joint_events.send(own, partial(_append_all, state)) if own else None

    def result() -> IntakeResult:
        new = [] if written is None else _new_of(written.result(), own)
        tell_new(state, new)
        return IntakeResult(len(new), len(own) - len(new), rejected[:MAX_REJECTED_SHOWN])

    return JointBatch(len(own), written, result)


def tell_new(state: State, new: Sequence[Event]) -> None:
    """Count events that were new, and wake who waits for them."""
    if new:
        state.news.set()
        state.wakes.verdicts.set()
    for source, count in Counter(event.source for event in new).items():
        state.metrics.count_events(source, count)


def _new_of(new: NewById, own: Sequence[Event]) -> list[Event]:
    """Those of one request that were new. Of two requests with the same event at the same moment one has it new."""
    return [event for event in (_popped(new, event) for event in own) if event is not None]


def _popped(new: NewById, event: Event) -> Event | None:
    """The event as it was stored, where it was new: another node's event may have had its id."""
    owner = owner_of(event.node, event.run())
    return _popped_as(new, event.id, owner) or _popped_as(new, bound_id(event.id or "", owner), owner)


def _popped_as(new: NewById, name: str | None, owner: str) -> Event | None:
    stored = new.get(name)
    return new.pop(name) if stored is not None and owner_of(stored.node, stored.run()) == owner else None


def _append_all(state: State, events: Sequence[Event]) -> NewById:
    received = state.clock()
    days = {received.date(), *(event.time.date() for event in events if event.time is not None)}
    ensure_days(state.engine, with_own_table(days, received), ("events",), now=received)

    def work(connection: sa.Connection) -> tuple[Sequence[Event], int]:
        new, faults = append_judged(state, connection, events, received)
        note_seen(connection, new, received)  # the last, for others wait for the same nodes
        return new, faults

    new, faults = transact(state.engine, work)
    if faults:
        state.faults.set()
    return {event.id: event for event in new}


def append_judged(
    state: State, connection: sa.Connection, events: Sequence[Event], received: datetime
) -> tuple[Sequence[Event], int]:
    """Append events as the site's rules read them, faults to the intake; the new ones, and how many are faults.

    Their nodes are not noted as heard of.
    """
    rules = state.rules()
    judged = [rules.judge(event) for event in events] if rules.faults else events
    reasons = state.settings.outage_reasons
    new = append_events(connection, judged, received, note_nodes=False, reasons=reasons).new
    return new, put_faults(connection, new, received)


def with_own_table(days: Iterable[date], received: datetime) -> set[date]:
    """The days that get a table of their own on PostgreSQL: whoever invents older ones makes none (docs/store.md)."""
    return {day for day in days if day > received.date() - timedelta(days=366)}


def take_rollups(state: State, rollups: Sequence[Rollup], rejected: Sequence[Rejected]) -> IntakeResult:
    """Store telemetry roll-ups; one of a node and hour that is there is replaced."""
    return send_rollups(state, rollups, rejected).result()


def send_rollups(state: State, rollups: Sequence[Rollup], rejected: Sequence[Rejected]) -> JointBatch:
    """The same, not waited for."""
    count_rejected(state.metrics, "telemetry", rejected)
    written = state.joint_rollups.send(rollups, partial(_append_rollups, state)) if rollups else None

    def result() -> IntakeResult:
        if written is not None:
            written.result()
            state.news.set()
        return IntakeResult(len(rollups), 0, rejected[:MAX_REJECTED_SHOWN])

    return JointBatch(len(rollups), written, result)


def _append_rollups(state: State, rollups: Sequence[Rollup]) -> None:
    received = state.clock()
    days = {rollup.time.date() for rollup in rollups}
    ensure_days(state.engine, with_own_table(days, received), ("telemetry",), now=received)
    transact(state.engine, lambda connection: append_rollups(connection, rollups, received=received))


def take_outages(state: State, outages: Sequence[Outage], rejected: Sequence[Rejected]) -> IntakeResult:
    """Store outages; one of a node and start that is there is closed or corrected. Their nodes become known."""
    count_rejected(state.metrics, "outages", rejected)
    if outages:
        newest: dict[str, datetime] = {}
        now = state.clock()
        for outage in outages:
            # Work that is planned for tomorrow does not mean that the node was heard of tomorrow.
            seen = min(outage.start, now)
            newest[outage.node] = max(seen, newest.get(outage.node, seen))
        with writing(state.engine).begin() as connection:
            append_outages(connection, outages, now)
            upsert_last_seen(connection, newest)
        state.news.set()
    return IntakeResult(len(outages), 0, rejected[:MAX_REJECTED_SHOWN])
