"""A parser behind a live source: errors counted, events numbered, what it holds back survives a restart.

A parser may hold an event back until its next line. What it held when the sidecar died is found again by feeding it
the lines before the saved position once more and throwing away what comes out: `rehearse`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from parsers.parser import ParseError, Parser
from store.event import Event, event_id


class Decoder:
    """Lines in, events with ids out. `origin` tells a line number's place in the world, the same after a restart."""

    def __init__(self, parser: Parser, origin: Callable[[int], str], file: str | None = None) -> None:
        self._parser = parser
        self._origin = origin
        self._file = file
        self._events: list[Event] = []
        self._line = 0
        self.errors = 0
        self.flushed_line = 0  # the parser holds nothing back of the lines up to here

    def feed(self, text: str, line: int) -> None:
        """Decode one line; a broken one is counted and skipped."""
        self._line = line
        try:
            self._take(self._parser.feed(text, line))
        except ParseError:
            self.errors += 1
        if not getattr(self._parser, "holds", True):
            self.flushed_line = line

    def flush(self) -> None:
        """The source is quiet: nothing more belongs to what is held back."""
        if not self.holding:
            return
        self.flushed_line = self._line
        try:
            self._take(self._parser.flush())
        except ParseError:
            self.errors += 1

    @property
    def holding(self) -> bool:
        """Whether the parser may hold something back of the lines that were fed since the last flush."""
        return self._line > self.flushed_line

    def rehearse(self, lines: Sequence[tuple[int, str]], flushed_line: int) -> None:
        """Feed lines that were decoded before; `flushed_line` is the one after which the parser was last flushed."""
        for line, text in lines:
            if self._line <= flushed_line < line:
                self.flush()
            self.feed(text, line)
        if self._line <= flushed_line:
            self.flush()
        self.flushed_line = flushed_line
        self._events.clear()
        self.errors = 0

    def take(self) -> tuple[Event, ...]:
        """The events decoded since the last call."""
        taken = tuple(self._events)
        self._events.clear()
        return taken

    def take_errors(self) -> int:
        """The broken lines since the last call."""
        errors, self.errors = self.errors, 0
        return errors

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            placed = event if self._file is None else replace(event, file=self._file)
            origin = self._origin(self._line if event.line is None else event.line)
            self._events.append(number(placed, origin))


def number(event: Event, origin: str) -> Event:
    """The event with an id from its origin.

    The time is no part of it where the origin is: an estimate of the boot time may differ after a restart.
    """
    return replace(event, id=event_id(replace(event, time=None) if origin else event, origin))
