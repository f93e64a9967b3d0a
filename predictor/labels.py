"""The label: does a node have an unplanned outage that begins in (t + blackout, t + horizon]?

Rows exist only where the question makes sense:
- a node that is out at t, planned or not, or outside its time in service is not at risk: no row;
- a row whose horizon reaches beyond the data, or beyond the node's time in service without an outage before,
  is censored: nobody knows its answer, so it neither trains nor judges.
"""

from dataclasses import dataclass

import numpy as np

from predictor.history import FAR_FUTURE_MS, HOUR_MS, Bools, Fleet, Floats, Ints, OutageLog
from predictor.rows import Rows
from predictor.windows import Timeline

# A day to act at once, a week to plan a repair: the horizons that models are trained for.
HORIZONS_H = (24, 168)
# An outage that begins at once leaves no time to act (FIELD A3.4: at least 10 minutes).
BLACKOUT_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Labels:
    """Answers, one entry a row. `next_start_ms` is the outage that made a row positive, NaN elsewhere."""

    at_risk: Bools
    known: Bools  # at risk and not censored
    positive: Bools
    next_start_ms: Floats

    def only(self, kept: Bools | Ints) -> "Labels":
        """Those that a mask or a list of positions keeps."""
        return Labels(self.at_risk[kept], self.known[kept], self.positive[kept], self.next_start_ms[kept])


def at_risk(fleet: Fleet, outages: OutageLog, rows: Rows) -> Bools:
    """Whether each row's node is in service and not out."""
    serving: Bools = (fleet.since_ms[rows.node] <= rows.time_ms) & (rows.time_ms < fleet.until_ms[rows.node])
    lasting = outages.only(outages.end_ms > outages.start_ms)
    begun = Timeline.of(lasting.node, lasting.start_ms)
    closed = lasting.only(lasting.end_ms < FAR_FUTURE_MS)
    ended = Timeline.of(closed.node, closed.end_ms)
    # Open: begun at or before t and not ended by t.
    risky: Bools = serving & (_so_far(begun, rows) == _so_far(ended, rows))
    return risky


def _so_far(line: Timeline, rows: Rows) -> Ints:
    """How many entries of each row's node lie at or before its moment."""
    begun = line.before(rows.node, np.full(len(rows), line.base_ms, dtype=np.int64))
    return line.before(rows.node, rows.time_ms + 1) - begun


def label(fleet: Fleet, outages: OutageLog, rows: Rows, horizon_h: int, end_ms: int) -> Labels:
    """The label of every row.

    Args:
        outages: all outages, planned ones among them.
        end_ms: the last moment that the data speak of.
    """
    risky = at_risk(fleet, outages, rows)
    next_start = _first_start(outages.only(~outages.planned), rows, BLACKOUT_MS)
    horizon_end = rows.time_ms + horizon_h * HOUR_MS
    positive = next_start <= horizon_end  # a comparison with NaN is False
    uncensored = (horizon_end <= end_ms) & (positive | (horizon_end <= fleet.until_ms[rows.node]))
    return Labels(
        at_risk=risky,
        known=risky & uncensored,
        positive=risky & uncensored & positive,
        next_start_ms=np.where(positive, next_start, np.nan),
    )


def _first_start(unplanned: OutageLog, rows: Rows, after_ms: int) -> Floats:
    """The start of each node's first outage that begins later than `after_ms` after its moment; NaN where none does."""
    line = Timeline.of(unplanned.node, unplanned.start_ms)
    if not len(line.keys):
        return np.full(len(rows), np.nan)
    # Strictly after: the first entry that is not before the next millisecond.
    position = line.before(rows.node, rows.time_ms + after_ms + 1)
    found = np.minimum(position, len(line.keys) - 1)
    its = (position < len(line.keys)) & (unplanned.node[line.order[found]] == rows.node)
    return np.where(its, line.times_ms[found].astype(np.float64), np.nan)
