"""The replay's clock."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cli.replay.clock import ReplayClock, read_clock, real_clock
from store.records.event import RecordError

START = datetime(2025, 3, 1, tzinfo=UTC)
EPOCH = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLOCK = ReplayClock(start=START, end=START + timedelta(days=2), epoch=EPOCH, speed=600.0)


def test_the_replay_begins_at_its_start() -> None:
    """At the epoch no replayed time has gone by."""
    assert CLOCK.at(EPOCH) == START


def test_a_second_is_as_many_seconds_as_the_speed_says() -> None:
    """600 times as fast: ten minutes a second."""
    assert CLOCK.at(EPOCH + timedelta(seconds=1)) == START + timedelta(minutes=10)


def test_before_the_epoch_the_clock_stands() -> None:
    """A process whose clock is a little behind does not go back before the start."""
    assert CLOCK.at(EPOCH - timedelta(seconds=5)) == START


def test_the_clock_stops_at_the_end() -> None:
    """The replay runs out of data there."""
    assert CLOCK.at(EPOCH + timedelta(days=1)) == START + timedelta(days=2)


def test_called_it_tells_the_moment() -> None:
    """It stands wherever a clock is asked for; this replay is long over."""
    assert ReplayClock(START, START, EPOCH, 1.0)() == START


def test_a_clock_survives_a_command_line() -> None:
    """Two processes hold the same clock."""
    assert read_clock(str(CLOCK)) == CLOCK
    again = replace(CLOCK, again_after_s=60.0)
    assert read_clock(str(again)) == again


def test_it_tells_when_the_replay_ends_and_begins_again() -> None:
    """By the clock on the wall: two days at 600 times the speed are 288 s."""
    assert (CLOCK.ends, CLOCK.again) == (EPOCH + timedelta(seconds=288), None)
    assert replace(CLOCK, again_after_s=60.0).again == EPOCH + timedelta(seconds=348)


@pytest.mark.parametrize(
    "text",
    ["", "a/b/c/d", *(f"2025-01-01/2025-01-02/2025-01-03{end}" for end in ("", "/x", "/0", "/1/x", "/1/2/3"))],
)
def test_what_is_no_clock_is_refused(text: str) -> None:
    """The message shows the form."""
    with pytest.raises(RecordError, match="START/END/EPOCH/SPEED"):
        read_clock(text)


def test_the_real_clock_is_aware() -> None:
    """A naive moment would be a bug anywhere."""
    assert real_clock().tzinfo is UTC
