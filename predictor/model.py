"""Fitting: gradient-boosted trees of modest capacity, for a label that is positive in some 0.4 % of the rows.

Several small boosters are averaged, each on all positives and a random part of the negatives. What that does to
the odds is known exactly and taken back: probabilities keep their scale. (Weights do the same, nine times slower.)
Features that can only speak for an outage are held monotonic, so that 180 positives cannot teach nonsense.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from predictor.feature import Feature
from predictor.forest import Forest, ModelError
from predictor.history import Bools, Ints

MIN_POSITIVES = 8


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How much capacity a model has. Tuned on simulated clusters of 64 to 400 nodes; see docs/predictor.md."""

    members: int = 4
    trees: int = 120
    leaves: int = 6
    learning_rate: float = 0.03
    min_leaf_rows: int = 40
    l2: float = 1.0
    feature_share: float = 0.3
    negatives_per_positive: int = 20
    least_negatives: int = 2_000
    most_negatives: int = 20_000
    seed: int = 7


class TooFewPositivesError(ModelError):
    """There is not enough to learn from; the message says how many positives there are and how many are needed."""

    def __init__(self, found: int, rows: int) -> None:
        super().__init__(
            f"too few outages to learn from: {found} of {rows} rows are followed by an unplanned outage, "
            f"{MIN_POSITIVES} are needed: load a longer history or more nodes"
        )


def fit(
    rows: NDArray[np.float32],
    positive: Bools,
    features: Sequence[Feature],
    settings: FitSettings | None = None,
    negative_share: float = 1.0,
) -> Forest:
    """A forest that gives the probability of a positive. `rows` is (n, features).

    Args:
        negative_share: the rows hold this share of all negatives; it is taken back.

    Raises:
        TooFewPositivesError: there are fewer than MIN_POSITIVES of them, or no negatives.
    """
    settings = settings or FitSettings()
    positives = int(positive.sum())
    if positives < MIN_POSITIVES or positives == len(positive):
        raise TooFewPositivesError(positives, len(positive))
    generator = np.random.default_rng(settings.seed)
    negatives = len(positive) - positives
    ample = min(positives * settings.negatives_per_positive, settings.most_negatives)
    wanted = min(negatives, max(ample, positives, settings.least_negatives))
    boosters = []
    for member in range(settings.members):
        kept = _sample(positive, wanted, generator)
        columns = telling(rows[kept])
        booster = _booster(settings, member, positives, [features[column] for column in columns])
        # Threads only wait for each other on data this small, and on a busy machine they wait long.
        with threadpool_limits(1, user_api="openmp"):
            booster.fit(rows[kept][:, columns], positive[kept])
        boosters.append((booster, columns))
    # Of the negatives a share was drawn: the odds of a positive seem higher by its inverse (King and Zeng 2001).
    return replace(average(boosters), offset=math.log(wanted / negatives * negative_share))


def telling(rows: NDArray[np.float32]) -> Ints:
    """The columns that hold at least two different measured values: the others cannot split anything."""
    low, high = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
    columns: Ints = np.flatnonzero(low < high)
    return columns


def _sample(positive: Bools, wanted: int, generator: np.random.Generator) -> Ints:
    """All positives and some of the negatives, in order."""
    drawn = generator.choice(np.flatnonzero(~positive), size=wanted, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(positive), drawn]))


def _booster(
    settings: FitSettings, member: int, positives: int, features: Sequence[Feature]
) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        learning_rate=settings.learning_rate,
        max_iter=settings.trees,
        max_leaf_nodes=settings.leaves,
        # A leaf of a small fleet must be able to hold its few positives' neighbourhood.
        min_samples_leaf=min(settings.min_leaf_rows, max(5, positives)),
        l2_regularization=settings.l2,
        max_features=settings.feature_share,
        monotonic_cst=[feature.monotonic for feature in features],
        early_stopping=False,
        random_state=settings.seed + member,
    )


def average(boosters: list[tuple[HistGradientBoostingClassifier, Ints]]) -> Forest:
    """The mean log-odds of boosters, each with the columns that it learned from, as one forest.

    Trees are taken from scikit-learn's fitted objects; a test holds the forest to `decision_function`.
    """
    parts, features = [], []
    for booster, columns in boosters:
        for grown in booster._predictors:
            parts.append(grown[0].nodes)
            features.append(columns[grown[0].nodes["feature_idx"]])
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    nodes = np.concatenate(parts)
    shift = np.repeat(roots, sizes)
    itself = np.arange(len(nodes), dtype=np.int64)
    leaf = nodes["is_leaf"].astype(np.bool_)
    return Forest(
        feature=np.where(leaf, 0, np.concatenate(features)).astype(np.int64),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]),
        missing_left=nodes["missing_go_to_left"].astype(np.bool_),
        left=np.where(leaf, itself, nodes["left"] + shift),
        right=np.where(leaf, itself, nodes["right"] + shift),
        value=np.where(leaf, nodes["value"], 0.0) / len(boosters),
        roots=roots,
        depth=int(nodes["depth"].max()),
        baseline=float(np.mean([booster._baseline_prediction.item() for booster, _ in boosters])),
    )
