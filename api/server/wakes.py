"""What wakes the loops of the hints: grave faults wake the policy, its decisions and people's words the schedulers.

Who makes news in this process sets the event at once. What was made in another process (a fold beside `--processes`, a
person on the command line) moves a mark in the database; the process that acts reads the marks every `WATCH_S`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Event

import sqlalchemy as sa

from store.database.coordination import FAULTS, HINTS, read_marks

# One read of a table of two rows each time.
WATCH_S = 0.25


@dataclass(frozen=True, slots=True)
class Wakes:
    """The events of one server."""

    policy: Event = field(default_factory=Event)
    grave: Event = field(default_factory=Event)  # beside `policy`: it is for faults that a hint is likely made of
    dispatch: Event = field(default_factory=Event)
    verdicts: Event = field(default_factory=Event)  # events came in that a verdict may come of
    stream: Event = field(default_factory=Event)  # verdicts have changed
    actuators: dict[str, Event] = field(default_factory=dict)

    def actuator(self, name: str) -> Event:
        """The event of one scheduler."""
        return self.actuators.setdefault(name, Event())

    def fault(self) -> None:
        """There is a grave fault that the policy has not seen."""
        self.grave.set()
        self.policy.set()

    def changed_verdicts(self) -> None:
        """Verdicts have changed: who listens is told, and receivers are sent what they are owed."""
        self.stream.set()
        self.dispatch.set()

    def hints(self) -> None:
        """The orders for schedulers have changed."""
        for event in (self.dispatch, *self.actuators.values()):
            event.set()


class MarkWatch:
    """Turns moved marks into events; `served` tells it which news somebody has looked at already."""

    def __init__(self, engine: sa.Engine, wakes: Wakes) -> None:
        self._engine = engine
        self._wakes = wakes
        self._seen: Mapping[str, int] | None = None

    def turn(self) -> None:
        """Look for news since the last time; at the first time none is: every loop begins with a turn."""
        with self._engine.connect() as connection:
            marks = read_marks(connection)
        before, self._seen = self._seen, marks
        if before is None:
            return
        moved = {name for name, number in marks.items() if number != before.get(name)}
        if FAULTS in moved:
            self._wakes.fault()
        if HINTS in moved:
            self._wakes.policy.set()
            self._wakes.hints()

    def served(self, names: Iterable[str]) -> None:
        """Who is about to look at all there is calls this first, and is not woken for it again."""
        if self._seen is None:
            return
        with self._engine.connect() as connection:
            marks = read_marks(connection)
        self._seen = {**self._seen, **{name: marks[name] for name in names if name in marks}}
