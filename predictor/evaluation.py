"""How good a ranking of nodes is, under the prevalence that nature gives (FIELD A3.1).

Scores and labels are grids (moments, nodes); a mask says which cells count.
`recall_at_top` 0.05: at every moment the 5 % of the nodes at risk with the highest scores are flagged (rounded up);
the positives among all flagged cells, over all positives. Equal scores at the edge share the places that are left,
so that a constant score has no luck. Anything that has no meaning (no positives, say) is None.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from predictor.history import HOUR_MS, Bools, Floats, Grid, Ints
from predictor.labels import Labels

TOPS = (0.01, 0.02, 0.05)
# A cordon is asked for nodes in this share; a node is held to be foreseen in that one.
CORDON_TOP = 0.01
FORESEEN_TOP = 0.05


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores and the answers they are judged by, on a grid (moments, nodes)."""

    moments_ms: Ints
    scores: Floats | Grid
    labels: Labels

    @property
    def known(self) -> Bools:
        """The cells whose answer is known."""
        return self.labels.known & np.isfinite(self.scores)


def discrimination(judged: Judged) -> dict[str, Any]:
    """`roc_auc`, `average_precision`, `recall_at_top`, `precision_at_top`."""
    positive, score = judged.labels.positive[judged.known], judged.scores[judged.known]
    found: dict[str, Any] = {"roc_auc": None, "average_precision": None}
    if positive.any() and not positive.all():
        found["roc_auc"] = float(roc_auc_score(positive, score))
        found["average_precision"] = float(average_precision_score(positive, score))
    shares = {top: flagged_share(judged, top) for top in TOPS}
    hits = {top: float((share * judged.labels.positive).sum()) for top, share in shares.items()}
    total = int(positive.sum())
    found["recall_at_top"] = {str(top): ratio(hits[top], total) for top in TOPS}
    found["precision_at_top"] = {str(top): ratio(hits[top], float(shares[top].sum())) for top in TOPS}
    return found


def ratio(part: float, whole: float) -> float | None:
    """A share, or None of nothing."""
    return None if not whole else float(part / whole)


def flagged_share(judged: Judged, top: float) -> Floats:
    """How far each cell is flagged (0 .. 1) when every moment flags its highest-scored share of known nodes."""
    share = np.zeros(judged.known.shape)
    for row, known in enumerate(judged.known):
        at = np.flatnonzero(known)
        if len(at):
            share[row, at] = _places(judged.scores[row, at], int(np.ceil(top * len(at))))
    return share


def _places(scores: Floats | Grid, places: int) -> Floats:
    """1 for scores above the edge, the places that are left shared among those at it, 0 below."""
    edge = np.partition(scores, len(scores) - places)[len(scores) - places]
    above, level = scores > edge, scores == edge
    left: Floats = above + level * ((places - above.sum()) / level.sum())
    return left


def lead_times(judged: Judged) -> dict[str, float | None]:
    """Hours from the first flag to the outage, over outages foreseen in the top 5 %: p10, p50, p90."""
    flagged = (flagged_share(judged, FORESEEN_TOP) >= 1.0) & judged.labels.positive
    row, node = np.nonzero(flagged)
    first: dict[tuple[int, float], float] = {}
    for i, n in zip(row, node, strict=True):
        start = float(judged.labels.next_start_ms[i, n])
        lead = (start - float(judged.moments_ms[i])) / HOUR_MS
        first[int(n), start] = max(lead, first.get((int(n), start), 0.0))
    if not first:
        return {"p10": None, "p50": None, "p90": None}
    return {f"p{p}": float(np.percentile(list(first.values()), p)) for p in (10, 50, 90)}


def false_cordons(judged: Judged, cadence_h: float) -> float | None:
    """Cordons per 1000 node-days that no outage followed, if the top 1 % were cordoned at every moment.

    A node that stays flagged from one moment to the next is one cordon, true if any of its moments is positive.
    """
    flagged = flagged_share(judged, CORDON_TOP) >= 1.0
    wrong = 0
    for node in np.flatnonzero(flagged.any(axis=0)):
        held = flagged[:, node]
        cordon = np.cumsum(held & ~np.concatenate([[False], held[:-1]]))[held]
        true = np.unique(cordon[judged.labels.positive[held, node]])
        wrong += int(cordon.max()) - len(true)
    node_days = float(judged.known.sum()) * cadence_h / 24.0
    return ratio(1000.0 * wrong, node_days)


def calibration(judged: Judged, bins: int = 10) -> list[dict[str, float]]:
    """Mean score against the share of positives, in bins of equal numbers of cells, lowest scores first."""
    known = judged.known
    score, positive = judged.scores[known], judged.labels.positive[known]
    order = np.argsort(score, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [{"score": float(score[p].mean()), "observed": float(positive[p].mean()), "rows": len(p)} for p in parts]


def outages_of(labels: Labels) -> int:
    """How many distinct outages the positive cells speak of."""
    row, node = np.nonzero(labels.positive)
    return len({(int(n), float(labels.next_start_ms[i, n])) for i, n in zip(row, node, strict=True)})
