"""What serves where the trees are not shown to be better: how often nodes of a kind failed here, drawn towards a prior.

    rates = local_rates(lesson, BASELINES["history_count"], PUBLISHED)
    rates.forest     # one tree: nodes without an outage, with one long ago, one in 28 days, more
    rates.words      # "0.3 % (0.2 to 0.4) of nodes that never failed ..., drawn towards 3.8 outages per 1000 node-days"

Outages come to a group of nodes by Poisson at an unknown rate, and the rate is gamma: first the site's, around the
prior, then each group's (gamma-Poisson, twice): around the site's, times (k + n) / (k + m) where the group is that of
nodes with n outages, of m in the mean, under frailty of shape k. A group's mean is rounded as far as its 90 % interval
allows: no figure is told sharper than it is known. A group that stands for more history never has a lower rate: groups
that would are one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from predictor.history.arrays import Floats, Ints
from predictor.model.baselines import Baseline
from predictor.model.forest import MOST_LEAVES, Forest

# A column, the value above which a node is of a group, and that group's number.
_OF_HISTORY = (("outages_all", 0.5, 1), ("outages_28d", 0.5, 2), ("outages_28d", 1.5, 3))
_NAMES_OF_HISTORY = ("that never failed", "that failed before", "with an outage in 28 days", "with more of them")
_NAMES_OF_SIGNS = ("without such a sign", "with one")
# As how many outages the site's own rate counts in a group's. Found in no data: from there on a group tells of itself.
_GROUP_OUTAGES = 1.0
_FRAILTY = 0.12  # FIELD D6
_OUTAGES_OF_HISTORY = (0, 1, 1, 2)
_MOST_LIKELIER = 10.0  # before anything is seen of such a group
_INTERVAL = (0.05, 0.95)
# A rounded figure is off by no more than this part of its interval.
_OFF = 0.1


@dataclass(frozen=True, slots=True)
class PriorRate:
    """Outages a node and day before any of a site's own are known, and as how many outages that counts."""

    per_day: float
    outages: float
    source: str


# FIELD D1 and D7: Meta's RSC-1 and RSC-2 had 6.50 and 2.34 (HPCA 2025), and sites differ by more than that.
PUBLISHED = PriorRate(3.8e-3, 2.0, "3.8 outages per 1000 node-days, between Meta's two published clusters")


@dataclass(frozen=True, slots=True)
class GroupRate:
    """The probability of an outage within the horizon of a group of nodes, and its interval of 90 %."""

    name: str
    told: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LocalRates:
    """One tree of a baseline's groups, what each group is told, and that in words."""

    forest: Forest
    groups: tuple[GroupRate, ...]
    words: str


@dataclass(frozen=True, slots=True)
class RateRows:
    """Rows of known answers as counts: each stands for `weight` rows, several may speak of one outage."""

    values: Sequence[Floats]
    positive: Floats
    weight: Floats
    outages: int
    horizon_h: int


def local_rates(rows: RateRows, baseline: Baseline, columns: Ints, prior: PriorRate = PUBLISHED) -> LocalRates:
    """The rates of a baseline's groups.

    Args:
        rows: `values` are those of the baseline's columns, in their order.
        columns: where those are among all columns.
        prior: what is known before.
    """
    splits = [split for split in _OF_HISTORY if baseline.kind == "history"] or [
        (name, 0.0, 1) for name in baseline.columns
    ]
    place = {name: at for at, name in enumerate(baseline.columns)}
    group = np.zeros(len(rows.positive), dtype=np.int64)
    for name, above, number in splits:
        group = np.maximum(group, np.where(rows.values[place[name]] > above, number, 0))
    names = _NAMES_OF_HISTORY if baseline.kind == "history" else _NAMES_OF_SIGNS
    likelier = np.ones(len(names))
    if baseline.kind == "history":
        mean = float(np.average(rows.values[place["outages_all"]], weights=rows.weight))
        likelier = np.minimum((_FRAILTY + np.array(_OUTAGES_OF_HISTORY)) / (_FRAILTY + mean), _MOST_LIKELIER)
    groups = _rates(rows, group, (names, likelier), prior)
    odds = [np.log(one.told / (1.0 - one.told)) for one in groups]
    value = np.zeros((1, MOST_LEAVES))
    value[0, : len(odds)] = odds
    forest = Forest(
        tree=np.zeros(len(splits), dtype=np.int64),
        feature=np.array([columns[place[name]] for name, _, _ in splits], dtype=np.int64),
        threshold=np.array([above for _, above, _ in splits], dtype=np.float32),
        missing_left=np.ones(len(splits), dtype=np.bool_),
        kills=np.array([(1 << number) - 1 for _, _, number in splits], dtype=np.uint16),
        value=value,
        baseline=0.0,
    )
    said = ", ".join(
        f"{_percent(one.told)} ({_percent(one.low)} to {_percent(one.high)}) of nodes {one.name}" for one in groups
    )
    words = f"within {rows.horizon_h} h {said}; rates of this site, drawn towards {prior.source}"
    return LocalRates(forest, groups, words)


def _rates(rows: RateRows, group: Ints, named: tuple[Sequence[str], Floats], prior: PriorRate) -> tuple[GroupRate, ...]:
    """Each group's rate; neighbours whose order chance turned round share one. `named`: and how likelier before."""
    from scipy.special import gammaincinv  # type: ignore[import-untyped]  # the quantile of a gamma distribution

    names, likelier = named
    overlap = max(float(rows.positive.sum()) / max(rows.outages, 1), 1.0)  # rows that speak of one outage
    came = np.bincount(group, rows.positive * rows.weight, len(names)) / overlap
    watched = np.bincount(group, rows.weight, len(names)) / overlap  # in horizons
    before = -np.expm1(-prior.per_day * rows.horizon_h / 24.0)
    site = (prior.outages + came.sum()) / (prior.outages / before + watched.sum())
    blocks: list[list[float]] = []
    for events, time, times in zip(came, watched, likelier, strict=True):
        blocks.append([_GROUP_OUTAGES + events, _GROUP_OUTAGES / min(site * times, 0.5) + time, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [one + other for one, other in zip(blocks[-1], last, strict=True)]
    found: list[GroupRate] = []
    for shape, rate, members in blocks:
        low, high = (min(float(gammaincinv(shape, share)) / rate, 0.99) for share in _INTERVAL)
        told = rounded(min(shape / rate, 0.99), low, high)
        found += [GroupRate(names[len(found) + at], told, low, high) for at in range(int(members))]
    return tuple(found)


def rounded(value: float, low: float, high: float) -> float:
    """A figure with as few digits as its interval allows.

    >>> rounded(0.5562, 0.2, 0.8), rounded(0.003817, 0.0036, 0.0040)
    (0.6, 0.0038)
    """
    first = -floor(log10(abs(value)))
    for digits in range(first, first + 4):
        short = round(value, digits)
        if abs(short - value) <= _OFF * (high - low):
            return short
    return value


def _percent(share: float) -> str:
    """A share with two digits: 0.38 %, 3.1 %, 42 %."""
    return f"{100 * share:.2g} %"
