"""How sure the figures are: bootstrap intervals, drawn by node.

Rows of one node are no separate evidence (a lemon is positive again and again), so whole nodes are drawn, with
replacement; a draw is a weight for each node: how often it was drawn. Every figure is taken anew with the weights,
the flags among them. Rankings are compared on the same draws.

Weighted sums over runs of rows are one sparse product (runs x nodes) @ (nodes x draws), so that half a million rows
and 200 draws take about a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from predictor.evaluation import TOPS, Judged
from predictor.history import Bools, Floats, Ints

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


def _runs(order: Ints, begins: Ints, node: Ints, positive: Bools, weights: Weights) -> _Runs:
    run = np.zeros(len(order), dtype=np.int64)
    run[begins[1:]] = 1
    run = np.cumsum(run)
    shape = (len(begins), len(weights))
    ordered, hits = node[order], positive[order]
    whole = csr_array((np.ones(len(order)), (run, ordered)), shape=shape)
    right = csr_array((np.ones(int(hits.sum())), (run[hits], ordered[hits])), shape=shape)
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
        return _overall(judged, weights) | _at_top(judged, weights)


def _overall(judged: Judged, weights: Weights) -> dict[str, Floats]:
    """AUC and average precision over all rows, best first; equal scores count half, or as one threshold."""
    positive = judged.labels.positive
    order = np.argsort(-judged.scores, kind="stable")
    score = judged.scores[order]
    first = np.concatenate([[True], score[1:] != score[:-1]])
    runs = _runs(order, _cuts(first, positive[order]), judged.node, positive, weights)
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
    runs = _runs(order, _cuts(first, positive[order], new), judged.node, positive, weights)
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
    """`bootstrap`, `intervals` of the model, `baselines` (each one's), `gain` over the best baseline.

    Args:
        judged: known rows alone.
        ranks: the scores of each baseline on the same rows.
        best: the baseline to beat, None where there is none.
    """
    nodes, position = np.unique(judged.node, return_inverse=True)
    if not judged.labels.positive.any():
        return {"bootstrap": None, "intervals": None, "baselines": dict.fromkeys(ranks), "gain": None}
    weights = node_weights(len(nodes))
    judged = replace(judged, node=position.ravel().astype(np.int64))
    model = drawn_figures(judged, weights)
    others = {name: drawn_figures(replace(judged, scores=rank), weights) for name, rank in ranks.items()}
    gain = None
    if best is not None:
        gain = _nested({name: interval(drawn - others[best][name]) for name, drawn in model.items()})
    return {
        "bootstrap": {"by": "node", "draws": DRAWS, "level": LEVEL, "seed": SEED},
        "intervals": _nested({name: interval(drawn) for name, drawn in model.items()}),
        "baselines": {
            name: _nested({figure: interval(drawn) for figure, drawn in found.items()})
            for name, found in others.items()
        },
        "gain": gain,
    }
