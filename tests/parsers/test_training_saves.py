"""Loads and saves that several lines tell."""

from datetime import UTC, datetime, timedelta

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from parsers.training.checkpoints import MAX_BACKGROUND, Checkpoints
from store.records.event import Attribute, Event

SAVING = "saving checkpoint at iteration {:7d} to /c in torch_dist format"
SCHEDULED = "  scheduled an async checkpoint save at iteration {:7d} to /c"
SAVED = "  successfully saved checkpoint from iteration {:7d} to /c [ t 1/8, p 1/4 ]"
TIMER = "    save-checkpoint ................................: (910.08, 913.10)"
ITERATION = " iteration {:8d}/    1000 | elapsed time per iteration (ms): 5000.0 |"
MOMENT = datetime(2025, 3, 1, tzinfo=UTC)


def decode(*lines: str) -> list[tuple[str, Attribute, Attribute, Attribute, Attribute]]:
    """Each event's kind, iteration, whether in the background, stall and duration."""
    names = ("iteration", "async", "blocking_ms", "duration_ms")
    events = parse(TrainingParser(Context(run="r")), lines)
    return [(e.kind, *(e.attributes.get(n) for n in names)) for e in events]  # type: ignore[misc]  # of four names


def event(kind: str, second: int | None, **attributes: Attribute) -> Event:
    """One event of a load or save."""
    time = None if second is None else MOMENT + timedelta(seconds=second)
    return Event(time, None, "training", kind, attributes=attributes, line=1)


def test_a_save_in_the_background_tells_its_stall_at_its_end() -> None:
    """The timer after `scheduled` is no duration of the save."""
    lines = [SAVING.format(10), SCHEDULED.format(10), TIMER, ITERATION.format(11), SAVED.format(10)]
    assert decode(*lines) == [
        ("checkpoint_save_start", 10, None, None, None),
        ("iteration", 11, None, None, None),
        ("checkpoint_save", 10, True, 913.1, None),
    ]


def test_a_save_in_the_background_without_a_timer_has_no_stall() -> None:
    """A missing value is missing; the next save's timer is not taken for it."""
    lines = [SAVING.format(10), SCHEDULED.format(10), SAVED.format(10), SAVING.format(20), SAVED.format(20), TIMER]
    assert decode(*lines)[1:] == [
        ("checkpoint_save", 10, True, None, None),
        ("checkpoint_save_start", 20, None, None, None),
        ("checkpoint_save", 20, None, None, 913.1),
    ]


def test_a_timer_after_a_later_save_is_that_saves() -> None:
    """The one in the background printed none and is not done yet."""
    lines = [SAVING.format(10), SCHEDULED.format(10), SAVING.format(20), SAVED.format(20), TIMER]
    assert decode(*lines)[-1] == ("checkpoint_save", 20, None, None, 913.1)


def test_a_save_in_the_background_that_never_ends_has_no_end() -> None:
    """Scheduled is not saved."""
    assert decode(SAVING.format(10), SCHEDULED.format(10), TIMER) == [("checkpoint_save_start", 10, None, None, None)]


def test_a_new_attempt_knows_nothing_of_the_saves_of_the_last() -> None:
    """Its own save of the same iteration stalls."""
    begun = "[after megatron is initialized] datetime: 2025-03-01 04:00:10 "
    lines = [SAVING.format(10), SCHEDULED.format(10), begun, SAVING.format(10), SAVED.format(10), TIMER]
    assert [row for row in decode(*lines) if row[0] != "training_phase"] == [
        ("checkpoint_save_start", 10, None, None, None),
        ("checkpoint_save_start", 10, None, None, None),
        ("checkpoint_save", 10, None, None, 913.1),
    ]


def test_ranks_that_begin_the_same_save_begin_it_once() -> None:
    """But the same iteration may be saved again after it was saved."""
    begins = [SAVING.format(10), SAVING.format(10)]
    assert [row[0] for row in decode(*begins, SAVED.format(10), TIMER, SAVING.format(10))] == [
        "checkpoint_save_start",
        "checkpoint_save",
        "checkpoint_save_start",
    ]


def test_times_give_a_duration_where_none_is_printed() -> None:
    """From the line that began it, of the same iteration."""
    saves = Checkpoints()
    list(saves.saving(event("checkpoint_save_start", 0, iteration=10)))
    assert list(saves.saved(event("checkpoint_save", 7, iteration=10))) == []
    assert [e.attributes["duration_ms"] for e in saves.held()] == [7000.0]
    saves.loading(event("checkpoint_load", 10, iteration=10))
    list(saves.loaded(event("checkpoint_load", 14)))
    assert [dict(e.attributes) for e in saves.held()] == [{"iteration": 10, "duration_ms": 4000.0}]


@pytest.mark.parametrize(("begin", "end"), [(None, 7), (0, None), (9, 7)])
def test_without_two_times_in_order_there_is_no_duration(begin: int | None, end: int | None) -> None:
    """A clock that runs backwards gives none either."""
    saves = Checkpoints()
    list(saves.saving(event("checkpoint_save_start", begin, iteration=10)))
    list(saves.saved(event("checkpoint_save", end, iteration=10)))
    assert ["duration_ms" in e.attributes for e in saves.held()] == [False]


def test_saves_in_the_background_are_bounded() -> None:
    """The oldest are forgotten: their ends are those of saves that stalled."""
    saves = Checkpoints()
    for iteration in range(0, 10 * MAX_BACKGROUND + 10, 10):
        list(saves.scheduled(event("checkpoint_save_start", 0, iteration=iteration)))
    assert list(saves.saved(event("checkpoint_save", 1, iteration=0))) == []
    (kept,) = saves.saved(event("checkpoint_save", 1, iteration=10))
    assert kept.attributes["async"] is True


def test_a_save_to_the_nodes_own_memory_or_disk_is_one_too() -> None:
    """Megatron's local and non-persistent checkpoints have a timer and a last line of their own."""
    lines = [SAVING.format(10), "  successfully saved local checkpoint from iteration      10"]
    lines += ["    save-checkpoint-non-persistent .................: (110.08, 113.10)", ITERATION.format(11)]
    assert decode(*lines)[:2] == [
        ("checkpoint_save_start", 10, None, None, None),
        ("checkpoint_save", 10, None, None, 113.1),
    ]
