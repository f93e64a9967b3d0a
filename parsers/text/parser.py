"""Parsers: lines in, events out, one line at a time, so that a file and a live tail are read alike.

    parser = PARSERS["kernel"].make(Context(node="gpu-017"))
    for event in parse(parser, ["<3>NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."]): ...

A parser is pure: no SQL, no HTTP, no clock. Its `Context` holds what a log does not say: year, zone, boot time.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Literal, Protocol, TypeAlias

from store.records.event import Event
from store.records.event_sources import Testimony, Trust

# What tells a line of interest from all the others, so that a log can be searched as a block of bytes.
#
# Almost every line of a kernel log says nothing. A format that names its signs lets `parsers/text/scan.py` pass over a
# line unread; what comes out is the same as if every line had been fed.

_Tree: TypeAlias = dict[str, "_Tree"]
# The letters of the kernel logs among our fixtures, the commonest first; those that are not here are common as well.
_RARE = " 0e:nitr,laodusc1p2m3fgk4-.75vhb_98y6}{wCTRPINM()EX=[]VSULG+ADFOWZ/><BHj'*qK;\\Yx#`!Q|@z$"
# Matches no line.
NEVER = r"(?!)"


@dataclass(frozen=True, slots=True)
class FormatSigns:
    """A format's signs.

    Attributes:
        literals: ASCII. A line without any of them gives nothing and changes nothing that a later line is read by.
        starts: lines that begin so belong with others, whatever they hold: a record of several lines, a time that
            counts from the line before. A pattern that RE2, Hyperscan and `re` read alike, without groups; "" for none.
            The line before such a line is read too.
        within: lines that may go on with what such a line began; they are read up to and with the first other line.
        most: so many of them at most.
    """

    literals: tuple[str, ...]
    starts: str = ""
    within: re.Pattern[str] = re.compile(NEVER)
    most: int = 2**31


def holds_any(literals: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds whether a text holds one of the literals, not where.

    It branches letter by letter: an alternation of two hundred literals would try each at each place, six times slower.
    A search tries every place with a letter that a literal begins with, and together they begin with nearly all. So it
    looks for each from its rarest letter on, and then whether the rest stands before that.
    """
    tree: _Tree = {}
    for literal in set(literals):
        node = tree
        for letter in literal[max(range(len(literal)), key=lambda place: _RARE.find(literal[place])) :]:
            node = node.setdefault(letter, {})
        node.setdefault("", {})[literal] = {}
    return re.compile(_branches(tree) if tree else NEVER)


def _branches(tree: _Tree) -> str:
    ends = tree.get("")
    if ends == {}:
        return ""
    ways = [f"(?<={re.escape(literal)})" for literal in ends or ()]
    ways += [re.escape(letter) + _branches(below) for letter, below in tree.items() if letter]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


# A longer line is cut here before it is read: no real log line is, and one may not stall a source.
MAX_LINE = 64 * 1024


Shape: TypeAlias = Literal["log", "table", "document", "page"]


class ParseError(ValueError):
    """A line that should have been readable and is not; the message says what is wrong and the remedy."""


# What a parser raises of a line; whatever else comes up through it (a limit of the caller's) goes on up.
UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def parse_error(error: Exception) -> ParseError:
    """What a parser says of a line; whatever else it raises is a defect of ours, which loses the line and no other."""
    if isinstance(error, ParseError):
        return error
    return ParseError(f"this program cannot read the line ({type(error).__name__}: {error}): please report it")


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
        trust: who can write it (`parsers/trust.py`); None for an operator's own file, which may say anything.
    """

    node: str | None = None
    year: int | None = None
    until: datetime | None = None
    zone: tzinfo = field(default=UTC)
    boot_time: datetime | None = None
    run: str | None = None
    trust: Trust | None = None


class Parser(Protocol):
    """One format's decoder. It may hold state across lines (an event that spans several).

    One that can tell whether a flush would give anything says so by `holds`, a bool; of others it is not known. One of
    which most lines say nothing may have `is_quiet(block)`: whether of some whole lines (bytes, with their ends, and
    without NUL) none need be fed but the last. It is asked while nothing is held back.
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
        testimony: what its events are worth as evidence of a fault; `store/records/event_sources.py` has the words.
        recognises: searched in a line; a match is a line that no other format has. Lines of a log that could be
            anyone's need none.
        reads: tells of a line that no format's pattern finds whether it is one of this format nevertheless: a message
            that was pasted without what stood before it. Of these, the first of the registry has the line.
        shape: `log`, lines among which others may stand; `table`, a header and its rows; `document`, JSON, one object
            a line or over many lines; `page`, a Prometheus exposition, whose events are telemetry.
        signs: which lines need not be fed at all; None where every line counts.
        loosely: finds a part of every line that `recognises` finds, in RE2's syntax; "" where RE2 reads that one.
    """

    name: str
    description: str
    sample: str
    make: Callable[[Context], Parser]
    testimony: Testimony
    recognises: re.Pattern[str]
    shape: Shape = "log"
    signs: FormatSigns | None = None
    reads: Callable[[str], bool] | None = None
    loosely: str = ""


def clean(raw: bytes) -> str:
    """A line as text: never fails. Cut at MAX_LINE, undecodable bytes replaced, NUL and the line end taken off."""
    return raw[:MAX_LINE].decode("utf-8", errors="replace").replace("\x00", "").rstrip("\r\n")


OnError = Callable[[int, ParseError], None]


def parse(
    parser: Parser, lines: Iterable[str | bytes], on_error: OnError | None = None, file: str | None = None
) -> Iterator[Event]:
    """Every event of the lines, in order. A broken line goes to `on_error` and is skipped."""
    texts = (clean(raw) if isinstance(raw, bytes) else raw for raw in lines)
    yield from decode(parser, enumerate(texts, start=1), on_error, file)


def decode(
    parser: Parser, numbered: Iterable[tuple[int, str]], on_error: OnError | None = None, file: str | None = None
) -> Iterator[Event]:
    """Every event of lines that bear their numbers; of those between, the format's signs tell that nothing is lost."""
    number = 0
    feed = parser.feed
    for number, text in numbered:
        try:
            found = feed(text, number)
        except UNREADABLE as error:
            if on_error is not None:
                on_error(number, parse_error(error))
            continue
        if not found:
            continue
        if isinstance(found, list):  # whole already: nothing more can go wrong
            yield from found if file is None else [replace(event, file=file) for event in found]
        else:
            yield from guarded(partial(iter, found), number, on_error, file)
    yield from guarded(parser.flush, number, on_error, file)


def guarded(
    step: Callable[[], Iterable[Event]], line: int, on_error: OnError | None, file: str | None = None
) -> Iterator[Event]:
    """The events of one step of a parser; an error goes to `on_error`, and what was given before it stays."""
    events: list[Event] = []
    try:
        for event in step():
            events.append(event)  # extend() does not promise to keep them
    except UNREADABLE as error:
        if on_error is not None:
            on_error(line, parse_error(error))
    for event in events:
        yield event if file is None else replace(event, file=file)
