"""Whether a score of 0.02 means two in a hundred: Brier score, log loss, and what was said against what came.

Also the recall at a share of false alarms, which is how the literature on disks writes it.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from sklearn.metrics import brier_score_loss, log_loss, roc_curve

from predictor.evaluation import Judged, ratio
from predictor.history import Ints
from predictor.intervals import interval, node_weights

FALSE_ALARMS = (0.001, 0.01, 0.05)
# Most rows are dull: the parts of the curve become smaller towards the highest scores, where people act.
PARTS = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)


def probability_figures(judged: Judged) -> dict[str, float | None]:
    """`brier`, `log_loss` and their `_skill`: the part of the loss that saying the prevalence to all would have had
    and the scores have not (1 is perfect, 0 is no better than the prevalence, below it is worse). Known rows alone.
    """
    positive = judged.labels.positive
    if not positive.any() or positive.all():
        return dict.fromkeys(("brier", "brier_skill", "log_loss", "log_loss_skill"))
    score = np.clip(judged.scores, 1e-7, 1 - 1e-7)
    flat = np.full(len(score), positive.mean())
    brier, of_flat = float(brier_score_loss(positive, score)), float(brier_score_loss(positive, flat))
    loss, of_flat_too = float(log_loss(positive, score)), float(log_loss(positive, flat))
    return {
        "brier": brier,
        "brier_skill": 1 - brier / of_flat,
        "log_loss": loss,
        "log_loss_skill": 1 - loss / of_flat_too,
    }


def recall_at_false_alarms(judged: Judged) -> dict[str, float | None]:
    """The best recall of one threshold over all rows that alarms at no more than this share of the negatives."""
    positive = judged.labels.positive
    if not positive.any() or positive.all():
        return {str(share): None for share in FALSE_ALARMS}
    false, right, _ = roc_curve(positive, judged.scores)
    return {str(share): float(right[false <= share].max()) for share in FALSE_ALARMS}


def reliability(judged: Judged) -> list[dict[str, Any]]:
    """Parts of the known rows by score: `score` that was said (mean), `observed` share that failed, and how sure.

    `interval` is drawn by node. Equal scores are never parted.
    """
    if not len(judged.scores):
        return []
    part = _part(judged)
    nodes, node = np.unique(judged.node, return_inverse=True)
    weights = node_weights(len(nodes))
    shape = (int(part.max()) + 1, len(nodes))
    whole = csr_array((np.ones(len(part)), (part, node.ravel())), shape=shape) @ weights
    right = csr_array((judged.labels.positive.astype(np.float64), (part, node.ravel())), shape=shape) @ weights
    drawn = np.divide(right, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    rows = np.bincount(part)
    said = np.bincount(part, weights=judged.scores)
    came = np.bincount(part, weights=judged.labels.positive)
    return [
        {
            "score": float(said[i] / rows[i]),
            "observed": ratio(came[i], rows[i]),
            "interval": interval(drawn[i]),
            "rows": int(rows[i]),
            "positives": int(came[i]),
        }
        for i in np.flatnonzero(rows)
    ]


def _part(judged: Judged) -> Ints:
    edges = np.unique(np.quantile(judged.scores, PARTS[1:-1]))
    found: Ints = np.searchsorted(edges, judged.scores, side="right").astype(np.int64)
    return found
