"""A defect of a parser loses the line that it cannot read, and nothing beside it."""

from collections.abc import Iterable
from functools import partial

import pytest

from collectors.decoder import Decoder
from parsers.text.parser import ParseError, guarded, parse
from store.records.event import Event

LINES = ["good", "KeyError", "good", "late", "good"]
TOLD = "this program cannot read the line (KeyError: 'speed'): please report it"


class Defective:
    """Reads all lines but those that say what to raise."""

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """An event a line."""
        if text == "KeyError":
            raise KeyError("speed")
        return self._late(line) if text == "late" else [self._event(line)]

    def flush(self) -> Iterable[Event]:
        """Fails, too."""
        raise OverflowError("too large")

    def _late(self, line: int) -> Iterable[Event]:
        yield self._event(line)
        raise KeyError("speed")

    def _event(self, line: int) -> Event:
        return Event(None, "gpu-001", "kernel", "xid", line=line)


def test_the_lines_beside_it_are_read() -> None:
    """What it had given of a line stays; the error has the line's number and says that it is ours."""
    errors: list[tuple[int, ParseError]] = []
    events = list(parse(Defective(), LINES, lambda line, error: errors.append((line, error))))
    assert [event.line for event in events] == [1, 3, 4, 5]
    assert [line for line, _ in errors] == [2, 4, 5]
    assert [str(error) for _, error in errors[:2]] == [TOLD, TOLD]


def test_a_sidecar_goes_on() -> None:
    """It counts them."""
    decoder = Decoder(Defective(), lambda line: f"log:{line}")
    for line, text in enumerate(LINES, start=1):
        decoder.feed(text, line)
    decoder.flush()
    assert [event.line for event in decoder.take()] == [1, 3, 4, 5]
    assert decoder.errors == 3


def test_a_server_stops_for_what_is_no_error_of_a_line() -> None:
    """A limit of the caller's, an interrupt."""

    class SpentError(Exception):
        """A budget of processor time."""

    def ended(by: BaseException) -> Iterable[Event]:
        raise by

    for error in (SpentError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            list(guarded(partial(ended, error), 1, None))
