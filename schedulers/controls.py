"""A person's word on the breaker and the kill switch: each is idempotent and written to the audit."""

from datetime import datetime

import sqlalchemy as sa

from schedulers.settings import Stop
from schedulers.verdict import VerdictError
from store.switches import Switch, switch
from store.trips import Backlog, Trip, read_trip, reset_trip

MOST_REASON = 500


def reset_breaker(connection: sa.Connection, seq: int, backlog: Backlog, now: datetime, who: str) -> Trip:
    """End a trip of the breaker. The next turn of the policy goes by it.

    Args:
        backlog: what is to become of the nodes that had called: `drop`, they call no more; `review`, each waits for a
            person's yes, whatever the mode.

    Raises:
        VerdictError: there is no such trip, or it was reset with the other word.
    """
    reset_trip(connection, seq, backlog, now, who)
    trip = read_trip(connection, seq)
    if trip is None:
        raise VerdictError(f"no trip has the number {seq}: `foreshock hints breaker list` shows those there are", False)
    if trip.backlog != backlog:
        raise VerdictError(f"trip {seq} was reset by {trip.reset_by} already, with the backlog {trip.backlog}", True)
    return trip


def set_switch(connection: sa.Connection, stop: Stop, reason: str, now: datetime, who: str) -> Switch:
    """Stop what is asked of schedulers, or let it go on. What a file or the setting stops stays stopped.

    Raises:
        VerdictError: nobody says why.
    """
    if not reason.strip():
        raise VerdictError("say why: the audit keeps it", True)
    return switch(connection, stop, reason.strip()[:MOST_REASON], now, who)
