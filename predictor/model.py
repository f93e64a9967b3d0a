"""Fitting: gradient-boosted trees of modest capacity, for a label that is positive in some 0.4 % of the rows.

Several small boosters are averaged, each on all positives and a random part of the negatives, which are weighted
back up: probabilities keep their scale, and a fit costs little. `class_weight="balanced"` would spoil them.
Features that can only speak for an outage are held monotonic, so that 180 positives cannot teach nonsense.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from predictor.features import FEATURES
from predictor.forest import Forest, ModelError
from predictor.history import Bools, Floats, Ints

MIN_POSITIVES = 8


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How much capacity a model has. Tuned on simulated clusters of 64 to 400 nodes; see docs/predictor.md."""

    members: int = 4
    trees: int = 100
    leaves: int = 6
    learning_rate: float = 0.04
    min_leaf_rows: int = 40
    l2: float = 5.0
    feature_share: float = 0.3
    negatives_per_positive: int = 60
    seed: int = 7


class TooFewPositivesError(ModelError):
    """There is not enough to learn from; the message says how many positives there are and how many are needed."""

    def __init__(self, found: int, rows: int) -> None:
        super().__init__(
            f"too few outages to learn from: {found} of {rows} rows are followed by an unplanned outage, "
            f"{MIN_POSITIVES} are needed: load a longer history or more nodes"
        )


def fit(rows: NDArray[np.float32], positive: Bools, settings: FitSettings | None = None) -> Forest:
    """A forest that gives the probability of a positive. `rows` is (n, features) in the order of FEATURES.

    Raises:
        TooFewPositivesError: there are fewer than MIN_POSITIVES of them, or no negatives.
    """
    settings = settings or FitSettings()
    positives = int(positive.sum())
    if positives < MIN_POSITIVES or positives == len(positive):
        raise TooFewPositivesError(positives, len(positive))
    generator = np.random.default_rng(settings.seed)
    boosters = []
    for member in range(settings.members):
        kept, weights = _sample(positive, settings, generator)
        booster = _booster(settings, member, positives)
        booster.fit(rows[kept], positive[kept], sample_weight=weights)
        boosters.append(booster)
    return average(boosters)


def _sample(positive: Bools, settings: FitSettings, generator: np.random.Generator) -> tuple[Ints, Floats]:
    """All positives and a part of the negatives, with the weights that make up for it."""
    negatives = np.flatnonzero(~positive)
    wanted = min(len(negatives), max(int(positive.sum()) * settings.negatives_per_positive, 2_000))
    drawn = np.sort(generator.choice(negatives, size=wanted, replace=False))
    kept = np.concatenate([np.flatnonzero(positive), drawn])
    weights = np.ones(len(kept))
    weights[-wanted:] = len(negatives) / wanted
    return kept, weights


def _booster(settings: FitSettings, member: int, positives: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        learning_rate=settings.learning_rate,
        max_iter=settings.trees,
        max_leaf_nodes=settings.leaves,
        # A leaf of a small fleet must be able to hold its few positives' neighbourhood.
        min_samples_leaf=min(settings.min_leaf_rows, max(5, positives)),
        l2_regularization=settings.l2,
        max_features=settings.feature_share,
        monotonic_cst=[feature.monotonic for feature in FEATURES],
        early_stopping=False,
        random_state=settings.seed + member,
    )


def average(boosters: list[HistGradientBoostingClassifier]) -> Forest:
    """The boosters' mean log-odds as one forest.

    Trees are taken from scikit-learn's fitted objects; a test holds the forest to `decision_function`.
    """
    parts: list[NDArray[np.void]] = [grown[0].nodes for booster in boosters for grown in booster._predictors]
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    nodes = np.concatenate(parts)
    shift = np.repeat(roots, sizes)
    itself = np.arange(len(nodes), dtype=np.int64)
    leaf = nodes["is_leaf"].astype(np.bool_)
    return Forest(
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]),
        missing_left=nodes["missing_go_to_left"].astype(np.bool_),
        left=np.where(leaf, itself, nodes["left"] + shift),
        right=np.where(leaf, itself, nodes["right"] + shift),
        value=np.where(leaf, nodes["value"], 0.0) / len(boosters),
        roots=roots,
        depth=int(nodes["depth"].max()),
        baseline=float(np.mean([booster._baseline_prediction.item() for booster in boosters])),
    )
