"""How well scores rank what came true: ROC-AUC, average precision, lift, recall at the top. Ties share their ranks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOPS = (0.01, 0.02, 0.05)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Figures of one horizon; None where one side is empty. `lift` = average precision / prevalence."""

    rows: int
    positives: int
    prevalence: float | None
    roc_auc: float | None
    average_precision: float | None
    lift: float | None
    recall_at_top: dict[str, float | None]


def rank(scores: NDArray[np.float64], labels: NDArray[np.bool_], groups: NDArray[np.int64]) -> Ranking:
    """Judge scores (rows) against labels. The top shares are taken within each group: one moment, all its nodes."""
    rows, positives = int(labels.size), int(labels.sum())
    if not 0 < positives < rows:
        empty: dict[str, float | None] = {str(top): None for top in TOPS}
        return Ranking(rows, positives, positives / rows if rows else None, None, None, None, empty)
    prevalence = positives / rows
    precision = average_precision(scores, labels)
    return Ranking(
        rows=rows,
        positives=positives,
        prevalence=prevalence,
        roc_auc=roc_auc(scores, labels),
        average_precision=precision,
        lift=precision / prevalence,
        recall_at_top={str(top): _recall(scores, labels, groups, top) for top in TOPS},
    )


def roc_auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The chance that a positive is scored above a negative (Mann-Whitney; ties count half)."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(labels.sum())
    above = float(ranks[labels].sum()) - positives * (positives + 1) / 2
    return above / (positives * (labels.size - positives))


def average_precision(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The mean precision over the recalled positives, thresholds at distinct scores."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(labels[order])
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
    precision = hits[ends] / (ends + 1)
    gained = np.diff(hits[ends], prepend=0) / int(labels.sum())
    return float((precision * gained).sum())


def _recall(scores: NDArray[np.float64], labels: NDArray[np.bool_], groups: NDArray[np.int64], top: float) -> float:
    found = 0
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        best = rows[np.argsort(-scores[rows], kind="stable")[: max(1, round(top * rows.size))]]
        found += int(labels[best].sum())
    return found / int(labels.sum())
