"""How many nodes we may still hold out of service.

Budgets block cordons, never releases. Limits after FIELD section C: an absolute cap, a share of the nodes known, a cap
per hour, per rack, leaf and NVLink domain, and nodes that must stay idle as spares. What limits many nodes at once
for looking alike is the breaker (`schedulers/policy/breaker.py`).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.facts import Inputs, NodeFacts, acted_within, holds
from schedulers.policy.settings import Budgets, Policy
from store.hints.hint_log import recent_hints
from store.hints.holds import costless_hints, nodes_still_held
from store.nodes.known_nodes import is_counted
from store.records.hint import Hint
from store.tables import schema

_HOUR_S = 3600.0
_PLACES = ("rack", "leaf", "nvlink_domain")


class HoldBudget:
    """What is left during one decision: every cordon that is granted is charged.

    A node whose hint has ended costs until no scheduler holds it for us any more.
    """

    def __init__(self, inputs: Inputs, policy: Policy) -> None:
        self._limits = policy.budgets
        self._percent_cap = _percent_cap(len(inputs.nodes), policy)
        self._held = held_nodes(inputs, policy)
        self._places: Counter[tuple[str, str]] = Counter()
        for facts in inputs.nodes:
            if facts.node in self._held:
                self._places.update(_places(facts))
        self._hour = held_within_hour(inputs, policy)
        self._spares = spares(inputs.nodes, self._held) if policy.budgets.keep_spares > 0 else 0

    def refuse(self, facts: NodeFacts) -> str | None:
        """Why one more cordon is not to be had for a node; None when it is."""
        limits, held = self._limits, len(self._held)
        if held >= limits.nodes:
            return f"budget: {held} nodes are held already, {limits.nodes} may be"
        if held >= self._percent_cap:
            return f"budget: {held} nodes are held already, {limits.percent_of_nodes:g} % of the nodes may be"
        if self._hour >= limits.per_hour:
            return f"budget: {self._hour} cordons within the hour, {limits.per_hour} may be"
        for kind, name in _places(facts):
            if self._places[kind, name] >= (most := _most(limits, kind)):
                what = f"{kind.replace('_', ' ')} {name}"
                return f"budget: {what} has {self._places[kind, name]} nodes held, {most} may be"
        return self._refuse_spare(facts)

    def _refuse_spare(self, facts: NodeFacts) -> str | None:
        keep = self._limits.keep_spares
        if keep <= 0:
            return None
        if self._spares is None:
            return f"budget: {keep} nodes are to stay idle, and of none is known whether a job runs on it: load jobs"
        cost = spare_cost(facts)
        if cost and self._spares - cost < keep:
            return f"budget: {max(0, self._spares)} nodes are known to be idle, {keep} must stay so"
        return None

    def charge(self, facts: NodeFacts) -> None:
        """Count one more cordon."""
        self._held = self._held | {facts.node}
        self._hour += 1
        self._places.update(_places(facts))
        if self._spares is not None:
            self._spares -= spare_cost(facts)


def cap(nodes: int, policy: Policy) -> int:
    """How many nodes we may hold of so many that are known, wherever they are; one node is always allowed."""
    return min(policy.budgets.nodes, _percent_cap(nodes, policy))


def held_within_hour(inputs: Inputs, policy: Policy) -> int:
    """How many nodes we have taken to hold within the hour, whatever has become of them."""
    return len({hint.node for hint in _acted(inputs, policy)})


def held_nodes(inputs: Inputs, policy: Policy) -> frozenset[str]:
    """The nodes that we hold, by open hints or because a scheduler has not let go yet."""
    open_hints = (hint for hint in inputs.hints if hint.id not in inputs.costless)
    return inputs.still_held | {hint.node for hint in open_hints if holds(hint) and _counts(hint, policy)}


def spares(nodes: Sequence[NodeFacts], held: frozenset[str]) -> int | None:
    """How many nodes are idle and fit to take over work, less those that the jobs on held nodes will want.

    What is not known to be idle is no spare. None: of no node is known whether a job runs on it.
    """
    if all(facts.idle is None for facts in nodes):
        return None
    free = sum(1 for facts in nodes if facts.node not in held and _is_spare(facts))
    return free - sum(1 for facts in nodes if facts.node in held and facts.idle is False)


def spare_cost(facts: NodeFacts) -> int:
    """The spares that a hold of a node takes: itself, or one for its job; none where it is idle and faulty anyway."""
    return 0 if facts.idle and not _is_spare(facts) else 1


def _percent_cap(nodes: int, policy: Policy) -> int:
    return max(1, math.floor(nodes * policy.budgets.percent_of_nodes / 100))


def _is_spare(facts: NodeFacts) -> bool:
    return facts.idle is True and not (facts.out or facts.is_confirmed or facts.let_go)


def _places(facts: NodeFacts) -> list[tuple[str, str]]:
    """Where a node is; a place that is not known limits nothing."""
    named = ((kind, getattr(facts, kind)) for kind in _PLACES)
    return [(kind, name) for kind, name in named if name is not None]


def _most(limits: Budgets, kind: str) -> int:
    found: int = getattr(limits, f"per_{kind}")
    return found


def _acted(inputs: Inputs, policy: Policy) -> list[Hint]:
    acted = acted_within(inputs.hints, inputs.now, _HOUR_S)
    return [hint for hint in acted if _counts(hint, policy) and hint.id not in inputs.costless]


def _counts(hint: Hint, policy: Policy) -> bool:
    """A shadow hint holds nothing, so it costs only where all are shadows."""
    return hint.state != "shadow" or policy.mode == "shadow"


# How much of the budget is used: what people ask before they approve one more hold.
#
# holdings(connection, policy, now)     # Holdings(held=3, most=8, ...)

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Nodes that we hold (in shadow mode: would hold), and how many we may; nodes that count."""

    held: int
    most: int
    held_within_hour: int
    most_per_hour: int
    nodes: int


def holdings(connection: sa.Connection, policy: Policy, now: datetime) -> Holdings:
    """What is held as of a moment, by the count that the policy goes by."""
    known = sa.select(sa.func.count()).select_from(schema.nodes).where(is_counted(schema.nodes.c.node))
    nodes = connection.scalar(known) or 0
    hints = tuple(recent_hints(connection, now, _HOUR))
    inputs = Inputs(
        now, (), hints, still_held=nodes_still_held(connection, now), costless=costless_hints(connection, now - _HOUR)
    )
    held, hour = len(held_nodes(inputs, policy)), held_within_hour(inputs, policy)
    return Holdings(held, cap(nodes, policy), hour, policy.budgets.per_hour, nodes)
