"""A run in a handful of figures, and the goodput that follows from them: the analytic side of gains and what-ifs.

    model = model_of(history)
    goodput(replace(model, detection=60.0)) - goodput(model)

Each figure may be one number or an array of draws. The form is the exact memoryless one
(`goodput/formulas/young_daly.py`), times the share of wall time that neither pauses nor evaluation took.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from goodput.advice.run_history import PARTS, RunHistory
from goodput.formulas.sampling import Floats, mean_draws, rate_draws

Figure: TypeAlias = float | Floats
_TOO_FAR = 700.0
_NEVER = 1e-15  # failures per second of a run that never fails


@dataclass(frozen=True, slots=True)
class Model:
    """Failures per second of the whole run; seconds of each part of a failure; `kept` of the time at work (0-1).

    `moves_s`: seconds that planned moves take of each second.
    """

    rate: Figure
    interval_s: Figure
    save_s: Figure
    write_s: Figure
    detection: Figure
    waiting: Figure
    startup: Figure
    checkpoint_load: Figure
    kept: float
    moves_s: Figure = 0.0

    @property
    def back_s(self) -> Figure:
        """The way back after a failure, and the writing that it may cut off."""
        return self.detection + self.waiting + self.startup + self.checkpoint_load + self.write_s


def goodput(model: Model) -> Floats:
    """Productive share of wall time (0-1), of each draw."""
    rate = np.maximum(np.asarray(model.rate, dtype=np.float64), _NEVER)
    exponent = np.minimum(rate * (model.interval_s + model.save_s), _TOO_FAR)
    share = rate * model.interval_s / (np.exp(np.minimum(rate * model.back_s, _TOO_FAR)) * np.expm1(exponent))
    return np.asarray(share * model.kept * np.maximum(0.0, 1.0 - np.asarray(model.moves_s)), dtype=np.float64)


def model_of(history: RunHistory) -> Model:
    """The figures that a run's history measured.

    Raises:
        ValueError: it saved less than twice: its interval is not known.
    """
    if history.save_s is None or not history.interval_s:
        raise ValueError(
            f"run {history.run!r} shows no two finished saves: ingest its training log with save timings first"
        )
    return Model(
        rate=len(history.stops) / history.wall_s,
        interval_s=history.interval_s,
        save_s=history.save_s,
        write_s=0.0,
        detection=history.mean("detection"),
        waiting=history.mean("waiting"),
        startup=history.mean("startup"),
        checkpoint_load=history.mean("checkpoint_load"),
        kept=history.kept_share * (1 - history.paused_s / history.wall_s),
    )


def draws_of(history: RunHistory, dice: np.random.Generator) -> tuple[Model, Model]:
    """The same with each figure drawn: the rate for lower limits in the first, for upper ones in the second."""
    model = model_of(history)
    low, high = rate_draws(len(history.stops), history.wall_s, dice)
    drawn = replace(model, save_s=mean_draws(np.asarray(history.saves_s)[:, None], dice)[:, 0])
    if history.stops:
        parts = np.array([[getattr(stop, part) for part in PARTS] for stop in history.stops])
        # Whole stops are drawn: a long wait and a long start may go together.
        means = np.maximum(0.0, mean_draws(parts, dice))
        drawn = replace(
            drawn, detection=means[:, 0], waiting=means[:, 1], startup=means[:, 2], checkpoint_load=means[:, 3]
        )
    return replace(drawn, rate=low), replace(drawn, rate=high)
