"""Saves that go on while the program works: what they stall, what they keep, and when."""

import pytest
from hand_made_run import attempt, fault, iteration, ledger, ms, said

from goodput.log.training_log import line_of
from store.records.event import Attribute, Event


def begun(number: int) -> Event:
    """The line that begins a save."""
    return said("checkpoint_save_start", iteration=number)


def done(number: int, blocking_s: float | None = None, **more: Attribute) -> Event:
    """The line that ends a save in the background."""
    stall: dict[str, Attribute] = {} if blocking_s is None else {"blocking_ms": blocking_s * 1000}
    return said("checkpoint_save", None, iteration=number, **{"async": True}, **stall, **more)


@pytest.mark.parametrize("timed", [True, False])
def test_the_time_of_a_save_in_the_background_is_no_stall(timed: bool) -> None:
    """Whether or not the iteration lines bear times."""
    log = [iteration(10 * n if timed or n == 1 else None, n) for n in (1, 2, 3, 4)]
    log[2:2] = [begun(2)]
    log[4:4] = [done(2, duration_ms=60_000.0)]
    assert ms(ledger([attempt(0, 40)], log)) == {"productive": 40_000}


def test_what_it_stalls_is_the_gap_after_its_beginning() -> None:
    """The program copies the state aside before it goes on; advice is built on the stall that was printed."""
    log = [iteration(10, 1), begun(1), iteration(23, 2), done(1, blocking_s=2.9), iteration(33, 3)]
    made = ledger([attempt(0, 33)], log)
    assert ms(made) == {"productive": 30_100, "checkpoint_save": 2_900}
    assert [save.length_ms for save in made.saves] == [2_900]


def test_it_keeps_what_was_done_when_it_was_begun() -> None:
    """Work done while it was written is not in it."""
    log = [iteration(10, 1), begun(1), iteration(20, 2), iteration(30, 3), done(1), iteration(40, 4)]
    made = ms(ledger([attempt(0, 45, "FAILED")], log, [fault(42)]))
    assert made == {"productive": 10_000, "lost_work": 32_000, "detection": 3_000}


def test_one_that_never_ends_keeps_nothing() -> None:
    """The program died while it was written."""
    log = [iteration(10, 1), begun(1), iteration(20, 2), iteration(30, 3)]
    made = ms(ledger([attempt(0, 35, "FAILED")], log, [fault(32)]))
    assert made == {"lost_work": 32_000, "detection": 3_000}


def test_one_that_ends_while_the_next_has_begun_keeps_only_its_own() -> None:
    """The next one's beginning stays open."""
    log = [iteration(10, 1), begun(1), iteration(20, 2), begun(2), done(1), iteration(30, 3)]
    made = ms(ledger([attempt(0, 35, "FAILED")], log, [fault(32)]))
    assert made == {"productive": 10_000, "lost_work": 22_000, "detection": 3_000}


def test_one_of_iterations_that_nobody_saw_keeps_nothing() -> None:
    """The log's beginning is not there."""
    log = [iteration(20, 12), done(5, blocking_s=1.0), iteration(30, 13)]
    made = ledger([attempt(0, 35, "FAILED")], log, [fault(32)])
    assert "productive" not in ms(made)
    assert made.saves == ()


def test_its_stall_is_its_length() -> None:
    """And a save that says nothing of it, or is not in the background, is read as ever."""
    told: dict[str, Attribute] = {"async": True, "duration_ms": 60_000.0, "blocking_ms": 900.0}
    assert (line_of("checkpoint_save", 0, told).duration_ms, line_of("checkpoint_save", 0, told).background) == (
        900,
        True,
    )
    plain = line_of("checkpoint_save", 0, {"duration_ms": 60_000.0, "blocking_ms": 900.0})
    assert (plain.duration_ms, plain.background) == (60_000, False)
