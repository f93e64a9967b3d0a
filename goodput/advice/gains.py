"""What each change would gain, ranked: detection, waiting, restart, saves, the worst nodes, prediction, components.

    for gain in gains(history): print(gain.says)        # "detection from 10 min to 1 min: +1.2 points (0.8 to 1.7)"

Each is the analytic goodput with one figure changed, less that of the run as it was. Draws of the failure rate (exact
Poisson), of the stops and of the saves give the interval. Gains overlap: they do not add up.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from goodput.advice.run_history import Figure, RunHistory, RunModel, draws_of, goodput, model_of
from goodput.formulas.checkpoint_interval import Aims, Predictor, optimum_s
from goodput.formulas.failure_rates import DRAWS, expected_share, generator, share_draws, within

FORMULA = "L D / (exp(L R) (exp(L (D + w)) - 1)) with one figure changed, less the same as measured"
SOURCE = "Daly 2006; rate: Garwood 1936; stops and saves drawn again; worst nodes: empirical Bayes (FIELD D6)"
_POINTS = 100
_Change = Callable[[RunModel], RunModel]


@dataclass(frozen=True, slots=True)
class Gain:
    """A change and its worth in goodput (0-1, with the 95 % interval); `now` and `then` in `unit`."""

    lever: str
    unit: str
    now: float
    then: float
    gain: float
    low: float
    high: float

    @property
    def says(self) -> str:
        """One line for people."""
        sure = f"({_POINTS * self.low:+.2f} to {_POINTS * self.high:+.2f})"
        what, without, whose = self.lever.partition(" without ")
        change = f"{what} from {_formatted(self.now, self.unit)} to {_formatted(self.then, self.unit)}{without}{whose}"
        return f"{change}: {_POINTS * self.gain:+.2f} points {sure}"

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "says": self.says}


@dataclass(frozen=True, slots=True)
class _Lever:
    """A change of the model, as measured and in every draw."""

    name: str
    unit: str
    now: float
    then: float
    change: _Change
    drawn: _Change | None = None  # where the change itself is drawn


def gains(history: RunHistory, aims: Aims | None = None, predictor: Predictor | None = None) -> list[Gain]:
    """The changes that would gain anything, the largest first.

    Raises:
        ValueError: the run was never interrupted, or its saves are not known.
    """
    if not history.stops:
        raise ValueError(f"run {history.run!r} was never interrupted: nothing tells what a change would gain it")
    model, dice = model_of(history), generator()
    draws = draws_of(history, dice)
    found = []
    for lever in _levers(history, model, aims or Aims(), predictor, dice):
        gain = float(goodput(lever.change(model)) - goodput(model))
        change = lever.drawn or lever.change
        sides = [within(goodput(change(drawn)) - goodput(drawn)) for drawn in draws]
        low, high = min(side[0] for side in sides), max(side[1] for side in sides)
        if gain > 0 or high > 0:
            found.append(Gain(lever.name, lever.unit, lever.now, lever.then, gain, min(low, gain), max(high, gain)))
    return sorted(found, key=lambda one: (-one.gain, one.lever))


def _levers(
    history: RunHistory, model: RunModel, aims: Aims, predictor: Predictor | None, dice: np.random.Generator
) -> Iterator[_Lever]:
    """All changes that this run could make."""
    yield from _recovery(history, model, aims)
    yield from _saves(model, aims)
    yield from _fewer_failures(history, aims, dice)
    if predictor is not None and predictor.recall > 0 and predictor.in_time(float(model.save_s)):
        then = len(history.stops) * (1 - predictor.recall)

        def foretold(m: RunModel) -> RunModel:
            moves = predictor.recall / predictor.precision * m.rate * (m.save_s + m.startup + m.checkpoint_load)
            return replace(m, rate=m.rate * (1 - predictor.recall), moves_s=moves)

        yield _Lever("failures foretold, moved away in time", "failures", len(history.stops), then, foretold)


def _recovery(history: RunHistory, model: RunModel, aims: Aims) -> Iterator[_Lever]:
    """Detection, waiting, start and load, down to what is aimed at."""
    detection, waiting = float(model.detection), float(model.waiting)
    if detection > aims.detection_s:
        yield _Lever(
            "detection", "s", detection, aims.detection_s, lambda m: _at_most(m, "detection", aims.detection_s)
        )
    least = min(stop.waiting for stop in history.stops)
    if waiting > least:
        yield _Lever("waiting for nodes", "s", waiting, least, lambda m: _at_most(m, "waiting", least))
    restart = float(model.startup) + float(model.checkpoint_load)
    if restart > aims.restart_s:
        share = aims.restart_s / restart

        def faster(m: RunModel) -> RunModel:
            return replace(m, startup=m.startup * share, checkpoint_load=m.checkpoint_load * share)

        yield _Lever("startup and load", "s", restart, aims.restart_s, faster)


def _at_most(model: RunModel, part: str, limit_s: float) -> RunModel:
    return replace(model, **{part: np.minimum(getattr(model, part), limit_s)})


def _saves(model: RunModel, aims: Aims) -> Iterator[_Lever]:
    """The best interval for the saves as they are, and saves in the background."""
    interval, stall, mttf = float(model.interval_s), float(model.save_s), 1 / float(model.rate)
    best = max(1.0, optimum_s(stall, mttf))
    yield _Lever("checkpoint interval", "s", interval, best, lambda m: replace(m, interval_s=best))
    if stall > aims.async_stall_s:
        often = max(optimum_s(aims.async_stall_s, mttf), stall)

        def background(m: RunModel) -> RunModel:
            return replace(m, save_s=aims.async_stall_s, write_s=m.save_s, interval_s=often)

        yield _Lever("stall of a save, in the background", "s", stall, aims.async_stall_s, background)


def _fewer_failures(history: RunHistory, aims: Aims, dice: np.random.Generator) -> Iterator[_Lever]:
    """Without the worst nodes; without each component's failures."""
    stops = len(history.stops)
    by_node = Counter(stop.node for stop in history.stops if stop.node is not None)
    counts = list(by_node.values())
    worst = min(aims.worst, len(counts))
    if worst and len(counts) <= history.nodes:
        share = expected_share(counts, history.nodes, worst)
        shares = share_draws(counts, history.nodes, worst, dice)
        name = f"failures without the {worst} worst nodes" if worst > 1 else "failures without the worst node"
        yield _Lever(name, "failures", stops, stops * (1 - share), _less(share), _less(shares))
    by_component = Counter(stop.component for stop in history.stops)
    for component, count in sorted(by_component.items()):
        gone = count / stops
        # As many of as many stops: what the share may be is a beta's (Jeffreys).
        drawn = dice.beta(count + 0.5, stops - count + 0.5, size=DRAWS)
        yield _Lever(
            f"failures without those of {component}", "failures", stops, stops - count, _less(gone), _less(drawn)
        )


def _less(share: Figure) -> _Change:
    return lambda m: replace(m, rate=m.rate * np.maximum(0.0, 1 - np.asarray(share)))


def _formatted(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.3g}"
    return f"{value:.3g} s" if value < 100 else f"{value / 60:.3g} min" if value < 6_000 else f"{value / 3600:.3g} h"
