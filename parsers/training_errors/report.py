"""What a line tells of an attempt's end, and what reads such lines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from store.event import Attribute

MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class Report:
    """What a line tells.

    Attributes:
        name: the error's name, `attributes.error` of the event.
        variant: of its kind in the table of kinds: it decides severity, cause and action.
        time: text of a time in the line, ISO 8601; `glog` where it is `MMDD clock` without a year.
        node: the host that the line names.
        apart: told apart from others of the same name by this.
        traceback: it is the last line of one.
    """

    name: str
    message: str
    kind: str = "training_error"
    variant: str = ""
    time: str | None = None
    glog: tuple[int, str, str] | None = None
    node: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    apart: str = ""
    traceback: bool = False

    def key(self) -> str:
        """Equal for the same error told by many ranks."""
        return f"{self.kind} {self.name} {self.variant} {self.apart}"

    def told(self, rank: int | None, local_rank: int | None) -> dict[str, Attribute]:
        """The event's attributes; the ranks are those of the line's prefix, where the line itself names none."""
        names = {"training_error": "error", "training_phase": "phase"}
        found: dict[str, Attribute] = {names[self.kind]: self.name} if self.kind in names else {}
        ranks = {"rank": rank, "local_rank": local_rank}
        return {**found, **{name: value for name, value in ranks.items() if value is not None}, **self.attributes}


@dataclass(frozen=True, slots=True)
class Reader:
    """A registry entry: `read` gets a line with one of the signs, without launcher prefix and time."""

    name: str
    signs: tuple[str, ...]
    read: Callable[[str], Report | None]


@dataclass(slots=True)
class Seen:
    """A report as it is held: when the log was there, and how many ranks told it."""

    report: Report
    time: datetime | None
    line: int
    repeats: int = 1


def numbers(found: Mapping[str, str | None]) -> dict[str, Attribute]:
    """The groups of a match as attributes: whole numbers where they are."""
    told: dict[str, Attribute] = {}
    for name, value in found.items():
        if value is not None:
            told[name] = int(value) if value.lstrip("-").isdecimal() and len(value) < 16 else value
    return told
