"""Learning with everything: search, calibration, and whether the model serves at all.

    learned = learn(lesson)
    learned.forest, learned.kind, learned.why     # a Forest over all columns, whatever won

The trees serve only if they beat both baselines on rows that they had not seen: by average precision, and by recall in
the top 5 %. Otherwise the better baseline serves, a forest of its own columns alone, and says so.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.metrics import average_precision_score

from predictor.baselines import BASELINES, COLUMNS
from predictor.calibration import Line, calibrate
from predictor.evaluation import FORESEEN_TOP, Judged, discrimination
from predictor.forest import Forest
from predictor.history import Floats
from predictor.lesson import Lesson
from predictor.model import FitSettings, fit
from predictor.search import ORIGINS, Trial, search

Kind: TypeAlias = Literal["gbt", "history", "rules"]
_KINDS: dict[str, Kind] = {"history_count": "history", "rules": "rules"}
_WORDS = {"history_count": "history only", "rules": "rules only"}
_FOLDS = f"the last {len(ORIGINS)} folds"
_UNJUDGED = "trees: too few outages to compare them with the baselines"


@dataclass(frozen=True, slots=True)
class Learned:
    """What serves, and why. `figures` has what the trees and each baseline reached on the last folds, by name."""

    forest: Forest
    kind: Kind
    why: str
    settings: FitSettings
    figures: dict[str, Any]


def learn(lesson: Lesson, settings: FitSettings | None = None) -> Learned:
    """A calibrated model of all rows, or the baseline that it does not beat.

    Args:
        settings: what the search starts from; None are the defaults.

    Raises:
        TooFewPositivesError: there is too little to learn from.
    """
    settings = settings or FitSettings()
    trial = search(lesson, settings)
    if trial is None:
        return Learned(lesson.fit(settings), "gbt", _UNJUDGED, settings, {})
    figures = _figures(lesson, trial)
    kind, why = choose(figures)
    if kind != "gbt":
        return Learned(baseline_forest(lesson, kind), kind, why, trial.settings, figures)
    line = calibrate(trial.seen, trial.last)
    return Learned(on_line(lesson.fit(trial.settings), line), kind, why, trial.settings, figures)


def on_line(forest: Forest, line: Line) -> Forest:
    """A forest whose probabilities are those of a line through its calibrated log-odds."""
    return replace(forest, slope=line.slope * forest.slope, offset=line.slope * forest.offset + line.offset)


def _figures(lesson: Lesson, trial: Trial) -> dict[str, Any]:
    """What the trees and the baselines reach on the same rows."""
    kept = np.zeros(len(lesson.positive), dtype=np.bool_)
    kept[trial.rows] = True
    judged = lesson.only(kept)
    # Parts follow each other in time, and so do the rows; within a part both are in the lesson's order.
    by_row = np.full(len(lesson.positive), np.nan)
    by_row[trial.rows] = trial.seen.log_odds
    scores = {"trees": by_row[kept], **{name: rank(judged) for name, rank in BASELINES.items()}}
    return {name: _reached(judged, score) for name, score in scores.items()}


def _reached(judged: Lesson, scores: Floats) -> dict[str, Any]:
    rows = judged.sample.rows
    found = discrimination(Judged(rows.time_ms, rows.node, scores, judged.sample.labels))
    recall = found["recall_at_top"][str(FORESEEN_TOP)]
    # Where negatives were drawn, precision is that of all of them.
    precision = average_precision_score(judged.positive, scores, sample_weight=judged.stands_for())
    return {"average_precision": float(precision), "recall": recall, "outages": len(set(judged.outages().tolist()))}


def choose(figures: dict[str, Any]) -> tuple[Kind, str]:
    """What serves, and why, in words. A recall counts as lower if it is so by more than one standard error."""
    mine = figures["trees"]
    unbeaten = [name for name in _KINDS if not _beats(mine, figures[name])]
    best = max(unbeaten or _KINDS, key=lambda name: (figures[name]["average_precision"], figures[name]["recall"]))
    other = figures[best]
    against = f"AP {mine['average_precision']:.3f} against {other['average_precision']:.3f}"
    against += f", recall in the top {FORESEEN_TOP:.0%} {mine['recall']:.2f} against {other['recall']:.2f}"
    if unbeaten:
        return _KINDS[best], f"{_WORDS[best]}: the model did not beat it on {_FOLDS}: {against}"
    return "gbt", f"trees: they beat both baselines on {_FOLDS}: {against} ({_WORDS[best]})"


def _beats(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    """A higher average precision, and a recall that is not lower beyond what so many outages can tell."""
    error = np.sqrt(other["recall"] * (1 - other["recall"]) / mine["outages"])
    higher: bool = mine["average_precision"] > other["average_precision"]
    return higher and bool(mine["recall"] >= other["recall"] - error)


def baseline_forest(lesson: Lesson, kind: Kind) -> Forest:
    """A baseline as a forest over all columns that asks its own alone."""
    columns = np.array([i for i, feature in enumerate(lesson.features) if feature.name in COLUMNS[kind]])
    values = lesson.values[:, columns]
    if kind == "rules":
        # A sign has fired or not: how often does not count.
        values = (values > 0).astype(np.float32)
    features = [lesson.features[column] for column in columns]
    settings = FitSettings(leaves=4, feature_share=1.0, alone=False)
    forest = fit(values, lesson.positive, features, settings, lesson.sample.negative_share, lesson.weights())
    return replace(forest, feature=columns[forest.feature])
