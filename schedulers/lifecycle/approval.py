"""Approving a hint: one person, or two where the approval is large.

    approve(connection, hint_id, now, HintApprover("alice", "alice"), policy)   # approved, or proposed with one yes

The size of an approval is the number of nodes that people put out of work with it and within the hour before: those of
hints that a person approved since then (ended or not), and the node of this one. Beyond
`approval: {two_people_above_nodes: N}` another person must say yes, too. What is approved by the policy in `mode: act`
stands under its budgets instead. To withdraw or release never takes two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.settings import ApprovalRule, Mode, Policy
from store.database.coordination import HINTS, move_mark
from store.hints.hint_log import add_approval, approve_hint, lock_hint, read_hint, recent_hints
from store.records.hint import LIVE_STATES, Approval, Hint, HintAction

WINDOW = timedelta(hours=1)
# What puts a node, or the job on it, out of work.
SIZED: tuple[HintAction, ...] = ("avoid", "cordon", "drain", "requeue", "swap")
# Where the policy renews or raises a hint at the same moment, a person's word is said again, to what it has become.
TRIES = 5


class RequestRefusedError(ValueError):
    """A word that cannot be carried out; the message says why. `known`: the hint exists."""

    def __init__(self, message: str, known: bool) -> None:
        super().__init__(message)
        self.known = known


@dataclass(frozen=True, slots=True)
class HintApprover:
    """Who approves: as the audit names them, and the person. None: a program, which is no second person."""

    name: str
    person: str | None


def approve(connection: sa.Connection, ident: str, now: datetime, who: HintApprover, policy: Policy) -> Hint:
    """Let a proposed hint be sent, or write down the first of two approvals. Saying it again changes nothing.

    Raises:
        RequestRefusedError: there is no such hint, it has ended or lapsed, the mode is shadow, or it needs two people
            and this is a program.
    """
    if policy.approval.two_people_above_nodes is not None:
        lock_hint(connection, ident)
        move_mark(connection, HINTS)  # one approval at a time: two at once would each be small
    hint = known_hint(connection, ident)
    for _ in range(TRIES):
        if hint.state in LIVE_STATES:
            break
        _refuse(hint, now, policy.mode)
        if needed(hint, recent_hints(connection, now, WINDOW), policy.approval, now) > 1:
            given = _agree(hint, who, now)
            if len(given) < 2:
                return hint if given == given_of(hint) else add_approval(connection, hint, given[-1])
        hint = approve_hint(connection, hint, now, who.name)
        move_mark(connection, HINTS)
    return hint


def known_hint(connection: sa.Connection, ident: str) -> Hint:
    """The hint of an id.

    Raises:
        RequestRefusedError: there is none.
    """
    hint = read_hint(connection, ident)
    if hint is None:
        raise RequestRefusedError(
            f"no hint has the id {ident!r}: `foreshock hints list` shows those there are", known=False
        )
    return hint


def needed(hint: Hint, recent: Iterable[Hint], rule: ApprovalRule, now: datetime) -> int:
    """How many people must approve a hint: 1 or 2.

    Args:
        recent: `recent_hints` of the hour before.
    """
    most = rule.two_people_above_nodes
    if most is None or hint.action not in SIZED:
        return 1
    since = now - WINDOW
    nodes = {
        each.node
        for each in recent
        if each.action in SIZED and each.evidence.approved is not None and each.evidence.approved.time > since
    }
    return 2 if len(nodes | {hint.node}) > most else 1


def given_of(hint: Hint) -> Sequence[Approval]:
    """The approvals so far of what the hint asks now: what was said of a cordon is no yes to a drain."""
    return tuple(each for each in hint.evidence.approvals or () if each.action == hint.action)


def _agree(hint: Hint, who: HintApprover, now: datetime) -> Sequence[Approval]:
    """The approvals with this one; as they were where the same person has approved already."""
    given = given_of(hint)
    if who.person is None:
        raise RequestRefusedError(
            f"hint {hint.id} needs two people, and {who.name!r} is a program: sign in to approve it", known=True
        )
    if any(each.person == who.person for each in given):
        return given
    return (*given, Approval(who.name, who.person, hint.action, now))


def _refuse(hint: Hint, now: datetime, mode: Mode) -> None:
    """Say why a hint cannot be approved, if so."""
    if hint.state != "proposed" or hint.valid_until <= now:
        why = "is a shadow" if hint.state == "shadow" else "has lapsed" if hint.state == "proposed" else "has ended"
        raise RequestRefusedError(
            f"hint {hint.id} ({hint.state}) {why}: only a proposed one can be approved", known=True
        )
    if mode == "shadow":
        raise RequestRefusedError(
            "the server is in shadow mode: nothing is sent; set `mode: approve` first", known=True
        )
