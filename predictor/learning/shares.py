"""How much of a score is the trees', and how much an additive hazard's: by what each was worth on the same rows.

    known = known_before(lesson, packaged())                        # None: trees alone
    hazards = fold_hazards(lesson, trial, parts, known)             # what both would have said of the folds' rows
    share = MeanShare.of(hazards, trial.outages)
    model = blended(lesson, trees, known, share.weight(outages))

The hazard starts from the prior and takes in the rows that the trees learned from, no others. What serves is the mean
of the logarithms of both hazards (`predictor/hazard/blend.py`). The more outages the trees have learned from, the more
they count: the hazard is worth so many outages. How many the folds tell: each worth counts by its likelihood there, so
that no single one is chosen by a few failures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from predictor.hazard.blend import HazardBlend, log_hazard, log_odds_of, no_trees
from predictor.hazard.hazard import HazardEvidence, per_hour
from predictor.hazard.prior import Prior
from predictor.hazard.signs import sign_values
from predictor.history.arrays import Bools, Floats, Ints
from predictor.learning.training_set import TrainingSet, node_hours
from predictor.model.fit import HeldOutScores, fit_line
from predictor.model.forest import Forest
from predictor.model.local_rates import PUBLISHED, PriorRate
from predictor.model.skill import Judged, drawn_precision, interval, node_weights

TREES, HAZARD, BLEND, PRIOR = "trees", "hazard", "blend", "prior"
# How many outages the additive hazard may be worth: with as many learned from, both count the same.
WORTHS = np.array([0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0])


def known_before(lesson: TrainingSet, prior: Prior | None) -> HazardEvidence | None:
    """What a prior knows of a lesson's horizon, None if nothing."""
    return None if prior is None else prior.evidence.get(lesson.horizon_h)


def expected_rate(lesson: TrainingSet, known: HazardEvidence | None) -> PriorRate:
    """The rate that a prior expects of a lesson's nodes, as they looked; the published one without a prior."""
    if known is None:
        return PUBLISHED
    hazard = per_hour(known.rates(), sign_values(lesson.values, [feature.name for feature in lesson.features]))
    node = np.unique(lesson.sample.rows.node, return_inverse=True)[1].ravel()
    weight = lesson.stands_for()
    of_nodes = np.bincount(node, hazard * weight) / np.bincount(node, weight)
    per_day = 24.0 * float(np.median(of_nodes))  # not the mean: one node that shows what it likes moves it
    words = f"{1000 * per_day:.2g} outages per 1000 node-days, which the prior expects of nodes like these"
    return PriorRate(per_day, PUBLISHED.outages, words)


@dataclass(frozen=True, slots=True)
class FoldHazards:
    """What was said of the folds' rows, as logarithms of hazards over the horizon, in their order.

    Attributes:
        trees, added, alone: of the trees, of the additive hazard, and of the prior alone.
        outages: (rows,), how many the trees and the additive hazard had learned from.
        seen: what the trees said, and what came.
    """

    trees: Floats
    added: Floats
    alone: Floats
    outages: Ints
    seen: HeldOutScores

    def mean(self, weight: Floats | float) -> HeldOutScores:
        """Both together, the additive hazard by a weight of 0 to 1, for each row or all."""
        return self.of(weight * self.added + (1 - weight) * self.trees)

    def of(self, logs: Floats) -> HeldOutScores:
        """The rows with other hazards."""
        return replace(self.seen, log_odds=log_odds_of(logs))

    def trials(self, share: "MeanShare") -> dict[str, HeldOutScores]:
        """Each by its name, what serves (`blend`) among them."""
        both = self.mean(share.weight(self.outages))
        return {TREES: self.seen, HAZARD: self.of(self.added), BLEND: both, PRIOR: self.of(self.alone)}

    def level(self, weight: float) -> float:
        """What is added to the log-odds of the mean before it is calibrated.

        A mean of logarithms is lower than either where the two differ, so that it would tell fewer failures than both
        of its parts: it is raised until it tells as many as they do, over the same rows, whose answers it does not see.
        """
        both = weight * self.added + (1 - weight) * self.trees
        told = [float(np.exp(logs) @ self.seen.weight) for logs in (self.added, self.trees, both)]
        return float(np.log((weight * told[0] + (1 - weight) * told[1]) / told[2]))


def fold_hazards(
    lesson: TrainingSet, of_trees: HeldOutScores, parts: Sequence[tuple[Bools, Bools]], known: HazardEvidence
) -> FoldHazards:
    """What each would have said of the rows that the trees were tried on, learned from what these had learned from."""
    added: list[Floats] = []
    alone: list[Floats] = []
    outages: list[Ints] = []
    for learned, judged in parts:
        rows, part = lesson.values[judged], lesson.only(learned)
        added.append(additive(lesson, known.after(node_hours(part))).log_hazards(rows)[0])
        alone.append(additive(lesson, known).log_hazards(rows)[0])
        outages.append(np.full(len(rows), outages_of(part), dtype=np.int64))
    logs = log_hazard(of_trees.log_odds)
    return FoldHazards(logs, np.concatenate(added), np.concatenate(alone), np.concatenate(outages), of_trees)


def outages_of(lesson: TrainingSet) -> int:
    """How many outages the rows speak of."""
    return len(np.unique(lesson.outages()))


@dataclass(frozen=True, slots=True)
class MeanShare:
    """How likely each of WORTHS is; they sum to 1."""

    chance: Floats

    @classmethod
    def of(cls, hazards: FoldHazards, outages: int) -> "MeanShare":
        """By their likelihood on the folds, each after a line of its own: whatever serves is calibrated anyway.

        Args:
            outages: that the rows speak of: each counts once, however many rows do.
        """
        trials = [hazards.mean(_weight(worth, hazards.outages)) for worth in WORTHS]
        losses = np.array([float(seen.losses(fit_line(seen)).sum()) for seen in trials])
        likelihood = np.exp((losses.min() - losses) * outages / hazards.seen.positive.sum())
        return cls(likelihood / likelihood.sum())

    def weight(self, outages: Ints | int) -> Any:
        """The additive hazard's part, 0 to 1, of models that learned from so many outages: the mean over the worths."""
        return sum(chance * _weight(worth, outages) for chance, worth in zip(self.chance, WORTHS, strict=True))


def _weight(worth: float, outages: Ints | int) -> Any:
    return worth / (worth + np.maximum(outages, 1))


def additive(lesson: TrainingSet, evidence: HazardEvidence) -> HazardBlend:
    """What is known by some evidence alone, asked with a lesson's columns."""
    names = tuple(feature.name for feature in lesson.features)
    return HazardBlend(no_trees(), names, evidence.rates(), lesson.horizon_h, 1.0)


def blended(lesson: TrainingSet, trees: Forest, known: HazardEvidence, weight: float) -> HazardBlend:
    """Trees and the additive hazard of all rows of a lesson, by the weight of the latter."""
    return replace(additive(lesson, known.after(node_hours(lesson))), forest=trees, weight=weight)


def compared(lesson: TrainingSet, rows: Ints, trials: Mapping[str, HeldOutScores]) -> dict[str, dict[str, Any]]:
    """The `log_loss` of each, after a line of its own; of those beside the trees what they gain on them.

    `over_trees` has intervals of 95 % on the same rows and the same draws of nodes; above 0 is better.
    """
    nodes, node = np.unique(lesson.sample.rows.node[rows], return_inverse=True)
    weights = node_weights(len(nodes))
    losses = {name: seen.losses(fit_line(seen)) for name, seen in trials.items()}
    stands_for = trials[TREES].weight
    found: dict[str, dict[str, Any]] = {
        name: {"log_loss": float(loss.sum() / stands_for.sum())} for name, loss in losses.items()
    }
    if len(trials) == 1:
        return found
    watched = np.bincount(node.ravel(), stands_for) @ weights
    precision = {name: _drawn(lesson, rows, seen, weights) for name, seen in trials.items()}
    for name in trials:
        if name != TREES:
            gained = np.bincount(node.ravel(), losses[TREES] - losses[name]) @ weights
            found[name]["over_trees"] = {
                "log_loss": interval(gained / watched),
                "average_precision": interval(precision[name] - precision[TREES]),
            }
    return found


def _drawn(lesson: TrainingSet, rows: Ints, seen: HeldOutScores, weights: Floats) -> Floats:
    """The average precision in each draw of nodes, of all rows that the sample stands for."""
    part, node = lesson.sample.rows, lesson.sample.rows.node[rows]
    place = np.unique(node, return_inverse=True)[1].ravel().astype(np.int64)
    labels = lesson.sample.labels.only(rows)
    return drawn_precision(Judged(part.time_ms[rows], place, seen.log_odds, labels), weights, seen.weight)
