"""From scores and faults to hints, under budgets. Pure: the same facts give the same hints.

    decision = decide(Inputs(now, nodes, hints), policy)

What is wanted of a node follows from its confirmed fault or its score; one open hint a node, which is escalated in
place, renewed while its ground lasts, and released when the node is well again. A cordon that budgets or the breaker
refuse becomes an `avoid`, with the reason in its evidence. What the score alone asks of a node of the control group is
written down as a shadow, in every mode, and costs no budget.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from schedulers.budget import Budget, groups, tripped
from schedulers.facts import HOLDING, Inputs, NodeFacts, closed_at
from schedulers.settings import Mode, Policy
from store.event import Action, format_time
from store.hint import Hint, HintAction, HintState

OWNER = "foreshock"
_RANK: dict[HintAction, int] = {"release": 0, "watch": 1, "avoid": 2, "cordon": 3, "drain": 4}
_STATE: dict[Mode, HintState] = {"shadow": "shadow", "approve": "proposed", "act": "approved"}
# Where the part must be handled by people, running work is moved off; else new work alone is kept off.
_DRAINS: frozenset[Action] = frozenset({"drain_node", "replace_part", "contact_support"})


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes: hints made or changed (with the word for the audit), and hints whose node is well again."""

    changed: tuple[tuple[Hint, str], ...] = ()
    released: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a node calls for, and why."""

    facts: NodeFacts
    action: HintAction
    reason: str
    evidence: dict[str, Any]

    @property
    def is_control(self) -> bool:
        """Whether it is to be written down and not to be asked."""
        return "control" in self.evidence


def decide(inputs: Inputs, policy: Policy) -> Decision:
    """The hints of this moment. Confirmed faults are served before scores, higher scores before lower ones."""
    standing = inputs.open_by_node()
    refused = inputs.refused_by_node()
    wishes = [wish for facts in inputs.nodes if (wish := _wish(facts, policy, standing.get(facts.node))) is not None]
    wishes = [wish for wish in wishes if not _refused(wish, refused.get(wish.facts.node))]
    wishes.sort(key=lambda wish: (wish.facts.fault is None, -(wish.facts.score or 0.0), wish.facts.node))
    known = {facts.node: facts for facts in inputs.nodes}
    released = [hint for node, hint in standing.items() if node in known and _is_well(known[node], hint, policy)]
    well = {hint.node for hint in released}
    granted = [wish for wish in _within_limits(wishes, inputs, policy) if wish.facts.node not in well]
    changed = [change for wish in granted if (change := _change(wish, standing, inputs, policy)) is not None]
    return Decision(tuple(changed), tuple(released))


def _wish(facts: NodeFacts, policy: Policy, standing: Hint | None) -> _Wish | None:
    """What a node calls for; nothing when it is out already: somebody is at it."""
    if facts.out:
        return None
    score = {"score": facts.score, "horizon_h": 24, "reasons": list(facts.reasons)}
    if facts.fault is not None:
        fault = facts.fault
        what = f"{fault.kind} {fault.code}" if fault.code is not None else fault.kind
        reason = f"foreshock: {what} on {fault.device.words(fault.name)}: {fault.message[:200]}"
        action: HintAction = "drain" if fault.action in _DRAINS else "cordon"
        return _Wish(facts, action, reason, {**score, "incident": fault.id})
    asked = _by_score(facts.score, policy)
    if asked is None or facts.score is None:
        return None
    reason = f"foreshock: risk {100 * facts.score:.0f} % within 24 h" + (
        f": {facts.reasons[0][:200]}" if facts.reasons else ""
    )
    # What was asked before the node was drawn runs its course.
    is_left_alone = facts.control and (standing is None or standing.state == "shadow")
    return _Wish(facts, asked, reason, {**score, "control": True} if is_left_alone else score)


def _by_score(score: float | None, policy: Policy) -> HintAction | None:
    limits = policy.thresholds
    if score is None:
        return None
    steps: tuple[tuple[float, HintAction], ...] = (
        (limits.cordon, "cordon"),
        (limits.avoid, "avoid"),
        (limits.watch, "watch"),
    )
    return next((action for limit, action in steps if score >= limit), None)


def _refused(wish: _Wish, hint: Hint | None) -> bool:
    """Whether a person has said no to this, or to more than this, and nothing new has happened since."""
    if hint is None or _RANK[wish.action] > _RANK[hint.action]:
        return False
    ended, fault = closed_at(hint), wish.facts.fault
    return fault is None or ended is None or fault.start <= ended


def _within_limits(wishes: Sequence[_Wish], inputs: Inputs, policy: Policy) -> list[_Wish]:
    """The wishes, with those for a cordon turned down to `avoid` where a limit forbids it."""
    standing = inputs.open_by_node()
    budget = Budget(inputs, policy)
    free = {wish.facts.node for wish in wishes if wish.is_control or _held(standing.get(wish.facts.node), policy)}
    calling = [wish for wish in wishes if wish.action in HOLDING and wish.facts.node not in free]
    trips = tripped(inputs, [wish.facts for wish in calling], policy)
    granted = []
    for wish in wishes:
        if wish.action not in HOLDING or wish.facts.node in free:
            granted.append(wish)
            continue
        why = next((trips[group] for group in groups(wish.facts) if group in trips), None)
        why = why or budget.refuse(wish.facts)
        if why is None:
            budget.charge(wish.facts)
            granted.append(wish)
        else:
            granted.append(replace(wish, action="avoid", evidence={**wish.evidence, "held": why}))
    return granted


def _held(hint: Hint | None, policy: Policy) -> bool:
    """Whether a hint holds its node already, in a way that this mode counts."""
    return hint is not None and hint.action in HOLDING and (hint.state != "shadow" or policy.mode == "shadow")


def _change(wish: _Wish, standing: Any, inputs: Inputs, policy: Policy) -> tuple[Hint, str] | None:
    """The hint that a wish makes of what stands, and the audit's word for it; None when it stands already."""
    now, hint = inputs.now, standing.get(wish.facts.node)
    until = now + timedelta(seconds=policy.validity_s)
    evidence = {**wish.evidence, "acted": format_time(now)}
    state: HintState = "shadow" if wish.is_control else _STATE[policy.mode]
    if hint is None:
        ident = hashlib.blake2b(f"{wish.facts.node} {format_time(now)}".encode(), digest_size=8).hexdigest()
        made = Hint(ident, wish.facts.node, wish.action, state, wish.reason, OWNER, now, until, evidence)
        return made, "held back" if "held" in evidence else "made"
    anew = replace(hint, action=wish.action, state=state, reason=wish.reason, valid_until=until, evidence=evidence)
    if _RANK[wish.action] > _RANK[hint.action]:
        return anew, "escalated"
    if hint.state == "shadow" and state != "shadow":
        return anew, "out of the shadow"
    if wish.is_control and not hint.is_control:
        return replace(hint, evidence={**hint.evidence, "control": True}), "left alone"
    if "held" in evidence and "held" not in hint.evidence and wish.action == hint.action:
        return replace(hint, evidence={**hint.evidence, "held": evidence["held"]}), "held back"
    if hint.valid_until - now < timedelta(seconds=policy.validity_s / 2):
        again: HintState = "approved" if hint.state == "sent" else hint.state
        return replace(hint, valid_until=until, state=again), "renewed"
    return None


def _is_well(facts: NodeFacts, hint: Hint, policy: Policy) -> bool:
    """Whether the ground of a hint has gone. A missing score is no good news: such a hint lapses by itself."""
    if facts.out or facts.fault is not None:
        return False
    limits = policy.thresholds
    raised_by = {"watch": limits.watch, "avoid": limits.avoid}.get(hint.action, limits.cordon)
    if facts.score is None:
        return "incident" in hint.evidence
    return facts.score < raised_by * limits.release_ratio
