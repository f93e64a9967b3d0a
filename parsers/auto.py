"""Which format a log is of, by what its lines say; and logs in which lines of several formats stand together.

detect(["Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP"]) -> "opensm"
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from parsers.parser import ParseError, Parser
from parsers.registry import PARSERS
from store.event import Event

# How many lines to look at: a training log opens with some 1,500 lines of settings.
SAMPLE_LINES = 4000
# What a log of several formats is called; `make_parser` knows it.
MIXED = "mixed"


def detect(sample_lines: Sequence[str]) -> str | None:
    """The name of the format that the lines speak for, MIXED where they speak for several; None for none."""
    hits: Counter[str] = Counter()
    in_document = False
    for text in sample_lines:
        name = recognise(text)
        if name is None:
            continue
        if PARSERS[name].shape == "document":
            in_document = True
        elif in_document and text[:1].isspace():  # a kernel message, say, that the document quotes
            continue
        if PARSERS[name].shape == "table":  # its rows are of no form that could be told
            return name
        hits[name] += 1
    if len(hits) > 1:
        return MIXED
    return next(iter(hits), None)


def recognise(text: str) -> str | None:
    """The format that a line speaks for, the first of the registry that recognises it; None where none does."""
    return next((name for name, entry in PARSERS.items() if entry.recognises.search(text)), None)


class MixedParser:
    """Hands each line to the format that it speaks for.

    A line that speaks for none may be more of any record before it: every format met so far is shown it.
    """

    def __init__(self, make: Callable[[str], Parser]) -> None:
        """`make` gives the parser of a format's name."""
        self._make = make
        self._parsers: dict[str, Parser] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line.

        Raises:
            ParseError: the line is broken to all that were shown it.
        """
        name = recognise(text)
        if name is not None:
            if name not in self._parsers:
                self._parsers[name] = self._make(name)
            return self._parsers[name].feed(text, line)
        return _all([partial(parser.feed, text, line) for parser in self._parsers.values()])

    def flush(self) -> Iterable[Event]:
        """What the formats held back."""
        return _all([parser.flush for parser in self._parsers.values()])


def _all(steps: Sequence[Callable[[], Iterable[Event]]]) -> list[Event]:
    """The events of every step; an error only where there is nothing else."""
    found: list[Event] = []
    broken: ParseError | None = None
    for step in steps:
        try:
            for event in step():
                found.append(event)  # extend() does not promise to keep them
        except ParseError as error:
            broken = broken or error
    if broken is not None and not found:
        raise broken
    return found
