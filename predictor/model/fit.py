"""Fitting: gradient-boosted trees of modest capacity, for a label that is positive in some 0.4 % of the rows.

Several small boosters are averaged, each on all positives and a random part of the negatives. What that does to
the odds is known exactly and taken back: probabilities keep their scale. (Weights do the same, nine times slower.)
Features that can only speak for an outage are held monotonic, so that 180 positives cannot teach nonsense.
A tree asks features of one block alone (`blocks`): the log-odds are a sum over blocks, and a reason is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from predictor.history.arrays import Bools, Feature, Floats, Grid, Ints
from predictor.model.forest import MOST_LEAVES, Forest, ModelError, sigmoid

# Values as small numbers: each column cut at its quantiles, once for all boosters that learn from it.
#
# A booster cuts its columns itself, and with weights so slowly that this takes longer than growing all the trees
# (scikit-learn 1.9: 7.5 s of 9.6 s). Columns of at most `most` different codes it takes as they are.

# On simulated clusters 63 rank as well as 255, in half the time (docs/prediction.md).
MOST_CODES = 63


@dataclass(frozen=True, slots=True)
class Bins:
    """The edges of each column, ascending float32; a value's code is the number of edges below it."""

    edges: tuple[Grid, ...]

    @classmethod
    def of(cls, values: Grid, most: int = MOST_CODES) -> "Bins":
        """Edges between at most `most` codes a column, about equally many known `values` (n, columns) in each."""
        return cls(tuple(_edges(column[np.isfinite(column)], most) for column in values.T))

    def codes(self, values: Grid) -> Grid:
        """The codes of values (n, columns), NaN where unknown."""
        found = np.empty(values.shape, dtype=np.float32)
        for column, edges in enumerate(self.edges):
            known = values[:, column]
            found[:, column] = np.where(np.isnan(known), np.nan, np.searchsorted(edges, known))
        return found

    def thresholds(self, columns: Ints, codes: Floats) -> Grid:
        """What a value must not exceed for its code to be at most the given ones; infinite for all known values."""
        found = np.full(len(columns), np.inf, dtype=np.float32)
        for split, (column, code) in enumerate(zip(columns, codes, strict=True)):
            if code < len(self.edges[column]):
                found[split] = self.edges[column][int(code)]
        return found


def _edges(known: Grid, most: int) -> Grid:
    """Cuts between neighbouring values, so that a value seen later falls to the nearer one; none where all are one."""
    distinct, counts = np.unique(known, return_counts=True)
    if len(distinct) > most:
        part = np.cumsum(counts)[:-1] / counts.sum() * most
        after = np.flatnonzero(np.diff(np.floor(part), prepend=0.0) >= 1)
    else:
        after = np.arange(len(distinct) - 1)
    low, high = distinct[after].astype(np.float64), distinct[after + 1]
    middle: Grid = ((low + high) / 2).astype(np.float32)
    # Rounding may reach the upper value, which would then fall below its own edge.
    return np.where(middle >= high, distinct[after], middle)


# Calibration: the line that turns a model's log-odds into probabilities that hold, fitted on rows it had not seen.
#
# Log-odds of a model that learned in the past are often too bold, and the rate of failures drifts. A line with two
# parameters takes that back (Platt) and leaves the ranking as it is. With few positives a free line is noise, so it is
# held near the line that changes nothing. A line only tempers: one that is steeper would be taken by this training and
# refused by the next, and the scores of the two could not be compared.

# How far from 1 a slope, and from 0 an offset, are without evidence: standard deviations of a normal prior.
_SLOPE_SPREAD, _OFFSET_SPREAD = 0.25, 1.0
_STEPS = 25
_LEAST_ODDS = 1e-12


@dataclass(frozen=True, slots=True)
class CalibrationLine:
    """slope * log-odds + offset."""

    slope: float = 1.0
    offset: float = 0.0

    def of(self, log_odds: Floats) -> Floats:
        """The calibrated log-odds."""
        return self.slope * log_odds + self.offset


@dataclass(frozen=True, slots=True)
class HeldOutScores:
    """What was said of rows that the model had not learned from, and what came; each stands for `weight` rows."""

    log_odds: Floats
    positive: Bools
    weight: Floats

    def only(self, kept: Bools) -> "HeldOutScores":
        """Some of the rows."""
        return HeldOutScores(self.log_odds[kept], self.positive[kept], self.weight[kept])

    def through(self, line: CalibrationLine) -> "HeldOutScores":
        """The same rows with calibrated log-odds."""
        return HeldOutScores(line.of(self.log_odds), self.positive, self.weight)

    def losses(self, line: CalibrationLine) -> Floats:
        """The log loss of each row, weighted."""
        log_odds = line.of(self.log_odds)
        found: Floats = self.weight * (np.logaddexp(0.0, log_odds) - log_odds * self.positive)
        return found


def calibrate(seen: HeldOutScores, last: Bools) -> CalibrationLine:
    """The line for what is to come; the one that changes nothing unless both of two lines do better, and temper.

    Args:
        last: the rows judged last: a line of the others must not lose on them, nor must the line of all.
    """
    nothing = CalibrationLine()
    if not seen.positive[last].any() or not seen.positive[~last].any():
        return nothing
    judged, whole = seen.only(last), fit_line(seen)
    earlier = fit_line(seen.only(~last))
    without = judged.losses(nothing).sum()
    if whole.slope > 1:
        return nothing
    better = judged.losses(earlier).sum() <= without and judged.losses(whole).sum() <= without
    return whole if better else nothing


# A mean of boosters, each of which drew other negatives, is blunt, and so is a mean of logarithms: what came among the
# riskiest nodes was more than it said, in seven of eight left-out worlds (docs/prediction.md). One slope for all: what
# a site's few failures say of it is noise.
SHARPER = 1.1


def sharpened(seen: HeldOutScores) -> CalibrationLine:
    """The line of that slope that tells as many failures in all of these rows; it does not look at their answers."""
    told = float(sigmoid(seen.log_odds) @ seen.weight)
    low, high = -10.0, 10.0
    for _ in range(60):
        offset = (low + high) / 2
        more = float(sigmoid(SHARPER * seen.log_odds + offset) @ seen.weight) > told
        low, high = (low, offset) if more else (offset, high)
    return CalibrationLine(SHARPER, (low + high) / 2)


def fit_line(seen: HeldOutScores) -> CalibrationLine:
    """The most probable line, by Newton's method, each step halved until the loss falls: it is convex, but flat where
    scores are bold, and a whole step would leave for good."""
    unmoved = np.array([1.0, 0.0])
    prior = np.diag([_SLOPE_SPREAD**-2, _OFFSET_SPREAD**-2])
    columns = np.stack([seen.log_odds, np.ones(len(seen.log_odds))])

    def loss(at: Floats) -> float:
        return float(seen.losses(CalibrationLine(*at.tolist())).sum() + (at - unmoved) @ prior @ (at - unmoved) / 2)

    at, least = unmoved, loss(unmoved)
    for _ in range(_STEPS):
        said = sigmoid(at @ columns)
        gradient = columns @ (seen.weight * (said - seen.positive)) + prior @ (at - unmoved)
        curvature = (columns * (seen.weight * np.maximum(said * (1 - said), _LEAST_ODDS))) @ columns.T + prior
        step = np.linalg.solve(curvature, gradient)
        while (now := loss(at - step)) > least and np.abs(step).max() >= 1e-9:
            step = step / 2
        at, least = at - step, min(now, least)
        if np.abs(step).max() < 1e-9:
            break
    # A slope that turns the ranking around is never believed.
    return CalibrationLine(float(at[0]), float(at[1])) if at[0] > 0 else CalibrationLine()


# What scikit-learn grew, as a forest: the only place that knows how its trees are laid out.
#
# A test holds the forest to scikit-learn's own `decision_function`.


@dataclass(frozen=True, slots=True)
class FittedBooster:
    """A fitted booster, and the columns (of the matrix that forests are asked with) whose codes it learned from."""

    booster: HistGradientBoostingClassifier
    columns: Ints


@dataclass(slots=True)
class _TreeLayout:
    """The splits of the trees so far, and the leaves of the tree at hand."""

    splits: list[tuple[int, int, float, bool, int]]
    leaves: list[float]

    def visit(self, nodes: Any, at: int, tree: int) -> int:
        """Lay out a node and what is below it, leaves from left to right; returns the bits of its leaves."""
        node = nodes[at]
        if node["is_leaf"]:
            self.leaves.append(float(node["value"]))
            return 1 << (len(self.leaves) - 1)
        place = len(self.splits)
        self.splits.append((tree, 0, 0.0, False, 0))
        left = self.visit(nodes, int(node["left"]), tree)
        self.splits[place] = (
            *(tree, int(node["feature_idx"]), float(node["num_threshold"]), bool(node["missing_go_to_left"])),
            left,
        )
        return left | self.visit(nodes, int(node["right"]), tree)


def average(grown: Sequence[FittedBooster], bins: Bins) -> Forest:
    """The mean log-odds of boosters as one forest that takes values, not codes."""
    values: list[Floats] = []
    splits: list[tuple[int, int, float, bool, int]] = []
    for one in grown:
        for stage in one.booster._predictors:
            layout = _TreeLayout([], [])
            layout.visit(stage[0].nodes, 0, len(values))
            splits += [(tree, int(one.columns[at]), code, left, bits) for tree, at, code, left, bits in layout.splits]
            values.append(np.pad(layout.leaves, (0, MOST_LEAVES - len(layout.leaves))) / len(grown))
    tree, feature, code, missing_left, kills = zip(*splits, strict=True) if splits else ((), (), (), (), ())
    features: Ints = np.array(feature, dtype=np.int64)
    return Forest(
        tree=np.array(tree, dtype=np.int64),
        feature=features,
        threshold=bins.thresholds(features, np.array(code, dtype=np.float64)),
        missing_left=np.array(missing_left, dtype=np.bool_),
        kills=np.array(kills, dtype=np.uint16),
        value=np.array(values),
        baseline=float(np.mean([one.booster._baseline_prediction.item() for one in grown])),
    )


# What the members of a forest differ in, beside the negatives that each drew: how many times the rate each learns at,
# and how many days make a row count half. Whether that is better for all differs from training to training by chance;
# the mean stays what it is (docs/prediction.md).
VARIED: tuple[tuple[float, float | None], ...] = ((1, None), (2, None), (1, 180.0), (1, None))
MIN_POSITIVES = 8
# What a measure means depends on these.
_MEANT_BY = frozenset({"model", "age"})


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How much capacity a model has; see docs/prediction.md for how these were chosen. Its members vary (`VARIED`).

    Attributes:
        leaves: of one tree, at most `forest.MOST_LEAVES`.
        alone: groups never interact; False lets all features interact.
        negatives_per_positive: as many as these are drawn for each positive, up to `most_negatives`; never fewer than
            `least_per_positive`, as far as there are any.
    """

    members: int = 4
    trees: int = 120
    leaves: int = 6
    learning_rate: float = 0.03
    min_leaf_rows: int = 40
    l2: float = 1.0
    feature_share: float = 0.3
    alone: bool = True
    negatives_per_positive: int = 20
    least_per_positive: int = 4
    least_negatives: int = 2_000
    most_negatives: int = 20_000
    seed: int = 7


def suited_settings(features: Sequence[Feature]) -> FitSettings:
    """What to start from: measures mean something together, which a tree of six leaves cannot hold. Without them larger
    trees gain nothing, and take three times as long to score by (docs/prediction.md)."""
    return FitSettings(leaves=MOST_LEAVES) if any(map(is_measure, features)) else FitSettings()


def is_measure(feature: Feature) -> bool:
    """Whether a feature is of a measure that telemetry happens to hold: `measure.suffix`."""
    return feature.name.startswith(f"{feature.group}.")


@dataclass(frozen=True, slots=True)
class RowWeights:
    """How much each row counts, and the days from it to the newest."""

    usual: Floats
    age_d: Floats

    def faded(self, half_life_d: float | None) -> Floats:
        """How much where a row this many days older counts half; None: as usual."""
        if half_life_d is None:
            return self.usual
        found: Floats = self.usual * 0.5 ** (self.age_d / half_life_d)
        return found


class TooFewPositivesError(ModelError):
    """There is not enough to learn from; the message says how many positives there are and how many are needed."""

    def __init__(self, found: int, rows: int) -> None:
        super().__init__(
            f"too few outages to learn from: {found} of {rows} rows are followed by an unplanned outage, "
            f"{MIN_POSITIVES} are needed: load a longer history or more nodes"
        )


def fit(
    values: Grid,
    positive: Bools,
    features: Sequence[Feature],
    settings: FitSettings | None = None,
    negative_share: float = 1.0,
    weights: RowWeights | None = None,
) -> Forest:
    """A forest that gives the probability of a positive. `values` is (rows, features), NaN where unknown.

    Args:
        negative_share: the rows hold this share of all negatives; it is taken back.
        weights: how much each row counts; None lets all count the same.

    Raises:
        TooFewPositivesError: there are fewer than MIN_POSITIVES of them, or no negatives.
    """
    settings = settings or FitSettings()
    positives = int(positive.sum())
    if positives < MIN_POSITIVES or positives == len(positive):
        raise TooFewPositivesError(positives, len(positive))
    weights = weights or RowWeights(np.ones(len(positive)), np.zeros(len(positive)))
    generator = np.random.default_rng(settings.seed)
    wanted = _negatives(settings, positives, len(positive) - positives)
    rate = _learning_rate(settings, positives)
    drawn = [_sample(positive, wanted, generator) for _ in range(settings.members)]
    union = np.unique(np.concatenate(drawn))
    bins = Bins.of(values[union])
    codes, grown, shares = bins.codes(values[union]), [], []
    for number, kept in enumerate(drawn):
        faster, half_life_d = VARIED[number % len(VARIED)]
        own, counts = replace(settings, learning_rate=faster * rate), weights.faded(half_life_d)
        at = np.searchsorted(union, kept)
        grown.append(_grow(codes[at], positive[kept], counts[kept], features, (own, number)))
        shares.append(counts[kept][~positive[kept]].sum() / counts[~positive].sum())
    # Of the negatives a share was drawn: the odds of a positive seem higher by its inverse (King and Zeng 2001).
    return replace(average(grown, bins), offset=float(np.mean(np.log(shares))) + math.log(negative_share))


def informative_columns(rows: Grid) -> Ints:
    """The columns that hold at least two different measured values: the others cannot split anything."""
    low, high = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
    columns: Ints = np.flatnonzero(low < high)
    return columns


def blocks(features: Sequence[Feature], columns: Ints) -> list[list[int]]:
    """Which of some columns may meet in one tree, as positions in `columns`: disjoint, and all of them together.

    Groups are blocks of their own, which costs nothing on simulated clusters; the measures that telemetry happens
    to hold (`measure.suffix`) are one block, since counters of one device mean more together, and with them the model
    and age of what they measure: makers count differently (docs/prediction.md).
    """
    requested = [features[column] for column in columns.tolist()]
    measures = [is_measure(feature) for feature in requested]
    found: dict[str, list[int]] = {}
    for position, (feature, measure) in enumerate(zip(requested, measures, strict=True)):
        together = measure or (any(measures) and feature.group in _MEANT_BY)
        found.setdefault("" if together else feature.group, []).append(position)
    return list(found.values())


def _negatives(settings: FitSettings, positives: int, negatives: int) -> int:
    """How many negatives each booster draws."""
    ample = min(positives * settings.negatives_per_positive, settings.most_negatives)
    return min(negatives, max(ample, positives * settings.least_per_positive, settings.least_negatives))


def _learning_rate(settings: FitSettings, positives: int) -> float:
    """How fast boosters learn: faster the more positives there are beyond those that `most_negatives` suffices for, up
    to twice as fast. As many trees then hold what many failures teach, and are asked as quickly."""
    many = positives * settings.least_per_positive / settings.most_negatives
    return settings.learning_rate * min(2.0, max(1.0, math.sqrt(many)))


def _sample(positive: Bools, wanted: int, generator: np.random.Generator) -> Ints:
    """All positives and some of the negatives, in order."""
    drawn = generator.choice(np.flatnonzero(~positive), size=wanted, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(positive), drawn]))


def _grow(
    codes: Grid, positive: Bools, counts: Floats, features: Sequence[Feature], member: tuple[FitSettings, int]
) -> FittedBooster:
    """One booster of the forest, by its number."""
    settings, number = member
    columns = informative_columns(codes)
    if not len(columns):
        # Nothing tells rows apart: trees without a split say the base rate.
        codes, columns = np.zeros_like(codes), np.zeros(1, dtype=np.int64)
    booster = HistGradientBoostingClassifier(
        learning_rate=settings.learning_rate,
        max_iter=settings.trees,
        max_leaf_nodes=settings.leaves,
        # A leaf of a small fleet must be able to hold its few positives' neighbourhood.
        min_samples_leaf=min(settings.min_leaf_rows, max(5, int(positive.sum()))),
        l2_regularization=settings.l2,
        max_features=settings.feature_share,
        monotonic_cst=[features[column].monotonic for column in columns],
        interaction_cst=blocks(features, columns) if settings.alone else None,
        early_stopping=False,
        random_state=settings.seed + number,
    )
    # Threads only wait for each other on data this small, and on a busy machine they wait long.
    with threadpool_limits(1, user_api="openmp"):
        booster.fit(codes[:, columns], positive, sample_weight=counts)
    return FittedBooster(booster, columns)
