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
from typing import Any

import numpy as np

from goodput.advice.run_history import RunHistory
from goodput.advice.run_model import Model, goodput, model_of
from goodput.advice.spares import expected_wait_s, waits_s
from goodput.formulas.foretold import Predictor
from goodput.formulas.sampling import Floats, generator, mean_draws, within

FORMULA = "kept = D ((stretch - way back - writing) / (D + w) - 1/2), summed over the stretches between failures"
SOURCE = "replay of the stored history; analytic: Daly 2006, exact memoryless form with the measured means"


@dataclass(frozen=True, slots=True)
class Change:
    """What would be otherwise; None is as it was. Seconds.

    Attributes:
        save_s, write_s: stall of a save; how long afterwards one in the background is safe.
        restart_s: startup and load after each stop.
        spares: nodes held ready; a stop then waits as long as repairs make it, beside the least wait that was measured.
        predictor: failures foretold become planned moves, false warnings too; not if they come too late for a save.
        avoided: stops that a policy would have avoided, by their place in the history (`hint_policy.py`).
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
class Outcome:
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
    replayed: Outcome
    analytic: Outcome
    formula: str = FORMULA
    source: str = SOURCE

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        told = asdict(self)
        for name in ("replayed", "analytic"):
            told[name]["gain"] = getattr(self, name).gain
        return told


def what_if(history: RunHistory, change: Change, repairs_s: Mapping[int, float] | None = None) -> WhatIf:
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
    before, gaps = _replay(history, model, _parts(history, Change(), {}), np.zeros(len(history.stops)), 0.0)
    after_model = _changed(model, history, change, repairs_s or {})
    move = _move_s(after_model, change)
    after, _ = _replay(history, after_model, _parts(history, change, repairs_s or {}), odds, move)
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
        replayed=Outcome(now, then, low, high),
        analytic=Outcome(float(goodput(model)), float(goodput(_fewer(after_model, history, odds, change, move)))),
    )


def _odds(history: RunHistory, change: Change) -> Floats:
    """Of each stop the chance that it would have been avoided."""
    odds = np.zeros(len(history.stops))
    for place, chance in change.avoided.items():
        odds[place] = chance
    if change.predictor is not None:
        odds = 1 - (1 - odds) * (1 - change.predictor.recall)
    return odds


def _false_moves(history: RunHistory, change: Change) -> float:
    """Moves upon warnings that would not have come true."""
    if change.predictor is None:
        return 0.0
    return len(history.stops) * change.predictor.recall * (1 / change.predictor.precision - 1)


def _move_s(model: Model, change: Change) -> float:
    """What a planned move takes, its save within."""
    return float(model.save_s + model.startup + model.checkpoint_load) if change.move_s is None else change.move_s


def _parts(history: RunHistory, change: Change, repairs_s: Mapping[int, float]) -> Floats:
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


def _replay(history: RunHistory, model: Model, back_s: Floats, odds: Floats, move_s: float) -> tuple[Floats, Floats]:
    """Work kept in each stretch, and how long each stretch is; the first begins with the run's own start."""
    edges = np.array([0.0, *(stop.time_s for stop in history.stops), history.wall_s])
    gaps = np.maximum(0.0, np.diff(edges))
    pauses = np.array([history.first_pause_s, *(stop.paused_s for stop in history.stops)])
    interval, stall, write = float(model.interval_s), float(model.save_s), float(model.write_s)
    # Each stretch begins after a stop, or after the move in its place, and ends with one; the last ends with neither.
    begins, ends = np.concatenate(([0.0], odds)), np.concatenate((odds, [1.0]))
    stopped, moved = np.concatenate(([0.0], back_s)), np.concatenate(([0.0], np.full(len(odds), move_s)))

    def kept(begin_s: Floats) -> Floats:
        """Work kept of each stretch: all where a move ends it, half a period less where a failure does."""
        up = np.maximum(0.0, gaps - pauses - begin_s)
        cut = np.maximum(0.0, (up - write) / (interval + stall) - 0.5)
        whole = up / (interval + stall)
        work: Floats = interval * (ends * whole + (1 - ends) * cut)
        return work

    work: Floats = history.kept_share * ((1 - begins) * kept(stopped) + begins * kept(moved))
    return work, gaps


def _changed(model: Model, history: RunHistory, change: Change, repairs_s: Mapping[int, float]) -> Model:
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


def _fewer(model: Model, history: RunHistory, odds: Floats, change: Change, move_s: float) -> Model:
    """The model with the stops that are avoided gone, and the moves that take their place."""
    moves = (float(odds.sum()) + _false_moves(history, change)) * move_s / history.wall_s
    share = float(odds.mean()) if len(odds) else 0.0
    return replace(model, rate=model.rate * (1 - share), moves_s=moves)
