"""Waits for data, saves timed with iterations, and what the ledger tells beside its buckets."""

import pytest
from hand_made_run import attempt, iteration, ledger, ms, said, saved

from store.records.event import Event


def waited(seconds: float, number: int | None = None) -> Event:
    """A wait for data, of the iterations up to a number or of those that follow."""
    more = {} if number is None else {"iteration": number}
    return said("data_wait", None, duration_ms=seconds * 1000, **more)


STEADY = [iteration(10, 1), iteration(20, 2)]


def test_a_wait_of_the_line_before_lay_within_it() -> None:
    """What is left of the line is normal work, or slow for another reason."""
    log = [*STEADY, iteration(36, 3, 16.0), waited(6, 3), iteration(46, 4), iteration(61, 5, 15.0), waited(1, 5)]
    made = ms(ledger([attempt(0, 61)], log))
    assert made == {"productive": 50_000, "data_stall": 7_000, "degraded": 4_000}


def test_a_wait_without_an_iteration_fills_the_gap_before_the_next_line_or_lies_within_it() -> None:
    """A hook times it beside the steps; a line that leaves no gap has it in its own time."""
    beside = ms(ledger([attempt(0, 34)], [*STEADY, waited(4), iteration(34, 3)]))
    within = ms(ledger([attempt(0, 34)], [*STEADY, waited(4), iteration(34, 3, 14.0)]))
    assert beside == within == {"productive": 30_000, "data_stall": 4_000}


def test_a_wait_longer_than_its_line_takes_all_of_it_and_no_more() -> None:
    """A broken timer."""
    made = ms(ledger([attempt(0, 30)], [*STEADY, iteration(30, 3), waited(99, 3)]))
    assert made == {"productive": 20_000, "data_stall": 10_000}


def test_waits_are_taken_back_with_the_work_that_they_fed() -> None:
    """And come into no median: a run that always waits is not slow for it."""
    log = [event for n in range(1, 5) for event in (iteration(16.0 * n, n, 16.0), waited(6, n))]
    assert ms(ledger([attempt(0, 64)], log)) == {"productive": 40_000, "data_stall": 24_000}
    assert ms(ledger([attempt(0, 64, "FAILED")], log)) == {"lost_work": 64_000}


@pytest.mark.parametrize("apart", [True, False])
def test_a_save_after_every_line_is_a_stall_whether_it_is_timed_with_the_next_line_or_not(apart: bool) -> None:
    """Saves to memory, each step: the pace is what is left without them."""
    log, now = [], 0.0
    for number in range(1, 11):
        stall = 3.0 if number > 1 else 0.0
        now += stall + 10
        log += [iteration(now, number, 10.0 if apart else 10.0 + stall), *saved(None, number, 3.0)]
    made = ms(ledger([attempt(0, now)], log))
    assert made == {"productive": 100_000, "checkpoint_save": 27_000}


def test_saves_of_a_few_hundredths_of_a_second_are_counted() -> None:
    """Less than what a log's whole seconds show."""
    log = [event for n in range(1, 101) for event in (iteration(10 * n, n), *saved(None, n, 0.04))]
    made = ms(ledger([attempt(0, 1000)], log))
    assert made["checkpoint_save"] == 99 * 40
    assert sum(made.values()) == 1_000_000


def test_an_unfinished_save_is_told_with_its_moment() -> None:
    """The one that the program died in; not one that is still being written, nor one whose end nobody prints."""
    begun = said("checkpoint_save_start", None, iteration=2)
    died = ledger([attempt(0, 30, "FAILED")], [*STEADY, begun])
    assert [(save.time_ms - died.start_ms, save.iteration) for save in died.unfinished_saves] == [(20_000, 2)]
    assert died.to_json()["unfinished_saves"] == [{"time": "2025-03-01T00:00:20.000000Z", "iteration": 2}]
    assert ledger([attempt(0, None, "RUNNING")], [*STEADY, begun], until=25).unfinished_saves == ()
    starts_alone = [iteration(10, 1), said("checkpoint_save_start", None, iteration=1), iteration(25, 2)]
    assert ledger([attempt(0, 30, "FAILED")], starts_alone).unfinished_saves == ()
    told = [*saved(None, 0, 1.0), iteration(10, 1), said("checkpoint_save_start", None, iteration=1), iteration(25, 2)]
    assert len(ledger([attempt(0, 30, "FAILED")], told).unfinished_saves) == 1


def test_what_an_unfinished_save_in_the_background_stalled_is_open() -> None:
    """It would be told at its end."""
    log = [iteration(10, 1), *saved(None, 1, 1.0), iteration(21, 2), said("checkpoint_save_start", 21, iteration=2)]
    fault = said("training_error", 30)
    made = ledger([attempt(0, 30, "FAILED")], log, [fault])
    assert made.bounds_ms["checkpoint_save"] == (1_000, 10_000)


def test_a_load_of_which_one_part_has_no_length_leaves_the_rest_of_the_startup_open() -> None:
    """The weights took four seconds, the optimizer's state nobody knows how many."""
    log = [said("checkpoint_load", duration_ms=4_000), said("checkpoint_load"), iteration(30, 8), iteration(40, 9)]
    assert ledger([attempt(0, 40)], log).bounds_ms["checkpoint_load"] == (4_000, 20_000)


def test_the_parts_of_a_startup() -> None:
    """Launch until the processes are connected, then the build; the first line's excess is startup too."""
    phases = [said("training_phase", 12, phase="after megatron is initialized")]
    log = [*phases, said("training_start", 20), iteration(45, 1, 25.0), iteration(55, 2), iteration(65, 3)]
    made = ledger([attempt(0, 65)], log)
    assert ms(made) == {"startup": 35_000, "productive": 30_000}
    assert made.details["startup"] == {"launch": 12.0, "build": 8.0, "first_iteration": 15.0}
    assert ledger([attempt(0, 65)], log[1:]).details["startup"] == {"other": 20.0, "first_iteration": 15.0}


def test_stragglers_are_told_with_how_often_they_were_named() -> None:
    """The most often named first; none of a log that names nobody."""
    named = [said("straggler", 15, rank=3), said("straggler", 16, rank=9, node="gpu-2"), said("straggler", 17, rank=3)]
    assert ledger([attempt(0, 20)], [STEADY[0], *named, STEADY[1]]).details["stragglers"] == [
        {"who": "rank 3", "times": 2},
        {"who": "rank 9 node gpu-2", "times": 1},
    ]
    assert "stragglers" not in ledger([attempt(0, 20)], STEADY).details
