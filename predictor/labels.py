"""The label: does a node have an unplanned outage that begins in (t + blackout, t + horizon]?

Rows exist only where the question makes sense:
- a node that is out at t, planned or not, or outside its time in service is not at risk: no row;
- a row whose horizon reaches beyond the data, or beyond the node's time in service without an outage before,
  is censored: nobody knows its answer, so it neither trains nor judges.
"""

from dataclasses import dataclass

import numpy as np

from predictor.history import HOUR_MS, Bools, Fleet, Floats, Ints, OutageLog
from predictor.windows import WindowIndex

# A day to act at once, a week to plan a repair: the horizons that models are trained for.
HORIZONS_H = (24, 168)
# An outage that begins at once leaves no time to act (FIELD A3.4: at least 10 minutes).
BLACKOUT_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Labels:
    """Answers on a grid (moments, nodes). `next_start_ms` is the outage that made a row positive, NaN elsewhere."""

    at_risk: Bools
    known: Bools  # at risk and not censored
    positive: Bools
    next_start_ms: Floats


def at_risk(fleet: Fleet, outages: OutageLog, moments_ms: Ints) -> Bools:
    """Which nodes are in service and not out, (moments, nodes)."""
    moments = moments_ms[:, None]
    serving = (fleet.since_ms[None, :] <= moments) & (moments < fleet.until_ms[None, :])
    return serving & ~_out(outages, moments_ms, len(fleet.names))


def _out(outages: OutageLog, moments_ms: Ints, size: int) -> Bools:
    """Which nodes have an outage open: begun at or before t and not ended by t."""
    out = np.zeros((len(moments_ms), size), dtype=np.bool_)
    for row, moment in enumerate(moments_ms):
        out[row, outages.node[(outages.start_ms <= moment) & (outages.end_ms > moment)]] = True
    return out


def label(fleet: Fleet, outages: OutageLog, moments_ms: Ints, horizon_h: int, end_ms: int) -> Labels:
    """The labels of every moment and node.

    Args:
        outages: all outages, planned ones among them.
        end_ms: the last moment that the data speak of.
    """
    size = len(fleet.names)
    risky = at_risk(fleet, outages, moments_ms)
    next_start = _first_start(outages.only(~outages.planned), moments_ms + BLACKOUT_MS, size)
    horizon_end = moments_ms[:, None] + horizon_h * HOUR_MS
    positive = next_start <= horizon_end  # a comparison with NaN is False
    uncensored = (horizon_end <= end_ms) & (positive | (horizon_end <= fleet.until_ms[None, :]))
    return Labels(
        at_risk=risky,
        known=risky & uncensored,
        positive=risky & uncensored & positive,
        next_start_ms=np.where(positive, next_start, np.nan),
    )


def _first_start(unplanned: OutageLog, after_ms: Ints, size: int) -> Floats:
    """The start of each node's first outage that begins after a moment, (moments, nodes); NaN where none does."""
    index = WindowIndex.of(unplanned.node, unplanned.start_ms)
    found = np.full((len(after_ms), size), np.nan)
    if not len(index.present):
        return found
    # Strictly after: the first event that is not before the next millisecond.
    position = index.before(after_ms + 1)
    group_end = np.searchsorted(index.keys, (np.arange(len(index.present)) + 1) * index.span_ms, side="left")
    exists = position < group_end[None, :]
    starts = index.times_ms[np.minimum(position, len(index.times_ms) - 1)].astype(np.float64)
    found[:, index.present] = np.where(exists, starts, np.nan)
    return found
