"""Which nodes a job is better not given, and which it is: pure, over what is known of each.

    advise(candidates, Need(count=16), avoid_from=0.07)

A node is avoided that is out, that a live hint of ours speaks against, that has a confirmed fault, or whose risk is so
high that avoiding it pays for a job of this size. Of a node of the control group, or one that is opted out, the risk is
not looked at: nothing is asked for its score alone. A risk that is not known is neither low nor high.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from store.hint import LIVE_STATES
from store.read_placement import Place, Standing

Why: TypeAlias = Literal["out", "hint", "faulty", "risk"]
_SPEAKS_AGAINST = ("avoid", "cordon", "drain")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One node. `left_alone`: nothing may follow from its risk."""

    node: str
    place: Place
    state: str
    risk_24h: float | None = None
    risk_7d: float | None = None
    hint: Standing | None = None
    left_alone: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """What a job asks for; None: as much as there is."""

    count: int | None = None
    gpus_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementAdvice:
    """`avoid` by name, with the reason; `prefer` the best first; `leaves` that those lie on; `short`: missing nodes."""

    avoid: dict[str, Why]
    prefer: list[str]
    leaves: int
    short: int


def advise(candidates: Iterable[Candidate], need: Need, avoid_from: float, unknown_risk: float) -> PlacementAdvice:
    """Sort nodes into those to avoid and those to prefer.

    Args:
        avoid_from: the probability within 24 h from which avoiding a node pays.
        unknown_risk: where among the others a node stands whose risk is not known.
    """
    avoid: dict[str, Why] = {}
    groups: dict[str, list[tuple[float, str]]] = {}
    for one in sorted(candidates, key=lambda candidate: candidate.node):
        why = why_not(one, avoid_from)
        if why is not None:
            avoid[one.node] = why
        elif _is_large_enough(one, need):
            risk = unknown_risk if one.left_alone or one.risk_24h is None else one.risk_24h
            groups.setdefault(_group(one), []).append((risk, one.node))
    for members in groups.values():
        members.sort()
    chosen = _all(groups) if need.count is None else _packed(groups, need.count)
    leaf_of = {node: group for group, members in groups.items() for _risk, node in members}
    leaves = len({leaf_of[node] for node in chosen})
    return PlacementAdvice(avoid, chosen, leaves, max(0, (need.count or 0) - len(chosen)))


def why_not(one: Candidate, avoid_from: float) -> Why | None:
    """Why a node is to be avoided; None where nothing speaks against it."""
    if one.state == "out":
        return "out"
    if one.hint is not None and one.hint.action in _SPEAKS_AGAINST and one.hint.state in LIVE_STATES:
        return "hint"
    if one.state == "faulty":
        return "faulty"
    risky = one.risk_24h is not None and one.risk_24h >= avoid_from
    return "risk" if risky and not one.left_alone else None


def _is_large_enough(one: Candidate, need: Need) -> bool:
    return need.gpus_per_node is None or (one.place.gpus is not None and one.place.gpus >= need.gpus_per_node)


def _group(one: Candidate) -> str:
    """What shares a switch: the leaf, else the rack; a node of which neither is known stands alone."""
    if one.place.leaf is not None:
        return f"leaf {one.place.leaf}"
    return f"rack {one.place.rack}" if one.place.rack is not None else f"node {one.node}"


def _all(groups: dict[str, list[tuple[float, str]]]) -> list[str]:
    return [node for _risk, node in sorted(member for members in groups.values() for member in members)]


def _packed(groups: dict[str, list[tuple[float, str]]], count: int) -> list[str]:
    """`count` nodes over the fewest groups; among equals the least risk, then the group with the least left over."""
    left = sorted(groups.items(), key=lambda group: (-len(group[1]), sum(risk for risk, _node in group[1]), group[0]))
    chosen: list[str] = []
    for place, (_name, members) in enumerate(left):
        wanted = count - len(chosen)
        if len(members) >= wanted:
            # This one, or another of those that hold all that is still wanted.
            fits = [(_rank(other, wanted), name, other) for name, other in left[place:] if len(other) >= wanted]
            return chosen + [node for _risk, node in min(fits)[2][:wanted]]
        chosen += [node for _risk, node in members]
    return chosen


def _rank(members: Sequence[tuple[float, str]], wanted: int) -> tuple[float, int]:
    return sum(risk for risk, _node in members[:wanted]), len(members)
