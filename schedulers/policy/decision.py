"""From scores and faults to hints, under budgets. Pure: the same facts give the same hints.

    decision = decide(Inputs(now, nodes, hints), policy)

A node's proposal (`schedulers/policy/proposal.py`) passes the quorum, the breaker and the budgets. These refuse holds,
never a release: a refused hold becomes an `avoid` with the reason in its evidence; where an `avoid` takes a node out of
use as well (`Inputs.avoid_takes`), the same limits stand before it, and it becomes a `watch`. A node has one open hint.
It is escalated in place, renewed while its reason lasts, and released after that. A node that is held already costs no
budget. A proposal by score alone for a node of the control group is recorded as a shadow, in every mode, at no cost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from schedulers.policy.breaker import Group, HoldCalls, TrippedGroup, code_of, groups, in_force, tripped
from schedulers.policy.budget import HoldBudget
from schedulers.policy.facts import HOLDING, Inputs, NodeFacts, avoids, holds
from schedulers.policy.kill_switch import asks_anew
from schedulers.policy.proposal import (
    RANK,
    Proposal,
    began_of,
    ground,
    is_refused,
    is_unfounded,
    proposal_of,
    validity_of,
)
from schedulers.policy.settings import Mode, Policy, quiet_now, version_of
from store.hints.stops import Trip
from store.plural import many
from store.records.event import format_time
from store.records.hint import Evidence, Hint, HintState, RefusedHold

# Whether a scheduler holds a node for an approved hint is known from its holds and deliveries (`Inputs.still_held`).
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
        replace(facts, fault=None, witnesses=None, verdict=None, let_go=True)
        if facts.node not in kept and _reset(facts, trips)
        else facts
        for facts in inputs.nodes
    ]
    return replace(inputs, nodes=nodes)


def within_limits(
    proposals: Sequence[Proposal], inputs: Inputs, policy: Policy
) -> tuple[list[Proposal], list[TrippedGroup]]:
    """The proposals and the groups that trip: a hold that a limit refuses becomes an `avoid`.

    Where an `avoid` takes a node out of use as a hold does, it has limits as well, and becomes a `watch`; so does one
    for a link everywhere, for one switch's log speaks of the links of many nodes.
    """
    open_hints = inputs.open_by_node()
    free = {
        proposal.node for proposal in proposals if proposal.is_control or is_held(open_hints.get(proposal.node), policy)
    }
    calling = [proposal for proposal in proposals if proposal.holds and proposal.node not in free]
    since = {proposal.node: _called(proposal, open_hints.get(proposal.node), inputs.now) for proposal in calling}
    found = tripped(inputs, HoldCalls({proposal.node: proposal.facts for proposal in calling}, since), policy)
    limits = _Limits(HoldBudget(inputs, policy), in_force(inputs.trips, found), no_quorum(inputs, policy))
    review = {trip.group: trip for trip in inputs.trips if trip.backlog == "review"}
    granted = []
    for proposal in proposals:
        if proposal.action == "avoid" and (inputs.avoid_takes or proposal.evidence.link is not None):
            granted.append(_avoided(proposal, open_hints.get(proposal.node), limits, policy))
            continue
        if not proposal.holds or proposal.node in free:
            queued = proposal.holds and proposal.node not in inputs.still_held and _reset(proposal.facts, review)
            granted.append(replace(proposal, evidence=replace(proposal.evidence, review=True)) if queued else proposal)
            continue
        why = limits.refuse(proposal.facts) or limits.budget.refuse(proposal.facts)
        if why is None:
            limits.budget.charge(proposal.facts)
            # The fault's name: by it the breaker counts a hold after the fault is over.
            evidence = replace(proposal.evidence, review=_reset(proposal.facts, review), code=code_of(proposal.facts))
            granted.append(replace(proposal, evidence=evidence))
        else:
            call = RefusedHold(ground(proposal.evidence), since[proposal.node])
            less = replace(proposal, action="avoid", evidence=replace(proposal.evidence, held=why, call=call))
            taking = inputs.avoid_takes
            granted.append(_avoided(less, open_hints.get(less.node), limits, policy) if taking else less)
    return granted, found


@dataclass(frozen=True, slots=True)
class _Limits:
    """What keeps nodes from being taken now. `blocked`: why, by group; `unseen`: why nothing is taken at all."""

    budget: HoldBudget
    blocked: Mapping[Group, str]
    unseen: str | None

    def refuse(self, facts: NodeFacts) -> str | None:
        """Why a node is not to be taken, whatever the budgets say."""
        return self.unseen or next((self.blocked[group] for group in groups(facts) if group in self.blocked), None)


def _avoided(proposal: Proposal, hint: Hint | None, limits: _Limits, policy: Policy) -> Proposal:
    """An `avoid` that has limits: granted and charged, or reduced to a `watch` that says why."""
    if proposal.is_control or is_held(hint, policy) or is_avoided(hint, policy):
        return proposal
    why = limits.refuse(proposal.facts) or limits.budget.refuse_avoid(proposal.facts)
    if why is None:
        limits.budget.charge_avoid(proposal.facts)
        return proposal
    return replace(proposal, action="watch", evidence=replace(proposal.evidence, held=proposal.evidence.held or why))


def is_avoided(hint: Hint | None, policy: Policy) -> bool:
    """Whether a hint has its node avoided already, in a way that this mode counts."""
    return hint is not None and avoids(hint) and (hint.state != "shadow" or policy.mode == "shadow")


def no_quorum(inputs: Inputs, policy: Policy) -> str | None:
    """Why too little is seen of the cluster to hold a node; None where enough is, or no node has a sidecar."""
    seen = inputs.reporting
    if seen is None or seen.expected == 0 or seen.heard >= policy.quorum * seen.expected:
        return None
    return (
        f"quorum: {seen.heard} of {many(seen.expected, 'node')} with a sidecar report, {100 * policy.quorum:g} % must"
    )


def is_held(hint: Hint | None, policy: Policy) -> bool:
    """Whether a hint holds its node already, in a way that this mode counts."""
    return hint is not None and hint.action in HOLDING and (hint.state != "shadow" or policy.mode == "shadow")


def is_refused_anew(evidence: Evidence, before: Evidence) -> bool:
    """Whether a hold is refused by another kind of limit, or for another incident, than the earlier evidence has."""
    held, was = evidence.held or "", before.held or ""
    incident, earlier = (None if one.call is None else one.call.incident for one in (evidence, before))
    return held.partition(":")[0] != was.partition(":")[0] or incident != earlier


def _reset(facts: NodeFacts, trips: Mapping[Group, Trip]) -> bool:
    """Whether one of some trips of the node's groups was reset since what speaks against the node began."""
    began = began_of(facts)
    resets = [trips[group].reset for group in groups(facts) if group in trips]
    return began is not None and any(reset is not None and began <= reset for reset in resets)


def _called(proposal: Proposal, open_hint: Hint | None, now: datetime) -> datetime:
    """Since when a node has called for a hold for this incident, as it was first seen here."""
    call = None if open_hint is None else open_hint.evidence.call
    return call.since if call is not None and call.incident == ground(proposal.evidence) else now


# What a hint waits for in place of quiet hours.
NO_INVENTORY = "nobody has named the nodes of this cluster"


def _waiting(proposal: Proposal) -> Proposal:
    """The proposal where every node has only named itself: a person decides, until there is an inventory."""
    return replace(proposal, evidence=replace(proposal.evidence, quiet=NO_INVENTORY))


OWNER = "foreshock"
_STATE: dict[Mode, HintState] = {"shadow": "shadow", "approve": "proposed", "act": "approved"}


def change_of(
    proposal: Proposal, open_hints: Mapping[str, Hint], now: datetime, policy: Policy
) -> tuple[Hint, str] | None:
    """The hint that a proposal makes or changes, and the audit's word for it; None where nothing changes."""
    hint, lasts = open_hints.get(proposal.node), validity_of(proposal.action, policy.validity)
    state, quiet = _state(proposal, now, policy)
    # A hold that becomes a graver one is none anew.
    since = hint.evidence.acted if hint is not None and is_held(hint, policy) else None
    ticket = None if hint is None else hint.evidence.ticket
    evidence = replace(proposal.evidence, acted=since or now, quiet=quiet, ticket=ticket)
    version, until = version_of(policy), now + lasts
    if hint is None:
        ident = hashlib.blake2b(f"{proposal.node} {format_time(now)}".encode(), digest_size=8).hexdigest()
        made = Hint(
            ident,
            proposal.node,
            proposal.action,
            state,
            proposal.reason,
            OWNER,
            now,
            until,
            evidence,
            policy=version,
        )
        return made, "made" if evidence.held is None else "held back"
    anew = replace(
        hint,
        action=proposal.action,
        state=state,
        reason=proposal.reason,
        valid_until=until,
        evidence=evidence,
        policy=version,
    )
    if RANK[proposal.action] > RANK[hint.action]:
        return anew, "escalated"
    if hint.state == "shadow" and state != "shadow":
        return anew, "out of the shadow"
    if hint.state == "proposed" and state == "approved" and hint.evidence.quiet is not None:
        return anew, "after quiet hours" if hint.evidence.quiet != NO_INVENTORY else "the inventory is known"
    if hint.state == "approved" and state == "proposed" and proposal.evidence.review and not hint.evidence.review:
        return replace(hint, state=state, evidence=replace(hint.evidence, review=True), policy=version), "for review"
    return _amended(proposal, hint, now, policy)


def _amended(proposal: Proposal, hint: Hint, now: datetime, policy: Policy) -> tuple[Hint, str] | None:
    """A standing hint that says something more, or stands for longer."""
    version, lasts = version_of(policy), validity_of(hint.action, policy.validity)
    if proposal.is_control and not hint.is_control:
        return replace(hint, evidence=replace(hint.evidence, control=True), policy=version), "left alone"
    new = proposal.evidence
    if new.held is not None and proposal.action == hint.action and is_refused_anew(new, hint.evidence):
        incident = new.incident or hint.evidence.incident
        evidence = replace(hint.evidence, held=new.held, call=new.call, incident=incident)
        return replace(hint, evidence=evidence, policy=version), "held back"
    if proposal.action == hint.action and new.verdict not in (None, hint.evidence.verdict):
        evidence = replace(hint.evidence, verdict=new.verdict)
        return replace(hint, reason=proposal.reason, evidence=evidence, policy=version), "names a verdict"
    if proposal.action == hint.action and _is_another_link(new, hint.evidence):
        evidence = replace(hint.evidence, link=new.link, reasons=new.reasons)
        return replace(hint, reason=proposal.reason, evidence=evidence, policy=version), "names a link"
    if RANK[hint.action] > RANK["avoid"] and not proposal.holds:
        return None  # a hold lapses when nothing speaks for it any more but a score
    if hint.valid_until - now < lasts / 2:
        again: HintState = "approved" if hint.state == "sent" else hint.state
        return replace(hint, valid_until=now + lasts, state=again, policy=version), "renewed"
    return None


def _is_another_link(new: Evidence, before: Evidence) -> bool:
    """Whether a soft hint that no fault or verdict is behind named none, or another one."""
    if before.incident is not None or before.verdict is not None or new.link is None:
        return False
    return before.link is None or before.link.name != new.link.name


def _state(proposal: Proposal, now: datetime, policy: Policy) -> tuple[HintState, str | None]:
    """The state of a new hint, and the quiet hours that make a hold wait for a person."""
    if proposal.is_control:
        return "shadow", None
    if policy.mode == "act" and (proposal.evidence.review or proposal.evidence.quiet is not None):
        return "proposed", proposal.evidence.quiet
    if policy.mode == "act" and proposal.holds:
        quiet = quiet_now(policy.quiet_hours, now)
        return ("approved", None) if quiet is None else ("proposed", quiet)
    return _STATE[policy.mode], None


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes: hints made or changed (with the word for the audit), hints whose node is well again, trips."""

    changed: tuple[tuple[Hint, str], ...] = ()
    released: tuple[Hint, ...] = ()
    tripped: tuple[TrippedGroup, ...] = ()


def decide(inputs: Inputs, policy: Policy) -> Decision:
    """The hints of this moment. Confirmed faults are served before two detectors, higher scores before lower ones."""
    inputs = heed_resets(inputs)
    open_hints = inputs.open_by_node()
    refused = inputs.refused_by_node()
    proposals = [
        proposal
        for facts in inputs.nodes
        if (proposal := proposal_of(facts, inputs, policy, open_hints.get(facts.node))) is not None
        and not is_refused(proposal, refused.get(facts.node))
    ]
    proposals.sort(
        key=lambda proposal: (
            proposal.facts.fault is None,
            not proposal.holds,
            -proposal.risk,
            proposal.node,
        )
    )
    known = {facts.node: facts for facts in inputs.nodes}
    released = [
        hint for node, hint in open_hints.items() if node in known and is_unfounded(known[node], hint, inputs, policy)
    ]
    well = {hint.node for hint in released}
    granted, tripped = within_limits(proposals, inputs, policy)
    if inputs.is_claimed:
        granted = [_waiting(proposal) for proposal in granted]
    changes = (change_of(proposal, open_hints, inputs.now, policy) for proposal in granted if proposal.node not in well)
    changed = [
        change
        for change in changes
        if change is not None and (inputs.stop == "none" or not asks_anew(change[0], open_hints))
    ]
    return Decision(tuple(changed), tuple(released), tuple(tripped))
