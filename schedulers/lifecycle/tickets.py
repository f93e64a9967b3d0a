"""The way back of a ticket: a closed one lets the tests of its held node begin anew. It releases nothing by itself.

    close_ticket(connection, "3f2a0c5a9b8e4d1f.0", ("HW-1234", "GPU 3 replaced"), now, "ticket-system", validates=True)

Only a ticket that was opened can be closed, once: its id counts how often the tickets of its hint were closed before.
Tests of before the closing then say nothing of the node as it is (`schedulers/lifecycle/release.py`), and the test that
`release.validate` names is run, once the ground of the hold has gone. Where none is set, nothing is to begin: what the
hold waits for stays as it is, so that no ticket system can have a node released that failed another's test.
"""

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.reconcile.delivery import TICKET
from store.database.coordination import HINTS, move_mark
from store.hints.hint_log import lock_hint, note, read_hint, save_evidence
from store.hints.outbox import deliveries_of
from store.records.hint import OPEN_STATES, Hint, TicketClosing

_MOST_DIGITS = 6


def hint_of_ticket(ident: str) -> tuple[str, int]:
    """The id of the hint that a ticket is about, and how many tickets of it came before.

    Raises:
        RequestRefusedError: it is the id of no ticket.
    """
    hint, _, count = ident.rpartition(".")
    if not hint or not (count.isascii() and count.isdigit()) or len(count) > _MOST_DIGITS or str(int(count)) != count:
        raise _unknown(ident)
    return hint, int(count)


def close_ticket(
    connection: sa.Connection, ident: str, said: tuple[str, str], now: datetime, who: str, *, validates: bool
) -> Hint:
    """Write down that a ticket is closed; its hint as it is now. Closing it again changes nothing.

    Args:
        said: what the ticket system calls it, and what was done; texts of others, kept as they are.
        validates: whether the server has a test for held nodes (`release.validate`).

    Raises:
        RequestRefusedError: no such ticket was ever opened, or its hint has ended.
    """
    name, count = hint_of_ticket(ident)
    lock_hint(connection, name)
    hint = read_hint(connection, name)
    mark = f"{name}.{TICKET}.{count}."
    if hint is None or not any(one.id.startswith(mark) and one.attempts for one in deliveries_of(connection, name)):
        raise _unknown(ident)
    closed = 0 if hint.evidence.ticket is None else hint.evidence.ticket.closings
    if count < closed:
        return hint
    if hint.state not in OPEN_STATES:
        raise RequestRefusedError(f"hint {name} has ended already: it is {hint.state}", known=True)
    closing = TicketClosing(who, now, count + 1, *said)
    repair = None if validates else hint.evidence.repair
    hint = save_evidence(connection, replace(hint, evidence=replace(hint.evidence, ticket=closing, repair=repair)))
    note(connection, now, who, hint, {"ticket": ident, "closed": said[0], "detail": said[1]})
    move_mark(connection, HINTS)
    return hint


def _unknown(ident: str) -> RequestRefusedError:
    return RequestRefusedError(f"no ticket {ident[:80]!r} was opened: a ticket's message bears its id", known=False)
