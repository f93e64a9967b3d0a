"""What if: the run's own history lived again with another interval, detection, restart, spares or hints.

    told = what_if(history, Change(detection_s=60.0))
    told.replayed.gain, told.analytic.gain

The failures strike when they struck; between two of them the run comes back and works in periods of an interval and a
save. Where in a period a failure strikes is chance, and would be another chance after any change: a stretch of x
periods keeps x - 1/2 of them, the mean over that chance (for memoryless failures too much by (L (D + w))^2 / 24 of it).
A stop that is avoided costs nothing, or a planned move: the period before it is kept, as by a save. The same history as
it was is replayed too, so that what the replay leaves out falls out of the gain; `as_was` against the ledger's goodput
says how much that is. The interval comes from drawing the stretches between failures again (bootstrap).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from goodput.advice.run_history import RunHistory, RunModel, goodput, model_of
from goodput.advice.spares import expected_wait_s, waits_s
from goodput.formulas.checkpoint_interval import Predictor
from goodput.formulas.failure_rates import Floats, generator, mean_draws, within
from store.tables import schema

# Which stops a policy would have avoided, by the scores that were stored before them.
#
#     avoided = avoided_by_scores(connection, history, top=0.01)
#     what_if(history, Change(avoided=avoided, move_s=0.0))
#
# The policy is the mildest one: a node among the `top` share of the newest scoring is left out when the run starts, and
# nobody moves a running job. So a stop is avoided if its node was flagged at the start of the attempt that it ended,
# and the run had a spare node to take. Scores are of that moment: nothing that came later is used.

_SCORES = schema.scores
# A scoring older than this says nothing of today: the horizon that hints go by.
HORIZON_H = 24


def avoided_by_scores(connection: sa.Connection, history: RunHistory, top: float) -> dict[int, float]:
    """The stops (by their place) whose node was flagged when their attempt began, each with the chance 1.

    Raises:
        ValueError: the share is not within 0 and 1, the run has no dates, or no score is as old as its stops.
    """
    if not 0 < top <= 1:
        raise ValueError(f"a share of {top} of the nodes cannot be held: it lies within 0 and 1")
    if history.start_s is None:
        raise ValueError(f"run {history.run!r} bears no dates: its stops cannot be held against scores")
    begun = [history.first_pause_s, *(stop.time_s + stop.back_s for stop in history.stops[:-1])]
    moments = [datetime.fromtimestamp(history.start_s + seconds, UTC) for seconds in begun[: len(history.stops)]]
    scored = [_scoring(connection, moment) for moment in moments]
    if not any(scored):
        raise ValueError("no score was stored before the run's stops: `foreshock score --at T` makes them as of a time")
    found = {}
    for place, (stop, scoring) in enumerate(zip(history.stops, scored, strict=True)):
        if stop.node is not None and scoring is not None and _flagged(connection, stop.node, scoring, top):
            found[place] = 1.0
    return found


def _scoring(connection: sa.Connection, moment: datetime) -> datetime | None:
    """The newest scoring no later than a moment, if it is no older than the horizon."""
    query = sa.select(sa.func.max(_SCORES.c.time, type_=schema.UtcTime())).where(
        _SCORES.c.horizon_h == HORIZON_H, _SCORES.c.time <= moment
    )
    found: datetime | None = connection.scalar(query)
    if found is None or (moment - found).total_seconds() > HORIZON_H * 3600:
        return None
    return found


def _flagged(connection: sa.Connection, node: str, scoring: datetime, top: float) -> bool:
    """Whether a node's score was among the highest of a scoring; of equal ones, all count as higher."""
    then = (_SCORES.c.horizon_h == HORIZON_H) & (_SCORES.c.time == scoring)
    mine = connection.scalar(sa.select(_SCORES.c.score).where(then, _SCORES.c.node == node))
    if mine is None:
        return False
    others = sa.select(sa.func.count(), sa.func.count().filter((_SCORES.c.score >= mine) & (_SCORES.c.node != node)))
    total, higher = connection.execute(others.where(then)).one()
    return bool(higher < math.ceil(top * total))


FORMULA = "kept = D ((stretch - way back - writing) / (D + w) - 1/2), summed over the stretches between failures"
SOURCE = "replay of the stored history; analytic: Daly 2006, exact memoryless form with the measured means"


@dataclass(frozen=True, slots=True)
class RunChange:
    """What would be otherwise; None is as it was. Seconds.

    Attributes:
        save_s, write_s: stall of a save; how long afterwards one in the background is safe.
        restart_s: startup and load after each stop.
        spares: nodes held ready; a stop then waits as long as repairs make it, beside the least wait that was measured.
        predictor: failures foretold become planned moves, false warnings too; not if they come too late for a save.
        avoided: stops that a policy would have avoided, by their place in the history (`what_if.py`).
        move_s: what a planned move takes; None: a save, a startup and a load.
    """

    interval_s: float | None = None
    save_s: float | None = None
    write_s: float | None = None
    detection_s: float | None = None
    restart_s: float | None = None
    spares: int | None = None
    predictor: Predictor | None = None
    avoided: Mapping[int, float] = field(default_factory=dict)
    move_s: float | None = None

    def __post_init__(self) -> None:
        times = (self.save_s, self.write_s, self.detection_s, self.restart_s, self.spares, self.move_s)
        # Said so that what is no number fails too.
        if not all(time is None or 0 <= time < math.inf for time in times) or (
            self.interval_s is not None and not 0 < self.interval_s < math.inf
        ):
            raise ValueError("a what-if needs an interval above zero, and no time or count below zero")


@dataclass(frozen=True, slots=True)
class GoodputComparison:
    """Goodput as it was and as it would be (0-1), and the gain with its 95 % interval where one was determined."""

    as_was: float
    changed: float
    low: float | None = None
    high: float | None = None

    @property
    def gain(self) -> float:
        """What the change brings."""
        return self.changed - self.as_was


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The replay and the analytic form of the same change; `stops_then` failures would have stopped the run."""

    run: str
    measured: float
    stops: int
    stops_then: float
    replayed: GoodputComparison
    analytic: GoodputComparison
    formula: str = FORMULA
    source: str = SOURCE

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        reported = asdict(self)
        for name in ("replayed", "analytic"):
            reported[name]["gain"] = getattr(self, name).gain
        return reported


def what_if(history: RunHistory, change: RunChange, repairs_s: Mapping[int, float] | None = None) -> WhatIf:
    """The history with a change, replayed and by the formula.

    Args:
        repairs_s: how long the node of a stop was out, by the stop's place; stops that took no node out are missing.

    Raises:
        ValueError: the run's interval or saves are not known, or spares are asked for and no repair is.
    """
    model = model_of(history)
    predictor, save_s = change.predictor, float(model.save_s) if change.save_s is None else change.save_s
    if predictor is not None and not predictor.in_time(save_s):
        change = replace(change, predictor=None)  # nobody heeds a warning that comes too late
    if change.spares is not None and not repairs_s:
        raise ValueError("no outage of a node that stopped the run is known: spares cannot be replayed")
    odds = _odds(history, change)
    before, gaps = _work_kept(history, model, _parts(history, RunChange(), {}), np.zeros(len(history.stops)), 0.0)
    after_model = _changed(model, history, change, repairs_s or {})
    move = _move_s(after_model, change)
    after, _ = _work_kept(history, after_model, _parts(history, change, repairs_s or {}), odds, move)
    moves_s = _false_moves(history, change) * move / history.wall_s
    then, now = float(after.sum() / gaps.sum()) * (1 - moves_s), float(before.sum() / gaps.sum())
    drawn = mean_draws(np.stack((after * (1 - moves_s) - before, gaps), axis=1), generator())
    drawn = drawn[drawn[:, 1] > 0]  # a stretch without length tells nothing, however often it is drawn
    low, high = within(drawn[:, 0] / drawn[:, 1])
    left = float(len(odds) - odds.sum())
    return WhatIf(
        run=history.run,
        measured=history.goodput,
        stops=len(history.stops),
        stops_then=left,
        replayed=GoodputComparison(now, then, low, high),
        analytic=GoodputComparison(
            float(goodput(model)), float(goodput(_fewer(after_model, history, odds, change, move)))
        ),
    )


def _odds(history: RunHistory, change: RunChange) -> Floats:
    """Of each stop the chance that it would have been avoided."""
    odds = np.zeros(len(history.stops))
    for place, chance in change.avoided.items():
        odds[place] = chance
    if change.predictor is not None:
        odds = 1 - (1 - odds) * (1 - change.predictor.recall)
    return odds


def _false_moves(history: RunHistory, change: RunChange) -> float:
    """Moves upon warnings that would not have come true."""
    if change.predictor is None:
        return 0.0
    return len(history.stops) * change.predictor.recall * (1 / change.predictor.precision - 1)


def _move_s(model: RunModel, change: RunChange) -> float:
    """What a planned move takes, its save within."""
    return float(model.save_s + model.startup + model.checkpoint_load) if change.move_s is None else change.move_s


def _parts(history: RunHistory, change: RunChange, repairs_s: Mapping[int, float]) -> Floats:
    """The way back of each stop."""
    stops = history.stops
    detection = np.array([s.detection if change.detection_s is None else change.detection_s for s in stops])
    restart = np.array([s.startup + s.checkpoint_load for s in stops])
    if change.restart_s is not None:
        restart = np.full(len(stops), change.restart_s)
    waiting = np.array([s.waiting for s in stops])
    if change.spares is not None:
        out = [place for place in range(len(stops)) if place in repairs_s]
        waiting = np.full(len(stops), waiting.min(initial=np.inf))
        waiting[out] += waits_s(
            [stops[place].time_s for place in out], [repairs_s[place] for place in out], change.spares
        )
    total: Floats = detection + restart + waiting
    return total


def _work_kept(
    history: RunHistory, model: RunModel, back_s: Floats, odds: Floats, move_s: float
) -> tuple[Floats, Floats]:
    """Work kept in each stretch, and how long each stretch is; the first begins with the run's own start."""
    edges = np.array([0.0, *(stop.time_s for stop in history.stops), history.wall_s])
    gaps = np.maximum(0.0, np.diff(edges))
    pauses = np.array([history.first_pause_s, *(stop.paused_s for stop in history.stops)])
    interval, stall, write = float(model.interval_s), float(model.save_s), float(model.write_s)
    # Each stretch begins after a stop, or after the move in its place, and ends with one; the last ends with neither.
    begins, ends = np.concatenate(([0.0], odds)), np.concatenate((odds, [1.0]))
    stopped, moved = np.concatenate(([0.0], back_s)), np.concatenate(([0.0], np.full(len(odds), move_s)))

    def work_kept(begin_s: Floats) -> Floats:
        """Work kept of each stretch: all where a move ends it, half a period less where a failure does."""
        up = np.maximum(0.0, gaps - pauses - begin_s)
        cut = np.maximum(0.0, (up - write) / (interval + stall) - 0.5)
        whole = up / (interval + stall)
        work: Floats = interval * (ends * whole + (1 - ends) * cut)
        return work

    work: Floats = history.kept_share * ((1 - begins) * work_kept(stopped) + begins * work_kept(moved))
    return work, gaps


def _changed(model: RunModel, history: RunHistory, change: RunChange, repairs_s: Mapping[int, float]) -> RunModel:
    """The figures of the model as the change makes them."""
    given = {
        "interval_s": change.interval_s,
        "save_s": change.save_s,
        "write_s": change.write_s,
        "detection": change.detection_s,
        "startup": change.restart_s,
        "checkpoint_load": None if change.restart_s is None else 0.0,
    }
    changed = replace(model, **{name: value for name, value in given.items() if value is not None})
    if change.spares is None or not repairs_s:
        return changed
    mttr = sum(repairs_s.values()) / len(repairs_s)
    wait = expected_wait_s(len(repairs_s) / history.wall_s, mttr, change.spares)
    least = min((stop.waiting for stop in history.stops), default=0.0)
    return replace(changed, waiting=least + wait * len(repairs_s) / len(history.stops))


def _fewer(model: RunModel, history: RunHistory, odds: Floats, change: RunChange, move_s: float) -> RunModel:
    """The model with the stops that are avoided gone, and the moves that take their place."""
    moves = (float(odds.sum()) + _false_moves(history, change)) * move_s / history.wall_s
    share = float(odds.mean()) if len(odds) else 0.0
    return replace(model, rate=model.rate * (1 - share), moves_s=moves)
