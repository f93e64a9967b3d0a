"""Which nodes a job is better not given, and which it is: pure, over what is known of each.

    advise(places, JobNeed(count=16), PlacementLimits(avoid_from=0.07, unknown_risk=0.02))

A node is avoided that is out, that a live hint of ours speaks against, that has a confirmed fault, or whose risk is so
high that avoiding it pays for a job of this size. Of a node of the control group, or one that is opted out, the risk is
not looked at: nothing is asked for its score alone. A risk that is not known is neither low nor high.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Literal, NamedTuple, TypeAlias

from store.nodes.fleet import SchedulableNode
from store.records.hint import LIVE_STATES

# The nodes of a job close together: on as few leaf switches as may be, and there on as few NVLink domains.
#
# packed([Free(0.001, "gpu-001", "leaf a", None), ...], count=16)


class FreeNode(NamedTuple):
    """A node that a job may have: sorted by risk, then by name. `group`: what shares a leaf switch.

    A tuple, for there are thousands.
    """

    risk: float
    node: str
    group: str
    domain: str | None


def packed(free: Iterable[FreeNode], count: int) -> list[FreeNode]:
    """`count` nodes over the fewest groups, or all; the largest groups first, and the rest where it fits best.

    Among groups that would do: the fewest NVLink domains, the least risk, then the group with the least left over.
    A domain that spans groups counts as one in each.
    """
    left = _by_size(_members(free, "group"))
    chosen: list[FreeNode] = []
    for place, members in enumerate(left):
        wanted = count - len(chosen)
        if wanted <= 0:
            break
        if len(members) >= wanted:
            fits = (_within(other, wanted) for other in left[place:] if len(other) >= wanted)
            return chosen + min(fits)[-1]
        chosen += members
    return chosen


def _within(members: Sequence[FreeNode], count: int) -> tuple[int, float, int, str, list[FreeNode]]:
    """The best `count` nodes of a group, behind what tells two groups apart."""
    whole = all(free.domain is None for free in members)
    chosen = list(members[:count]) if whole else _of_domains(members, count)
    domains = len({free.domain for free in chosen} - {None})
    return domains, sum(free.risk for free in chosen), len(members), members[0].group, chosen


def _of_domains(members: Sequence[FreeNode], count: int) -> list[FreeNode]:
    """The fewest domains; the last one is that which has the least left over, so that whole ones stay whole."""
    left = _by_size(_members(members, "domain"))
    chosen: list[FreeNode] = []
    for place, domain in enumerate(left):
        wanted = count - len(chosen)
        if len(domain) >= wanted:
            fits = [other for other in left[place:] if len(other) >= wanted]
            best = min(fits, key=lambda other: (len(other), sum(free.risk for free in other[:wanted]), other[0].node))
            return chosen + best[:wanted]
        chosen += domain
    return chosen


def _members(free: Iterable[FreeNode], of: str) -> list[list[FreeNode]]:
    """Nodes by their group or domain, the least risk first; one of no known domain is by itself."""
    found: dict[object, list[FreeNode]] = defaultdict(list)
    for one in sorted(free):
        name = getattr(one, of)
        found[(one.node,) if name is None else name].append(one)
    return list(found.values())


def _by_size(groups: Iterable[list[FreeNode]]) -> list[list[FreeNode]]:
    """The largest first, of equals the one of the least risk."""
    return sorted(groups, key=lambda group: (-len(group), sum(free.risk for free in group), group[0].node))


Why: TypeAlias = Literal["out", "hint", "faulty", "risk"]
_NAME, _RISK = attrgetter("node"), itemgetter(0)
_WELL = ("ok", "at_risk", "silent")
_SPEAKS_AGAINST = ("avoid", "cordon", "drain")


@dataclass(frozen=True, slots=True)
class JobNeed:
    """What a job asks for. Without a count: all that would do, at most `limit`."""

    count: int | None = None
    gpus_per_node: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """What holds for all nodes.

    Attributes:
        avoid_from: the probability within 24 h from which avoiding a node pays.
        unknown_risk: where a node stands whose risk is unknown.
        left_alone: nodes from whose risk nothing may follow.
        busy: nodes that run a job; None where nobody tells of jobs.
    """

    avoid_from: float
    unknown_risk: float
    left_alone: Collection[str] = frozenset()
    busy: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class PlacementAdvice:
    """`avoid` by name, with the reason; `prefer` the best first, of `usable` that would do.

    `busy` of the preferred run a job, `leaves` and NVLink `domains` are those that they lie on; `short`: missing nodes.
    """

    avoid: dict[str, Why]
    prefer: list[str]
    usable: int
    busy: int
    leaves: int
    domains: int
    short: int


def advise(places: Iterable[SchedulableNode], need: JobNeed, limits: PlacementLimits) -> PlacementAdvice:
    """Sort nodes into those to avoid and those to prefer, those that no job runs on first."""
    avoid: dict[str, Why] = {}
    idle: list[tuple[float, SchedulableNode]] = []
    busy: list[tuple[float, SchedulableNode]] = []
    left_alone, runs_job, gpus = limits.left_alone, limits.busy or (), need.gpus_per_node
    for place in sorted(places, key=_NAME):  # so that of the same risk they stay in the order of their names
        node, state, risk, action = place.node, place.state, place.risk_24h, place.hint_action
        # Of thousands nothing speaks against nearly all.
        if action is not None or state not in _WELL or (risk is not None and risk >= limits.avoid_from):
            why = why_not(place, limits.avoid_from, node in left_alone)
            if why is not None:
                avoid[node] = why
                continue
        if gpus is None or (place.gpus is not None and place.gpus >= gpus):
            risk = limits.unknown_risk if risk is None or node in left_alone else risk
            (busy if node in runs_job else idle).append((risk, place))
    if need.count is None:
        chosen = [place for _risk, place in (sorted(idle, key=_RISK) + sorted(busy, key=_RISK))[: need.limit]]
    else:
        chosen = _packed(idle, need.count)
        chosen += _packed(busy, need.count - len(chosen))
    return PlacementAdvice(
        avoid=avoid,
        prefer=[place.node for place in chosen],
        usable=len(idle) + len(busy),
        busy=max(0, len(chosen) - len(idle)),
        leaves=len(set(map(_group, chosen))),
        domains=len({place.nvlink_domain for place in chosen} - {None}),
        short=max(0, (need.count or 0) - len(chosen)),
    )


def why_not(place: SchedulableNode, avoid_from: float, left_alone: bool = False) -> Why | None:
    """Why a node is to be avoided; None where nothing speaks against it."""
    if place.state == "out":
        return "out"
    if place.hint_action in _SPEAKS_AGAINST and place.hint_state in LIVE_STATES:
        return "hint"
    if place.state == "faulty":
        return "faulty"
    risky = place.risk_24h is not None and place.risk_24h >= avoid_from
    return "risk" if risky and not left_alone else None


def _packed(scored: Sequence[tuple[float, SchedulableNode]], count: int) -> list[SchedulableNode]:
    """The nodes of a job, of nodes with their risks."""
    free = (FreeNode(risk, place.node, _group(place), place.nvlink_domain) for risk, place in scored)
    by_name = {place.node: place for _risk, place in scored}
    return [by_name[one.node] for one in packed(free, count)]


def _group(place: SchedulableNode) -> str:
    """What shares a switch: the leaf, else the rack; a node of which neither is known stands alone."""
    if place.leaf is not None:
        return f"leaf {place.leaf}"
    return f"rack {place.rack}" if place.rack is not None else f"node {place.node}"
