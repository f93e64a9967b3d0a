"""The lines that a report draws: precision over recall, recall over false alarms, recall over the share flagged."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_curve

from predictor.evaluation import Judged, first_flags, flagged_share
from predictor.history import Floats

SHARES = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
_POINTS = 160

Points = list[tuple[float, float]]


def curves(judged: Judged, ranks: Mapping[str, Floats]) -> dict[str, Any]:
    """`rankings` by name (`model` first), each with `precision_recall`, `roc`, `recall_at_top`; `leads_h`.

    Args:
        judged: known rows alone.
        ranks: the scores of each baseline on the same rows.
    """
    everyone = {"model": judged, **{name: replace(judged, scores=rank) for name, rank in ranks.items()}}
    if not judged.labels.positive.any() or judged.labels.positive.all():
        return {"rankings": {}, "leads_h": []}
    return {
        "rankings": {name: _lines(one) for name, one in everyone.items()},
        "leads_h": [float(lead) for lead in first_flags(judged)],
    }


def _lines(judged: Judged) -> dict[str, Points]:
    positive = judged.labels.positive
    precision, recall, _ = precision_recall_curve(positive, judged.scores, drop_intermediate=True)
    # Without recall a precision says nothing, least of all the 1 that scikit-learn ends with.
    told = np.flatnonzero(recall > 0)[::-1]
    false, right, _ = roc_curve(positive, judged.scores)
    total = float(positive.sum())
    top = [(share, float(flagged_share(judged, share)[positive].sum() / total)) for share in SHARES]
    return {
        "precision_recall": _thinned(recall[told], precision[told]),
        "roc": _thinned(false, right),
        "recall_at_top": top,
    }


def _thinned(across: Floats, up: Floats) -> Points:
    """At most so many points, evenly over the length of the line, its ends among them."""
    if len(across) <= _POINTS:
        return [(float(x), float(y)) for x, y in zip(across, up, strict=True)]
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(across), np.diff(up)))])
    wanted = np.linspace(0.0, length[-1], _POINTS)
    kept = np.unique(np.clip(np.searchsorted(length, wanted), 0, len(across) - 1))
    return [(float(across[i]), float(up[i])) for i in kept]
