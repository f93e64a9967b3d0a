"""A parser behind a live source."""

from collections.abc import Iterable

from collectors.decoder import Decoder, number
from parsers.text.parser import ParseError
from store.records.event import Event


class PairParser:
    """Joins a line `begin X` with the line after it; holds it back until then. `broken` is an error."""

    def __init__(self) -> None:
        self.held: tuple[str, int] | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """One line."""
        if text == "broken":
            raise ParseError("broken")
        if text.startswith("begin"):
            self.held = (text, line)
            return []
        if self.held is not None:
            (first, number_of), self.held = self.held, None
            return [event_of(f"{first} {text}", number_of)]
        return [event_of(text, line)]

    def flush(self) -> Iterable[Event]:
        """What is held."""
        if self.held is None:
            return []
        (first, number_of), self.held = self.held, None
        return [event_of(first, number_of)]


def event_of(message: str, line: int | None = None) -> Event:
    """A small event."""
    return Event(time=None, node="n1", source="test", kind="test", message=message, line=line)


def decoder() -> Decoder:
    """A decoder whose origins are the line numbers."""
    return Decoder(PairParser(), lambda line: f"here:{line}", file="log")


def test_events_get_ids_from_the_line_that_began_them() -> None:
    """Two equal lines are two events; what spans two lines has the first one's place."""
    one = decoder()
    for line, text in enumerate(["same", "same", "begin", "end"], start=1):
        one.feed(text, line)
    events = one.take()
    assert [event.message for event in events] == ["same", "same", "begin end"]
    assert len({event.id for event in events}) == 3
    assert events[2].id == number(event_of("begin end"), "here:3").id
    assert {event.file for event in events} == {"log"}
    assert one.take() == ()


def test_a_broken_line_is_counted_and_stops_nothing() -> None:
    """The count is taken once."""
    one = decoder()
    one.feed("broken", 1)
    one.feed("good", 2)
    assert [event.message for event in one.take()] == ["good"]
    assert (one.take_errors(), one.take_errors()) == (1, 0)


def test_quiet_gives_what_was_held_back_once() -> None:
    """A second flush gives nothing."""
    one = decoder()
    one.feed("begin", 1)
    assert one.holding
    one.flush()
    one.flush()
    assert [event.message for event in one.take()] == ["begin"]
    assert not one.holding
    assert one.flushed_line == 1


def test_what_was_held_at_a_crash_is_found_again() -> None:
    """The lines before the position are shown once more, in silence, and the next line completes the event."""
    after = decoder()
    after.rehearse([(1, "old"), (2, "broken"), (3, "begin")], flushed_line=0)
    assert after.take() == ()
    assert after.take_errors() == 0
    after.feed("end", 4)
    assert [event.message for event in after.take()] == ["begin end"]


def test_what_was_flushed_before_a_crash_is_not_sent_again() -> None:
    """The flush is rehearsed too: after the last line, and between two."""
    after = decoder()
    after.rehearse([(1, "begin a")], flushed_line=1)
    after.feed("end", 2)
    assert [event.message for event in after.take()] == ["end"]
    after = decoder()
    after.rehearse([(1, "begin a"), (2, "begin b")], flushed_line=1)
    after.feed("end", 3)
    assert [event.message for event in after.take()] == ["begin b end"]


def test_an_id_does_not_depend_on_an_estimated_time_where_the_origin_is_known() -> None:
    """The boot time is estimated anew at each start; the same record must keep its id."""
    from dataclasses import replace
    from datetime import UTC, datetime

    first = event_of("x")
    second = replace(first, time=datetime(2025, 3, 1, tzinfo=UTC))
    assert number(first, "boot:1").id == number(second, "boot:1").id
    assert number(first, "").id != number(second, "").id


class TellingParser(PairParser):
    """As the other, and says whether it holds anything."""

    @property
    def holds(self) -> bool:
        """Whether a line waits for its second."""
        return self.held is not None


def test_a_parser_that_says_so_holds_nothing_back_after_most_lines() -> None:
    """Then nobody need wait for silence to flush it; a broken line changes nothing of that."""
    one = Decoder(TellingParser(), lambda line: f"here:{line}")
    for line, (text, holding) in enumerate((("quiet", False), ("begin", True), ("broken", True), ("end", False)), 1):
        one.feed(text, line)
        assert one.holding is holding
        assert one.flushed_line == (1 if holding else line)
    assert [event.message for event in one.take()] == ["quiet", "begin end"]


def test_what_such_a_parser_held_at_a_crash_is_found_again() -> None:
    """The line after which it held nothing is where it is shown them from."""
    after = Decoder(TellingParser(), lambda line: f"here:{line}")
    after.rehearse([(1, "quiet"), (2, "begin")], flushed_line=1)
    assert after.holding
    after.feed("end", 3)
    assert [event.message for event in after.take()] == ["begin end"]
