"""Quorum, breaker and budgets over what is wished: a hold that they refuse becomes an `avoid` that says why.

    inputs = heed_resets(inputs)                          # what a person has let go of calls no more
    wishes, tripped = within_limits(wishes, inputs, policy)

They hold back cordons and drains, never a release. A node that is held already costs nothing more, and what the score
alone asks of a node of the control group costs nothing: it is only written down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from schedulers.breaker import Calls, Group, Tripped, code_of, groups, in_force, tripped
from schedulers.budget import Budget
from schedulers.facts import HOLDING, Inputs, NodeFacts, holds
from schedulers.settings import Policy
from schedulers.wish import Wish, began_of
from store.event import format_time, parse_time
from store.hint import Hint
from store.trips import Trip

# Of an approved hint it is the placements and deliveries that tell (`Inputs.still_held`).
_TAKEN = ("shadow", "sent", "confirmed")


def heed_resets(inputs: Inputs) -> Inputs:
    """The facts without the faults that a person let go of with a reset of the breaker (`drop`).

    That is what began before it, on nodes of the group that no scheduler holds yet: what was approved and has not gone
    out is a part of the backlog.
    """
    trips = {trip.group: trip for trip in inputs.trips if trip.backlog == "drop"}
    if not trips:
        return inputs
    kept = inputs.still_held | {hint.node for hint in inputs.hints if holds(hint) and hint.state in _TAKEN}
    nodes = [
        replace(facts, fault=None, witnesses=None, let_go=True)
        if facts.node not in kept and _reset(facts, trips)
        else facts
        for facts in inputs.nodes
    ]
    return replace(inputs, nodes=nodes)


def within_limits(wishes: Sequence[Wish], inputs: Inputs, policy: Policy) -> tuple[list[Wish], list[Tripped]]:
    """The wishes, with those for a hold turned down to `avoid` where a limit forbids it, and the groups that trip."""
    standing = inputs.open_by_node()
    budget = Budget(inputs, policy)
    free = {wish.facts.node for wish in wishes if wish.is_control or is_held(standing.get(wish.facts.node), policy)}
    calling = [wish for wish in wishes if wish.holds and wish.facts.node not in free]
    since = {wish.facts.node: _called(wish, standing.get(wish.facts.node), inputs.now) for wish in calling}
    found = tripped(inputs, Calls({wish.facts.node: wish.facts for wish in calling}, since), policy)
    blocked = in_force(inputs.trips, found)
    review = {trip.group: trip for trip in inputs.trips if trip.backlog == "review"}
    unseen = no_quorum(inputs, policy)
    granted = []
    for wish in wishes:
        if not wish.holds or wish.facts.node in free:
            queued = wish.holds and wish.facts.node not in inputs.still_held and _reset(wish.facts, review)
            granted.append(replace(wish, evidence={**wish.evidence, "review": True}) if queued else wish)
            continue
        why = unseen or next((blocked[group] for group in groups(wish.facts) if group in blocked), None)
        why = why or budget.refuse(wish.facts)
        if why is None:
            budget.charge(wish.facts)
            waits = {"review": True} if _reset(wish.facts, review) else {}
            granted.append(replace(wish, evidence={**wish.evidence, **waits, **_coded(wish.facts)}))
        else:
            call = {"for": _ground(wish), "since": format_time(since[wish.facts.node])}
            granted.append(replace(wish, action="avoid", evidence={**wish.evidence, "held": why, "call": call}))
    return granted, found


def no_quorum(inputs: Inputs, policy: Policy) -> str | None:
    """Why too little is seen of the cluster to hold a node; None where enough is, or no node has a sidecar."""
    seen = inputs.reporting
    if seen is None or seen.expected == 0 or seen.heard >= policy.quorum * seen.expected:
        return None
    return f"quorum: {seen.heard} of {seen.expected} nodes with a sidecar report, {100 * policy.quorum:g} % must"


def is_held(hint: Hint | None, policy: Policy) -> bool:
    """Whether a hint holds its node already, in a way that this mode counts."""
    return hint is not None and hint.action in HOLDING and (hint.state != "shadow" or policy.mode == "shadow")


def is_held_anew(evidence: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a wish is held back for another kind of limit, or on another ground, than the evidence of before says."""
    held, was = str(evidence.get("held", "")), str(before.get("held", ""))
    call, called = evidence.get("call") or {}, before.get("call") or {}
    return held.partition(":")[0] != was.partition(":")[0] or call.get("for") != called.get("for")


def _reset(facts: NodeFacts, trips: Mapping[Group, Trip]) -> bool:
    """Whether one of some trips of the node's groups was reset since what speaks against the node began."""
    began = began_of(facts)
    resets = [trips[group].reset for group in groups(facts) if group in trips]
    return began is not None and any(reset is not None and began <= reset for reset in resets)


def _called(wish: Wish, standing: Hint | None, now: datetime) -> datetime:
    """Since when a node has called for a hold on this ground, as it was first seen here."""
    call = {} if standing is None else standing.evidence.get("call") or {}
    return parse_time(call["since"]) if call.get("for") == _ground(wish) else now


def _ground(wish: Wish) -> str:
    return str(wish.evidence.get("incident", "score"))


def _coded(facts: NodeFacts) -> dict[str, str]:
    """The fault's name, by which the breaker counts a hold after the fault is over."""
    code = code_of(facts)
    return {} if code is None else {"code": code}
