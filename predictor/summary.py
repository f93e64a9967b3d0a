"""The report of a backtest: every figure of DESIGN, from what was judged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from predictor.evaluation import Judged, calibration, discrimination, false_cordons, lead_times, outages_of, ratio
from predictor.folds import BacktestSettings, Fold
from predictor.history import Floats


def summarise(
    judged: Judged, ranks: Mapping[str, Floats], settings: BacktestSettings, folds: Sequence[Fold]
) -> dict[str, Any]:
    """The report; baselines are judged on the very same rows.

    Args:
        ranks: the score of each baseline, one entry a row of `judged`.
    """
    kept = judged.known
    seen = judged.only(kept)
    rows, positives = len(seen.scores), int(seen.labels.positive.sum())
    skill = discrimination(seen)
    prevalence = ratio(positives, rows)
    return {
        "horizon_h": settings.horizon_h,
        "purge_h": settings.purge_h,
        "cadence_h": settings.cadence_h,
        "folds": [fold.to_json() for fold in folds],
        "nodes": len(np.unique(seen.node)),
        "rows": rows,
        "positives": positives,
        "outages": outages_of(seen),
        "prevalence": prevalence,
        **skill,
        "lift": ratio(skill["average_precision"], prevalence) if positives and prevalence else None,
        "lead_time_h": lead_times(seen),
        "false_cordons_per_1000_node_days": false_cordons(seen, settings.cadence_h),
        "calibration": calibration(seen),
        "baselines": {name: discrimination(replace(seen, scores=rank[kept])) for name, rank in ranks.items()},
    }
