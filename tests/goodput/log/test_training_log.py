"""Training lines: impossible figures, and where the program started anew."""

from dataclasses import replace

import pytest

from goodput.log.median import median
from goodput.log.training_log import (
    Session,
    TrainingLine,
    line_of,
    lines_of,
    pace_of,
    sessions,
    with_reported_ends,
)
from store.records.event import Attribute, Event


def iteration(number: int | None, time_ms: int | None = None) -> TrainingLine:
    """One iteration line of ten seconds."""
    return TrainingLine("iteration", time_ms, number, 1, 10_000.0)


def cut(*lines: TrainingLine) -> list[list[int | None]]:
    """The iterations of each session."""
    return [[line.iteration for line in session.lines] for session in sessions(lines)]


@pytest.mark.parametrize(
    ("told", "span", "count"),
    [
        ({"iterations": 50, "elapsed_ms": 8000.0}, 400_000.0, 50),
        ({"elapsed_ms": 8000}, 8000.0, 1),
        ({"iterations": 0, "elapsed_ms": 8000}, 8000.0, 1),
        ({"iterations": 10**9, "elapsed_ms": 1000.0}, None, 10**9),
        ({"elapsed_ms": float("nan")}, None, 1),
        ({"elapsed_ms": -1.0}, None, 1),
        ({"elapsed_ms": True}, None, 1),
        ({"elapsed_ms": "fast"}, None, 1),
        ({}, None, 1),
    ],
)
def test_impossible_figures_are_unknown(told: dict[str, Attribute], span: float | None, count: int) -> None:
    """A span of years, no number, less than nothing."""
    line = line_of("iteration", 0, told)
    assert (line.span_ms, line.iterations) == (span, count)


def test_a_line_knows_when_its_iterations_began() -> None:
    """Its time less what it covers; unknown without either."""
    assert iteration(1, 15_000).begin_ms == 5000
    assert iteration(1).begin_ms is None
    assert TrainingLine("iteration", 15_000).begin_ms is None


def test_iterations_that_go_back_begin_a_session() -> None:
    """The program loaded an older checkpoint."""
    assert cut(iteration(1), iteration(2), iteration(1), iteration(2)) == [[1, 2], [1, 2]]
    assert cut(iteration(1, 1000), iteration(2, 2000), iteration(1, 3000)) == [[1, 2], [1]]


def test_a_line_printed_twice_counts_once() -> None:
    """Two ranks, or a log that was read twice."""
    assert cut(iteration(1, 1000), iteration(1, 1000), iteration(2, 2000)) == [[1, 2]]


def test_lines_out_of_order_and_a_clock_set_back_begin_none() -> None:
    """An earlier time tells of disorder, not of a restart."""
    assert cut(iteration(2, 2000), iteration(1, 1000), iteration(3, 3000)) == [[2, 1, 3]]


def test_a_load_or_start_after_work_begins_a_session() -> None:
    """With or without a time."""
    for kind in ("training_start", "checkpoint_load"):
        assert cut(iteration(1), TrainingLine(kind, None), iteration(2)) == [[1], [None, 2]]


def test_each_dated_start_line_without_work_between_begins_a_session() -> None:
    """Two attempts that never iterated; the undated load belongs to the start after it."""
    found = sessions(
        [
            TrainingLine("training_start", 1000),
            TrainingLine("checkpoint_load", None),
            TrainingLine("training_start", 9000),
        ]
    )
    assert [[line.kind for line in session.lines] for session in found] == [
        ["training_start"],
        ["checkpoint_load", "training_start"],
    ]
    assert [session.first_ms for session in found] == [1000, 9000]


def test_a_load_that_bears_a_time_belongs_to_the_start_after_it() -> None:
    """torchtitan dates it; one start without work before it is a session of its own."""
    load = TrainingLine("checkpoint_load", 8000)
    assert [len(session.lines) for session in sessions([load, TrainingLine("training_start", 9000)])] == [2]
    found = sessions(
        [TrainingLine("training_start", 1000), load, TrainingLine("training_start", 9000), iteration(1, 20_000)]
    )
    assert [[line.kind for line in session.lines] for session in found] == [
        ["training_start"],
        ["checkpoint_load", "training_start", "iteration"],
    ]


def test_kinds_that_the_ledger_does_not_read_are_no_lines() -> None:
    """And a dated step of the startup begins no session."""
    told = [Event(None, None, "training", kind) for kind in ("training_phase", "training_start", "training_restart")]
    lines = lines_of(told)
    assert [line.kind for line in lines] == ["training_phase", "training_start"]
    assert [[line.kind for line in session.lines] for session in sessions(lines)] == [["training_start"]]


def test_a_session_begins_with_what_its_first_dated_line_covers() -> None:
    """None where no line bears a time."""
    assert Session((TrainingLine("checkpoint_load", None), iteration(1, 15_000))).begin_ms == 5000
    assert Session((iteration(1),)).begin_ms is None
    assert Session((TrainingLine("training_start", 5),)).begin_ms == 5


def test_work_that_an_end_tells_of_stands_before_it() -> None:
    """As the iterations that they are; an end without a length, or without an iteration, adds nothing."""
    end = TrainingLine("training_end", None, 16, 16, 919_000.0)
    told = with_reported_ends([TrainingLine("training_start", 0), end])
    assert [(line.kind, line.iteration, line.span_ms) for line in told] == [
        ("training_start", None, None),
        ("iteration", 16, 919_000.0),
        ("training_end", 16, 919_000.0),
    ]
    silent = [replace(end, span_ms=None), replace(end, iteration=None), TrainingLine("training_end", 5)]
    assert with_reported_ends(silent) == silent


def test_medians() -> None:
    """Of none, of an odd and an even number; of iterations and of print intervals."""
    assert median([]) is None
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    lines = [
        TrainingLine("iteration", 0, 1, 10, 1000.0),
        TrainingLine("iteration", 0, 1, 1, 300.0),
        TrainingLine("iteration", 0),
    ]
    assert (pace_of(lines).iteration_ms, pace_of(lines).print_ms) == (200.0, 650.0)
