"""How many nodes we may still hold out of service.

Budgets block cordons, never releases. Limits after FIELD section C: an absolute cap, a share of the nodes known, a cap
per hour, per rack, leaf and NVLink domain, and nodes that must stay idle as spares. What limits many nodes at once
for looking alike is the breaker (`schedulers/policy/breaker.py`).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.facts import AVOIDING, Inputs, NodeFacts, acted_within, avoids, holds, is_of_link
from schedulers.policy.settings import Budgets, Policy
from store.database.known_nodes import is_counted
from store.hints.hint_log import recent_hints
from store.hints.holds import costless_hints, nodes_still_held
from store.plural import many
from store.records.hint import Hint
from store.tables import schema

_HOUR_S = 3600.0
_PLACES = ("rack", "leaf", "nvlink_domain")


class HoldBudget:
    """What is left of the holds and, where an `avoid` takes a node out of use, of the avoids during one decision.

    Each that is granted is charged. A node whose hint has ended costs until no scheduler has it for us any more.
    """

    def __init__(self, inputs: Inputs, policy: Policy) -> None:
        held, avoided = held_nodes(inputs, policy), avoided_nodes(inputs, policy)
        self._keep = policy.budgets.keep_spares
        self._spares = spares(inputs.nodes, held, avoided) if self._keep > 0 else 0
        self._holds = _NodeCount("budget", "held", policy.budgets, set(held), held_within_hour(inputs, policy))
        hour = avoided_within_hour(inputs, policy)
        self._avoids = _NodeCount("avoid budget", "avoided", policy.budgets.of_avoid(), set(avoided), hour)
        self._count = len(inputs.nodes)
        for facts in inputs.nodes:
            for count in (self._holds, self._avoids):
                if facts.node in count.nodes:
                    count.places.update(_places(facts))

    def refuse(self, facts: NodeFacts) -> str | None:
        """Why one more cordon is not to be had for a node; None when it is."""
        return self._holds.refuse(facts, self._count) or self._refuse_spare("budget", spare_cost(facts))

    def refuse_avoid(self, facts: NodeFacts) -> str | None:
        """The same of an `avoid` that takes the node."""
        return self._avoids.refuse(facts, self._count) or self._refuse_spare("avoid budget", int(_is_spare(facts)))

    def _refuse_spare(self, kind: str, cost: int) -> str | None:
        if self._keep <= 0:
            return None
        if self._spares is None:
            return f"{kind}: {_nodes(self._keep)} to stay idle, and of none is known whether a job runs: load jobs"
        if cost and self._spares - cost < self._keep:
            return f"{kind}: {_nodes(max(0, self._spares))} known to be idle, {self._keep} must stay so"
        return None

    def charge(self, facts: NodeFacts) -> None:
        """Count one more cordon."""
        self._holds.charge(facts)
        if self._spares is not None:
            self._spares -= spare_cost(facts)

    def charge_avoid(self, facts: NodeFacts) -> None:
        """Count one more `avoid`."""
        self._avoids.charge(facts)
        if self._spares is not None:
            self._spares -= int(_is_spare(facts))


@dataclass(slots=True)
class _NodeCount:
    """How many nodes there are of one kind: in all, within the hour, and in each place."""

    kind: str
    word: str
    limits: Budgets
    nodes: set[str]
    hour: int
    places: Counter[tuple[str, str]] = field(default_factory=Counter)

    def refuse(self, facts: NodeFacts, nodes: int) -> str | None:
        """Why one more is not to be had."""
        limits, count = self.limits, len(self.nodes)
        if count >= limits.nodes:
            return f"{self.kind}: {_nodes(count)} {self.word} already, {limits.nodes} may be"
        if count >= _percent_cap(nodes, limits):
            share = f"{limits.percent_of_nodes:g} % of the nodes"
            return f"{self.kind}: {_nodes(count)} {self.word} already, {share} may be"
        if self.hour >= limits.per_hour:
            noun = "cordons" if self.word == "held" else "avoids"
            return f"{self.kind}: {self.hour} {noun} within the hour, {limits.per_hour} may be"
        for kind, name in _places(facts):
            if self.places[kind, name] >= (most := _most(limits, kind)):
                what = f"{kind.replace('_', ' ')} {name}"
                return f"{self.kind}: {what} has {many(self.places[kind, name], 'node')} {self.word}, {most} may be"
        return None

    def charge(self, facts: NodeFacts) -> None:
        """Count one more."""
        self.nodes.add(facts.node)
        self.hour += 1
        self.places.update(_places(facts))


def cap(nodes: int, limits: Budgets) -> int:
    """How many nodes we may hold of so many that are known, wherever they are; one node is always allowed."""
    return min(limits.nodes, _percent_cap(nodes, limits))


def held_within_hour(inputs: Inputs, policy: Policy) -> int:
    """How many nodes we have taken to hold within the hour, whatever has become of them."""
    return len({hint.node for hint in _acted(inputs, policy)})


def held_nodes(inputs: Inputs, policy: Policy) -> frozenset[str]:
    """The nodes that we hold, by open hints or because a scheduler has not let go yet."""
    open_hints = (hint for hint in inputs.hints if hint.id not in inputs.costless)
    return inputs.still_held | {hint.node for hint in open_hints if holds(hint) and _counts(hint, policy)}


def avoided_nodes(inputs: Inputs, policy: Policy) -> frozenset[str]:
    """The nodes that we avoid, where that takes them out of use; where it does not, those for a link alone."""
    open_hints = (hint for hint in inputs.hints if hint.id not in inputs.costless and _is_limited(hint, inputs))
    return inputs.still_avoided | {hint.node for hint in open_hints if avoids(hint) and _counts(hint, policy)}


def avoided_within_hour(inputs: Inputs, policy: Policy) -> int:
    """How many nodes we have come to avoid within the hour, of those."""
    acted = acted_within(inputs.hints, inputs.now, _HOUR_S, AVOIDING)
    counted = (hint for hint in acted if _counts(hint, policy) and hint.id not in inputs.costless)
    return len({hint.node for hint in counted if _is_limited(hint, inputs)})


def _is_limited(hint: Hint, inputs: Inputs) -> bool:
    """Whether an `avoid` has a budget."""
    return inputs.avoid_takes or is_of_link(hint)


def spares(nodes: Sequence[NodeFacts], held: frozenset[str], avoided: frozenset[str] = frozenset()) -> int | None:
    """How many nodes are idle and fit to take over work, less those that the jobs on held nodes will want.

    What is not known to be idle is no spare. None: of no node is known whether a job runs on it.
    """
    if all(facts.idle is None for facts in nodes):
        return None
    free = sum(1 for facts in nodes if facts.node not in held and facts.node not in avoided and _is_spare(facts))
    return free - sum(1 for facts in nodes if facts.node in held and facts.idle is False)


def spare_cost(facts: NodeFacts) -> int:
    """The spares that a hold of a node takes: itself, or one for its job; none where it is idle and faulty anyway."""
    return 0 if facts.idle and not _is_spare(facts) else 1


def _nodes(count: int) -> str:
    return many(count, "node is", "nodes are")


def _percent_cap(nodes: int, limits: Budgets) -> int:
    return max(1, math.floor(nodes * limits.percent_of_nodes / 100))


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
    return Holdings(held, cap(nodes, policy.budgets), hour, policy.budgets.per_hour, nodes)
