"""How good a ranking of nodes is, under the prevalence that nature gives (FIELD A3.1).

One entry a row: a node at a moment. Rows of one moment (equal `time_ms`) are ranked among themselves.
`recall_at_top` 0.05: at every moment the 5 % of the nodes at risk with the highest scores are flagged (rounded up);
the positives among all flagged rows, over all positives. Equal scores at the edge share the places that are left,
so that a constant score has no luck. Anything that has no meaning (no positives, say) is None.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from predictor.history import HOUR_MS, Bools, Floats, Ints
from predictor.labels import Labels

TOPS = (0.01, 0.02, 0.05)
# A cordon is asked for nodes in this share; a node is held to be foreseen in that one.
CORDON_TOP = 0.01
FORESEEN_TOP = 0.05


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores and the answers they are judged by, one entry a row; a score that is not finite was not given."""

    time_ms: Ints
    node: Ints
    scores: Floats
    labels: Labels

    @property
    def known(self) -> Bools:
        """The rows whose answer is known."""
        return self.labels.known & np.isfinite(self.scores)

    def only(self, kept: Bools) -> "Judged":
        """The rows that a mask keeps."""
        labels = Labels(
            at_risk=self.labels.at_risk[kept],
            known=self.labels.known[kept],
            positive=self.labels.positive[kept],
            next_start_ms=self.labels.next_start_ms[kept],
        )
        return Judged(self.time_ms[kept], self.node[kept], np.asarray(self.scores[kept], dtype=np.float64), labels)


def discrimination(judged: Judged) -> dict[str, Any]:
    """`roc_auc`, `average_precision`, `recall_at_top`, `precision_at_top`."""
    judged = judged.only(judged.known)
    positive = judged.labels.positive
    found: dict[str, Any] = {"roc_auc": None, "average_precision": None}
    if positive.any() and not positive.all():
        found["roc_auc"] = float(roc_auc_score(positive, judged.scores))
        found["average_precision"] = float(average_precision_score(positive, judged.scores))
    shares = {top: flagged_share(judged, top) for top in TOPS}
    hits = {top: float(share[positive].sum()) for top, share in shares.items()}
    total = int(positive.sum())
    found["recall_at_top"] = {str(top): ratio(hits[top], total) for top in TOPS}
    found["precision_at_top"] = {str(top): ratio(hits[top], float(shares[top].sum())) for top in TOPS}
    return found


def ratio(part: float, whole: float) -> float | None:
    """A share, or None of nothing."""
    return None if not whole else float(part / whole)


def flagged_share(judged: Judged, top: float) -> Floats:
    """How far each row is flagged (0 .. 1) when every moment flags its highest-scored share of known nodes."""
    share = np.zeros(len(judged.scores))
    at = np.flatnonzero(judged.known)
    if not len(at):
        return share
    score = np.asarray(judged.scores)[at]
    order = np.lexsort((-score, judged.time_ms[at]))
    share[at[order]] = _places(judged.time_ms[at][order], score[order], top)
    return share


def _places(time_ms: Ints, scores: Floats, top: float) -> Floats:
    """1 above the edge, the places that are left shared among those at it, 0 below; rows by moment, best first."""
    begins = np.flatnonzero(np.concatenate([[True], time_ms[1:] != time_ms[:-1]]))
    sizes = np.diff(np.append(begins, len(time_ms)))
    places = np.repeat(np.ceil(top * sizes).astype(np.int64), sizes)
    # Rows of one moment and score are one tie: it takes the places that those before it have left.
    tie_begins = np.flatnonzero(np.concatenate([[True], (time_ms[1:] != time_ms[:-1]) | (scores[1:] != scores[:-1])]))
    tie_sizes = np.diff(np.append(tie_begins, len(time_ms)))
    before = np.repeat(tie_begins, tie_sizes) - np.repeat(begins, sizes)
    found: Floats = np.clip((places - before) / np.repeat(tie_sizes, tie_sizes), 0.0, 1.0)
    return found


def first_flags(judged: Judged, top: float = FORESEEN_TOP) -> Floats:
    """For each outage that was foreseen: the hours from its first flag within the horizon to its start."""
    hit = np.flatnonzero((flagged_share(judged, top) >= 1.0) & judged.labels.positive)
    lead_h = (judged.labels.next_start_ms[hit] - judged.time_ms[hit]) / HOUR_MS
    _, outage = np.unique(np.stack([judged.node[hit], judged.labels.next_start_ms[hit]]), axis=1, return_inverse=True)
    longest = np.zeros(int(outage.max()) + 1 if len(hit) else 0)
    np.maximum.at(longest, outage.ravel(), lead_h)
    return longest


def lead_times(judged: Judged) -> dict[str, float | None]:
    """Hours from the first flag to the outage, over outages foreseen in the top 5 %: p10, p50, p90."""
    lead_h = first_flags(judged)
    if not len(lead_h):
        return {"p10": None, "p50": None, "p90": None}
    return {f"p{p}": float(np.percentile(lead_h, p)) for p in (10, 50, 90)}


def false_cordons(judged: Judged, cadence_h: float) -> float | None:
    """Cordons per 1000 node-days that no outage followed, if the top 1 % were cordoned at every moment.

    A node that stays flagged from one moment to the next is one cordon, true if any of its moments is positive.
    """
    moment = np.unique(judged.time_ms, return_inverse=True)[1].ravel()
    held = np.flatnonzero(flagged_share(judged, CORDON_TOP) >= 1.0)
    held = held[np.lexsort((moment[held], judged.node[held]))]
    node, at = judged.node[held], moment[held]
    begins = np.flatnonzero(np.concatenate([[True], (node[1:] != node[:-1]) | (at[1:] != at[:-1] + 1)]))
    right = np.logical_or.reduceat(judged.labels.positive[held], begins) if len(held) else np.zeros(0, dtype=np.bool_)
    node_days = float(judged.known.sum()) * cadence_h / 24.0
    return ratio(1000.0 * float((~right).sum()), node_days)


def calibration(judged: Judged, bins: int = 10) -> list[dict[str, float]]:
    """Mean score against the share of positives, in bins of equal numbers of rows, lowest scores first."""
    known = judged.known
    score, positive = np.asarray(judged.scores)[known], judged.labels.positive[known]
    order = np.argsort(score, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [{"score": float(score[p].mean()), "observed": float(positive[p].mean()), "rows": len(p)} for p in parts]


def outages_of(judged: Judged) -> int:
    """How many distinct outages the positive rows speak of."""
    hit = judged.labels.positive
    return int(np.unique(np.stack([judged.node[hit], judged.labels.next_start_ms[hit]]), axis=1).shape[1])
