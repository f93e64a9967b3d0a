"""A person's word on a hint: approve, withdraw, release. Each is idempotent and written to the audit.

Each moves the mark by which the server that acts notices it, at the end of what it writes.
"""

from datetime import datetime

import sqlalchemy as sa

from schedulers.settings import Mode
from store.hint import LIVE_STATES, OPEN_STATES, Hint, HintState
from store.hint_log import approve_hint, close_hint, read_hint, read_hints
from store.marks import HINTS, bump

# Where the policy renews or raises a hint at the same moment, a person's word is said again, to what it has become.
_TRIES = 5


class VerdictError(ValueError):
    """A word that cannot be carried out; the message says why. `known`: the hint exists."""

    def __init__(self, message: str, known: bool) -> None:
        super().__init__(message)
        self.known = known


def approve(connection: sa.Connection, ident: str, now: datetime, who: str, mode: Mode) -> Hint:
    """Let a proposed hint be sent.

    Raises:
        VerdictError: there is no such hint, it has ended or lapsed, or the mode is shadow.
    """
    hint = _known(connection, ident)
    for _ in range(_TRIES):
        if hint.state in LIVE_STATES:
            break
        _refuse(hint, now, mode)
        hint = approve_hint(connection, hint, now, who)
        bump(connection, HINTS)
    return hint


def _refuse(hint: Hint, now: datetime, mode: Mode) -> None:
    """Say why a hint cannot be approved, if so."""
    if hint.state != "proposed" or hint.valid_until <= now:
        why = "is a shadow" if hint.state == "shadow" else "has lapsed" if hint.state == "proposed" else "has ended"
        raise VerdictError(f"hint {hint.id} ({hint.state}) {why}: only a proposed one can be approved", known=True)
    if mode == "shadow":
        raise VerdictError("the server is in shadow mode: nothing is sent; set `mode: approve` first", known=True)


def withdraw(connection: sa.Connection, ident: str, now: datetime, who: str) -> Hint:
    """End a hint before its time.

    Raises:
        VerdictError: there is no such hint, or it has ended otherwise.
    """
    withdrawn = _end(connection, _known(connection, ident), "withdrawn", now, who)
    bump(connection, HINTS)
    return withdrawn


def release_node(connection: sa.Connection, node: str, now: datetime, who: str) -> list[Hint]:
    """End every open hint of a node: a person says that it is well.

    Raises:
        VerdictError: the node has no open hint of ours.
    """
    hints = read_hints(connection, states=OPEN_STATES, node=node)
    if not hints:
        raise VerdictError(f"node {node} has no open hint of ours: foreshock never releases what others hold", False)
    released = [_end(connection, hint, "released", now, who) for hint in hints]
    bump(connection, HINTS)
    return released


def _known(connection: sa.Connection, ident: str) -> Hint:
    hint = read_hint(connection, ident)
    if hint is None:
        raise VerdictError(f"no hint has the id {ident!r}: `foreshock hints list` shows those there are", known=False)
    return hint


def _end(connection: sa.Connection, hint: Hint, state: HintState, now: datetime, who: str) -> Hint:
    for _ in range(_TRIES):
        if hint.state == state:
            return hint
        if hint.state not in OPEN_STATES:
            raise VerdictError(f"hint {hint.id} has ended already: it is {hint.state}", known=True)
        hint = close_hint(connection, hint, state, now, who)
    return hint
