"""How many nodes we may still hold out of service, and whether a spike looks like one shared cause.

Budgets block cordons, never releases. Limits after FIELD section C: an absolute cap, a share of the nodes known,
a cap per hour, per rack and per leaf; a breaker on correlated calls of one leaf or driver.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from schedulers.facts import Inputs, NodeFacts, acted_within, holds
from schedulers.settings import Policy
from store.hint import Hint

_HOUR_S = 3600.0


class Budget:
    """What is left during one decision: every cordon that is granted is charged."""

    def __init__(self, inputs: Inputs, policy: Policy) -> None:
        self._limits = policy.budgets
        self._percent_cap = max(1, math.floor(len(inputs.nodes) * policy.budgets.percent_of_nodes / 100))
        places = {facts.node: facts for facts in inputs.nodes}
        held = [hint.node for hint in inputs.hints if _counts(hint, policy)]
        self._held = len(held)
        self._racks = Counter(places[node].rack for node in held if node in places)
        self._leaves = Counter(places[node].leaf for node in held if node in places)
        self._hour = len(acted_within(inputs.hints, inputs.now, _HOUR_S))

    def refuse(self, facts: NodeFacts) -> str | None:
        """Why one more cordon is not to be had for a node; None when it is."""
        limits = self._limits
        if self._held >= limits.nodes:
            return f"budget: {self._held} nodes are held already, {limits.nodes} may be"
        if self._held >= self._percent_cap:
            return f"budget: {self._held} nodes are held already, {limits.percent_of_nodes:g} % of the nodes may be"
        if self._hour >= limits.per_hour:
            return f"budget: {self._hour} cordons within the hour, {limits.per_hour} may be"
        if facts.rack is not None and self._racks[facts.rack] >= limits.per_rack:
            return f"budget: rack {facts.rack} has {self._racks[facts.rack]} nodes held, {limits.per_rack} may be"
        if facts.leaf is not None and self._leaves[facts.leaf] >= limits.per_leaf:
            return f"budget: leaf {facts.leaf} has {self._leaves[facts.leaf]} nodes held, {limits.per_leaf} may be"
        return None

    def charge(self, facts: NodeFacts) -> None:
        """Count one more cordon."""
        self._held += 1
        self._hour += 1
        self._racks[facts.rack] += 1
        self._leaves[facts.leaf] += 1


def _counts(hint: Hint, policy: Policy) -> bool:
    """A shadow hint holds nothing, so it costs only where all are shadows."""
    return holds(hint) and (hint.state != "shadow" or policy.mode == "shadow")


def tripped(inputs: Inputs, calling: Iterable[NodeFacts], policy: Policy) -> dict[tuple[str, str], str]:
    """The groups ("leaf", name) and ("driver", name) whose calls for a cordon look like one shared cause, and why.

    A group trips at `breaker.nodes` calls within the window, or at `breaker.percent_of_group` of its nodes if that is
    more: all nodes of a large cluster may share a driver.
    """
    new = {facts.node for facts in calling}
    new |= {hint.node for hint in acted_within(inputs.hints, inputs.now, policy.breaker.window_s)}
    sizes = Counter(group for facts in inputs.nodes for group in groups(facts))
    calls = Counter(group for facts in inputs.nodes if facts.node in new for group in groups(facts))
    found = {}
    for group, count in calls.items():
        limit = max(policy.breaker.nodes, math.ceil(sizes[group] * policy.breaker.percent_of_group / 100))
        if count >= limit:
            kind, name = group
            found[group] = (
                f"breaker: {count} nodes of {kind} {name} call for a cordon at once: look at the {kind} first"
            )
    return found


def groups(facts: NodeFacts) -> Sequence[tuple[str, str]]:
    """The groups of a node that share a cause of failure."""
    named = (("leaf", facts.leaf), ("driver", facts.driver))
    return [(kind, name) for kind, name in named if name is not None]
