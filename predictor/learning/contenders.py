"""What may serve: trees, an additive hazard, their mean, or the prior of other clusters alone; tried on the same rows.

    known = known_before(lesson, packaged())            # None: trees alone
    trials = contenders(lesson, trial, parts, known)    # what each would have said of the folds' rows
    best, compared = best_of(lesson, trial.rows, trials)

The hazard starts from the prior and takes in the rows that the trees learned from, no others. The mean is that of the
logarithms of both hazards (`predictor/hazard/blend.py`). Each is judged by its log loss on the folds, after a line of
its own through its log-odds, since whatever serves is calibrated anyway; intervals are drawn by node.
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
from predictor.model.baselines import Kind
from predictor.model.fit import HeldOutScores, fit_line
from predictor.model.forest import Forest
from predictor.model.local_rates import PUBLISHED, PriorRate
from predictor.model.skill import Judged, drawn_precision, interval, node_weights

TREES, HAZARD, BLEND, PRIOR = "trees", "hazard", "blend", "prior"
# How much the additive hazard counts in the mean: not searched, since few outages would choose it by chance.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class ScoreContender:
    """One that may serve: the kind of a model made of it, and its name in words."""

    kind: Kind
    words: str


CONTENDERS: Mapping[str, ScoreContender] = {
    TREES: ScoreContender("gbt", "trees"),
    HAZARD: ScoreContender("hazard", "additive hazard"),
    BLEND: ScoreContender("blend", "trees and additive hazard"),
    PRIOR: ScoreContender("hazard", "prior of other clusters"),
}


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


def contenders(
    lesson: TrainingSet,
    of_trees: HeldOutScores,
    parts: Sequence[tuple[Bools, Bools]],
    known: HazardEvidence | None,
) -> dict[str, HeldOutScores]:
    """What each would have said of the rows that the trees were tried on, in their order."""
    if known is None:
        return {TREES: of_trees}
    local: list[Floats] = []
    alone: list[Floats] = []
    for learned, judged in parts:
        rows = lesson.values[judged]
        local.append(_additive(lesson, known.after(node_hours(lesson.only(learned)))).log_hazards(rows)[0])
        alone.append(_additive(lesson, known).log_hazards(rows)[0])
    added = np.concatenate(local)
    both = HALF * added + (1 - HALF) * log_hazard(of_trees.log_odds)
    said = {HAZARD: added, BLEND: both, PRIOR: np.concatenate(alone)}
    positive, weight = of_trees.positive, of_trees.weight
    return {TREES: of_trees} | {name: HeldOutScores(log_odds_of(logs), positive, weight) for name, logs in said.items()}


def level_of(name: str, trials: Mapping[str, HeldOutScores]) -> float:
    """What is added to a contender's log-odds before it is calibrated: 0, but for the mean of logarithms.

    That is lower than either where the two differ, so that it would tell fewer failures than both of its parts: it is
    raised until it tells as many as they do in the mean, over the same rows, whose answers it does not look at.
    """
    if name != BLEND:
        return 0.0
    told = {one: float(np.exp(log_hazard(trials[one].log_odds)) @ trials[one].weight) for one in (TREES, HAZARD, BLEND)}
    return float(np.log((HALF * told[HAZARD] + (1 - HALF) * told[TREES]) / told[BLEND]))


def _additive(lesson: TrainingSet, evidence: HazardEvidence) -> HazardBlend:
    names = tuple(feature.name for feature in lesson.features)
    return HazardBlend(no_trees(), names, evidence.rates(), lesson.horizon_h, 1.0)


def made(name: str, lesson: TrainingSet, trees: Forest, known: HazardEvidence) -> HazardBlend:
    """A contender other than the trees, of all rows of a lesson."""
    added = _additive(lesson, known if name == PRIOR else known.after(node_hours(lesson)))
    return replace(added, forest=trees, weight=HALF) if name == BLEND else added


def best_of(
    lesson: TrainingSet, rows: Ints, trials: Mapping[str, HeldOutScores]
) -> tuple[str, dict[str, dict[str, Any]]]:
    """The one with the least log loss, and each one's `log_loss`; those beside the trees with what they gain on them.

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
        return TREES, found
    watched = np.bincount(node.ravel(), stands_for) @ weights
    precision = {name: _drawn(lesson, rows, seen, weights) for name, seen in trials.items()}
    for name in trials:
        if name != TREES:
            gained = np.bincount(node.ravel(), losses[TREES] - losses[name]) @ weights
            found[name]["over_trees"] = {
                "log_loss": interval(gained / watched),
                "average_precision": interval(precision[name] - precision[TREES]),
            }
    # Where two are equal, the first of CONTENDERS.
    return min(trials, key=lambda name: float(found[name]["log_loss"])), found


def _drawn(lesson: TrainingSet, rows: Ints, seen: HeldOutScores, weights: Floats) -> Floats:
    """The average precision in each draw of nodes, of all rows that the sample stands for."""
    part, node = lesson.sample.rows, lesson.sample.rows.node[rows]
    place = np.unique(node, return_inverse=True)[1].ravel().astype(np.int64)
    labels = lesson.sample.labels.only(rows)
    return drawn_precision(Judged(part.time_ms[rows], place, seen.log_odds, labels), weights, seen.weight)
