"""The kill switch and the breaker: both stop hints until a person acts.

    set_kill_switch(connection, "holds", "maintenance of the fabric", now, "alice")     # the newest row counts

note_trip(connection, ("leaf", "leaf-3"), "4 nodes ...", 4, now, "policy")    # once, while it is in force
reset_trip(connection, seq, "drop", now, "alice")
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit
from store.database.coordination import HINTS, move_mark
from store.tables import hint_tables
from store.tables.bulk_rows import insert_into

_SWITCHES = hint_tables.switches


@dataclass(frozen=True, slots=True)
class KillSwitch:
    """What a person stopped (none, holds, all), when, and why."""

    seq: int
    time: datetime
    actor: str
    stop: str
    reason: str


def newest_switch(connection: sa.Connection) -> KillSwitch | None:
    """The switch as it stands; None: nobody has ever used it."""
    row = connection.execute(_newest()).mappings().first()
    return None if row is None else KillSwitch(**row)


def set_kill_switch(connection: sa.Connection, stop: str, reason: str, now: datetime, who: str) -> KillSwitch:
    """Set the switch, with its audit row; saying again what the same person said last changes nothing."""
    last = newest_switch(connection)
    if last is not None and (last.stop, last.reason, last.actor) == (stop, reason, who):
        return last
    row = {"time": now, "actor": who, "stop": stop, "reason": reason}
    connection.execute(_SWITCHES.insert().values(**row))
    detail = {"stop": stop, "was": "none" if last is None else last.stop, "reason": reason}
    append_audit(connection, [AuditEntry(now, who, "stop" if stop != "none" else "resume", "switch", detail)])
    move_mark(connection, HINTS)
    return KillSwitch(**connection.execute(_newest()).mappings().one())


def _newest() -> sa.Select[Any]:
    return sa.select(_SWITCHES).order_by(_SWITCHES.c.seq.desc()).limit(1)


# What is to become of those that called before a reset: they call no more, or wait for a person each.
Backlog: TypeAlias = Literal["drop", "review"]
_TRIPS = hint_tables.trips


@dataclass(frozen=True, slots=True)
class Trip:
    """One trip: of which group of nodes (`kind` and `name`), why, at how many calls; `reset` None: in force."""

    seq: int
    time: datetime
    kind: str
    name: str
    why: str
    count: int
    reset: datetime | None = None
    reset_by: str | None = None
    backlog: Backlog | None = None

    @property
    def group(self) -> tuple[str, str]:
        """Which nodes it concerns."""
        return self.kind, self.name


def note_trip(connection: sa.Connection, group: tuple[str, str], why: str, count: int, now: datetime, who: str) -> bool:
    """Write down that a group has tripped, with its audit row; whether it had not yet.

    Of two that say so at once one is heard.
    """
    row = {"time": now, "kind": group[0], "name": group[1], "why": why, "count": count}
    made = insert_into(connection, _TRIPS).values(**row)
    made = made.on_conflict_do_nothing(index_elements=["kind", "name"], index_where=_TRIPS.c.reset.is_(None))
    if connection.scalar(made.returning(_TRIPS.c.seq)) is None:
        return False
    _note(connection, now, who, "tripped", {"kind": group[0], "name": group[1], "why": why, "count": count})
    return True


def newest_trips(connection: sa.Connection) -> list[Trip]:
    """Of each group that has ever tripped the last trip, by their numbers."""
    newest = sa.select(sa.func.max(_TRIPS.c.seq)).group_by(_TRIPS.c.kind, _TRIPS.c.name)
    return _read(connection, sa.select(_TRIPS).where(_TRIPS.c.seq.in_(newest)).order_by(_TRIPS.c.seq))


def trips_page(connection: sa.Connection, limit: int, before: int | None = None, in_force: bool = False) -> list[Trip]:
    """Trips, the newest first, at most `limit`, with a `seq` under `before`; of those in force alone."""
    query = sa.select(_TRIPS).order_by(_TRIPS.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(_TRIPS.c.seq < before)
    if in_force:
        query = query.where(_TRIPS.c.reset.is_(None))
    return _read(connection, query)


def read_trip(connection: sa.Connection, seq: int) -> Trip | None:
    """The trip of a number."""
    found = _read(connection, sa.select(_TRIPS).where(_TRIPS.c.seq == seq))
    return found[0] if found else None


def reset_trip(connection: sa.Connection, seq: int, backlog: Backlog, now: datetime, who: str) -> bool:
    """End a trip, if nobody has yet, with its audit row; whether this did. Of two that do so at once one does."""
    values = {"reset": now, "reset_by": who, "backlog": backlog}
    done = sa.update(_TRIPS).where(_TRIPS.c.seq == seq, _TRIPS.c.reset.is_(None)).values(**values)
    if connection.execute(done).rowcount == 0:
        return False
    trip = read_trip(connection, seq)
    if trip is not None:
        detail = {"trip": seq, "kind": trip.kind, "name": trip.name, "backlog": backlog}
        _note(connection, now, who, "reset", detail)
    return True


def _read(connection: sa.Connection, query: sa.Select[Any]) -> list[Trip]:
    return [Trip(**row) for row in connection.execute(query).mappings()]


def _note(connection: sa.Connection, now: datetime, who: str, action: str, detail: dict[str, Any]) -> None:
    append_audit(connection, [AuditEntry(now, who, action, "breaker", detail)])
