"""Judged rows made by hand, for the tests of the evaluation."""

from collections.abc import Sequence

import numpy as np

from predictor.dataset.labels import Labels
from predictor.history.arrays import DAY_MS, HOUR_MS
from predictor.model.skill import Judged


def judged(
    scores: Sequence[Sequence[float]], positive: Sequence[Sequence[int]], known: Sequence[Sequence[int]] | None = None
) -> Judged:
    """Daily moments, a line each; every positive's outage begins twelve hours later."""
    hits = np.array(positive, dtype=bool).ravel()
    mask = np.ones_like(hits) if known is None else np.array(known, dtype=bool).ravel()
    time_ms = np.repeat(np.arange(len(scores), dtype=np.int64) * DAY_MS, len(scores[0]))
    node = np.tile(np.arange(len(scores[0]), dtype=np.int64), len(scores))
    starts = np.where(hits, time_ms + 12.0 * HOUR_MS, np.nan)
    return Judged(time_ms, node, np.array(scores, dtype=float).ravel(), Labels(mask, mask, hits & mask, starts))


def random_fleet(nodes: int, moments: int, seed: int, levels: int = 6, rate: float = 0.2, skill: float = 1.0) -> Judged:
    """Scores of few levels (many ties) that tell something of the answers, with at least one of each answer."""
    random = np.random.default_rng(seed)
    hits = random.random((moments, nodes)) < rate
    hits[0, 0], hits[-1, -1] = True, False
    told = np.clip(random.random(hits.shape) + 0.3 * skill * hits, 0, 1.3)
    return judged((np.floor(levels * told) / levels).tolist(), hits.astype(int).tolist())
