"""Whether a spike of calls looks like one shared cause: then nothing of the group is held until a person has looked.

    found = tripped(inputs, Calls(facts_by_node, since_by_node), policy)    # to be written down: `store/hints/stops.py`
    blocked = in_force(inputs.trips, found)                                 # group -> why

A trip blocks cordons and drains, never a release, and it stays until a person resets it: a cause that is still there
would only take the next nodes. Groups: whatever nodes may fail together for (FIELD section C).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from schedulers.policy.facts import Inputs, NodeFacts, acted, acted_within
from schedulers.policy.settings import Breaker, Policy
from store.hints.stops import Trip
from store.plural import many

Group: TypeAlias = tuple[str, str]
CLUSTER: Group = ("cluster", "all")
_LOCAL = ("leaf", "rack", "nvlink_domain", "driver")
KINDS = (*_LOCAL, "code", "cluster")


@dataclass(frozen=True, slots=True)
class HoldCalls:
    """The nodes that call for a hold now, and since when each was first seen to."""

    facts: Mapping[str, NodeFacts]
    since: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class TrippedGroup:
    """A group that trips now: at how many calls, and why in words."""

    group: Group
    count: int
    why: str


def groups(facts: NodeFacts, code: str | None = None) -> Sequence[Group]:
    """The groups of a node that share a cause of failure; `code` is that of its fault, unless it is told."""
    named = (
        ("leaf", facts.leaf),
        ("rack", facts.rack),
        ("nvlink_domain", facts.nvlink_domain),
        ("driver", facts.driver),
        ("code", code_of(facts) if code is None else code),
    )
    return [(kind, name) for kind, name in named if name is not None] + [CLUSTER]


def code_of(facts: NodeFacts) -> str | None:
    """What a node's confirmed fault is called in a group of its like: `xid 79`; of two detectors the later one's."""
    fault = facts.fault if facts.fault is not None else facts.witnesses[1] if facts.witnesses is not None else None
    if fault is None:
        return None if facts.verdict is None else f"verdict {facts.verdict.cause_class}"
    return fault.kind if fault.code is None else f"{fault.kind} {fault.code}"


def tripped(inputs: Inputs, calls: HoldCalls, policy: Policy) -> list[TrippedGroup]:
    """The groups that trip now: those whose calls for a hold within the window reach the limit.

    The limit is `breaker.nodes` (of a fault and of the cluster `cluster_nodes`), or `percent_of_group` of the group's
    nodes if that is more: all nodes of a large cluster may share a driver. A call counts from when it was first seen,
    whatever has become of it since; one from before a reset of its group does not count there again.
    """
    last = {trip.group: trip for trip in inputs.trips}
    callers: dict[Group, set[str]] = {}
    for facts, code, since in _calls(inputs, calls, policy.breaker.window_s):
        for group in groups(facts, code):
            trip = last.get(group)
            if trip is None or (trip.reset is not None and since > trip.reset):
                callers.setdefault(group, set()).add(facts.node)
    many = {group: nodes for group, nodes in callers.items() if len(nodes) >= _limit(group, 0, policy.breaker)}
    sizes = _sizes(inputs.nodes, {group for group in many if group[0] in _LOCAL})
    found = []
    for group, nodes in sorted(many.items()):
        if len(nodes) >= _limit(group, sizes.get(group, len(inputs.nodes)), policy.breaker):
            found.append(TrippedGroup(group, len(nodes), _why(group, len(nodes))))
    return found


def _sizes(nodes: Sequence[NodeFacts], wanted: Collection[Group]) -> Mapping[Group, int]:
    """How many nodes some groups have: few at the most, and mostly none, for nodes are many."""
    if not wanted:
        return {}
    return Counter(group for facts in nodes for group in groups(facts) if group in wanted)


def _limit(group: Group, size: int, breaker: Breaker) -> int:
    """How many calls of a group of so many nodes trip it."""
    least = breaker.nodes if group[0] in _LOCAL else max(breaker.nodes, breaker.cluster_nodes)
    return max(least, math.ceil(size * breaker.percent_of_group / 100))


def in_force(trips: Sequence[Trip], found: Iterable[TrippedGroup]) -> Mapping[Group, str]:
    """Why nothing of a group may be held: trips that nobody has reset, and those of this moment."""
    in_force_before = {trip.group: trip.why for trip in trips if trip.reset is None}
    return in_force_before | {one.group: one.why for one in found}


def _calls(inputs: Inputs, calls: HoldCalls, window_s: float) -> Iterator[tuple[NodeFacts, str | None, datetime]]:
    """Who calls or has called within the window: the node, its fault's name, since when."""
    known = {facts.node: facts for facts in inputs.nodes}
    for hint in acted_within(inputs.hints, inputs.now, window_s):
        if hint.node in known and hint.id not in inputs.costless:
            yield known[hint.node], hint.evidence.code, acted(hint)
    for node, since in calls.since.items():
        if since >= inputs.now - timedelta(seconds=window_s):
            yield calls.facts[node], None, since


def _why(group: Group, count: int) -> str:
    kind, name = group[0].replace("_", " "), group[1]
    where = "of the cluster" if group == CLUSTER else f"with {name}" if kind == "code" else f"of {kind} {name}"
    look = "what they share" if kind in ("cluster", "code") else f"the {kind}"
    return f"breaker: {many(count, 'node')} {where} call for a cordon at once: look at {look} first"
