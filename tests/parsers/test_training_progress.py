"""What an iteration line covers, and how long each iteration took."""

from datetime import UTC, datetime, timedelta

from parsers.trainers.progress import Progress

MOMENT = datetime(2025, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment."""
    return MOMENT + timedelta(seconds=seconds)


def test_two_times_tell_how_long_each_iteration_took() -> None:
    """Nothing for the first line, nor where the clock ran backwards."""
    progress = Progress()
    assert progress.advance(10, at(0)) == (1, None)
    assert progress.advance(20, at(40)) == (10, 4000.0)
    assert progress.advance(30, at(30)) == (10, None)


def test_a_line_without_a_time_breaks_the_measure() -> None:
    """The line after it has nothing to be measured from."""
    progress = Progress()
    progress.advance(10, at(0))
    assert progress.advance(20, None) == (10, None)
    assert progress.advance(30, at(90)) == (10, None)
    assert progress.advance(40, at(100)) == (10, 1000.0)


def test_a_bar_and_a_clock_are_not_subtracted() -> None:
    """One counts from the start of the bar, the other from 1970."""
    progress = Progress()
    progress.bar_s = 20.0
    progress.advance(10, None)
    assert progress.advance(20, at(90)) == (10, None)


def test_iterations_that_go_back_have_no_time() -> None:
    """The program started anew between the lines."""
    progress = Progress()
    progress.advance(20, at(0))
    assert progress.advance(10, at(60)) == (1, None)


def test_a_restart_forgets_the_bar() -> None:
    """A loss line before the new bar takes no step from the old one."""
    progress = Progress()
    progress.bar, progress.bar_s = 500, 90.0
    progress.restart()
    assert progress.step_of(0.5) is None
    progress.total, progress.epochs = 1000, 1
    assert progress.step_of(0.5) == 500


def test_another_trainers_lines_are_counted_anew() -> None:
    """What the first one told was the same iterations."""
    progress = Progress()
    progress.advance(10, at(0))
    progress.advance(20, at(10))
    progress.forget()
    assert progress.advance(20, at(11)) == (1, None)
