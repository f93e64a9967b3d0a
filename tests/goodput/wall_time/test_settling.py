"""Lost work follows the checkpoint that the next attempt loaded, whatever the saves had promised."""

import pytest
from hand_made_run import attempt, fault, iteration, ledger, ms, said, saved

from goodput.ledger import Ledger
from goodput.wall_time.saves import ALWAYS_MS, NEVER_MS, AttemptProgress
from store.records.event import Event


def loaded(seconds: float | None, number: int) -> Event:
    """A load of an iteration's checkpoint, of no length."""
    return said("checkpoint_load", seconds, iteration=number, duration_ms=0)


def progress() -> AttemptProgress:
    """Two lines of ten iterations, 10 s each; the first is saved."""
    made = AttemptProgress()
    made.done(10, 10, 0, 10_000)
    made.saved(10, 12_000)
    made.done(20, 10, 12_000, 22_000)
    return made


@pytest.mark.parametrize(
    ("resumed", "kept_ms"),
    [(0, NEVER_MS), (5, 5_000), (10, 12_000), (15, 17_000), (20, ALWAYS_MS), (25, ALWAYS_MS)],
)
def test_what_a_checkpoint_keeps(resumed: int, kept_ms: int) -> None:
    """All, none, up to the save of that iteration, or part of what a line covers."""
    assert progress().kept_ms(resumed) == kept_ms


def test_a_number_that_goes_back_is_left_out_and_without_numbers_all_is_kept() -> None:
    """The order must hold."""
    made = progress()
    made.done(15, 1, 22_000, 23_000)
    made.done(None, 1, 23_000, 24_000)
    assert (made.first, made.last, made.end_of(19), made.end_of(9)) == (0, 20, (10, 10_000), None)
    assert AttemptProgress().kept_ms(3) == ALWAYS_MS


TWO = [attempt(0, 45, "FAILED"), attempt(45, 100, number=2)]
FIRST = [iteration(10, 1), *saved(None, 1, 1.0), iteration(21, 2), *saved(None, 2, 1.0), iteration(32, 3)]


def after(number: int, *before: Event) -> Ledger:
    """A failed attempt with saves of iterations 1 and 2, and one that goes on after an iteration."""
    later = [iteration(90, number + 1), iteration(100, number + 2)]
    return ledger(TWO, [*FIRST, *before, *later], [fault(40)])


def test_the_newest_save_is_what_the_next_attempt_loads_as_a_rule() -> None:
    """Told by the load, or by the first iteration alone."""
    expected = {"productive": 40_000, "checkpoint_save": 2_000, "lost_work": 18_000, "detection": 5_000}
    for made in (after(2, loaded(50, 2)), after(2)):
        assert {name: value for name, value in ms(made).items() if name in expected} == expected
        assert made.interruptions[0].lost_work_ms == 18_000


def test_an_older_checkpoint_loses_more_than_the_newest_save_promised() -> None:
    """The second save was broken, or in the memory of the lost node: its work is computed twice."""
    made = after(1, loaded(50, 1))
    assert (ms(made)["productive"], ms(made)["lost_work"]) == (30_000, 28_000)
    assert made.interruptions[0].lost_work_ms == 28_000
    assert ms(after(0))["lost_work"] == 38_000  # and from the beginning, all of it


def test_a_newer_checkpoint_than_any_that_was_told_keeps_more() -> None:
    """A save to memory that prints nothing."""
    made = after(3, loaded(50, 3))
    assert (ms(made)["productive"], ms(made)["lost_work"]) == (50_000, 8_000)


def test_an_older_checkpoint_reaches_back_over_attempts_to_where_they_began() -> None:
    """What the third loads is from the first; the second's whole work and part of the first's are lost."""
    jobs = [*TWO[:1], attempt(45, 80, "FAILED", number=2), attempt(80, 120, number=3)]
    log = [*FIRST, loaded(50, 2), iteration(65, 3), *saved(None, 3, 1.0), iteration(76, 4)]
    log += [loaded(85, 1), iteration(110, 2), iteration(120, 3)]
    made = ledger(jobs, log, [fault(40), fault(78)])
    assert ms(made)["productive"] == 10_000 + 20_000
    # What the first lost at first is its own; what the older checkpoint took from it is the second's.
    assert [cut.lost_work_ms for cut in made.interruptions] == [18_000, 22_000 + 10_000]


def test_an_attempt_that_completed_keeps_its_work_whatever_begins_after_it() -> None:
    """Another piece of work under the same name; one that was cancelled and begun anew has lost it."""
    log = [iteration(10, 1), iteration(20, 2), iteration(60, 1), iteration(70, 2)]
    done = [attempt(0, 20), attempt(50, 70, number=2)]
    assert "lost_work" not in ms(ledger(done, log))
    cancelled = [attempt(0, 20, "CANCELLED by 1"), attempt(50, 70, number=2)]
    made = ledger(cancelled, log)
    assert (ms(made)["lost_work"], made.interruptions) == (20_000, ())


def test_the_first_line_of_a_start_does_not_tell_exactly_where_it_began() -> None:
    """It may cover one iteration or ten: the save just before it is what was loaded."""
    log = [iteration(100, 10, count=10), *saved(None, 10, 1.0), iteration(201, 20, count=10)]
    log += [iteration(290, 20), iteration(400, 30, count=10)]
    made = ledger([attempt(0, 210, "FAILED"), attempt(210, 400, number=2)], log, [fault(205)])
    assert made.interruptions[0].lost_work_ms == 104_000


def test_an_attempt_that_completed_is_gone_on_with_where_the_next_one_loads() -> None:
    """A chain of jobs that exit after so many minutes: an older checkpoint loses work as ever."""
    log = [iteration(10, 1), *saved(None, 1, 1.0), iteration(21, 2), loaded(55, 1), iteration(70, 2), iteration(80, 3)]
    made = ledger([attempt(0, 21), attempt(50, 80, number=2)], log)
    assert (ms(made)["lost_work"], made.interruptions) == (10_000, ())
