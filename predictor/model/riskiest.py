"""What checking the riskiest nodes is worth to a person who has time for so many: the record of such lists. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictor.history.arrays import HOUR_MS, Floats, Ints
from predictor.model.skill import Judged
from store.records.score import at_least_one

LISTS = (1, 5, 10, 20, 50)
# A list of more than a quarter of the nodes is none.
_LEAST_FLEET = 4
_LOT = 7


@dataclass(frozen=True, slots=True)
class NodeLosses:
    """What runs lost by faults of their nodes, one entry an interruption: node, moment, GPU-hours."""

    node: Ints
    time_ms: Ints
    gpu_h: Floats


def list_record(judged: Judged, horizon_h: int, losses: NodeLosses | None = None) -> list[dict[str, Any]]:
    """How often at least one of the riskiest `nodes` failed within the horizon, beside how often the scores said so.

    Lists whose horizons overlap are no separate evidence, so that they are a horizon apart. Of equal scores a lot says
    which stand first. A list is of a quarter of the nodes at the most. `share` has Wilson's interval of 95 %, `low` to
    `high`; `failing` nodes and `lost_gpu_h` (what runs lost within the horizon by faults of a list's nodes, None where
    `losses` are not given) are means of a list.
    """
    judged = judged.only(judged.known)
    lot = np.random.default_rng(_LOT).permutation(int(judged.node.max(initial=0)) + 1)
    order = np.lexsort((lot[judged.node], -judged.scores, judged.time_ms))
    moments, begins = np.unique(judged.time_ms[order], return_index=True)
    apart: list[Ints] = []
    last = -math.inf
    for moment, begin, end in zip(moments.tolist(), begins, np.append(begins, len(order))[1:], strict=True):
        if moment >= last + horizon_h * HOUR_MS:
            apart.append(order[begin:end])
            last = moment
    smallest = min(map(len, apart), default=0)
    counts = [count for count in LISTS if count * _LEAST_FLEET <= smallest]
    return [
        {"nodes": count, **_record(judged, [rows[:count] for rows in apart], horizon_h, losses)} for count in counts
    ]


def _record(judged: Judged, lists: Sequence[Ints], horizon_h: int, losses: NodeLosses | None) -> dict[str, Any]:
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    failing = [int(judged.labels.positive[one].sum()) for one in lists]
    hit = sum(count > 0 for count in failing)
    sure = binomtest(hit, len(lists)).proportion_ci(0.95, "wilson")
    lost = None
    if losses is not None:
        lost = sum(_lost(judged, one, horizon_h, losses) for one in lists) / len(lists)
    return {
        "lists": len(lists),
        "hit": hit,
        "share": hit / len(lists),
        "low": float(sure.low),
        "high": float(sure.high),
        "said": float(np.mean([at_least_one(judged.scores[one].tolist()) for one in lists])),
        "failing": sum(failing) / len(lists),
        "lost_gpu_h": lost,
    }


def _lost(judged: Judged, rows: Ints, horizon_h: int, losses: NodeLosses) -> float:
    since = int(judged.time_ms[rows[0]])
    within = (losses.time_ms > since) & (losses.time_ms <= since + horizon_h * HOUR_MS)
    return float(losses.gpu_h[within & np.isin(losses.node, judged.node[rows])].sum())
