"""The label: does a node have an unplanned outage that begins in (t + blackout, t + horizon]?

Rows exist only where the question makes sense:
- a node that is out at t, planned or not, or outside its time in service is not at risk: no row;
- a row whose horizon reaches beyond the data, or beyond the node's time in service without an outage before,
  is censored: nobody knows its answer, so it neither trains nor judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import median

import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import (
    FAR_FUTURE_MS,
    HOUR_MS,
    Bools,
    FleetArrays,
    Floats,
    Ints,
    OutageLog,
    Population,
    Rows,
    WindowIndex,
    every,
    to_ms,
)
from store.records.hint import evidence_of
from store.tables import hint_tables, schema

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


def at_risk(fleet: FleetArrays, outages: OutageLog, rows: Rows) -> Bools:
    """Whether each row's node is in service and not out."""
    serving: Bools = (fleet.since_ms[rows.node] <= rows.time_ms) & (rows.time_ms < fleet.until_ms[rows.node])
    lasting = outages.only(outages.end_ms > outages.start_ms)
    begun = WindowIndex.of(lasting.node, lasting.start_ms)
    closed = lasting.only(lasting.end_ms < FAR_FUTURE_MS)
    ended = WindowIndex.of(closed.node, closed.end_ms)
    # Open: begun at or before t and not ended by t.
    risky: Bools = serving & (_so_far(begun, rows) == _so_far(ended, rows))
    return risky


def _so_far(line: WindowIndex, rows: Rows) -> Ints:
    """How many entries of each row's node lie at or before its moment."""
    begun = line.before(rows.node, np.full(len(rows), line.base_ms, dtype=np.int64))
    return line.before(rows.node, rows.time_ms + 1) - begun


def label(fleet: FleetArrays, outages: OutageLog, rows: Rows, horizon_h: int, end_ms: int) -> Labels:
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
    line = WindowIndex.of(unplanned.node, unplanned.start_ms)
    if not len(line.keys):
        return np.full(len(rows), np.nan)
    # Strictly after: the first entry that is not before the next millisecond.
    position = line.before(rows.node, rows.time_ms + after_ms + 1)
    found = np.minimum(position, len(line.keys) - 1)
    its = (position < len(line.keys)) & (unplanned.node[line.order[found]] == rows.node)
    return np.where(its, line.times_ms[found].astype(np.float64), np.nan)


# Rows to learn from: as many negatives as this are enough for every fold (a fit draws at most 20,000 a booster).
MOST_NEGATIVES = 100_000


_SEED = 11
_ROWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """Rows to learn from: all positives and a share of the negatives, so that a model must take the share back.

    `cadence_h` is how many hours lay between the moments that the rows were drawn from.
    """

    rows: Rows
    labels: Labels
    negative_share: float
    cadence_h: float

    def only(self, kept: Bools) -> "TrainingSample":
        """The rows that a mask keeps."""
        return replace(self, rows=self.rows.only(kept), labels=self.labels.only(kept))


def sample(
    population: Population, moments: Sequence[datetime], horizon_h: int, most: int = MOST_NEGATIVES
) -> TrainingSample:
    """The rows of moments whose answer is known: every positive, at most `most` negatives, drawn by a fixed seed."""
    fleet, outages, size = population.fleet, population.outages, len(population.fleet.names)
    positive, negative = [], []
    for some in _in_blocks(moments, size):
        answers = label(fleet, outages, every(size, some), horizon_h, population.end_ms)
        positive.append(answers.positive)
        negative.append(answers.known & ~answers.positive)
    negatives = sum(int(block.sum()) for block in negative)
    drawn = np.arange(negatives)
    if negatives > most:
        drawn = np.random.default_rng(_SEED).choice(negatives, size=most, replace=False)
    share = len(drawn) / negatives if negatives else 1.0
    kept = np.sort(np.concatenate([np.flatnonzero(np.concatenate(positive)), _numbered(negative, np.sort(drawn))]))
    moment, subject = np.divmod(kept, max(size, 1))
    rows = Rows(subject, np.array([to_ms(one) for one in moments], dtype=np.int64)[moment])
    labels = label(fleet, outages, rows, horizon_h, population.end_ms)
    return TrainingSample(rows, labels, share, _cadence_h(moments, horizon_h))


def _in_blocks(moments: Sequence[datetime], subjects: int) -> Iterator[Sequence[datetime]]:
    """Moments, so many at once as have a few million rows: a year of 100,000 links has 73 million."""
    size = max(_ROWS_AT_ONCE // max(subjects, 1), 1)
    for first in range(0, max(len(moments), 1), size):
        yield moments[first : first + size]


def _numbered(blocks: Sequence[Bools], numbers: Ints) -> Ints:
    """Where the trues of these numbers stand, counted through all blocks."""
    found, trues, length = [], 0, 0
    for block in blocks:
        place = np.flatnonzero(block)
        first, end = np.searchsorted(numbers, [trues, trues + len(place)])
        found.append(length + place[numbers[first:end] - trues])
        trues, length = trues + len(place), length + len(block)
    return np.concatenate(found)


def _cadence_h(moments: Sequence[datetime], horizon_h: int) -> float:
    """The hours between moments; a moment alone stands for its horizon."""
    apart = [(later - earlier).total_seconds() / 3600 for earlier, later in pairwise(sorted(set(moments)))]
    return median(apart) if apart else float(horizon_h)


def rows_at(population: Population, moments: Sequence[datetime]) -> Rows:
    """Every row of some moments whose node is at risk."""
    rows = every(len(population.fleet.names), moments)
    return rows.only(at_risk(population.fleet, population.outages, rows))


# What hints did to the answers: a node that was kept from work did not show whether it would have failed.
#
# Such a row without an outage is no evidence of health ("uncertain positives": Azure's Uptake, FIELD A2, lost 9 % of
# its accuracy by learning from them), and is left out. With an outage it counts all the same. The control group, of
# which nothing was asked (`store/hints/control_group.py`), keeps its answers.

# What changes a node's lot, or takes its job away; a `watch` asks for nothing, and a checkpoint leaves the job there.
ACTIONS = ("avoid", "cordon", "drain", "requeue", "swap")
# A scheduler that pulls may say that it has done it without having said before that it took it.
_SENT_STATES = ("sent", "confirmed")


@dataclass(frozen=True, slots=True)
class HintPeriods:
    """When nodes were acted on, one entry a hint that a scheduler took."""

    node: Ints
    start_ms: Ints
    end_ms: Ints


def read_hint_periods(connection: sa.Connection, fleet: FleetArrays) -> HintPeriods:
    """From when a scheduler took a hint to when it ended: withdrawn, released, or no longer valid."""
    hints, audit = hint_tables.hints, schema.audit
    sent = (
        sa.select(audit.c.subject, sa.func.min(audit.c.time, type_=schema.UtcTime()).label("time"))
        .where(audit.c.action.in_(_SENT_STATES))
        .group_by(audit.c.subject)
        .subquery()
    )
    query = sa.select(hints.c.node, hints.c.evidence, hints.c.valid_until, sent.c.time)
    query = query.join(sent, sent.c.subject == hints.c.id).where(hints.c.action.in_(ACTIONS))
    index = fleet.index
    found = [
        (index[row.node], to_ms(row.time), to_ms(_end_of(row.evidence, row.valid_until)))
        for row in connection.execute(query)
        if row.node in index
    ]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return HintPeriods(columns[:, 0], columns[:, 1], columns[:, 2])


def _end_of(evidence: Mapping[str, object], valid_until: datetime) -> datetime:
    """When a hint ended, or ends by itself."""
    closed = evidence_of(evidence).closed
    return valid_until if closed is None else min(valid_until, closed.time)


def uncertain(rows: Rows, labels: Labels, acted: HintPeriods, horizon_h: int) -> Bools:
    """Which rows without an outage were acted on within their horizon."""
    found = np.zeros(len(rows), dtype=np.bool_)
    ends = rows.time_ms + horizon_h * HOUR_MS
    for node in np.unique(acted.node):
        mine = np.flatnonzero(rows.node == node)
        for hint in np.flatnonzero(acted.node == node):
            overlaps = (rows.time_ms[mine] < acted.end_ms[hint]) & (ends[mine] > acted.start_ms[hint])
            found[mine[overlaps]] = True
    return found & ~labels.positive
