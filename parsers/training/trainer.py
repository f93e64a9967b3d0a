"""Trainers: each training program as a table of patterns, each with what a line of that form reports.

Named groups of a pattern are numbers of the event: `iteration`, `total`, `duration_ms` ... `seconds` becomes
`duration_ms`, as `only_ms` does; `next` is the iteration after the one meant. What the group `fields` holds is read by
the trainer's own `pair` pattern and its table of names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, TypeAlias

from store.records.event import Attribute

What: TypeAlias = Literal[
    "spoke",  # a line that only this trainer prints
    "interval",  # iterations between two lines
    "initialized",  # an attempt has begun
    "phase",  # a step of its startup
    "start",  # the first iteration begins
    "iteration",
    "bar",  # a progress bar: where the next line without a step is
    "plan",  # how many steps and epochs there will be
    "argument",  # a figure of the model's shape
    "arguments",  # all arguments are printed
    "fresh",  # no checkpoint is loaded
    "loading",
    "loaded",
    "load_timer",
    "saving",
    "scheduled",  # a save goes on in the background
    "background",  # all saves will
    "saved",
    "pausing",  # a save begins that work waits for: the next iteration shows that it is done
    "handed",  # another process has taken the save over, and tells its end
    "save_timer",
    "speed",  # samples a second at a count of its own
    "evaluate_timer",
    "data_timer",  # what an iteration waited for data
    "evaluated",
    "end",
]
# Groups that are whole numbers.
_WHOLE = frozenset({"iteration", "total", "interval", "next", "epochs", "batch", "layers", "seq", "hidden"})
# Numbers that no healthy iteration has. A gradient beyond the range of half precision is one: its step is skipped.
_BROKEN: Mapping[str, tuple[str, ...]] = {"loss": ("nan", "inf", "infinity"), "grad_norm": ("nan",)}
# A count beyond this is a broken number.
MAX_COUNT = 2**53


@dataclass(frozen=True, slots=True)
class LineRule:
    """One form of line. `also` = others may stand in the same line."""

    what: What
    pattern: re.Pattern[str]
    also: bool = False


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """What a line told: its numbers, its words (`phase`), and its time as text where it is in the line's middle.

    `cut`: the line ends before what it needs.
    """

    what: What
    numbers: Mapping[str, Attribute]
    words: str = ""
    time: str | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Trainer:
    """A registry entry.

    Attributes:
        name: the file's name.
        signs: a line without any of these is none of its lines.
        rules: tried in this order, the first that fits has the line.
        pair: one name and value of an iteration line (groups `name`, `value`).
        names: what a printed name is as an attribute, and what its number is multiplied by (0: a whole number).
        needs: the attribute without which an iteration line that does not end as they do (`|`) is cut short.
        waits: its iteration lines are reported too by a trainer built upon it: they are held for one line.
        once: every rank may print the same line.
        ends: it tells when a save is done; if not, what it is built upon does.
    """

    name: str
    signs: tuple[str, ...]
    rules: tuple[LineRule, ...]
    pair: re.Pattern[str] | None = None
    names: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    needs: str | None = None
    waits: bool = False
    once: bool = True
    ends: bool = True

    def reports(self, text: str) -> Iterator[TrainerReport]:
        """What a line tells; nothing where it is none of this trainer's."""
        if not any(sign in text for sign in self.signs):
            return
        for rule in self.rules:
            if match := rule.pattern.search(text):
                yield self._report(rule.what, match)
                if not rule.also:
                    return

    def _report(self, what: What, match: re.Match[str]) -> TrainerReport:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        numbers: dict[str, Attribute] = {}
        for name, value in found.items():
            if name in _WHOLE:
                numbers[name] = int(value.replace(",", ""))
            elif name not in ("fields", "phase", "time", "done") and (number := number_of(value)) is not None:
                numbers[name] = number
        if (done := found.get("epochs_done")) and isinstance(count := numbers.get("total"), int):
            numbers.pop("epochs_done")
            numbers["iteration"] = int(done) * count + int(found["iteration"])
        if isinstance(after := numbers.pop("next", None), int):
            numbers["iteration"] = after - 1
        if isinstance(seconds := numbers.pop("seconds", None), float):
            numbers["duration_ms"] = round(seconds * 1000, 3)
        if (only := numbers.pop("only_ms", None)) is not None:
            numbers["duration_ms"] = only
        fields = found.get("fields", "")
        numbers.update(self.fields(fields))
        cut = what == "iteration" and self.needs is not None and self.needs not in numbers
        cut = cut and not fields.rstrip().endswith("|")
        return TrainerReport(what, numbers, found.get("phase", ""), found.get("time"), cut)

    def fields(self, text: str) -> dict[str, Attribute]:
        """The known numbers of an iteration line; one that is no number (a NaN loss) is left out, and told as `nan`."""
        values: dict[str, Attribute] = {}
        broken = False
        if self.pair is None or not text:
            return values
        for match in self.pair.finditer(text):
            if known := self.names.get(match["name"].strip()):
                name, factor = known
                number = number_of(match["value"].replace(",", ""))
                if number is not None and (factor or abs(number) < MAX_COUNT):
                    values[name] = int(number) if factor == 0 else round(number * factor, 6)
                elif match["value"].strip().lower().lstrip("+-") in _BROKEN.get(name, ()):
                    broken = True
        if broken and not values.get("nan"):
            values["nan"] = 1
        return values


def number_of(text: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
