"""The nodes of a job close together: on as few leaf switches as may be, and there on as few NVLink domains.

packed([Free(0.001, "gpu-001", "leaf a", None), ...], count=16)
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Free(NamedTuple):
    """A node that a job may have: sorted by risk, then by name. `group`: what shares a leaf switch."""

    risk: float
    node: str
    group: str
    domain: str | None


def packed(free: Iterable[Free], count: int) -> list[Free]:
    """`count` nodes over the fewest groups, or all; the largest groups first, and the rest where it fits best.

    Among groups that would do: the fewest NVLink domains, the least risk, then the group with the least left over.
    A domain that spans groups counts as one in each.
    """
    left = _by_size(_members(free, "group"))
    chosen: list[Free] = []
    for place, members in enumerate(left):
        wanted = count - len(chosen)
        if wanted <= 0:
            break
        if len(members) >= wanted:
            fits = (_within(other, wanted) for other in left[place:] if len(other) >= wanted)
            return chosen + min(fits)[-1]
        chosen += members
    return chosen


def _within(members: Sequence[Free], count: int) -> tuple[int, float, int, str, list[Free]]:
    """The best `count` nodes of a group, behind what tells two groups apart."""
    whole = all(free.domain is None for free in members)
    chosen = list(members[:count]) if whole else _of_domains(members, count)
    domains = len({free.domain for free in chosen} - {None})
    return domains, sum(free.risk for free in chosen), len(members), members[0].group, chosen


def _of_domains(members: Sequence[Free], count: int) -> list[Free]:
    """The fewest domains; the last one is that which has the least left over, so that whole ones stay whole."""
    left = _by_size(_members(members, "domain"))
    chosen: list[Free] = []
    for place, domain in enumerate(left):
        wanted = count - len(chosen)
        if len(domain) >= wanted:
            fits = [other for other in left[place:] if len(other) >= wanted]
            best = min(fits, key=lambda other: (len(other), sum(free.risk for free in other[:wanted]), other[0].node))
            return chosen + best[:wanted]
        chosen += domain
    return chosen


def _members(free: Iterable[Free], of: str) -> list[list[Free]]:
    """Nodes by their group or domain, the least risk first; one of no known domain is by itself."""
    found: dict[object, list[Free]] = defaultdict(list)
    for one in sorted(free):
        name = getattr(one, of)
        found[(one.node,) if name is None else name].append(one)
    return list(found.values())


def _by_size(groups: Iterable[list[Free]]) -> list[list[Free]]:
    """The largest first, of equals the one of the least risk."""
    return sorted(groups, key=lambda group: (-len(group), sum(free.risk for free in group), group[0].node))
