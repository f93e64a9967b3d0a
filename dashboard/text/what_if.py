"""What a what-if says: the choices of its sliders, and its answer in sentences."""

from collections.abc import Sequence

from dashboard.text import words
from wire.advice import WhatIfJson
from wire.money.price import shown

_MINUTE, _HOUR = 60.0, 3600.0
_HOURS = (1, 1.5, 2, 3, 4, 6, 8, 12, 24)
INTERVALS = (*(m * _MINUTE for m in (1, 2, 5, 10, 15, 20, 30, 45)), *(h * _HOUR for h in _HOURS))
RESTARTS = (0.0, 10.0, 30.0, *(m * _MINUTE for m in (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120)))


def choices(of: Sequence[float], measured_s: float) -> list[float]:
    """The choices of a slider, in order: what was measured, and those that read otherwise than it."""
    said = words.duration(measured_s)
    return sorted([measured_s, *(s for s in of if words.duration(s) != said)])


def lines(told: WhatIfJson, is_changed: bool) -> list[str]:
    """The answer first, then by what it was reckoned; each line is Markdown."""
    found, inputs = told.replayed, told.inputs
    basis = f"Measured: {words.many(told.stops, 'interruption')}"
    if inputs is not None:
        basis += (
            f", each noticed after {words.duration(inputs.detection_s)}, "
            f"then {words.duration(inputs.waiting_s)} until nodes were there; "
            f"a save stops training for {words.duration(inputs.save_s)}"
        )
    if not is_changed:
        return ["Move a slider: the answer stands here.", f"{basis}."]
    first = f"**{_points(found.gain)} of goodput.**"
    if found.low is not None and found.high is not None:
        first += f" With 95 % certainty {_points(found.low)} to {_points(found.high)}."
    if found.money_per_day is not None and told.gpus:
        first += f" That is worth {words.plain(shown(found.money_per_day))} a day of its {words.count(told.gpus)} GPUs."
    lived = (
        f"Its history lived again: {words.share(found.changed)} instead of {words.share(found.as_was)}; "
        f"the run itself had {words.share(told.measured)}. By the formula alone: {_points(told.analytic.gain)}."
    )
    return [first, lived, f"{basis}."]


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "\N{MINUS SIGN}")
