"""Whether the nodes of one release fail more than all others: Fisher's exact test, and how much that says.

The nodes of a version share no place, so what they have in common is the version; where only one version runs, nothing
can be told apart and there is no answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnosis.causes.suspects import Hit, ReachIndex, Suspect


# Fewer nodes than these prove nothing about a release.
_FEWEST = 4
# The chance by which one must not be misled, over all versions and codes that are looked at.
_MOST_P = 1e-3
# A term of the sum that is so small beside it changes nothing of it.
_NO_MORE = 1e-15


@dataclass(frozen=True, slots=True)
class ReleaseFinding:
    """`struck` of `units` nodes of the release show it, and `others` (struck, all) of the rest."""

    gain: float
    hits: tuple[Hit, ...]
    struck: int
    units: int
    others: tuple[int, int]
    p_value: float


def release_gain(suspect: Suspect, hits: Sequence[Hit], reach: ReachIndex) -> ReleaseFinding | None:
    """The best finding over the codes that nodes of the release show; None where nothing stands out."""
    by_sign: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_sign[hit.effect.sign()].append(hit)
    found = None
    for own in by_sign.values():
        finding = _finding(suspect, own, reach)
        if finding is not None and (found is None or finding.gain > found.gain):
            found = finding
    return found


def _finding(suspect: Suspect, hits: Sequence[Hit], reach: ReachIndex) -> ReleaseFinding | None:
    struck = {hit.unit for hit in hits}
    if len(struck) < _FEWEST:
        return None
    units = len(reach.units(suspect))
    rest = reach.rest_of(suspect)
    else_struck = reach.struck_elsewhere(suspect, hits[0].effect.sign())
    if units <= len(struck) and rest == 0:
        return None
    if len(struck) * (units + rest) <= units * (len(struck) + else_struck):
        return None  # no more of its nodes than of all: the chance of so many is a half at least
    p_value = fisher(len(struck), units, else_struck, rest)
    if p_value > _MOST_P:
        return None
    share = len(struck) / units
    gain = sum(math.log(max(share, 1e-6) / hit.effect.leak) for hit in hits)
    gain += (units - len(struck)) * math.log1p(-min(share, 0.999))
    return ReleaseFinding(gain, tuple(hits), len(struck), units, (else_struck, rest), p_value)


def fisher(struck: int, units: int, others_struck: int, others: int) -> float:
    """The chance that so many or more of the release's nodes are among the struck ones, were it no matter which.

    One term after the other, each by its ratio to the one before, away from the middle of the distribution.
    """
    total, hit = units + others, struck + others_struck
    first, last = max(struck, hit - others), min(units, hit)
    middle = max(first, units * hit // max(total, 1))
    top = math.exp(_log_ways(units, middle) + _log_ways(others, hit - middle) - _log_ways(total, hit))
    chance = term = top
    for k in range(middle, last):
        term *= (units - k) * (hit - k) / ((k + 1) * (others - hit + k + 1))
        chance += term
        if term < chance * _NO_MORE:
            break
    term = top
    for k in range(middle, first, -1):
        term *= k * (others - hit + k) / ((units - k + 1) * (hit - k + 1))
        chance += term
    return min(1.0, chance)


def _log_ways(total: int, chosen: int) -> float:
    if chosen < 0 or chosen > total:
        return -math.inf
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
