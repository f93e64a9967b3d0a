"""From scores and faults to hints, under budgets. Pure: the same facts give the same hints.

    decision = decide(Inputs(now, nodes, hints), policy)

What is wanted of a node follows from its confirmed fault, two independent detectors, or its score
(`schedulers/wish.py`); one open hint a node, which is escalated in place, renewed while its ground lasts
(`schedulers/change.py`), and released when that has gone (`schedulers/ground.py`). A cordon that quorum, budgets or the
breaker refuse becomes an `avoid`, with the reason in its evidence. What the score alone asks of a node of the
control group is written down as a shadow, in every mode, and costs no budget.
"""

from dataclasses import dataclass

from schedulers.breaker import Tripped
from schedulers.change import change_of
from schedulers.facts import Inputs
from schedulers.ground import is_well
from schedulers.kill_switch import asks_anew
from schedulers.limits import heed_resets, within_limits
from schedulers.settings import Policy
from schedulers.wish import is_refused, wish_of
from store.hint import Hint


@dataclass(frozen=True, slots=True)
class Decision:
    """What changes: hints made or changed (with the word for the audit), hints whose node is well again, trips."""

    changed: tuple[tuple[Hint, str], ...] = ()
    released: tuple[Hint, ...] = ()
    tripped: tuple[Tripped, ...] = ()


def decide(inputs: Inputs, policy: Policy) -> Decision:
    """The hints of this moment. Confirmed faults are served before two detectors, higher scores before lower ones."""
    inputs = heed_resets(inputs)
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
    granted, tripped = within_limits(wishes, inputs, policy)
    changes = (change_of(wish, standing, inputs.now, policy) for wish in granted if wish.facts.node not in well)
    changed = [
        change
        for change in changes
        if change is not None and (inputs.stop == "none" or not asks_anew(change[0], standing))
    ]
    return Decision(tuple(changed), tuple(released), tuple(tripped))
