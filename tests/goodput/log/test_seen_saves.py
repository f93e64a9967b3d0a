"""Saves that a directory shows, put into the log that does not tell them."""

import pytest

from goodput.log.sources import DirectorySave, directory_saves, with_saves
from goodput.log.training_log import TrainingLine


def work(*times: float) -> list[TrainingLine]:
    """Iterations 10, 20 ... at these seconds, ten of a second each."""
    return [TrainingLine("iteration", round(at * 1000), 10 * n, 10, 10_000.0) for n, at in enumerate(times, start=1)]


def seen(iteration: int, begin: float, end: float, finished: bool = True) -> DirectorySave:
    """A save of a directory."""
    return DirectorySave(iteration, round(begin * 1000), round(end * 1000), finished)


def added(log: list[TrainingLine], *saves: DirectorySave) -> list[tuple[int, TrainingLine]]:
    """What was put in, and behind how many lines."""
    found = with_saves(log, saves)
    return [(place, line) for place, line in enumerate(found) if line not in log]


def test_a_save_between_two_lines_stalled_since_the_first() -> None:
    """Its first file may come late: the gap in the iterations tells when it began."""
    assert added(work(10, 25, 35), seen(10, 13, 14.5)) == [
        (1, TrainingLine("checkpoint_save", 14_500, 10, duration_ms=4_500))
    ]


def test_a_save_while_iterations_went_on_stalled_no_one() -> None:
    """It keeps what its name says, once its last file is written."""
    assert added(work(10, 20, 30, 40), seen(20, 21, 33)) == [
        (3, TrainingLine("checkpoint_save", 33_000, 20, background=True))
    ]


def test_lines_without_a_length_tell_too_that_iterations_went_on() -> None:
    """Old releases print the time alone."""
    log = [TrainingLine("iteration", at * 1000, n, 10, None) for at, n in ((10, 10), (20, 20), (30, 30), (40, 40))]
    assert added(log, seen(20, 21, 33)) == [(3, TrainingLine("checkpoint_save", 33_000, 20, background=True))]


def test_a_save_that_the_log_tells_is_not_told_again() -> None:
    """By its iteration, or where the log tells none by its time."""
    for told in (TrainingLine("checkpoint_save", 99_000, 10), TrainingLine("checkpoint_save", 14_000)):
        assert added([*work(10), told, *work(25)[:0]], seen(10, 11, 14)) == []
    assert added([*work(10), TrainingLine("checkpoint_save", 30_000)], seen(10, 11, 14)) != []


def test_an_unfinished_save_keeps_nothing() -> None:
    """It is a beginning, unless the log tells that too."""
    assert added(work(10, 20), seen(20, 21, 25, finished=False)) == [
        (2, TrainingLine("checkpoint_save_start", 21_000, 20))
    ]
    begun = [*work(10, 20), TrainingLine("checkpoint_save_start", 20_000, 20)]
    assert added(begun, seen(20, 21, 25, finished=False)) == []


def test_in_a_log_without_times_a_save_stands_behind_its_iteration() -> None:
    """Nothing else tells where."""
    log = [TrainingLine("iteration", None, n, 10, 1.0) for n in (10, 20, 30)]
    assert [place for place, _ in added(log, seen(20, 1, 2))] == [2]


def test_saves_alone_tell_the_iterations_between_them() -> None:
    """Of one job; of a job's first save it is not known since when."""
    found = with_saves([], [seen(100, 50, 52), seen(200, 152, 155), seen(300, 450, 451)], starts_ms=[0, 300_000])
    assert [(line.kind, line.time_ms, line.iterations, line.span_ms) for line in found] == [
        ("training_start", 0, 1, None),
        ("iteration", 50_000, 1, None),
        ("checkpoint_save", 52_000, 1, None),
        ("iteration", 152_000, 100, 100_000.0),
        ("checkpoint_save", 155_000, 1, None),
        ("training_start", 300_000, 1, None),
        ("iteration", 450_000, 100, None),
        ("checkpoint_save", 451_000, 1, None),
    ]


def test_a_save_seen_begun_and_then_whole_is_one() -> None:
    """The sidecar tells both; another of the same iteration, after a restart, is another."""
    lines = [
        TrainingLine("checkpoint_save_start", 10_000, 5),
        TrainingLine("checkpoint_save", 14_001, 5, duration_ms=4_000),
        TrainingLine("checkpoint_save_start", 900_000, 5),
        TrainingLine("checkpoint_save", None, 6),
        TrainingLine("checkpoint_save", 1_000, None),
    ]
    assert directory_saves(lines) == [DirectorySave(5, 10_001, 14_001, True), DirectorySave(5, 900_000, 900_000, False)]


@pytest.mark.parametrize("log", [[], work(10)])
def test_without_saves_nothing_changes(log: list[TrainingLine]) -> None:
    """The log as it is."""
    assert with_saves(log, [], starts_ms=[0]) == log


def test_many_saves_lie_each_where_it_ended_whatever_the_order_of_the_lines() -> None:
    """A line that was printed late does not draw the saves before it along; a save that began lies where it began."""
    log = work(10, 20, 50, 40, 60)
    saves = [seen(1_000, 10, 12), seen(3_000, 22, 45), seen(2_000, 21, 46, finished=False), seen(4_000, 60, 70)]
    assert [(place, line.iteration) for place, line in added(log, *saves)] == [
        (1, 1_000), (3, 2_000), (6, 3_000), (8, 4_000),
    ]  # fmt: skip


def test_a_save_without_a_name_is_told_only_at_its_time() -> None:
    """The nearest one that the log tells: two seconds either way, as clocks differ."""
    log = [*work(10, 20), TrainingLine("checkpoint_save", 24_000), TrainingLine("checkpoint_save", 90_000)]
    for save, told in ((seen(20, 26, 27), True), (seen(20, 26.1, 27), False), (seen(20, 20, 22), True)):
        assert (added(log, save) == []) is told
