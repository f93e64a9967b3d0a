"""What serves: trees, the additive hazard, or both blended; the newest folds choose, on rows that none had seen.

    served = choose_model(lesson, packaged())
    served.model, served.kind, served.why       # a Forest or a HazardBlend

The trees come with what they said of the last folds (`predictor/model/choice.py`). On the same rows the hazard is
asked, from the prior on and with what came before each fold, and so is the blend of both, half and half. The blend
serves: away from home it ranks surely better than either (docs/prediction.md). Another is taken where its log loss is
lower by more than two standard errors, by node. Whatever is taken must beat both baselines there, as the trees must.
Where it does not, or too few outages came to tell, the hazard serves, with what came here added to the prior; and a
baseline with its local rates only where it ranks better than that, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from predictor.hazard.blend import HazardBlend, log_hazard, log_odds_of, no_trees
from predictor.hazard.hazard import HazardEvidence, HazardHours
from predictor.hazard.prior import Prior
from predictor.hazard.signs import SIGNS, sign_values
from predictor.history.arrays import HOUR_MS, Floats, Ints
from predictor.model.choice import (
    FOLDS,
    LEAST_OUTAGES,
    ModelChoice,
    SearchTrial,
    TrainingSet,
    beats,
    learn,
    origins,
    reached,
    sure_gain,
)
from predictor.model.fit import CalibrationLine, FitSettings, HeldOutScores, calibrate
from predictor.model.forest import Forest
from store.records.score import ModelKind

# The weight of the hazard in each: the first is the one that serves unless another is surely better.
WEIGHTS: Mapping[str, float] = {"blend": 0.5, "trees": 0.0, "hazard": 1.0}
_WORDS = {
    "blend": "trees and the additive hazard, half and half",
    "trees": "trees",
    "hazard": "the additive hazard",
}
_KINDS: Mapping[str, ModelKind] = {"blend": "blend", "trees": "gbt", "hazard": "hazard"}
# A site's own features: without most of the signs a hazard says nothing but the base rate.
_LEAST_SIGNS = 0.5
# Of the hazard of all rows: a sign that makes up less of it is not gone by.
_LEAST_PART = 0.02


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What serves, and why; `figures` has what each reached on the last folds, by name, empty where those are none."""

    model: Forest | HazardBlend
    kind: ModelKind
    why: str
    settings: FitSettings
    figures: dict[str, Any] = field(default_factory=dict)

    def weighty(self, lesson: TrainingSet) -> Ints:
        """The columns that it goes by: those of the trees, and of signs that make up a part of the hazard that counts.

        A hazard asks every sign, most of which say next to nothing: that one of those moves is no drift.
        """
        if isinstance(self.model, Forest):
            return np.unique(self.model.feature)
        weight = lesson.stands_for()
        signs = sign_values(lesson.values, self.model.names)
        added = self.model.rates.sum(axis=0) * np.array([float(sign @ weight) for sign in signs])
        counts = {sign.feature for sign, part in zip(SIGNS, added / added.sum(), strict=True) if part >= _LEAST_PART}
        own = [at for at, name in enumerate(self.model.names) if name in counts]
        return np.unique(np.array([*own, *self.model.forest.feature.tolist()], dtype=np.int64))


def choose_model(lesson: TrainingSet, prior: Prior | None, settings: FitSettings | None = None) -> ServedModel:
    """What serves after a lesson.

    Args:
        prior: what is known of the signs before; None, or rows of another kind than nodes: trees and baselines alone.

    Raises:
        TooFewPositivesError: there is too little to learn from.
    """
    known = None if prior is None else prior.evidence.get(lesson.horizon_h)
    if known is None or not _has_signs(lesson):
        return _as_it_is(learn(lesson, settings))
    found = learn(lesson, settings)
    if found.trial is None:
        return _hazard(lesson, known, found, CalibrationLine(), f"too few outages for trees ({found.why})")
    log_odds = _on_folds(lesson, known, found.trial)
    figures = {**found.figures, **{name: reached(lesson, found.trial, one) for name, one in log_odds.items()}}
    taken, gain = _taken(lesson, found.trial, log_odds)
    line = _line(found.trial, log_odds[taken])
    words = f"{_WORDS[taken]}: {gain}"
    if all(beats(figures[taken], figures[name]) for name in lesson.baselines):
        if taken == "hazard":
            return _hazard(lesson, known, found, line, words, figures)
        forest, rates = lesson.fit(found.trial.settings), known.after(node_hours(lesson)).rates()
        names = tuple(feature.name for feature in lesson.features)
        weight = WEIGHTS[taken]
        model = HazardBlend(forest, names, rates, lesson.horizon_h, weight, line.slope, line.offset)
        return ServedModel(model, _KINDS[taken], words, found.trial.settings, figures)
    best = max(lesson.baselines, key=lambda name: figures[name]["average_precision"])
    if figures["hazard"]["average_precision"] >= figures[best]["average_precision"]:
        why = f"{_WORDS['hazard']}: {_WORDS[taken]} did not beat both baselines on {FOLDS}"
        return _hazard(lesson, known, found, _line(found.trial, log_odds["hazard"]), why, figures)
    return _as_it_is(found)


def _as_it_is(found: ModelChoice) -> ServedModel:
    return ServedModel(found.forest, found.kind, found.why, found.settings, found.figures)


def _has_signs(lesson: TrainingSet) -> bool:
    have = {feature.name for feature in lesson.features}
    wanted = {sign.feature for sign in SIGNS if sign.feature}
    return len(wanted & have) >= _LEAST_SIGNS * len(wanted)


def _hazard(
    lesson: TrainingSet,
    known: HazardEvidence,
    found: ModelChoice,
    line: CalibrationLine,
    why: str,
    figures: dict[str, Any] | None = None,
) -> ServedModel:
    """The hazard alone serves, with what came here."""
    seen = known.after(node_hours(lesson))
    names = tuple(feature.name for feature in lesson.features)
    model = HazardBlend(no_trees(), names, seen.rates(), lesson.horizon_h, 1.0, line.slope, line.offset)
    told = f"{why}; {seen.local_share(known):.0%} of the failures behind it are of this site"
    return ServedModel(model, "hazard", told, found.settings, figures or found.figures)


def _on_folds(lesson: TrainingSet, known: HazardEvidence, trial: SearchTrial) -> dict[str, Floats]:
    """What each says of the rows of the last folds, as log-odds, in the order of the trial."""
    trees = log_hazard(trial.seen.log_odds)
    names, parts = tuple(feature.name for feature in lesson.features), []
    for learned, judged in origins(lesson):
        rates = known.after(node_hours(lesson.only(learned))).rates()
        alone = HazardBlend(no_trees(), names, rates, lesson.horizon_h, 1.0)
        parts.append(alone.log_hazards(lesson.values[judged])[0])
    added = np.concatenate(parts)
    return {name: log_odds_of(weight * added + (1 - weight) * trees) for name, weight in WEIGHTS.items()}


def _taken(lesson: TrainingSet, trial: SearchTrial, log_odds: Mapping[str, Floats]) -> tuple[str, str]:
    """The one that serves: the first, unless another is surely better; and that in words."""
    first, *others = WEIGHTS
    seen = {name: HeldOutScores(one, trial.seen.positive, trial.seen.weight) for name, one in log_odds.items()}
    gains = {name: sure_gain(lesson, trial.rows, seen[first], seen[name]) for name in others}
    best = max(gains, key=lambda name: gains[name])
    if trial.outages >= LEAST_OUTAGES and gains[best] > 0:
        return best, f"surely better than {_WORDS[first]}, on {FOLDS} ({trial.outages} outages)"
    return first, f"nothing is surely better on {FOLDS} ({trial.outages} outages)"


def _line(trial: SearchTrial, log_odds: Floats) -> CalibrationLine:
    if trial.outages < LEAST_OUTAGES:
        return CalibrationLine()
    return calibrate(HeldOutScores(log_odds, trial.seen.positive, trial.seen.weight), trial.last)


def node_hours(lesson: TrainingSet) -> HazardHours:
    """The rows of a lesson as time at risk: until the outage, or over the horizon (right-censored there).

    Windows of rows overlap: of an outage each row that speaks of it has its share, and hours count as much less.
    """
    positive, start_ms = lesson.positive, lesson.sample.labels.next_start_ms
    hours = np.where(positive, (start_ms - lesson.time_ms) / HOUR_MS, float(lesson.horizon_h)) * lesson.stands_for()
    failed = np.zeros(len(positive))
    if positive.any():
        number = lesson.outages()
        rows = np.bincount(number)
        failed[positive] = (1.0 / rows)[number]
    signs = sign_values(lesson.values, [feature.name for feature in lesson.features])
    overlap = _overlap(lesson.time_ms, lesson.horizon_h)
    return HazardHours(signs, hours / overlap, failed, np.zeros(len(positive), dtype=np.int64))


def _overlap(time_ms: Ints, horizon_h: float) -> float:
    """How many windows cover an hour that any covers, in the mean: whatever the cadence, and over gaps."""
    moments = np.unique(time_ms)
    if not len(moments):
        return 1.0
    covered = float(np.minimum(np.diff(moments) / HOUR_MS, horizon_h).sum()) + horizon_h
    return len(moments) * horizon_h / covered
