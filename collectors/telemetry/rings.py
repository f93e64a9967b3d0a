"""Measures of a node second by second, and what of them leaves its own usual level. Pure; its state is plain JSON.

    rings = Rings(state)
    rings.second("gpu:3", {"sm_clock_mhz": 1980.0})     # a level, each second; a second without work is left out
    rings.look("gpu:3", {"pcie_replay": 7.0})           # once before the window ends: counters, and a link's width
    shifts = rings.end_window()                         # each 15 s: what left its usual level, and what is back

A window's level is the median of its seconds, a counter's its rise. Usual is the median of the last ten minutes'
windows that were not far from it. A device has shifted when three of its last four windows lie far on the slow side,
on the robust scale by which the server compares it with its job's nodes (docs/diagnosis.md). After an hour a shifted
level is taken for usual: the hours' roll-ups show it by then.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import log1p
from statistics import median
from typing import Any, Literal, TypeAlias

from store.records.telemetry import DROPPING

SECONDS = 15
# Of a window: fewer seconds with work tell nothing of its level.
_LEAST_SECONDS = 5
_FAR = 6.0
# No deviation is taken for less: a part of the level, a step of a logarithm, and so many more of a counter.
_LEAST_PART, _LEAST_LOG, _LEAST_COUNT = 0.01, 0.35, 8
_LEAST_USUAL, _USUAL = 8, 40
_OF_WINDOWS, _MOST_FAR = 4, 3
_LONGEST = 3600 // SECONDS
# A node tells of so many devices a measure at once; how many more there are is said of each.
_TOLD = 2
_MOST_LEVELS = 1024


ShiftEnd: TypeAlias = Literal["back", "unmeasured", "lasting"]


@dataclass(frozen=True, slots=True)
class Shift:
    """A measure of a device left its usual level, or is back at it.

    Attributes:
        value: of the newest window. usual: the median of those before. windows: how many it lasted so far.
        devices: how many of the node left the usual level of this measure with it.
        end: why it is over: `back` at the usual level, `unmeasured` for four windows (no work, or no device), or
            `lasting` for an hour; None while it stands.
    """

    device: str
    measure: str
    value: float | None
    usual: float
    windows: int
    devices: int = 1
    end: ShiftEnd | None = None


@dataclass(slots=True)
class _UsualLevel:
    """One measure of one device: its usual windows, which of the last four were far, and since when it is shifted."""

    usual: deque[float] = field(default_factory=lambda: deque(maxlen=_USUAL))
    far: int = 0
    shifted: int = 0
    told: bool = False

    def take(self, value: float, is_level: bool) -> float:
        """One more window; how far it lies on the slow side, in robust deviations, or 0.0 where that is not far."""
        deviations = self._deviations(value, is_level) if len(self.usual) >= _LEAST_USUAL else 0.0
        is_far = deviations >= _FAR
        self.far = (self.far << 1 | is_far) & (1 << _OF_WINDOWS) - 1
        if self.shifted:
            self.shifted += 1
        elif self.far.bit_count() >= _MOST_FAR:
            self.shifted = self.far.bit_length()
        if not is_far:
            self.usual.append(value)
        return deviations

    def ended(self) -> ShiftEnd | None:
        """Why its shift is over with this window: it is usual again, or has lasted so long that it is usual now."""
        if not self.shifted or (self.far and self.shifted < _LONGEST):
            return None
        end: ShiftEnd = "lasting" if self.far else "back"
        if self.far:
            self.usual.clear()
        self.shifted = self.far = 0
        return end

    def _deviations(self, value: float, is_level: bool) -> float:
        if not is_level and value < _LEAST_COUNT:
            return 0.0  # nothing rises by less than none: most counters, most of the time
        middle = median(self.usual)
        if is_level:
            least, low = abs(middle) * _LEAST_PART, middle - value
        elif value - middle < _LEAST_COUNT:
            return 0.0
        else:
            least, low = _LEAST_LOG, log1p(value) - log1p(middle)
        if low <= 0 or low < _FAR * least:
            return 0.0  # near by the least deviation: it takes no look at the others
        spread = median(abs(other - middle) if is_level else abs(log1p(other) - log1p(middle)) for other in self.usual)
        scale = max(least, 1.4826 * spread)
        return low / scale if scale else 0.0


class Rings:
    """The last seconds of every device of a node. `left_out`: levels beyond what is held of one node."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._seconds: dict[tuple[str, str], array[float]] = {}
        self._counted: dict[tuple[str, str], float] = {}
        self._looked: dict[tuple[str, str], float] = {}  # rises of counters, and levels that change seldom
        self._levels: dict[tuple[str, str], _UsualLevel] = {}
        self.left_out = 0
        for device, measure, usual, shifted in (state or {}).get("told", ()):
            known = _UsualLevel(
                deque([usual] * _LEAST_USUAL, maxlen=_USUAL), (1 << _OF_WINDOWS) - 1, shifted, told=True
            )
            self._levels[device, measure] = known

    def state(self) -> dict[str, Any]:
        """What was told and is not over: a sidecar that starts again learns the rest in two minutes."""
        told = [
            [*key, median(level.usual), level.shifted]
            for key, level in sorted(self._levels.items())
            if level.told and level.usual
        ]
        return {"told": told}

    def second(self, device: str, values: Mapping[str, float]) -> None:
        """The levels of one device at one second."""
        for measure, value in values.items():
            ring = self._seconds.get((device, measure))
            if ring is None:
                ring = self._seconds[device, measure] = array("d")
            if len(ring) < SECONDS:
                ring.append(value)

    def look(self, device: str, values: Mapping[str, float]) -> None:
        """Counters of one device as they stand, and levels that change seldom.

        A counter that fell began anew: it tells from the next window on.
        """
        for measure, value in values.items():
            if measure in DROPPING:
                self._looked[device, measure] = value
                continue
            before = self._counted.get((device, measure))
            self._counted[device, measure] = value
            if before is not None and value >= before:
                self._looked[device, measure] = value - before

    def end_window(self) -> tuple[list[Shift], dict[str, dict[str, float]]]:
        """What has shifted and what is back, and of each device the medians of its seconds; a new window begins."""
        seconds = {key: median(ring) for key, ring in self._seconds.items() if len(ring) >= _LEAST_SECONDS}
        for ring in self._seconds.values():
            del ring[:]
        values = {key: value for key, value in seconds.items() if key[1] in DROPPING} | self._looked
        self._looked = {}
        began: list[tuple[float, Shift]] = []
        over = [shift for key, level in self._levels.items() if key not in values for shift in self._idle(key, level)]
        for key, value in values.items():
            level = self._levels.get(key)
            if level is None:
                if len(self._levels) >= _MOST_LEVELS:
                    self.left_out += 1
                    continue
                level = self._levels[key] = _UsualLevel()
            was = level.shifted
            before = tuple(level.usual) if was else ()
            deviations = level.take(value, is_level=key[1] in DROPPING)
            if end := level.ended():
                over += self._over(level, Shift(*key, value, median(before), was + 1, end=end))
            elif level.shifted and not was:  # a far window is none of the usual ones
                began.append((deviations, Shift(*key, value, median(level.usual), level.shifted)))
        levels: dict[str, dict[str, float]] = {}
        for (device, measure), value in seconds.items():
            levels.setdefault(device, {})[measure] = value
        return over + self._farthest(began), levels

    def _idle(self, key: tuple[str, str], level: _UsualLevel) -> list[Shift]:
        """A window without a value: after four of them nothing is known of the device any more."""
        was, level.far = level.shifted, level.far << 1 & (1 << _OF_WINDOWS) - 1
        if not level.ended():
            return []
        return self._over(level, Shift(*key, None, median(level.usual), was, end="unmeasured"))

    @staticmethod
    def _over(level: _UsualLevel, shift: Shift) -> list[Shift]:
        told, level.told = level.told, False
        return [shift] if told else []

    def _farthest(self, began: Iterable[tuple[float, Shift]]) -> list[Shift]:
        """The farthest of each measure, with the number of those that shifted with it."""
        found: list[Shift] = []
        by_measure = sorted(began, key=lambda pair: (pair[1].measure, -pair[0]))
        for _measure, group in groupby(by_measure, key=lambda pair: pair[1].measure):
            shifts: Sequence[Shift] = [shift for _, shift in group]
            for one in shifts[:_TOLD]:
                self._levels[one.device, one.measure].told = True
                found.append(replace(one, devices=len(shifts)))
        return found
