"""The kill switch as people set it, over the API or by hand: the newest row counts, none is ever changed.

switch(connection, "holds", "maintenance of the fabric", now, "alice")
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store import schema
from store.marks import HINTS, bump

_SWITCHES = schema.switches


@dataclass(frozen=True, slots=True)
class Switch:
    """What a person stopped (none, holds, all), when, and why."""

    seq: int
    time: datetime
    actor: str
    stop: str
    reason: str


def newest_switch(connection: sa.Connection) -> Switch | None:
    """The switch as it stands; None: nobody has ever used it."""
    row = connection.execute(_newest()).mappings().first()
    return None if row is None else Switch(**row)


def switch(connection: sa.Connection, stop: str, reason: str, now: datetime, who: str) -> Switch:
    """Set the switch, with its audit row; saying again what the same person said last changes nothing."""
    last = newest_switch(connection)
    if last is not None and (last.stop, last.reason, last.actor) == (stop, reason, who):
        return last
    row = {"time": now, "actor": who, "stop": stop, "reason": reason}
    connection.execute(_SWITCHES.insert().values(**row))
    detail = {"stop": stop, "was": "none" if last is None else last.stop, "reason": reason}
    entry = {"time": now, "actor": who, "action": "stop" if stop != "none" else "resume", "subject": "switch"}
    connection.execute(schema.audit.insert().values(**entry, detail=detail))
    bump(connection, HINTS)
    return Switch(**connection.execute(_newest()).mappings().one())


def _newest() -> sa.Select[Any]:
    return sa.select(_SWITCHES).order_by(_SWITCHES.c.seq.desc()).limit(1)
