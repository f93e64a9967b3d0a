"""The report of a backtest: every figure of DESIGN, how sure it is, and what it is worth, from what was judged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from predictor.evaluation import Judged, calibration, discrimination, false_cordons, lead_times, outages_of, ratio
from predictor.folds import BacktestSettings, Fold
from predictor.history import Floats
from predictor.intervals import with_intervals
from predictor.leakage import doubts
from predictor.probability import probability_figures, recall_at_false_alarms, reliability


def summarise(
    judged: Judged, ranks: Mapping[str, Floats], settings: BacktestSettings, folds: Sequence[Fold]
) -> dict[str, Any]:
    """The report; baselines are judged on the very same rows.

    Args:
        ranks: the score of each baseline, one entry a row of `judged`.
    """
    kept = judged.known
    seen = judged.only(kept)
    ranks = {name: rank[kept] for name, rank in ranks.items()}
    rows, positives = len(seen.scores), int(seen.labels.positive.sum())
    skill = _skill(seen)
    baselines = {name: _skill(replace(seen, scores=rank)) for name, rank in ranks.items()}
    return {
        "horizon_h": settings.horizon_h,
        "purge_h": settings.purge_h,
        "cadence_h": settings.cadence_h,
        "folds": [fold.to_json() for fold in folds],
        "nodes": len(np.unique(seen.node)),
        "rows": rows,
        "positives": positives,
        "outages": outages_of(seen),
        "prevalence": ratio(positives, rows),
        **skill,
        "lead_time_h": lead_times(seen),
        "false_cordons_per_1000_node_days": false_cordons(seen, settings.cadence_h),
        **probability_figures(seen),
        "calibration": calibration(seen),
        "reliability": reliability(seen),
        **_sureness(seen, ranks, skill, baselines),
        "doubts": doubts(skill["roc_auc"]),
    }


def _skill(judged: Judged) -> dict[str, Any]:
    found = discrimination(judged)
    prevalence = ratio(int(judged.labels.positive.sum()), len(judged.scores))
    precision = found["average_precision"]
    lift = None if precision is None or not prevalence else precision / prevalence
    return {**found, "lift": lift, "recall_at_false_alarms": recall_at_false_alarms(judged)}


def _sureness(
    judged: Judged, ranks: Mapping[str, Floats], skill: Mapping[str, Any], baselines: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """`baselines`, each with its intervals; `intervals`, `bootstrap`, and `best_baseline` with the model's gain."""
    able = {name: found for name, found in baselines.items() if found["average_precision"] is not None}
    best = max(able, key=lambda name: able[name]["average_precision"], default=None)
    sure = with_intervals(judged, ranks, best)
    found = {
        "baselines": {name: {**one, "intervals": sure["baselines"][name]} for name, one in baselines.items()},
        "bootstrap": sure["bootstrap"],
        "intervals": sure["intervals"],
        "best_baseline": None,
    }
    if best is not None:
        gains = {name: skill[name] - able[best][name] for name in ("roc_auc", "average_precision", "lift")}
        gains["recall_at_top"] = {
            top: skill["recall_at_top"][top] - of for top, of in able[best]["recall_at_top"].items()
        }
        found["best_baseline"] = {"name": best, "gain": gains, "intervals": sure["gain"]}
    return found
