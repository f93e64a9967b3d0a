"""Why a score is what it is: what each group of signs adds to the score of a node where nothing has happened.

    explained = explain(forest, rows, features, references(rows, features))
    explained.base + explained.parts[:, 3].sum()     # exactly explained.probability[3]

Exact, in two steps. In log-odds a forest is a sum over its trees. A tree that asks one group alone (nearly all do, see
`model.blocks`) moves by f(x) - f(reference), and that is the group's. Where a tree asks several, they are put in place
one after another, once in the features' order and once in its reverse, and the mean counts: for two groups that is
their Shapley value, and for any number the steps of each order add up to f(x) - f(reference).
Where an additive hazard is blended in (`predictor/hazard/blend.py`), the logarithm of the hazard is what adds up:
the trees' share of its move is divided as their log-odds are, the additive one's as its parts are.
To probability all parts of a row are scaled by the same factor, (p - base) / (log-odds - base's log-odds): so they keep
their order and proportions, and add up to p. That they do is checked against `Forest.probability` at every call.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.hazard.blend import HazardBlend, log_odds_of
from predictor.hazard.signs import SIGNS, sign_values
from predictor.history.arrays import Feature, Floats, Grid, Ints
from predictor.model.forest import Bits, Forest, ModelError, sigmoid

MAX_REASONS = 5
# What moves a score by less than this share of it is noise to a reader.
MIN_SHARE = 0.05
# By how much the parts of a score may miss it.
TOLERANCE = 1e-9
# Closer log-odds than these are divided by the slope of the curve, not by each other.
_CLOSE = 1e-6


class AdditivityError(ModelError):
    """The parts of a score do not add up to it: a defect, never the operator's fault."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Scores in parts: `probability[row] == base + parts[:, row].sum()` to within TOLERANCE.

    `base` is the score of a node where nothing has happened; `parts` is (groups, rows), in probability.
    """

    groups: tuple[str, ...]
    probability: Floats
    base: float
    parts: Floats

    def strongest(self, row: int) -> list[tuple[str, float]]:
        """The groups that raised a row's score most, with what they added, largest first."""
        raised = [(group, float(by)) for group, by in zip(self.groups, self.parts[:, row], strict=True)]
        least = MIN_SHARE * float(self.probability[row])
        raised = [(group, by) for group, by in raised if by > 0 and by >= least]
        return sorted(raised, key=lambda item: (-item[1], item[0]))[:MAX_REASONS]

    def all_strongest(self) -> list[list[tuple[str, float]]]:
        """`strongest` of every row, at once."""
        kept = (self.parts > 0) & (self.parts >= MIN_SHARE * self.probability)
        row, group = np.nonzero(kept.T)
        by = self.parts[group, row]
        order = np.lexsort((np.argsort(np.argsort(self.groups))[group], -by, row))
        found: list[list[tuple[str, float]]] = [[] for _ in range(self.parts.shape[1])]
        for at, which, value in zip(row[order].tolist(), group[order].tolist(), by[order].tolist(), strict=True):
            if len(found[at]) < MAX_REASONS:
                found[at].append((self.groups[which], value))
        return found

    def rest(self, row: int) -> float:
        """What the strongest leave of a row's score: the base, and everything else that raised or lowered it."""
        return float(self.probability[row]) - sum(by for _, by in self.strongest(row))


def references(rows: Grid, features: Sequence[Feature]) -> Grid:
    """The value of each feature where nothing has happened; the fleet's median of `rows` where none is fixed."""
    found = np.empty(len(features), dtype=np.float32)
    for i, feature in enumerate(features):
        if feature.reference is not None:
            found[i] = feature.reference
        else:
            known = rows[np.isfinite(rows[:, i]), i]
            found[i] = np.median(known) if len(known) else np.nan
    return found


def explain(forest: Forest | HazardBlend, rows: Grid, features: Sequence[Feature], reference: Grid) -> Explanation:
    """The probabilities of rows, in parts.

    Args:
        rows: (n, features), NaN where unknown; one row's parts depend on no other's.
        reference: what the parts are counted from, one value a feature.

    Raises:
        AdditivityError: the parts do not add up to `Forest.probability`.
    """
    groups = tuple(dict.fromkeys(feature.group for feature in features))
    number = {group: i for i, group in enumerate(groups)}
    group_of: Ints = np.array([number[feature.group] for feature in features], dtype=np.int64)
    start = float(forest.calibrated(forest.log_odds(reference[None, :]))[0])
    if isinstance(forest, HazardBlend):
        signs = sign_values(rows, forest.names)
        hazards = forest.log_hazards(rows, signs)
        extra = _added(forest, signs, reference, group_of, len(groups))
        parts = _blend_moves(forest, rows, (extra, hazards), reference, group_of)
        probability = sigmoid(forest.calibrated(log_odds_of(forest.blended(hazards))))
    else:
        parts = forest.slope * _moves(forest, rows, reference, group_of, len(groups))
        probability = forest.probability(rows)
    base = float(sigmoid(np.array(start)))
    parts *= _per_log_odds(start, parts.sum(axis=0), probability - base)
    missed = np.abs(base + parts.sum(axis=0) - probability)
    if not (missed <= TOLERANCE).all():
        raise AdditivityError(f"the reasons of a score miss it by {np.max(missed):.2g}: please report this")
    return Explanation(groups, probability, base, parts)


def _blend_moves(
    blend: HazardBlend,
    rows: Grid,
    told: tuple[Floats, tuple[Floats, Floats]],
    reference: Grid,
    group_of: Ints,
) -> Floats:
    """What each group moves in calibrated log-odds, (groups, rows).

    Args:
        told: what each group adds to the additive hazard, and the logarithms of the rows' own hazards.
    """
    extra, (added, trees) = told
    from_added, from_trees = blend.log_hazards(reference[None, :])
    # Where parts cancel, the slope of the curve stands for the ratio of two differences of nothing.
    found = _in_proportion(extra, blend.weight * (added - from_added), blend.weight * blend.horizon_h / np.exp(added))
    if blend.weight < 1:
        moves = blend.forest.slope * _moves(blend.forest, rows, reference, group_of, len(extra))
        rest = 1 - blend.weight
        found += _in_proportion(moves, rest * (trees - from_trees), rest / _odds_slope(trees))
    logs = blend.blended((added, trees))
    whole = blend.slope * (log_odds_of(logs) - blend.log_odds(reference[None, :]))
    return _in_proportion(found, whole, blend.slope * _odds_slope(logs))


def _odds_slope(log_hazards: Floats) -> Floats:
    """How much log-odds one unit of a hazard's logarithm is worth: hazard / probability."""
    hazard = np.exp(log_hazards)
    slope: Floats = hazard / -np.expm1(-hazard)
    return slope


def _added(blend: HazardBlend, signs: Floats, reference: Grid, group_of: Ints, groups: int) -> Floats:
    """The failures per hour that each group adds to those of the reference, (groups, rows)."""
    found = np.zeros((groups, signs.shape[1]))
    place = {name: at for at, name in enumerate(blend.names)}
    usual = sign_values(reference[None, :], blend.names)
    for sign, rate, values, quiet in zip(SIGNS, blend.rates.sum(axis=0).tolist(), signs, usual, strict=True):
        if sign.feature in place:
            found[group_of[place[sign.feature]]] += rate * (values - quiet)
    return found


def _in_proportion(parts: Floats, whole: Floats, slope: Floats) -> Floats:
    """Parts of each row scaled to add up to `whole`; by the slope of the curve where they nearly cancel."""
    moved = parts.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(np.abs(whole) < _CLOSE, slope, whole / moved)
    scaled: Floats = parts * np.where(np.isfinite(factor) & (factor > 0), factor, 0.0)
    return scaled


def _per_log_odds(start: float, moved: Floats, gained: Floats) -> Floats:
    """How much probability one unit of log-odds is worth in each row, on its way from the base."""
    middle = sigmoid(start + moved / 2)
    close = np.abs(moved) < _CLOSE
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(close, middle * (1 - middle), gained / moved)


def _moves(forest: Forest, rows: Grid, reference: Grid, group_of: Ints, groups: int) -> Floats:
    """What each group moves in log-odds before calibration, (groups, rows)."""
    found = np.zeros((groups, len(rows)))
    columns = np.ascontiguousarray(rows.T)
    differs = ~((columns == reference[:, None]) | (np.isnan(columns) & np.isnan(reference)[:, None]))
    for requested, trees in _trees_by_groups(forest, group_of).items():
        used = np.unique(np.concatenate([forest.feature[splits] for _, splits in trees]))
        changed = np.flatnonzero(differs[used].any(axis=0))
        if not len(changed):
            continue
        # The reference is one more row, so that it is asked in the very same way.
        part = np.empty((len(columns), len(changed) + 1), dtype=np.float32)
        part[used, :-1], part[used, -1] = columns[used][:, changed], reference[used]
        moved = np.zeros((len(requested), len(changed)))
        for tree, splits in trees:
            killed = [forest.killed(splits[group_of[forest.feature[splits]] == group], part) for group in requested]
            moved += _tree_moves(forest, tree, killed)
        for group, by in zip(requested, moved, strict=True):
            found[group, changed] += by
    return found


def _trees_by_groups(forest: Forest, group_of: Ints) -> dict[tuple[int, ...], list[tuple[int, Ints]]]:
    """The trees and their splits, by the groups that they ask."""
    found: dict[tuple[int, ...], list[tuple[int, Ints]]] = {}
    for tree, splits in enumerate(forest.splits_of_trees()):
        if splits:
            at: Ints = np.arange(splits.start, splits.stop)
            found.setdefault(tuple(np.unique(group_of[forest.feature[at]]).tolist()), []).append((tree, at))
    return found


def _tree_moves(forest: Forest, tree: int, killed: Sequence[Bits]) -> Floats:
    """What each group of a tree moves, (groups, rows); the last entry of `killed` is the reference's."""
    moved = np.zeros((len(killed), len(killed[0]) - 1))
    orders = [range(len(killed)), range(len(killed) - 1, -1, -1)] if len(killed) > 1 else [range(1)]
    for order in orders:
        in_place: list[Bits | int] = [bits[-1] for bits in killed]
        before: Floats | float = _leaf_log_odds(forest, tree, in_place)
        for group in order:
            in_place[group] = killed[group][:-1]
            after = _leaf_log_odds(forest, tree, in_place)
            moved[group] += (after - before) / len(orders)
            before = after
    return moved


def _leaf_log_odds(forest: Forest, tree: int, killed: Sequence[Bits | int]) -> Floats:
    return forest.leaf_values(tree, np.bitwise_or.reduce(np.broadcast_arrays(*killed)))
