"""How a wish becomes a hint: made, escalated in place, out of the shadow, renewed; or nothing, where it stands."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from schedulers.limits import is_held, is_held_anew
from schedulers.policy_version import version_of
from schedulers.price import validity_of
from schedulers.quiet import quiet_now
from schedulers.settings import Mode, Policy
from schedulers.wish import RANK, Wish
from store.event import format_time
from store.hint import Hint, HintState

OWNER = "foreshock"
_STATE: dict[Mode, HintState] = {"shadow": "shadow", "approve": "proposed", "act": "approved"}


def change_of(wish: Wish, standing: Mapping[str, Hint], now: datetime, policy: Policy) -> tuple[Hint, str] | None:
    """The hint that a wish makes of what stands, and the audit's word for it; None when it stands already."""
    hint, lasts = standing.get(wish.facts.node), validity_of(wish.action, policy.validity)
    state, quiet = _state(wish, now, policy)
    # A hold that becomes a graver one is none anew.
    since = hint.evidence.get("acted") if hint is not None and is_held(hint, policy) else None
    evidence = {**wish.evidence, "acted": since or format_time(now), **({} if quiet is None else {"quiet": quiet})}
    version, until = version_of(policy), now + lasts
    if hint is None:
        ident = hashlib.blake2b(f"{wish.facts.node} {format_time(now)}".encode(), digest_size=8).hexdigest()
        made = Hint(
            ident, wish.facts.node, wish.action, state, wish.reason, OWNER, now, until, evidence, policy=version
        )
        return made, "held back" if "held" in evidence else "made"
    anew = replace(
        hint,
        action=wish.action,
        state=state,
        reason=wish.reason,
        valid_until=until,
        evidence=evidence,
        policy=version,
    )
    if RANK[wish.action] > RANK[hint.action]:
        return anew, "escalated"
    if hint.state == "shadow" and state != "shadow":
        return anew, "out of the shadow"
    if hint.state == "proposed" and state == "approved" and "quiet" in hint.evidence:
        return anew, "after quiet hours"
    if hint.state == "approved" and state == "proposed" and "review" in wish.evidence and "review" not in hint.evidence:
        return replace(hint, state=state, evidence={**hint.evidence, "review": True}, policy=version), "for review"
    return _amended(wish, hint, now, policy)


def _amended(wish: Wish, hint: Hint, now: datetime, policy: Policy) -> tuple[Hint, str] | None:
    """A standing hint that says something more, or stands for longer."""
    version, lasts = version_of(policy), validity_of(hint.action, policy.validity)
    if wish.is_control and not hint.is_control:
        return replace(hint, evidence={**hint.evidence, "control": True}, policy=version), "left alone"
    if "held" in wish.evidence and wish.action == hint.action and is_held_anew(wish.evidence, hint.evidence):
        said = {name: found for name, found in wish.evidence.items() if name in ("held", "call", "incident")}
        return replace(hint, evidence={**hint.evidence, **said}, policy=version), "held back"
    if RANK[hint.action] > RANK["avoid"] and not wish.holds:
        return None  # a hold lapses when nothing speaks for it any more but a score
    if hint.valid_until - now < lasts / 2:
        again: HintState = "approved" if hint.state == "sent" else hint.state
        return replace(hint, valid_until=now + lasts, state=again, policy=version), "renewed"
    return None


def _state(wish: Wish, now: datetime, policy: Policy) -> tuple[HintState, str | None]:
    """The state of a new hint, and the quiet hours that make a hold wait for a person."""
    if wish.is_control:
        return "shadow", None
    if policy.mode == "act" and "review" in wish.evidence:
        return "proposed", None
    if policy.mode == "act" and wish.holds:
        quiet = quiet_now(policy.quiet_hours, now)
        return ("approved", None) if quiet is None else ("proposed", quiet)
    return _STATE[policy.mode], None
