"""What a node calls for, and why: before budgets, breaker and switch have their say.

Its confirmed fault, or two independent detectors, call for a hold (`cordon`, `drain`); its score alone for no more
than a soft hint (`watch`, `avoid`), from the thresholds that the size of its job makes (`schedulers/thresholds.py`).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from schedulers.facts import HOLDING, Inputs, NodeFacts, closed_at
from schedulers.price import job_gpus, price_of
from schedulers.settings import Policy
from schedulers.thresholds import Steps, steps
from schedulers.witness import Pair
from store.event import Action, format_time
from store.hint import Hint, HintAction

RANK: dict[HintAction, int] = {"release": 0, "watch": 1, "avoid": 2, "cordon": 3, "drain": 4}
# Where the part must be handled by people, running work is moved off; else new work alone is kept off.
_DRAINS: frozenset[Action] = frozenset({"drain_node", "replace_part", "contact_support"})


@dataclass(frozen=True, slots=True)
class Wish:
    """What a node calls for, and why."""

    facts: NodeFacts
    action: HintAction
    reason: str
    evidence: dict[str, Any]

    @property
    def is_control(self) -> bool:
        """Whether it is to be written down and not to be asked."""
        return "control" in self.evidence

    @property
    def holds(self) -> bool:
        """Whether it would keep work off the node."""
        return self.action in HOLDING


def wish_of(facts: NodeFacts, inputs: Inputs, policy: Policy, standing: Hint | None) -> Wish | None:
    """What a node calls for; nothing when it is out already (somebody is at it) or its owner has opted out."""
    # Nearly every node is well: that is found out first.
    if facts.out or not (facts.is_confirmed or _is_risky(facts, policy)) or is_opted_out(facts.node, policy):
        return None
    called = _called(facts, inputs, policy, standing)
    if called is None or called.action == "watch":
        return called
    return replace(called, evidence={**called.evidence, "cost": price_of(facts, called.action, inputs, policy)})


def _called(facts: NodeFacts, inputs: Inputs, policy: Policy, standing: Hint | None) -> Wish | None:
    score = {"score": facts.score, "horizon_h": 24, "reasons": list(facts.reasons)}
    if facts.fault is not None:
        fault = facts.fault
        what = f"{fault.kind} {fault.code}" if fault.code is not None else fault.kind
        reason = f"foreshock: {what} on {fault.device.words(fault.name)}: {fault.message[:200]}"
        action: HintAction = "drain" if fault.action in _DRAINS else "cordon"
        return Wish(facts, action, reason, {**score, "incident": fault.id})
    if facts.witnesses is not None:
        return _of_two(facts, facts.witnesses, score)
    return _of_score(facts, steps_for(facts, inputs, policy), score, standing)


def steps_for(facts: NodeFacts, inputs: Inputs, policy: Policy) -> Steps:
    """The thresholds of a node: by its job, or the largest that runs, for it may be the next to be placed there."""
    gpus = facts.gpus or policy.costs.node_gpus
    return steps(policy.thresholds, policy.costs, job_gpus(facts, inputs, policy), gpus)


def is_opted_out(node: str, policy: Policy) -> bool:
    """Whether nothing is to be asked of a node."""
    return any(fnmatchcase(node, pattern) for pattern in policy.opt_out)


def is_refused(wish: Wish, hint: Hint | None) -> bool:
    """Whether a person has said no to this, or to more than this, and nothing new has happened since."""
    if hint is None or RANK[wish.action] > RANK[hint.action]:
        return False
    ended = closed_at(hint)
    began = began_of(wish.facts)
    return began is None or ended is None or began <= ended


def began_of(facts: NodeFacts) -> datetime | None:
    """When what speaks for a hold began; None where nothing does."""
    if facts.fault is not None:
        return facts.fault.start
    return None if facts.witnesses is None else facts.witnesses[1].start


def _is_risky(facts: NodeFacts, policy: Policy) -> bool:
    return facts.score is not None and facts.score >= policy.thresholds.watch


def _of_two(facts: NodeFacts, pair: Pair, score: dict[str, Any]) -> Wish:
    """A cordon on the word of two detectors."""
    told = [f"{sign.source}: {sign.kind}" + ("" if sign.code is None else f" {sign.code}") for sign in pair]
    witnesses = [
        {"incident": sign.incident, "source": sign.source, "kind": sign.kind, "code": sign.code}
        | {"time": format_time(sign.start)}
        for sign in pair
    ]
    evidence = {**score, "incident": pair[1].incident, "witnesses": witnesses}
    return Wish(facts, "cordon", f"foreshock: two detectors: {' and '.join(told)}", evidence)


def _of_score(facts: NodeFacts, limits: Steps, score: dict[str, Any], standing: Hint | None) -> Wish | None:
    """What the score alone asks."""
    if facts.score is None:
        return None
    avoids = facts.score >= limits.avoid
    evidence = {**score, "threshold": limits.avoid if avoids else limits.watch}
    if facts.job is not None:
        evidence["job"] = {"job": facts.job.job, "run": facts.job.run, "gpus": facts.job.gpus}
    reason = f"foreshock: risk {100 * facts.score:.0f} % within 24 h"
    reason += f": {facts.reasons[0][:200]}" if facts.reasons else ""
    # What was asked before the node was drawn runs its course.
    if facts.control and (standing is None or standing.state == "shadow"):
        evidence["control"] = True
    return Wish(facts, "avoid" if avoids else "watch", reason, evidence)
