"""What a benchmark found, and how times are taken."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["met", "not met", "not measured"]


@dataclass(frozen=True, slots=True)
class Result:
    """One row: `ours` and `theirs` with their units, `ratio` of the two where both are measured, and the verdict.

    A budget for a larger size than what was measured is "not measured", unless the smaller size misses it already.
    """

    what: str
    budget: str
    ours: str
    theirs: str
    ratio: float | None
    verdict: Verdict
    note: str = ""


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# What a doubling may cost, and still be linear: the machine's speed changes under one's hands.
LINEAR = 2.1


def doubling(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """By how much a cost grows where a size doubles: the mean from the smallest to the largest."""
    return float((costs[-1] / costs[0]) ** (1 / math.log2(sizes[-1] / sizes[0])))


def unmeasured(what: str, budget: str, reason: str) -> Result:
    """A budget that could not be measured here."""
    return Result(what, budget, "-", "-", None, "not measured", reason)
