"""Lessons made by hand: a fleet over days, some of whose nodes are lemons and some of whose failures have a sign."""

import numpy as np

from predictor.dataset.labels import Labels, TrainingSample
from predictor.dataset.matrix import FIXED
from predictor.history.arrays import DAY_MS, Rows
from predictor.learning.training_set import TrainingSet

NAMES = [feature.name for feature in FIXED]
START_MS = 20_000 * DAY_MS


def lesson(nodes: int = 60, days: int = 40, sign: float = 0.35, lemon: float = 0.0, seed: int = 1) -> TrainingSet:
    """Two rows a node and day; one day in a hundred a node fails.

    Args:
        sign: how often a failure within the day shows an Xid, which else comes once in a hundred days.
        lemon: how often a failure within the day is of a node that `outages_28d` tells, which one node in ten is.
    """
    random = np.random.default_rng(seed)
    fails = random.random((days + 1, nodes)) < 0.02
    time_ms = START_MS + np.arange(2 * days) * (DAY_MS // 2)
    day = np.arange(2 * days) // 2
    positive = fails[day + 1]
    start_ms = np.where(positive, (START_MS + (day + 1) * DAY_MS)[:, None].astype(float), np.nan)
    values = np.zeros((2 * days, nodes, len(FIXED)), dtype=np.float32)
    values[:, :, NAMES.index("gpu_temp_max_c")] = random.normal(60, 5, positive.shape)
    shown = random.random(positive.shape) < np.where(positive, sign, 0.01)
    values[:, :, NAMES.index("hardware_xid_1d")] = shown
    known = random.random(positive.shape) < np.where(positive, lemon, 0.1 if lemon else 0.0)
    values[:, :, NAMES.index("outages_28d")] = known
    rows = Rows(np.tile(np.arange(nodes), 2 * days), np.repeat(time_ms, nodes))
    flat = positive.ravel()
    labels = Labels(np.ones(len(flat), bool), np.ones(len(flat), bool), flat, start_ms.ravel())
    return TrainingSet(values.reshape(-1, len(FIXED)), FIXED, TrainingSample(rows, labels, 1.0, 12.0), 24)
