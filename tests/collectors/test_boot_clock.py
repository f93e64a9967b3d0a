"""Kernel stamps to Unix time."""

import orjson
import pytest

from collectors.sources.kmsg import BootClock, ClockReading

S = 1_000_000
WALL, MONOTONIC = 1_740_800_000 * S, 1000 * S
START = ClockReading(WALL, MONOTONIC)


def later(seconds: float, step_s: float = 0.0) -> ClockReading:
    """The clocks some time on, the wall clock stepped meanwhile."""
    return ClockReading(WALL + int((seconds + step_s) * S), MONOTONIC + int(seconds * S))


def test_a_stamp_counts_from_boot() -> None:
    """Estimated by the clocks at the start."""
    assert BootClock(START).moment_us(5, 1000 * S) == WALL


def test_small_corrections_of_the_clock_change_nothing() -> None:
    """NTP's steering moves it by milliseconds: times that jitter are worse."""
    clock = BootClock(START)
    assert not clock.look(10, later(60, 0.9))
    assert clock.moment_us(10, 1060 * S) == WALL + 60 * S


@pytest.mark.parametrize("step_s", [-7200.0, 3.0, 86400.0])
def test_a_step_counts_for_new_records_and_old_ones_keep_their_times(step_s: float) -> None:
    """Also after a restart, from the saved state."""
    clock = BootClock(START)
    assert clock.look(10, later(60, step_s))
    assert not clock.look(11, later(61, step_s)), "once"
    state = orjson.loads(orjson.dumps(clock.state()))
    for one in (clock, BootClock.restored(state, 20, later(90, step_s))):
        assert one.moment_us(9, 1050 * S) == WALL + 50 * S
        assert one.moment_us(10, 1060 * S) == WALL + int((60 + step_s) * S)


def test_a_step_while_nobody_read_counts_from_the_next_record_on() -> None:
    """Which of the records between were before it is not known."""
    clock = BootClock.restored(BootClock(START).state(), 7, later(600, 3600))
    assert clock.moment_us(6, 1010 * S) == WALL + 10 * S
    assert clock.moment_us(7, 1600 * S) == WALL + (600 + 3600) * S


def test_two_records_in_a_row_correct_a_drift_and_one_does_not() -> None:
    """The kernel's clock runs slow: after 100 days it is 80 s behind. One late reader is no drift."""
    days = 100 * 86400
    clock = BootClock(START)
    assert not clock.hear(10, (1000 + days - 80) * S, later(days))
    assert clock.hear(11, (1000 + days + 10 - 80) * S, later(days + 10))
    assert clock.moment_us(11, (1000 + days + 10 - 80) * S) == WALL + (days + 10) * S
    assert clock.moment_us(10, (1000 + days - 80) * S) == WALL + (days - 80) * S
    late = BootClock(START)
    assert not late.hear(10, 1010 * S, later(40))
    assert not late.hear(11, 1050 * S, later(50))
    assert not late.hear(12, 1060 * S, later(90)), "late again, but by another time"
    assert late.moment_us(12, 1060 * S) == WALL + 60 * S


def test_only_the_last_steps_are_remembered() -> None:
    """A clock that is stepped for ever fills no memory."""
    clock = BootClock(START)
    for number in range(1, 50):
        clock.look(number * 10, later(number, number * 5))
    assert len(clock.state()["estimates"]) == 8
    assert clock.moment_us(490, (1000 + 49) * S) == WALL + (49 + 245) * S
