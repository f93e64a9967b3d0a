"""The account as of a moment: what came later is not known, in the middle of every phase."""

import pytest
from hand_made_run import at, attempt, fault, iteration, ledger, ms, records, said, saved
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.account import account
from goodput.timeline import to_ms
from store.records.event import Event

# 0 submitted, 10 started, 15-20 load, work to 40, save to 43, work to 63, fault 70, end 100, again from 120 to 170.
JOBS = [attempt(10, 100, "FAILED", submit=0), attempt(120, 170, submit=100, number=2)]
LOG = [
    said("training_start", 11),
    said("checkpoint_load", duration_ms=5_000),
    iteration(30, 1),
    iteration(40, 2),
    *saved(None, 2, 3.0),
    iteration(53, 3),
    iteration(63, 4),
    said("training_start", 121),
    said("checkpoint_load", duration_ms=6_000),
    iteration(150, 3),
    iteration(160, 4),
    iteration(170, 5),
]
FAULTS = [fault(70)]


def as_of(seconds: float) -> dict[str, int]:
    """The buckets as of a moment, given all that is known by now."""
    return ms(ledger(JOBS, LOG, FAULTS, until=seconds))


@pytest.mark.parametrize(
    ("moment", "buckets"),
    [
        (-1, {}),
        (0, {}),
        (4.5, {"waiting": 4_500}),
        (10, {"waiting": 10_000}),
        (16, {"waiting": 10_000, "unknown": 6_000}),  # no iteration yet: is it a log that tells of work at all?
        (30, {"waiting": 10_000, "startup": 5_000, "checkpoint_load": 5_000, "productive": 10_000}),
        (36.5, {"waiting": 10_000, "startup": 5_000, "checkpoint_load": 5_000, "productive": 16_500}),
        (
            60,
            {
                "waiting": 10_000,
                "startup": 5_000,
                "checkpoint_load": 5_000,
                "checkpoint_save": 3_000,
                "productive": 37_000,
            },
        ),
    ],
)
def test_the_first_attempt_as_it_went_on(moment: float, buckets: dict[str, int]) -> None:
    """Not yet submitted, waiting, starting, working, saving, working: never a failure that was not yet known."""
    assert as_of(moment) == buckets
    assert ledger(JOBS, LOG, FAULTS, until=moment).interruptions == ()


def test_while_the_scheduler_has_not_noticed_the_run_is_open() -> None:
    """The fault was logged, the job runs on: nobody knows yet that the work is lost."""
    made = ledger(JOBS, LOG, FAULTS, until=80)
    assert (made.is_open, made.interruptions, made.wall_ms) == (True, (), 80_000)
    assert ms(made)["unknown"] == 17_000
    assert "lost_work" not in ms(made)


def test_once_the_job_ended_the_work_since_the_save_is_lost() -> None:
    """At the very moment of its end, and while the next attempt waits."""
    ended = {
        "waiting": 10_000,
        "startup": 5_000,
        "checkpoint_load": 5_000,
        "productive": 20_000,
        "checkpoint_save": 3_000,
        "lost_work": 27_000,
        "detection": 30_000,
    }
    assert as_of(100) == ended
    assert as_of(110) == {**ended, "waiting": 20_000}
    (cut,) = ledger(JOBS, LOG, FAULTS, until=110).interruptions
    assert (cut.lost_work_ms, cut.restart_ms) == (27_000, 40_000)


def test_the_way_back_grows_until_the_first_iteration() -> None:
    """Waiting, startup and load of the next attempt are the interruption's; its work is not."""
    costs = [ledger(JOBS, LOG, FAULTS, until=moment).interruptions[0].lost_ms for moment in (100, 115, 150, 160, 170)]
    assert costs == [57_000, 72_000, 97_000, 97_000, 97_000]


def test_the_whole_is_what_no_moment_gives_too() -> None:
    """As of the end, as of later, and without a moment."""
    whole = ms(ledger(JOBS, LOG, FAULTS))
    assert as_of(170) == whole == as_of(10_000)
    assert whole["productive"] == 20_000 + 30_000


def test_a_pending_job_waits_until_the_moment_asked_for() -> None:
    """And a cancelled one until its end."""
    pending = [attempt(None, None, "PENDING", submit=0)]
    assert ms(ledger(pending, [], until=12.5)) == {"waiting": 12_500}
    assert ms(ledger(pending, [])) == {}
    made = ledger(pending, [])
    assert (made.wall_ms, made.goodput, made.is_open) == (0, None, True)


def test_an_open_attempt_without_an_iteration_is_starting_up() -> None:
    """In a run whose log iterated before; without any log nobody knows."""
    jobs = [attempt(0, 20, "FAILED"), attempt(30, None, "RUNNING", submit=20, number=2)]
    assert ms(ledger(jobs, [iteration(10, 1)], until=45)) == {
        "lost_work": 20_000,
        "waiting": 10_000,
        "startup": 15_000,
    }
    assert ms(ledger(jobs, [], until=45)) == {"unknown": 20_000 + 15_000, "waiting": 10_000}


def test_an_open_attempt_is_unknown_once_it_is_silent_for_longer_than_a_line_takes() -> None:
    """A hang shows as unknown while it lasts."""
    jobs, log = [attempt(0, None, "RUNNING")], [iteration(10, 1), iteration(20, 2)]
    assert ms(ledger(jobs, log, until=29.999)) == {"productive": 29_999}
    assert ms(ledger(jobs, log, until=30)) == {"productive": 20_000, "unknown": 10_000}


def test_a_log_without_any_date_is_not_bounded_by_the_calendar() -> None:
    """Nobody knows when it was: it is told whole, and nothing is counted from 1970."""
    undated = [said("checkpoint_load", duration_ms=2_000), iteration(None, 1), iteration(None, 2)]
    made = ledger([], undated, until=60)
    assert (ms(made), made.dated) == ({"checkpoint_load": 2_000, "productive": 20_000}, False)


moments = st.integers(-5_000, 200_000)


@settings(max_examples=150)
@given(moments, moments)
def test_wall_time_only_grows_and_follows_the_moment(one: int, two: int) -> None:
    """Whatever is asked, the account ends at the moment or at the run's end; an earlier one is never longer."""
    early, late = (account(records(JOBS, LOG, FAULTS), to_ms(at(0)) + moment) for moment in sorted((one, two)))
    assert early.wall_ms <= late.wall_ms
    assert late.wall_ms == min(max(max(one, two), 0), 170_000)
    assert len(early.interruptions) <= len(late.interruptions)
    assert early.buckets_ms["waiting"] <= late.buckets_ms["waiting"]


@settings(max_examples=100)
@given(moments)
def test_what_is_known_later_changes_nothing_of_the_past(moment: int) -> None:
    """The account as of a moment is that of the records that were there at the moment."""
    until = to_ms(at(0)) + moment

    def dated(event: Event) -> bool:
        return event.time is None or to_ms(event.time) <= until

    known_faults = [event for event in FAULTS if dated(event)]
    assert account(records(JOBS, LOG, FAULTS), until) == account(records(JOBS, LOG, known_faults), until)
