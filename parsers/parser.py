"""What every parser is: lines in, events out, one line at a time, so that a file and a live tail are the same.

    parser = PARSERS["kernel"].make(Context(node="gpu-017"))
    for event in parse(parser, ["<3>NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."]): ...

A parser is pure: no SQL, no HTTP, no clock. What it must be told (year, zone, boot time) is in its `Context`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Literal, Protocol, TypeAlias

from parsers.signs import Signs
from store.event import Event

# A longer line is cut here before it is read: no real log line is, and one may not stall a source.
MAX_LINE = 64 * 1024


Shape: TypeAlias = Literal["log", "table", "document", "page"]


class ParseError(ValueError):
    """A line that should have been readable and is not; the message says what is wrong and the remedy."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a log does not say of itself.

    Attributes:
        node: the host, where lines do not name it.
        year: the year of timestamps without one (RFC 3164, opensm); a month that lies ahead of `until` is last year's.
        until: the newest moment that the log can speak of (its file's modification time).
        zone: the zone of timestamps without one.
        boot_time: when the host booted, for timestamps in seconds since boot.
        run: the training run, for a training log.
    """

    node: str | None = None
    year: int | None = None
    until: datetime | None = None
    zone: tzinfo = field(default=UTC)
    boot_time: datetime | None = None
    run: str | None = None


class Parser(Protocol):
    """One format's decoder. It may hold state across lines (an event that spans several).

    One that can tell whether a flush would give anything says so by `holds`, a bool; of others it is not known.
    """

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """Decode one line, without its end; `line` is its 1-based number.

        Raises:
            ParseError: the line is of this format but broken. The parser stays usable.
        """

    def flush(self) -> Iterable[Event]:
        """What is still held back: called at the end of the input, and when a live source has been quiet."""


@dataclass(frozen=True, slots=True)
class Format:
    """A registry entry.

    Attributes:
        name: the word that users write.
        description: what it is, in half a line.
        sample: one real line of it (of a table its header).
        make: the parser.
        recognises: searched in a line; a match is a line that no other format has. Lines of a log that could be
            anyone's need none.
        shape: `log`, lines among which others may stand; `table`, a header and its rows; `document`, JSON, one object
            a line or over many lines; `page`, a Prometheus exposition, whose events are telemetry.
        signs: which lines need not be fed at all; None where every line counts.
    """

    name: str
    description: str
    sample: str
    make: Callable[[Context], Parser]
    recognises: re.Pattern[str]
    shape: Shape = "log"
    signs: Signs | None = None


def clean(raw: bytes) -> str:
    """A line as text: never fails. Cut at MAX_LINE, undecodable bytes replaced, NUL and the line end taken off."""
    return raw[:MAX_LINE].decode("utf-8", errors="replace").replace("\x00", "").rstrip("\r\n")


OnError = Callable[[int, ParseError], None]


def parse(
    parser: Parser, lines: Iterable[str | bytes], on_error: OnError | None = None, file: str | None = None
) -> Iterator[Event]:
    """Every event of the lines, in order. A broken line is told to `on_error` and skipped."""
    texts = (clean(raw) if isinstance(raw, bytes) else raw for raw in lines)
    yield from decode(parser, enumerate(texts, start=1), on_error, file)


def decode(
    parser: Parser, numbered: Iterable[tuple[int, str]], on_error: OnError | None = None, file: str | None = None
) -> Iterator[Event]:
    """Every event of lines that bear their numbers; of those between, the format's signs tell that nothing is lost."""
    number = 0
    for number, text in numbered:
        yield from guarded(partial(parser.feed, text, number), number, on_error, file)
    yield from guarded(parser.flush, number, on_error, file)


def guarded(
    step: Callable[[], Iterable[Event]], line: int, on_error: OnError | None, file: str | None = None
) -> Iterator[Event]:
    """The events of one step of a parser; a ParseError goes to `on_error`, and what was given before it stays."""
    events: list[Event] = []
    try:
        for event in step():
            events.append(event)  # extend() does not promise to keep them
    except ParseError as error:
        if on_error is not None:
            on_error(line, error)
    for event in events:
        yield event if file is None else replace(event, file=file)
