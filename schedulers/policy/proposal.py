"""What a node calls for, what that costs, and whether a hint has lost its reason. Pure.

    proposal_of(facts, inputs, policy, open_hint)     # Proposal(facts, "cordon", "foreshock: xid 79 on ...", evidence)

A confirmed fault, or two independent detectors, call for a hold (`cordon`, `drain`). A score alone calls for a soft
hint (`watch`, `avoid`), by the thresholds that follow from the size of the job (`schedulers/policy/thresholds.py`).
So does what a link of it is likely to be lost by: the graver of the two is asked, they are not added up, for the
node's own score knows its lost links already. Budgets, the breaker and the kill switch come later
(`schedulers/policy/decision.py`).

A verdict by which others suffer from a part of the node calls for a hold, too; of a node whose faults another's failure
explains nothing is asked but a `watch` that names it (`schedulers/policy/shared_causes.py`).

A hold ends with its faults. A soft hint ends when the score falls below `release_ratio` of the threshold that raised
it, or of the present one where that is lower: so a job that ends does not make hints flap. Missing data ends nothing.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from schedulers.policy.facts import HOLDING, Inputs, NodeFacts, Pair, closed_at
from schedulers.policy.settings import Policy, Validity
from schedulers.policy.thresholds import ActionThresholds, failure_gpu_h, steps
from store.models.scores import LinkScore
from store.records.event import Action
from store.records.fault_catalog import named_kind
from store.records.hint import Evidence, Hint, HintAction, HintCost, HintLink, HintWitness, JobOnNode

_HOUR = timedelta(hours=1)
# Of a link as many events are named as of a score's reason.
_MOST_EVENTS = 20


def validity_of(action: HintAction, validity: Validity) -> timedelta:
    """For how long a hint of an action stands, unless it is renewed."""
    by_action = {"watch": validity.watch_s, "avoid": validity.avoid_s, "cordon": validity.cordon_s}
    by_action["drain"] = validity.drain_s
    return timedelta(seconds=by_action.get(action, validity.job_s))


def price_of(facts: NodeFacts, action: HintAction, inputs: Inputs, policy: Policy) -> HintCost:
    """GPU-hours, for the person who approves: of the node until the hint ends by itself, and of a failure of the job.

    `run` is that of the job on the node; None: the failure is that of the largest job that runs, or of the usual size.
    """
    gpus, of_job = facts.gpus or policy.costs.node_gpus, job_gpus(facts, inputs, policy)
    job = facts.job
    known = {"node_gpus": facts.gpus, "job_gpus": inputs.largest_job_gpus if job is None else job.gpus}
    return HintCost(
        held_gpu_h=round(gpus * (validity_of(action, policy.validity) / _HOUR), 1),
        failure_gpu_h=round(failure_gpu_h(policy.costs, of_job), 1),
        run=None if job is None else job.run,
        node_gpus=gpus,
        job_gpus=of_job,
        assumed=tuple(name for name, count in known.items() if not count),
    )


def job_gpus(facts: NodeFacts, inputs: Inputs, policy: Policy) -> int:
    """Of the job on a node, or of the largest that runs, for it may be the next to be placed there."""
    return facts.job.gpus if facts.job is not None else inputs.largest_job_gpus or policy.costs.job_gpus


RANK: dict[HintAction, int] = {"release": 0, "watch": 1, "avoid": 2, "cordon": 3, "drain": 4}
# Where the part must be handled by people, running work is moved off; else new work alone is kept off.
_DRAINS: frozenset[Action] = frozenset({"drain_node", "replace_part", "contact_support"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a node calls for, and why."""

    facts: NodeFacts
    action: HintAction
    reason: str
    evidence: Evidence

    @property
    def node(self) -> str:
        """Its name."""
        return self.facts.node

    @property
    def is_control(self) -> bool:
        """Whether it is only recorded, because the node is in the control group."""
        return self.evidence.control

    @property
    def holds(self) -> bool:
        """Whether it would keep work off the node."""
        return self.action in HOLDING

    @property
    def risk(self) -> float:
        """By what those of one kind are served first: the node's own score, or that of its riskiest link, 0-1."""
        return max(self.facts.score or 0.0, *((one.stop_risk or 0.0) for one in self.facts.links), 0.0)


def proposal_of(facts: NodeFacts, inputs: Inputs, policy: Policy, open_hint: Hint | None) -> Proposal | None:
    """What a node calls for; nothing when it is out already (somebody is at it) or its owner has opted out.

    It is out where an outage is told and a scheduler itself shows it so: the word of one source hides no fault.
    """
    # Nearly every node is well: that is found out first.
    softly = facts.watched is not None or facts.victim_of is not None or bool(facts.links)
    if (
        (facts.out and facts.is_shown_out)
        or not (facts.is_confirmed or _is_risky(facts, policy) or softly)
        or is_opted_out(facts.node, policy)
    ):
        return None
    called = _called(facts, inputs, policy, open_hint)
    if called is None or called.action == "watch":
        return called
    cost = price_of(facts, called.action, inputs, policy)
    return replace(called, evidence=replace(called.evidence, cost=cost))


def _called(facts: NodeFacts, inputs: Inputs, policy: Policy, open_hint: Hint | None) -> Proposal | None:
    own = None if facts.verdict is None else facts.verdict.id
    score = Evidence(facts.score, 24, facts.reasons, verdict=own, scored=scored_at(facts))
    if facts.fault is not None:
        fault = facts.fault
        what = named_kind(fault.kind, fault.code)
        reason = f"foreshock: {what} on {fault.device.words(fault.name)}: {fault.message[:200]}"
        action: HintAction = "drain" if fault.action in _DRAINS else "cordon"
        return Proposal(facts, action, reason, replace(score, incident=fault.id))
    if facts.witnesses is not None:
        return _of_two(facts, facts.witnesses, score)
    if facts.verdict is not None:
        held: HintAction = "drain" if facts.verdict.action in _DRAINS else "cordon"
        return Proposal(facts, held, f"foreshock: {facts.verdict.reason[:300]}", score)
    if facts.victim_of is not None:
        cause = facts.victim_of
        reason = f"foreshock: not this node's fault: {cause.cause_class} {cause.name[:100]}: {cause.reason[:200]}"
        return Proposal(facts, "watch", reason, replace(score, verdict=cause.id))
    risky = _of_score(facts, steps_for(facts, inputs, policy), score, open_hint) if _is_risky(facts, policy) else None
    calls = (risky, _of_watched(facts, score), _of_link(facts, inputs, policy, open_hint))
    # Of calls for the same the first one.
    return max((one for one in calls if one is not None), key=lambda one: RANK[one.action], default=None)


def scored_at(facts: NodeFacts) -> datetime | None:
    """Of when the score is that evidence tells."""
    return None if facts.score is None else facts.scored


def risk_words(score: float, scored: datetime | None) -> str:
    """`risk 31 % within 24 h, as of 2025-03-01 03:10 UTC`: a risk is read hours after it was told."""
    return f"risk {100 * score:.0f} % within 24 h{_as_of(scored)}"


def _as_of(moment: datetime | None) -> str:
    return "" if moment is None else f", as of {moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def steps_for(facts: NodeFacts, inputs: Inputs, policy: Policy) -> ActionThresholds:
    """The thresholds of a node: by its job, or the largest that runs, for it may be the next to be placed there.

    What was learned elsewhere alone, a prior, asks no more than to watch: nobody has seen here that it is right.
    """
    found = _steps(facts, inputs, policy)
    return ActionThresholds(found.watch, math.inf, math.inf) if inputs.of_prior else found


def _steps(facts: NodeFacts, inputs: Inputs, policy: Policy) -> ActionThresholds:
    """The thresholds whatever the score is of."""
    gpus = facts.gpus or policy.costs.node_gpus
    return steps(policy.thresholds, policy.costs, job_gpus(facts, inputs, policy), gpus)


def is_opted_out(node: str, policy: Policy) -> bool:
    """Whether nothing is to be asked of a node."""
    return any(fnmatchcase(node, pattern) for pattern in policy.opt_out)


def ground(evidence: Evidence) -> str:
    """What speaks for a hint: an incident's id, a verdict's, or `score`."""
    return evidence.incident or evidence.verdict or "score"


def is_refused(proposal: Proposal, hint: Hint | None) -> bool:
    """Whether a person has said no to this, or to more than this, and nothing new has happened since.

    Who ends a hint that a limit had lowered says no to what was called for, not to what was left of it alone.
    """
    if hint is None:
        return False
    lowered = hint.evidence.held is not None and ground(hint.evidence) == ground(proposal.evidence)
    if RANK[proposal.action] > RANK[hint.action] and not lowered:
        return False
    ended = closed_at(hint)
    began = began_of(proposal.facts)
    return began is None or ended is None or began <= ended


def began_of(facts: NodeFacts) -> datetime | None:
    """When what speaks for a hold began; None where nothing does."""
    if facts.fault is not None:
        return facts.fault.start
    if facts.witnesses is not None:
        return facts.witnesses[1].start
    return None if facts.verdict is None else facts.verdict.since


def _is_risky(facts: NodeFacts, policy: Policy) -> bool:
    return facts.score is not None and facts.score >= policy.thresholds.watch


def _of_two(facts: NodeFacts, pair: Pair, score: Evidence) -> Proposal:
    """A cordon on the word of two detectors."""
    detectors = [f"{sign.source}: {named_kind(sign.kind, sign.code)}" for sign in pair]
    witnesses = tuple(HintWitness(sign.incident, sign.source, sign.kind, sign.code, sign.start) for sign in pair)
    evidence = replace(score, incident=pair[1].incident, witnesses=witnesses)
    return Proposal(facts, "cordon", f"foreshock: two detectors: {' and '.join(detectors)}", evidence)


def _of_watched(facts: NodeFacts, score: Evidence) -> Proposal | None:
    """What an NVLink asks that stands out and is no fault yet."""
    if facts.watched is None:
        return None
    where = f"{facts.watched.device.words(facts.watched.name)}: {facts.watched.message[:200]}"
    return Proposal(facts, "watch", f"foreshock: {where}", replace(score, incident=facts.watched.id))


def _of_score(facts: NodeFacts, limits: ActionThresholds, score: Evidence, open_hint: Hint | None) -> Proposal | None:
    """What the score alone asks."""
    if facts.score is None:
        return None
    avoids = facts.score >= limits.avoid
    evidence = replace(score, threshold=limits.avoid if avoids else limits.watch)
    reason = f"foreshock: {risk_words(facts.score, facts.scored)}"
    reason += f": {facts.reasons[0][:200]}" if facts.reasons else ""
    return Proposal(facts, "avoid" if avoids else "watch", reason, _of_risk(facts, evidence, open_hint))


def _of_link(facts: NodeFacts, inputs: Inputs, policy: Policy, open_hint: Hint | None) -> Proposal | None:
    """What the riskiest link asks that something of its own speaks against; an `avoid` by what a loss does to jobs."""
    worst = next((one for one in facts.links if one.own_reasons), None)
    limits = _steps(facts, inputs, policy)
    if worst is None or worst.own_risk is None or worst.own_risk < limits.watch:
        return None
    avoids = worst.stop_risk is not None and worst.stop_risk >= limits.avoid
    told, threshold = worst.own_reasons, limits.avoid if avoids else limits.watch
    link = HintLink(
        worst.link,
        worst.ends,
        worst.score,
        worst.horizon_h,
        worst.own_risk,
        worst.stop_risk,
        threshold,
        tuple(event for reason in told for event in reason.events)[:_MOST_EVENTS],
        worst.time,
    )
    reasons = tuple(reason.text for reason in told)
    evidence = Evidence(facts.score, 24, reasons, link=link, scored=scored_at(facts))
    reason = f"foreshock: link {worst.link[:100]}, which is {100 * worst.score:.0f} % likely to be lost within 24 h"
    reason += _as_of(worst.time)
    reason += f": {told[0].text[:200]}"
    return Proposal(facts, "avoid" if avoids else "watch", reason, _of_risk(facts, evidence, open_hint))


def _of_risk(facts: NodeFacts, evidence: Evidence, open_hint: Hint | None) -> Evidence:
    """The same with the job that is at risk, and for the record alone where the node is left alone."""
    if facts.job is not None:
        evidence = replace(evidence, job=JobOnNode(facts.job.job, facts.job.run, facts.job.gpus))
    # What was asked before the node was drawn runs its course.
    if facts.control and (open_hint is None or open_hint.state == "shadow"):
        evidence = replace(evidence, control=True)
    return evidence


def is_unfounded(facts: NodeFacts, hint: Hint, inputs: Inputs, policy: Policy) -> bool:
    """Whether nothing speaks for a hint any more. Of a node that has fallen silent nobody knows."""
    if is_opted_out(facts.node, policy):
        return True
    if facts.out or facts.silent or facts.is_confirmed:
        return False
    if hint.action in HOLDING:
        return True
    if hint.action == "watch" and (facts.watched is not None or facts.victim_of is not None):
        return False
    limits, link = steps_for(facts, inputs, policy), hint.evidence.link
    if any(_link_speaks(one, hint, _steps(facts, inputs, policy), policy) for one in facts.links):
        return False
    if link is not None and all(one.link != link.name for one in facts.links):
        return False  # nobody has scored it of late
    if facts.score is None:  # that is not low; but a link that was scored anew is calm, a cordon's fault is over
        return link is not None or hint.evidence.incident is not None
    present = limits.watch if hint.action == "watch" else limits.avoid
    raised_by = hint.evidence.threshold
    line = present if raised_by is None else min(present, raised_by)
    return facts.score < line * policy.thresholds.release_ratio


def _link_speaks(one: LinkScore, hint: Hint, limits: ActionThresholds, policy: Policy) -> bool:
    """Whether a link is not calm enough yet for a soft hint on its host to end."""
    risk, present = (one.own_risk, limits.watch) if hint.action == "watch" else (one.stop_risk, limits.avoid)
    raised_by = hint.evidence.link
    line = present if raised_by is None else min(present, raised_by.threshold)
    return bool(one.own_reasons) and risk is not None and risk >= line * policy.thresholds.release_ratio
