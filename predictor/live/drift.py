"""Drift: whether the nodes of now look as those did that a model learned from, and fail as often as it says.

    then = profile(values, names, weights, block)          # kept with the model
    now = spread(then, values_of_now, names)               # kept with each scoring, and added up over a week
    found = compare(then, now, nodes=(400, 380))           # {"state": "ok", ...}

A feature's values are cut into parts by ten quantiles of its training; the population stability index (PSI) says how
far the shares of the parts have moved. Above 0.25 it is customarily called a shift (Siddiqi 2006, Credit Risk
Scorecards). Pure functions over matrices: the store is not asked.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import DAY_MS, Bools, Floats, Ints

Profile: TypeAlias = Mapping[str, Mapping[str, Any]]
Spread: TypeAlias = Mapping[str, Sequence[float]]

SHIFT = 0.25
# Drift is told of a week's scorings together: a job that ends is no drift.
DRIFT_OVER_MS = 7 * DAY_MS
PARTS = 10
# A part that was empty shall not make the index infinite.
_LEAST_SHARE = 1e-4
# One false alarm in so many comparisons of a whole matrix.
_FALSE_ALARMS = 1e-3
# A measure was there if so many nodes had it; it is gone where a tenth of them are left.
_PRESENT, _GONE, _ABSENT = 0.2, 0.1, 0.01
_MOST_NAMED = 10
# What people do to the whole fleet moves these: nodes taken out for an upgrade, all at once. That is told, and is no
# alarm: a model that learned before it is as good as it was, and what nobody planned moves other features as well.
MAINTENANCE = frozenset({"planned_28d", "driver_age_d", "out_share_28d"})


def profile(
    values: NDArray[np.float32],
    names: Sequence[str],
    weights: Floats,
    block: Ints,
    used: Collection[str] | None = None,
) -> dict[str, Any]:
    """How each feature was spread over the rows that a model learned from.

    Args:
        weights: of each row: drawn negatives stand for those that were not drawn.
        block: a number for the stretch of time that each row lies in, as long as drift is later told of together. What
            moved so far within the training already is no news afterwards: an age, or a load that all nodes share.
        used: what the model asks; None is all. Of the others it is kept alone how many rows had them.
    """
    found = {}
    blocks = [np.flatnonzero(block == number) for number in np.unique(block)]
    for column, name in enumerate(names):
        value = values[:, column]
        known = value[np.isfinite(value)] if used is None or name in used else np.empty(0)
        edges = np.unique(np.quantile(known, np.linspace(0, 1, PARTS + 1)[1:-1])) if len(known) else np.empty(0)
        whole = _shares(_counts(value, edges, weights))
        parts = [_shares(_counts(value[one], edges, weights[one])) for one in blocks]
        found[name] = {
            "edges": [float(edge) for edge in edges],
            "share": [round(float(share), 6) for share in whole],
            "own": round(max((psi(whole, part) for part in parts), default=0.0), 4),
        }
    return found


def spread(then: Profile, values: NDArray[np.float32], names: Sequence[str]) -> dict[str, list[float]]:
    """How many rows of now lie in each part of a profile, the last part being the unknown ones.

    A feature that the profile lacks has two parts: known and unknown. One that is gone lies whole in the unknown.
    """
    ones = np.ones(len(values))
    position = {name: i for i, name in enumerate(names)}
    found = {}
    for name, one in then.items():
        edges = np.asarray(one["edges"], dtype=np.float64)
        column = values[:, position[name]] if name in position else np.full(len(values), np.nan, dtype=np.float32)
        found[name] = _counts(column, edges, ones).tolist()
    for name in names:
        if name not in then:
            found[name] = _counts(values[:, position[name]], np.empty(0), ones).tolist()
    return found


def _counts(value: NDArray[np.float32], edges: Floats, weights: Floats) -> Floats:
    known = np.isfinite(value)
    part: Ints = np.where(known, np.searchsorted(edges, np.where(known, value, 0.0), side="left"), len(edges) + 1)
    found: Floats = np.bincount(part, weights=weights, minlength=len(edges) + 2).astype(np.float64)
    return found


def _shares(counts: Floats) -> Floats:
    total = counts.sum()
    found: Floats = counts / total if total else np.full(len(counts), 1.0 / len(counts))
    return found


def psi(then: Floats, now: Floats) -> float:
    """The population stability index of two lists of shares: 0 where they are the same."""
    before, after = np.maximum(then, _LEAST_SHARE), np.maximum(now, _LEAST_SHARE)
    return float(((after - before) * np.log(after / before)).sum())


def total_spread(spreads: Sequence[Spread]) -> dict[str, Floats]:
    """The counts of several moments together."""
    found: dict[str, Floats] = {}
    for one in spreads:
        for name, counts in one.items():
            before = found.get(name)
            here = np.asarray(counts, dtype=np.float64)
            found[name] = here if before is None or len(before) != len(here) else before + here
    return found


def compare(then: Profile, now: Mapping[str, Floats], nodes: tuple[int, int]) -> dict[str, Any]:
    """What has moved: `state` (ok, drifted), `alarms`, `features` (with `psi` and `limit`), `vanished`, `appeared`.

    What planned maintenance moves is named in `maintenance`, and is no alarm.

    Args:
        nodes: how many there were in training, and are now. Rows of one node are no separate evidence: chance alone
            moves the index of few nodes, and so few nodes have a higher limit.
    """
    moved, vanished, appeared = [], [], []
    for name, counts in now.items():
        known = 1.0 - float(_shares(counts)[-1])
        one = then.get(name)
        was_known = 0.0 if one is None else 1.0 - float(one["share"][-1])
        if was_known >= _PRESENT and known < _GONE * was_known:
            vanished.append(name)
        elif was_known < _ABSENT and known >= _PRESENT:
            appeared.append(name)
        elif one is not None and one["edges"]:
            index = psi(np.asarray(one["share"]), _shares(counts))
            limit = max(SHIFT, 2.0 * one["own"], _by_chance(len(counts), nodes, len(now)))
            if index > limit:
                moved.append({"feature": name, "psi": round(index, 3), "limit": round(limit, 3)})
    maintained = {*vanished, *appeared, *(item["feature"] for item in moved)} & MAINTENANCE
    moved = [item for item in moved if item["feature"] not in maintained]
    vanished, appeared = ([name for name in names if name not in maintained] for names in (vanished, appeared))
    moved.sort(key=lambda item: (-item["psi"] / item["limit"], item["feature"]))
    kinds = {"shifted": moved, "vanished": vanished, "appeared": appeared}
    alarms = [kind for kind, found in kinds.items() if found]
    return {
        "state": "drifted" if alarms else "ok",
        "alarms": alarms,
        "features": moved[:_MOST_NAMED],
        "shifted": len(moved),
        "vanished": sorted(vanished)[:_MOST_NAMED],
        "appeared": sorted(appeared)[:_MOST_NAMED],
        "maintenance": sorted(maintained),
    }


def _by_chance(parts: int, nodes: tuple[int, int], features: int) -> float:
    """What the index of two samples of one population hardly ever exceeds, over so many features at once.

    PSI / (1/n + 1/m) is about chi-square with parts - 1 degrees of freedom (Yurdakul 2018); its quantile is
    Wilson and Hilferty's (1931).
    """
    then, now = (max(count, 1) for count in nodes)
    degrees = max(parts - 1, 1)
    far = NormalDist().inv_cdf(1.0 - _FALSE_ALARMS / max(features, 1))
    quantile = degrees * (1 - 2 / (9 * degrees) + far * math.sqrt(2 / (9 * degrees))) ** 3
    return quantile * (1.0 / then + 1.0 / now)


def calibration(node: Ints, score: Floats, positive: Bools) -> dict[str, Any]:
    """Whether as many rows came true as the scores said: `expected`, `observed`, their `ratio`, `state`.

    Rows of one node stand and fall together, so that the error is taken over nodes. Under ten outage rows, expected
    and observed alike, nothing is said (`state` unknown).
    """
    expected, observed = float(score.sum()), float(positive.sum())
    found = {
        "expected": round(expected, 2),
        "observed": observed,
        "ratio": round(observed / expected, 3) if expected else None,
    }
    if max(expected, observed) < 10:
        return {**found, "state": "unknown"}
    by_node = np.bincount(node, weights=positive - score)
    error = math.sqrt(float((by_node**2).sum()))
    is_far = not 2 / 3 <= observed / max(expected, 1e-9) <= 3 / 2
    return {**found, "state": "drifted" if is_far and abs(observed - expected) > 3 * error else "ok"}
