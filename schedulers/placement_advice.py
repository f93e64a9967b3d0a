"""Which nodes a job is better not given, and which it is: pure, over what is known of each.

    advise(candidates, Need(count=16), Limits(avoid_from=0.07, unknown_risk=0.02))

A node is avoided that is out, that a live hint of ours speaks against, that has a confirmed fault, or whose risk is so
high that avoiding it pays for a job of this size. Of a node of the control group, or one that is opted out, the risk is
not looked at: nothing is asked for its score alone. A risk that is not known is neither low nor high.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from schedulers.packing import Free, packed
from store.hint import LIVE_STATES
from store.read_placement import Place

Why: TypeAlias = Literal["out", "hint", "faulty", "risk"]
_SPEAKS_AGAINST = ("avoid", "cordon", "drain")


class Candidate(NamedTuple):
    """One node. `left_alone`: nothing may follow from its risk. `idle`: no job runs on it; None: not known.

    A tuple, for there are thousands.
    """

    place: Place
    left_alone: bool = False
    idle: bool | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What a job asks for. Without a count: all that would do, at most `limit`."""

    count: int | None = None
    gpus_per_node: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The probability within 24 h from which avoiding a node pays; and where a node stands whose risk is unknown."""

    avoid_from: float
    unknown_risk: float


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


def advise(candidates: Iterable[Candidate], need: Need, limits: Limits) -> PlacementAdvice:
    """Sort nodes into those to avoid and those to prefer, those that no job runs on first."""
    avoid: dict[str, Why] = {}
    idle: list[Free] = []
    busy: list[Free] = []
    for one in candidates:
        place = one.place
        why = why_not(one, limits.avoid_from)
        if why is not None:
            avoid[place.node] = why
        elif need.gpus_per_node is None or (place.gpus is not None and place.gpus >= need.gpus_per_node):
            risk = limits.unknown_risk if one.left_alone or place.risk_24h is None else place.risk_24h
            (busy if one.idle is False else idle).append(Free(risk, place.node, _group(place), place.nvlink_domain))
    if need.count is None:
        chosen = (sorted(idle) + sorted(busy))[: need.limit]
    else:
        chosen = packed(idle, need.count)
        chosen += packed(busy, need.count - len(chosen))
    return PlacementAdvice(
        avoid=dict(sorted(avoid.items())),
        prefer=[node for _risk, node, _group, _domain in chosen],
        usable=len(idle) + len(busy),
        busy=max(0, len(chosen) - len(idle)),
        leaves=len({free.group for free in chosen}),
        domains=len({free.domain for free in chosen} - {None}),
        short=max(0, (need.count or 0) - len(chosen)),
    )


def why_not(one: Candidate, avoid_from: float) -> Why | None:
    """Why a node is to be avoided; None where nothing speaks against it."""
    place = one.place
    if place.state == "out":
        return "out"
    if place.hint_action in _SPEAKS_AGAINST and place.hint_state in LIVE_STATES:
        return "hint"
    if place.state == "faulty":
        return "faulty"
    risky = place.risk_24h is not None and place.risk_24h >= avoid_from
    return "risk" if risky and not one.left_alone else None


def _group(place: Place) -> str:
    """What shares a switch: the leaf, else the rack; a node of which neither is known stands alone."""
    if place.leaf is not None:
        return f"leaf {place.leaf}"
    return f"rack {place.rack}" if place.rack is not None else f"node {place.node}"
