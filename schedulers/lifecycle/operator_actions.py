"""Operator actions on hints, trips, the kill switch and deliveries, and reports of schedulers that pull.

    withdraw(connection, hint_id, now, "alice")               # Hint, withdrawn; `approval.py` approves
    acknowledge(connection, hint_id, ("confirmed", "lsf", ""), now, "lsf-token")

Each action may be repeated: the second time changes nothing. Each is written to the audit, and moves the mark by which
the server notices it. A report of a scheduler that pulls its hints counts as a node list that is read back: `taken`
makes a hint `sent`, `confirmed` confirms it. It is stored as a hold under the scheduler's name with `pull:` before it.
A test result that a person or another test system reports counts as a test of ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa

from schedulers.lifecycle.approval import TRIES, RequestRefusedError, known_hint
from schedulers.policy.facts import HOLDING
from schedulers.policy.settings import Mode, Stop
from schedulers.reconcile.dispatch import over
from store.database.coordination import HINTS, move_mark
from store.hints.hint_log import change_state, close_hint, note, read_hint, read_hints
from store.hints.holds import PULLS, SchedulerHold, holds_of, save_holds
from store.hints.outbox import Delivery, read_delivery, requeue_delivery
from store.hints.stops import Backlog, KillSwitch, Trip, read_trip, reset_trip, set_kill_switch
from store.hints.validations import Validation, report_validation
from store.records.hint import LIVE_STATES, OPEN_STATES, Hint, HintAction, HintState, HoldState


def withdraw(connection: sa.Connection, ident: str, now: datetime, who: str) -> Hint:
    """End a hint before its time.

    Raises:
        RequestRefusedError: there is no such hint, or it has ended otherwise.
    """
    withdrawn = _end(connection, known_hint(connection, ident), "withdrawn", now, who)
    move_mark(connection, HINTS)
    return withdrawn


def release_node(connection: sa.Connection, node: str, now: datetime, who: str) -> list[Hint]:
    """End every open hint of a node: a person says that it is well.

    Raises:
        RequestRefusedError: the node has no open hint of ours.
    """
    hints = read_hints(connection, states=OPEN_STATES, node=node)
    if not hints:
        raise RequestRefusedError(
            f"node {node} has no open hint of ours: foreshock never releases what others hold", False
        )
    released = [_end(connection, hint, "released", now, who) for hint in hints]
    move_mark(connection, HINTS)
    return released


def _end(connection: sa.Connection, hint: Hint, state: HintState, now: datetime, who: str) -> Hint:
    for _ in range(TRIES):
        if hint.state == state:
            return hint
        if hint.state not in OPEN_STATES:
            raise RequestRefusedError(f"hint {hint.id} has ended already: it is {hint.state}", known=True)
        hint = close_hint(connection, hint, state, now, who)
    return hint


Word: TypeAlias = Literal["taken", "confirmed", "released", "refused"]
_PLACEMENT: dict[Word, HoldState] = {
    "taken": "asked",
    "confirmed": "confirmed",
    "released": "released",
    "refused": "refused",
}
_TAKEN: tuple[HoldState, ...] = ("asked", "confirmed")
# What has gone further already: a word that comes late, or again, takes nothing back.
_BEYOND: dict[Word, tuple[HoldState, ...]] = {"taken": ("confirmed",), "released": ("undone",)}


# Of one hint: whoever may report names any scheduler, and every turn of the policy reads them.
MOST_HOLDS = 64


def acknowledge(connection: sa.Connection, ident: str, words: tuple[Word, str, str], now: datetime, who: str) -> Hint:
    """Write down what a scheduler says: the word, its name, a detail. Saying it again changes nothing.

    Any token with the scope may give any scheduler's name, so the audit has `who` sent it, too.

    `released` while the hint still stands is a person's undoing there: the hint is withdrawn, and not asked again until
    something new happens. Nobody so undoes what it has not taken, or what another holds.

    Raises:
        RequestRefusedError: there is no such hint, it is not, or no longer, to be acted upon, or not its to undo.
    """
    word, scheduler, detail = words
    hint = read_hint(connection, ident)
    if hint is None:
        raise RequestRefusedError(f"no hint has the id {ident!r}", known=False)
    name = f"{PULLS}{scheduler}"
    holds = {one.scheduler: one for one in holds_of(connection, [ident]).get(ident, [])}
    before, released = holds.get(name), word == "released"
    if not released and (hint.state not in LIVE_STATES or hint.valid_until <= now):
        waits = hint.state in OPEN_STATES and hint.valid_until > now
        said = "is not approved: leave the node" if waits else "has ended: release the node"
        raise RequestRefusedError(f"hint {ident} ({hint.state}) {said}", known=True)
    state: HoldState = "undone" if released and hint.state in LIVE_STATES else _PLACEMENT[word]
    action: HintAction = "release" if released else hint.action
    if before is not None and before.action == action and before.state in (state, *_BEYOND.get(word, ())):
        return hint
    if state == "undone":
        _check_undoing(hint, scheduler, before, holds)
    if before is None and len(holds) >= MOST_HOLDS:
        raise RequestRefusedError(
            f"hint {ident} has {MOST_HOLDS} schedulers already: {scheduler!r} is none", known=True
        )
    moved = _move(connection, hint, word, now, name)
    row = SchedulerHold(
        *(ident, name, hint.node, action, state, 0, now),
        asked=before.asked if before is not None else now,
        observed=now,
        detail=detail or None,
    )
    save_holds(connection, [row])
    told = {"ack": word, "by": who} | ({"detail": detail} if detail else {})
    note(connection, now, f"scheduler:{name}", moved, told)
    return moved


def _check_undoing(
    hint: Hint, scheduler: str, before: SchedulerHold | None, holds: Mapping[str, SchedulerHold]
) -> None:
    """Refuse to end a hint that stands for the word of one that has not taken it, or while another holds the node.

    Raises:
        RequestRefusedError: who else it is, and what ends it.
    """
    if before is None:
        text = (
            f"hint {hint.id} ({hint.state}) was not taken by {scheduler!r}, which has nothing to release: say so first"
        )
        raise RequestRefusedError(text, known=True)
    held = (one for one in holds.values() if one is not before and one.state in _TAKEN and one.action != "release")
    other = next(held, None)
    if other is not None:
        text = (
            f"hint {hint.id} ({hint.state}) is held by {other.scheduler!r} too: to release the node, withdraw the hint"
        )
        raise RequestRefusedError(text, known=True)


def _move(connection: sa.Connection, hint: Hint, word: Word, now: datetime, name: str) -> Hint:
    actor = f"scheduler:{name}"
    if word == "released" and hint.state in LIVE_STATES:
        for _ in range(TRIES):  # the policy may renew it at the same moment
            if hint.state in OPEN_STATES:
                hint = close_hint(connection, hint, "withdrawn", now, actor)
        return hint
    if word == "taken" and hint.state == "approved":
        return change_state(connection, hint, "sent", now, actor)
    if word == "confirmed" and hint.state != "confirmed":
        return change_state(connection, hint, "confirmed", now, actor)
    return hint


MOST_REASON = 500


def reset_breaker(connection: sa.Connection, seq: int, backlog: Backlog, now: datetime, who: str) -> Trip:
    """End a trip of the breaker. The next turn of the policy goes by it.

    Args:
        backlog: what is to become of the nodes that had called: `drop`, they call no more; `review`, each waits for a
            person's yes, whatever the mode.

    Raises:
        RequestRefusedError: there is no such trip, or it was reset with the other word.
    """
    reset_trip(connection, seq, backlog, now, who)
    trip = read_trip(connection, seq)
    if trip is None:
        raise RequestRefusedError(
            f"no trip has the number {seq}: `foreshock hints breaker list` shows those there are", False
        )
    if trip.backlog != backlog:
        raise RequestRefusedError(
            f"trip {seq} was reset by {trip.reset_by} already, with the backlog {trip.backlog}", True
        )
    return trip


def set_switch(connection: sa.Connection, stop: Stop, reason: str, now: datetime, who: str) -> KillSwitch:
    """Stop requests to schedulers, or let them go on. What a file or the setting stops stays stopped.

    Raises:
        RequestRefusedError: nobody says why.
    """
    if not reason.strip():
        raise RequestRefusedError("say why: the audit keeps it", True)
    return set_kill_switch(connection, stop, reason.strip()[:MOST_REASON], now, who)


def redeliver(connection: sa.Connection, ident: str, now: datetime, who: str, mode: Mode) -> Delivery:
    """Owe a delivery again; the dispatcher makes it in its next turn, and again by the schedule should that fail.

    Raises:
        RequestRefusedError: there is no such delivery, its hint has ended or was raised since (a release may always be
            made again), or the mode is shadow.
    """
    delivery = read_delivery(connection, ident)
    hint = None if delivery is None else read_hint(connection, delivery.hint)
    if delivery is None or hint is None:
        raise RequestRefusedError(f"no delivery has the id {ident!r}: `foreshock hints deliveries` shows them", False)
    why = over(delivery, hint, now)
    if why is not None:
        said = "has ended" if why == "expired" else "was raised or renewed since: replay the newer delivery"
        raise RequestRefusedError(f"hint {hint.id} {said}", known=True)
    if mode == "shadow" and delivery.payload["data"]["mode"] != "shadow":
        raise RequestRefusedError("the server is in shadow mode: nothing is sent", known=True)
    requeue_delivery(connection, delivery, now)
    note(connection, now, who, hint, {"delivery": ident, "outcome": "replayed", "was": delivery.state})
    return replace(delivery, state="owed", due=now, attempts=min(delivery.attempts, 1), last_error=None)


def report_test(connection: sa.Connection, ident: str, result: tuple[bool, str], now: datetime, who: str) -> Validation:
    """Write down a result: (whether the node passed, what was said).

    Raises:
        RequestRefusedError: there is no such hint, it has ended, or it holds no node.
    """
    hint = read_hint(connection, ident)
    if hint is None:
        raise RequestRefusedError(
            f"no hint has the id {ident!r}: `foreshock hints list` shows those there are", known=False
        )
    if hint.state not in OPEN_STATES:
        raise RequestRefusedError(f"hint {ident} has ended already: it is {hint.state}", known=True)
    if not _is_hold(hint):
        raise RequestRefusedError(
            f"hint {ident} ({hint.action}) holds no node: there is nothing to be released", known=True
        )
    row = report_validation(connection, hint, who, now, result)
    note(connection, now, who, hint, {"test": "passed" if row.passed else "failed", "output": row.output[-200:]})
    return row


def report_node(connection: sa.Connection, node: str, result: tuple[bool, str], now: datetime, who: str) -> Validation:
    """The same by the node's name.

    Raises:
        RequestRefusedError: no open hint of ours holds it.
    """
    for hint in read_hints(connection, states=OPEN_STATES, node=node):
        if _is_hold(hint):
            return report_test(connection, hint.id, result, now, who)
    raise RequestRefusedError(
        f"no open hint of ours holds node {node}: `foreshock hints list` shows those there are", False
    )


def _is_hold(hint: Hint) -> bool:
    return hint.action in HOLDING and hint.job is None
