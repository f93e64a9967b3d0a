"""From scores and faults to hints, under budgets. Pure: the same facts give the same hints.

    decision = decide(Inputs(now, nodes, hints), policy)

What is wanted of a node follows from its confirmed fault, two independent detectors, or its score
(`schedulers/wish.py`); one open hint a node, which is escalated in place, renewed while its ground lasts
(`schedulers/change.py`), and released when that has gone (`schedulers/ground.py`). A cordon that quorum, budgets or the
breaker refuse becomes an `avoid`, with the reason in its evidence. What the score alone asks of a node of the control group is written down as a shadow, in
every mode, and costs no budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedulers.budget import Budget, groups, tripped
from schedulers.change import change_of
from schedulers.facts import HOLDING, Inputs
from schedulers.ground import is_well
from schedulers.settings import Policy
from schedulers.wish import Wish, is_refused, wish_of
from store.hint import Hint


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes: hints made or changed (with the word for the audit), and hints whose node is well again."""

    changed: tuple[tuple[Hint, str], ...] = ()
    released: tuple[Hint, ...] = ()


def decide(inputs: Inputs, policy: Policy) -> Decision:
    """The hints of this moment. Confirmed faults are served before two detectors, higher scores before lower ones."""
    standing = inputs.open_by_node()
    refused = inputs.refused_by_node()
    wishes = [
        wish
        for facts in inputs.nodes
        if (wish := wish_of(facts, inputs, policy, standing.get(facts.node))) is not None
        and not is_refused(wish, refused.get(facts.node))
    ]
    wishes.sort(
        key=lambda wish: (wish.facts.fault is None, not wish.holds, -(wish.facts.score or 0.0), wish.facts.node)
    )
    known = {facts.node: facts for facts in inputs.nodes}
    released = [hint for node, hint in standing.items() if node in known and is_well(known[node], hint, inputs, policy)]
    well = {hint.node for hint in released}
    granted = [wish for wish in _within_limits(wishes, inputs, policy) if wish.facts.node not in well]
    changes = (change_of(wish, standing, inputs.now, policy) for wish in granted)
    return Decision(tuple(change for change in changes if change is not None), tuple(released))


def no_quorum(inputs: Inputs, policy: Policy) -> str | None:
    """Why too little is seen of the cluster to hold a node; None where enough is, or no node has a sidecar."""
    seen = inputs.reporting
    if seen is None or seen.expected == 0 or seen.heard >= policy.quorum * seen.expected:
        return None
    return f"quorum: {seen.heard} of {seen.expected} nodes with a sidecar report, {100 * policy.quorum:g} % must"


def _within_limits(wishes: Sequence[Wish], inputs: Inputs, policy: Policy) -> list[Wish]:
    """The wishes, with those for a cordon turned down to `avoid` where a limit forbids it."""
    standing = inputs.open_by_node()
    budget = Budget(inputs, policy)
    free = {wish.facts.node for wish in wishes if wish.is_control or _held(standing.get(wish.facts.node), policy)}
    calling = [wish for wish in wishes if wish.holds and wish.facts.node not in free]
    trips = tripped(inputs, [wish.facts for wish in calling], policy)
    unseen = no_quorum(inputs, policy)
    granted = []
    for wish in wishes:
        if not wish.holds or wish.facts.node in free:
            granted.append(wish)
            continue
        why = unseen or next((trips[group] for group in groups(wish.facts) if group in trips), None)
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
