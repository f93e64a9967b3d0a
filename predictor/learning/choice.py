"""Learning with everything: what is best on the folds, calibration, and whether that serves at all.

    learned = learn(lesson, prior=packaged())
    learned.model, learned.kind, learned.why      # over all columns, whatever won

Trees and an additive hazard that starts from a prior are tried on the same rows, which they had not seen. Their mean,
in which each counts by what it was worth there (`shares.py`), serves only if it beats both baselines: by average
precision, and by recall in the top 5 %. Otherwise the better baseline serves with the rates of its groups of nodes, and
says so. Where too few outages came to show anything, the prior serves alone; without a prior history does: a ranking
that learns nothing cannot have learned chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from predictor.dataset.folds import PURGE_MARGIN_H
from predictor.hazard.blend import HazardBlend
from predictor.hazard.hazard import HazardEvidence
from predictor.hazard.prior import Prior
from predictor.history.arrays import HOUR_MS, Bools, Floats, Ints
from predictor.learning.shares import (
    BLEND,
    TREES,
    MeanShare,
    additive,
    blended,
    compared,
    expected_rate,
    fold_hazards,
    known_before,
    outages_of,
)
from predictor.learning.training_set import TrainingSet
from predictor.model.baselines import BASELINES, Baseline, Kind
from predictor.model.fit import (
    MIN_POSITIVES,
    CalibrationLine,
    FitSettings,
    HeldOutScores,
    TooFewPositivesError,
    calibrate,
    sharpened,
    suited_settings,
)
from predictor.model.forest import Forest
from predictor.model.local_rates import PUBLISHED, LocalRates, PriorRate, RateRows, local_rates
from predictor.model.skill import FORESEEN_TOP, Judged, discrimination

# What a model would have said of its own past, in order of time.
#
#     |---- learn ----| purge |- judge -|
#     |--------- learn --------| purge |- judge -|        all within the rows that a model is to learn from
#
# No setting is chosen by it: which of four is best differs from one training to the next by chance, and the scores of
# two models that chose differently cannot be compared (docs/prediction.md); members differ in them instead (`fit.py`).
# The rows judged here calibrate the model, and decide whether it serves at all: it is tried with as many boosters and
# rows as the model itself has.

# Where the judged parts begin, as shares of the time that the rows span.
ORIGINS = (0.5, 0.75)
# With fewer outages in the judged parts chance would choose a line to calibrate by.
LEAST_OUTAGES = 20
# With fewer than these it cannot be told either whether the model beats a rule.
LEAST_COMPARED = 8


@dataclass(frozen=True, slots=True)
class FoldTrial:
    """What models said of the rows judged: `rows` are positions in the lesson, `last` those judged last, `outages` how
    many these speak of."""

    rows: Ints
    last: Bools
    seen: HeldOutScores
    outages: int


def origins(lesson: TrainingSet) -> list[tuple[Bools, Bools]]:
    """The rows to learn from and to judge of each inner fold; none where any holds too little."""
    time_ms, positive = lesson.time_ms, lesson.positive
    if not positive.any():
        return []
    first, last = int(time_ms.min()), int(time_ms.max())
    starts = [first + int(share * (last - first)) for share in ORIGINS]
    parts = []
    for start, end in zip(starts, [*starts[1:], last + 1], strict=True):
        learned = time_ms <= start - (lesson.horizon_h + PURGE_MARGIN_H) * HOUR_MS
        judged = (time_ms >= start) & (time_ms < end)
        if positive[learned].sum() < MIN_POSITIVES or positive[learned].all() or not positive[judged].any():
            return []
        parts.append((learned, judged))
    judged = time_ms >= starts[0]
    return parts if _outages(lesson, judged) >= LEAST_COMPARED else []


def _outages(lesson: TrainingSet, rows: Bools) -> int:
    """How many outages some rows speak of."""
    return len(np.unique(lesson.outages()[rows[lesson.positive]]))


def try_on_folds(lesson: TrainingSet, settings: FitSettings) -> FoldTrial | None:
    """Fit on each part to learn from, and ask the one that comes after; None where there is too little to try."""
    parts = origins(lesson)
    if not parts:
        return None
    rows, log_odds = [], []
    for learned, judged in parts:
        forest = lesson.only(learned).fit(settings)
        rows.append(np.flatnonzero(judged))
        log_odds.append(forest.calibrated(forest.log_odds(lesson.values[judged])))
    at = np.concatenate(rows)
    last = np.arange(len(at)) >= len(at) - len(rows[-1])
    seen = HeldOutScores(np.concatenate(log_odds), lesson.positive[at], lesson.stands_for()[at])
    judged = np.any([of_part for _, of_part in parts], axis=0)
    return FoldTrial(at, last, seen, _outages(lesson, judged))


HISTORY = "history_count"
_KINDS: Mapping[str, Kind] = {TREES: "gbt", BLEND: "blend"}
_WORDS = {TREES: "trees", BLEND: "trees and additive hazard"}
_FOLDS = f"the last {len(ORIGINS)} folds"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """What serves, and why. `figures` has what the trees and each baseline reached on the last folds, by name; it is
    empty where those held too few outages."""

    model: Forest | HazardBlend
    kind: Kind
    why: str
    settings: FitSettings
    figures: dict[str, Any]


def learn(lesson: TrainingSet, settings: FitSettings | None = None, prior: Prior | None = None) -> ModelChoice:
    """A calibrated model of all rows, or the baseline that it does not beat.

    Args:
        settings: None is what suits the features.
        prior: what other clusters taught of the horizon; without it there are trees alone, and a published rate.

    Raises:
        TooFewPositivesError: there is too little to learn from.
    """
    settings = settings or suited_settings(lesson.features)
    known = known_before(lesson, prior)
    trial = try_on_folds(lesson, settings)
    if trial is None:
        why = _too_few(lesson)
        if known is None:
            return _of_rates(lesson, lesson.baselines[HISTORY], f"{lesson.baselines[HISTORY].words}: {why}", settings)
        return ModelChoice(additive(lesson, known), "prior", f"prior of other clusters: {why}", settings, {})
    name, trials, line, weight = _tried(lesson, trial, known)
    by_name = compared(lesson, trial.rows, trials)
    figures = {one: found | by_name.get(one, {}) for one, found in _figures(lesson, trial, trials).items()}
    unbeaten, why = choose(figures, lesson.baselines, name)
    if unbeaten is not None:
        return _of_rates(lesson, unbeaten, why, settings, figures, expected_rate(lesson, known))
    seen = trials[name].through(line)
    lines = [line, sharpened(seen)]
    if trial.outages >= LEAST_OUTAGES:
        lines.append(calibrate(seen.through(lines[1]), trial.last))
    trees = lesson.fit(settings)
    model: Forest | HazardBlend = trees
    if known is not None:
        model, why = blended(lesson, trees, known, weight), f"{why}; the additive hazard counts {weight:.0%}"
    for one in lines:
        model = with_calibration(model, one)
    return ModelChoice(model, _KINDS[name], why, settings, figures)


def _tried(
    lesson: TrainingSet, trial: FoldTrial, known: HazardEvidence | None
) -> tuple[str, dict[str, HeldOutScores], CalibrationLine, float]:
    """What is to serve by its name, what each said of the folds' rows, the line that gives the mean back its level, and
    how much the additive hazard counts."""
    if known is None:
        return TREES, {TREES: trial.seen}, CalibrationLine(), 0.0
    hazards = fold_hazards(lesson, trial.seen, origins(lesson), known)
    share = MeanShare.of(hazards, trial.outages)
    weight = float(share.weight(outages_of(lesson)))
    return BLEND, hazards.trials(share), CalibrationLine(offset=hazards.level(weight)), weight


def _of_rates(
    lesson: TrainingSet,
    baseline: Baseline,
    why: str,
    settings: FitSettings,
    figures: dict[str, Any] | None = None,
    prior: PriorRate = PUBLISHED,
) -> ModelChoice:
    """A baseline serves: with the rates of this site, which it says."""
    rates = baseline_rates(lesson, baseline, prior)
    return ModelChoice(rates.forest, baseline.kind, f"{why}; {rates.words}", settings, figures or {})


def with_calibration(model: Forest | HazardBlend, line: CalibrationLine) -> Forest | HazardBlend:
    """A model whose probabilities are those of a line through its calibrated log-odds."""
    return replace(model, slope=line.slope * model.slope, offset=line.slope * model.offset + line.offset)


def _figures(lesson: TrainingSet, trial: FoldTrial, trials: Mapping[str, HeldOutScores]) -> dict[str, Any]:
    """What each of those that learned and the baselines reach on the same rows."""
    kept = np.zeros(len(lesson.positive), dtype=np.bool_)
    kept[trial.rows] = True
    judged = lesson.only(kept)
    # Parts follow each other in time, and so do the rows; within a part both are in the lesson's order.
    scores = {name: one.rank(judged) for name, one in lesson.baselines.items()}
    for name, seen in trials.items():
        by_row = np.full(len(lesson.positive), np.nan)
        by_row[trial.rows] = seen.log_odds
        scores[name] = by_row[kept]
    return {name: _reached(judged, score) for name, score in scores.items()}


def _reached(judged: TrainingSet, scores: Floats) -> dict[str, Any]:
    rows = judged.sample.rows
    found = discrimination(Judged(rows.time_ms, rows.node, scores, judged.sample.labels))
    recall = found["recall_at_top"][str(FORESEEN_TOP)]
    # Where negatives were drawn, precision is that of all of them.
    precision = average_precision_score(judged.positive, scores, sample_weight=judged.stands_for())
    return {"average_precision": float(precision), "recall": recall, "outages": len(set(judged.outages().tolist()))}


def _too_few(lesson: TrainingSet) -> str:
    """Why nothing is compared where the last folds tell too little: which rule is better is not known there, either.

    Raises:
        TooFewPositivesError: there are too few even for a base rate.
    """
    positives = int(lesson.positive.sum())
    if positives < MIN_POSITIVES:
        raise TooFewPositivesError(positives, len(lesson.positive))
    seen = len(set(lesson.outages().tolist()))
    words = f"too few outages to show that what is learned here is better ({seen} in all; "
    return f"{words}{_FOLDS} need {LEAST_COMPARED}, and enough before them)"


def choose(
    figures: Mapping[str, Any], baselines: Mapping[str, Baseline] = BASELINES, learned: str = TREES
) -> tuple[Baseline | None, str]:
    """The baseline that serves, None for what was learned; and why, in words.

    A recall counts as lower if it is so by more than one standard error.
    """
    mine = figures[learned]
    unbeaten = [name for name in baselines if not _beats(mine, figures[name])]
    best = max(unbeaten or baselines, key=lambda name: (figures[name]["average_precision"], figures[name]["recall"]))
    other, words = figures[best], baselines[best].words
    against = f"AP {mine['average_precision']:.3f} against {other['average_precision']:.3f}"
    against += f", recall in the top {FORESEEN_TOP:.0%} {mine['recall']:.2f} against {other['recall']:.2f}"
    if not unbeaten and mine["recall"] < other["recall"]:
        against += ", a difference that chance explains"
    if unbeaten:
        return baselines[best], f"{words}: the model did not beat it on {_FOLDS}: {against}"
    return None, f"{_WORDS[learned]}: ahead of both baselines on {_FOLDS}: {against} ({words})"


def _beats(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    """A higher average precision, and a recall that is not lower beyond what so many outages can tell."""
    error = np.sqrt(other["recall"] * (1 - other["recall"]) / mine["outages"])
    higher: bool = mine["average_precision"] > other["average_precision"]
    return higher and bool(mine["recall"] >= other["recall"] - error)


def baseline_rates(lesson: TrainingSet, baseline: Baseline, prior: PriorRate = PUBLISHED) -> LocalRates:
    """How often nodes failed, by a baseline's own columns alone: what serves in the trees' place, calibrated.

    Raises:
        TooFewPositivesError: there is too little to learn from.
    """
    positives = int(lesson.positive.sum())
    if positives < MIN_POSITIVES:
        raise TooFewPositivesError(positives, len(lesson.positive))
    place = {feature.name: at for at, feature in enumerate(lesson.features)}
    columns = np.array([place[name] for name in baseline.columns])
    values = [np.nan_to_num(lesson.values[:, column]).astype(np.float64) for column in columns]
    outages = len(set(lesson.outages().tolist()))
    rows = RateRows(values, lesson.positive.astype(np.float64), lesson.stands_for(), outages, lesson.horizon_h)
    return local_rates(rows, baseline, columns, prior)
