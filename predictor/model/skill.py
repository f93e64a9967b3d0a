"""Whether a score of 0.02 means two in a hundred: Brier score, log loss, and what was said against what came.

Also the recall at a share of false alarms, which is how the literature on disks writes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score, roc_curve

from predictor.dataset.labels import Labels
from predictor.history.arrays import HOUR_MS, Bools, Floats, Ints

# How good a ranking of nodes is, under the prevalence that nature gives (FIELD A3.1).
#
# One entry a row: a node at a moment. Rows of one moment (equal `time_ms`) are ranked among themselves.
# `recall_at_top` 0.05: at every moment the 5 % of the nodes at risk with the highest scores are flagged (rounded up);
# the positives among all flagged rows, over all positives. Equal scores at the edge share the places that are left,
# so that a constant score has no luck. Anything that has no meaning (no positives, say) is None.

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


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The distinct outages of some rows: node, start, and the hours from the first flag within the horizon (NaN: none
    of its rows was flagged)."""

    node: Ints
    start_ms: Ints
    lead_h: Floats


def foreseen(judged: Judged, top: float = FORESEEN_TOP) -> Foreseen:
    """Each outage that rows are followed by, and how long before it the node was first among the riskiest."""
    hit = np.flatnonzero(judged.labels.positive)
    pairs = np.stack([judged.node[hit].astype(np.float64), judged.labels.next_start_ms[hit]])
    outages, number = np.unique(pairs, axis=1, return_inverse=True)
    lead_h = (judged.labels.next_start_ms[hit] - judged.time_ms[hit]) / HOUR_MS
    flagged = flagged_share(judged, top)[hit] >= 1.0
    longest = np.full(outages.shape[1], -np.inf)
    np.maximum.at(longest, number.ravel()[flagged], lead_h[flagged])
    return Foreseen(
        outages[0].astype(np.int64), outages[1].astype(np.int64), np.where(np.isfinite(longest), longest, np.nan)
    )


def first_flags(judged: Judged, top: float = FORESEEN_TOP) -> Floats:
    """For each outage that was foreseen: the hours from its first flag within the horizon to its start."""
    lead_h = foreseen(judged, top).lead_h
    return lead_h[np.isfinite(lead_h)]


def lead_times(judged: Judged) -> dict[str, float | None]:
    """Hours from the first flag to the outage, over outages foreseen in the top 5 %: p10, p50, p90."""
    return _parts(first_flags(judged))


def lead_times_by_class(found: Foreseen, classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same for each class of what failed, with its `outages` and how many of them were `foreseen`.

    Args:
        classes: one entry an outage.
    """
    of = np.array(classes, dtype=object)
    told = {}
    for name in sorted(set(classes)):
        lead_h = found.lead_h[of == name]
        able = lead_h[np.isfinite(lead_h)]
        told[name] = {"outages": len(lead_h), "foreseen": len(able), **_parts(able)}
    return told


def _parts(lead_h: Floats) -> dict[str, float | None]:
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


# How sure the figures are: bootstrap intervals, drawn by node.
#
# Rows of one node are no separate evidence (a lemon is positive again and again), so whole nodes are drawn, with
# replacement; a draw is a weight for each node: how often it was drawn. Every figure is taken anew with the weights,
# the flags among them. Rankings are compared on the same draws.
#
# Weighted sums over runs of rows are one sparse product (runs x nodes) @ (nodes x draws), so that half a million rows
# and 200 draws take about a second.

DRAWS = 200
LEVEL = 0.95
SEED = 20_250_301
# A figure that most draws cannot give has no interval.
_LEAST_FINITE = 0.5

Weights = NDArray[np.float64]  # (nodes, draws)


def node_weights(nodes: int, draws: int = DRAWS, seed: int = SEED) -> Weights:
    """How often each node is drawn, in each draw."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(nodes, size=(draws, nodes)) + (np.arange(draws) * nodes)[:, None]
    counts: Weights = np.bincount(drawn.ravel(), minlength=draws * nodes).reshape(draws, nodes).T.astype(np.float64)
    return counts


@dataclass(frozen=True, slots=True)
class _Runs:
    """Rows in an order, cut into runs; `weight` and `hit` are (runs, draws): of all rows, of the positive ones."""

    begins: Ints
    weight: Floats
    hit: Floats


def _runs(order: Ints, begins: Ints, judged: Judged, weights: Weights, counts: Floats) -> _Runs:
    node, positive = judged.node, judged.labels.positive
    run = np.zeros(len(order), dtype=np.int64)
    run[begins[1:]] = 1
    run = np.cumsum(run)
    shape = (len(begins), len(weights))
    ordered, hits, each = node[order], positive[order], counts[order]
    whole = csr_array((each, (run, ordered)), shape=shape)
    right = csr_array((each[hits], (run[hits], ordered[hits])), shape=shape)
    return _Runs(begins, whole @ weights, right @ weights)


def _cuts(first_of_tie: Bools, positive: Bools, also: Bools | None = None) -> Ints:
    """Where runs begin: at each tie that holds a positive, after it, at the first row, and where `also` says."""
    begins = np.flatnonzero(first_of_tie)
    tie = np.cumsum(first_of_tie) - 1
    telling = np.unique(tie[positive])
    ends = np.append(begins[1:], len(positive))[telling]
    cut = np.zeros(len(positive) + 1, dtype=np.bool_)
    cut[begins[telling]] = cut[ends] = cut[0] = True
    if also is not None:
        cut[:-1] |= also
    return np.flatnonzero(cut[:-1])


def drawn_figures(judged: Judged, weights: Weights) -> dict[str, Floats]:
    """Each figure in each draw: `roc_auc`, `average_precision`, `lift`, `recall_at_top 0.05` and so on.

    Args:
        judged: known rows alone; `node` is a position in `weights`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _overall(judged, weights, np.ones(len(judged.scores))) | _at_top(judged, weights)


def drawn_precision(judged: Judged, weights: Weights, counts: Floats) -> Floats:
    """The average precision in each draw, where each row stands for as many as `counts` says."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _overall(judged, weights, counts)["average_precision"]


def _overall(judged: Judged, weights: Weights, counts: Floats) -> dict[str, Floats]:
    """AUC and average precision over all rows, best first; equal scores count half, or as one threshold."""
    positive = judged.labels.positive
    order = np.argsort(-judged.scores, kind="stable")
    score = judged.scores[order]
    first = np.concatenate([[True], score[1:] != score[:-1]])
    runs = _runs(order, _cuts(first, positive[order]), judged, weights, counts)
    misses = runs.weight - runs.hit
    hits, seen = runs.hit.sum(axis=0), runs.weight.sum(axis=0)
    below = misses.sum(axis=0) - np.cumsum(misses, axis=0)
    auc = (runs.hit * (below + misses / 2)).sum(axis=0) / (hits * (seen - hits))
    precision = np.cumsum(runs.hit, axis=0) / np.maximum(np.cumsum(runs.weight, axis=0), 1e-12)
    ap = (runs.hit * precision).sum(axis=0) / hits
    return {"roc_auc": auc, "average_precision": ap, "lift": ap * seen / hits}


def _at_top(judged: Judged, weights: Weights) -> dict[str, Floats]:
    """Recall and precision of the top shares, each moment's places given anew among the nodes drawn."""
    positive = judged.labels.positive
    order = np.lexsort((-judged.scores, judged.time_ms))
    time_ms, score = judged.time_ms[order], judged.scores[order]
    new = np.concatenate([[True], time_ms[1:] != time_ms[:-1]])
    first = new | np.concatenate([[True], score[1:] != score[:-1]])
    runs = _runs(order, _cuts(first, positive[order], new), judged, weights, np.ones(len(order)))
    moment = np.cumsum(new)[runs.begins] - 1
    opening = np.flatnonzero(new[runs.begins])
    size = np.add.reduceat(runs.weight, opening, axis=0)  # (moments, draws)
    before = np.cumsum(runs.weight, axis=0) - runs.weight
    before -= before[opening][moment]
    found: dict[str, Floats] = {}
    for top in TOPS:
        places = np.ceil(top * size)
        share = np.clip((places[moment] - before) / np.maximum(runs.weight, 1e-12), 0.0, 1.0)
        hits = (runs.hit * share).sum(axis=0)
        found[f"recall_at_top {top}"] = hits / runs.hit.sum(axis=0)
        found[f"precision_at_top {top}"] = hits / places.sum(axis=0)
    return found


def interval(draws: Floats) -> list[float] | None:
    """The middle 95 % of what the draws gave; None where too few gave anything."""
    finite = draws[np.isfinite(draws)]
    if len(finite) < max(_LEAST_FINITE * len(draws), 2):
        return None
    low, high = np.percentile(finite, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return [float(low), float(high)]


def seen_from(draws: Floats) -> float | None:
    """The power of a study: the least gain that four of five studies like it would call sure, its interval above 0.

    2.8 standard errors of the gain: 1.96 for the interval, 0.84 for four of five. None where too few draws gave one.
    """
    finite = draws[np.isfinite(draws)]
    return float(2.8 * finite.std(ddof=1)) if len(finite) >= max(_LEAST_FINITE * len(draws), 2) else None


def _nested(found: Mapping[str, Any]) -> dict[str, Any]:
    """`recall_at_top 0.05` as {"recall_at_top": {"0.05": ...}}, the way the report writes it."""
    whole: dict[str, Any] = {}
    for name, value in found.items():
        figure, _, top = name.partition(" ")
        if top:
            whole.setdefault(figure, {})[top] = value
        else:
            whole[figure] = value
    return whole


def with_intervals(judged: Judged, ranks: Mapping[str, Floats], best: str | None) -> dict[str, Any]:
    """`bootstrap`, `intervals` of the model, `baselines` (each one's), `gain` over the best baseline, `seen_from`
    (which gain would have been seen).

    Args:
        judged: known rows alone.
        ranks: the scores of each baseline on the same rows.
        best: the baseline to beat, None where there is none.
    """
    nodes, position = np.unique(judged.node, return_inverse=True)
    if not judged.labels.positive.any():
        return {"bootstrap": None, "intervals": None, "baselines": dict.fromkeys(ranks), "gain": None,
                "seen_from": None}  # fmt: skip
    weights = node_weights(len(nodes))
    judged = replace(judged, node=position.ravel().astype(np.int64))
    model = drawn_figures(judged, weights)
    others = {name: drawn_figures(replace(judged, scores=rank), weights) for name, rank in ranks.items()}
    gain = power = None
    if best is not None:
        over = {name: drawn - others[best][name] for name, drawn in model.items()}
        gain = _nested({name: interval(drawn) for name, drawn in over.items()})
        power = _nested({name: seen_from(drawn) for name, drawn in over.items()})
    return {
        "bootstrap": {"by": "node", "draws": DRAWS, "level": LEVEL, "seed": SEED},
        "intervals": _nested({name: interval(drawn) for name, drawn in model.items()}),
        "baselines": {
            name: _nested({figure: interval(drawn) for figure, drawn in found.items()})
            for name, found in others.items()
        },
        "gain": gain,
        "seen_from": power,
    }


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
