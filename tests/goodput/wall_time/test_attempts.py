"""Attempts: which job wrote which part of the log."""

from datetime import UTC, datetime, timedelta

import pytest

from goodput.log.training_log import Session, TrainingLine, sessions
from goodput.timeline import to_ms
from goodput.wall_time.attempts import RESTARTED, RunAttempt, attempts_of
from store.records.hostlist import hosts
from store.records.job import Job

START = datetime(2025, 3, 1, tzinfo=UTC)


def ms(seconds: float) -> int:
    """A moment in milliseconds since 1970."""
    return to_ms(START) + round(seconds * 1000)


def job(start: float | None, end: float | None, state: str = "FAILED", submit: float | None = None) -> Job:
    """One job."""
    moments = [None if s is None else START + timedelta(seconds=s) for s in (submit, start, end)]
    return Job(f"{submit}-{start}", "run", state, *moments, nodes=1, node_list="gpu-1")


def line(number: int, seconds: float | None) -> TrainingLine:
    """One iteration of ten seconds."""
    return TrainingLine("iteration", None if seconds is None else ms(seconds), number, 1, 10_000.0)


def matched(jobs: list[Job], *lines: TrainingLine) -> list[RunAttempt]:
    """The attempts of jobs and a log."""
    return attempts_of(jobs, sessions(lines))


def iterations(attempts: list[RunAttempt]) -> list[list[int | None]]:
    """The iterations of each."""
    return [[x.iteration for x in attempt.lines] for attempt in attempts]


def test_a_session_belongs_to_the_job_that_ran_then() -> None:
    """By the first time that it bears."""
    made = matched([job(200, 300), job(0, 100)], line(1, 20), line(2, 30), line(1, 220), line(2, 230))
    assert iterations(made) == [[1, 2], [1, 2]]
    assert [attempt.start_ms for attempt in made] == [ms(0), ms(200)]


def test_clocks_may_differ_by_a_minute() -> None:
    """A line shortly before its job's start, or after its end."""
    assert iterations(matched([job(100, 200)], line(1, 60))) == [[1]]
    assert iterations(matched([job(0, 100)], line(1, 150))) == [[1]]
    assert len(matched([job(0, 100)], line(1, 200))) == 2


def test_undated_sessions_follow_the_order_of_the_jobs() -> None:
    """The second start belongs to the second job; more starts than jobs to the last."""
    jobs = [job(0, 100), job(200, 300)]
    twice = [line(1, None), line(2, None), line(1, None), line(2, None)]
    assert iterations(matched(jobs, *twice)) == [[1, 2], [1, 2]]
    assert iterations(matched(jobs, *twice, line(1, None))) == [[1, 2], [1, 2, 1]]


def test_a_job_is_cut_where_its_program_started_anew() -> None:
    """The first part ended badly where the second one begins."""
    first, second = matched([job(0, 100, "COMPLETED")], line(1, 20), line(2, 30), line(1, 80))
    assert (first.end_ms, first.state) == (ms(70), RESTARTED)
    assert (second.start_ms, second.end_ms, second.state, second.submit_ms) == (ms(70), ms(100), "COMPLETED", None)


def test_a_log_that_no_job_covers_is_an_attempt_of_its_own() -> None:
    """Open while nothing says that it ended; interrupted if another start follows."""
    (alone,) = matched([], line(1, 20))
    assert (alone.start_ms, alone.end_ms, alone.state) == (ms(10), None, "RUNNING")
    (ended,) = matched([], line(1, 20), TrainingLine("training_end", ms(25)))
    assert (ended.end_ms, ended.state) == (ms(25), "COMPLETED")
    first, _ = matched([], line(1, 20), line(1, 120))
    assert (first.end_ms, first.state) == (ms(20), RESTARTED)


def test_as_of_a_moment_later_facts_are_hidden() -> None:
    """Not yet submitted, not yet started, not yet ended."""
    jobs = [job(10, 100, submit=5)]
    assert attempts_of(jobs, [], ms(0)) == []
    (waiting,) = attempts_of(jobs, [], ms(7))
    assert (waiting.submit_ms, waiting.start_ms, waiting.begin_ms) == (ms(5), None, ms(5))
    (running,) = attempts_of(jobs, [], ms(50))
    assert (running.end_ms, running.state) == (None, "RUNNING")
    (over,) = attempts_of(jobs, [], ms(100))
    assert (over.end_ms, over.state, over.last_data_ms) == (ms(100), "FAILED", ms(100))


@pytest.mark.parametrize(
    ("broken", "start", "end"), [(job(50, 20), 50, 50), (job(50, 80, submit=70), 50, 80), (job(50, 80), 50, 80)]
)
def test_times_in_the_wrong_order_are_put_right(broken: Job, start: float, end: float) -> None:
    """An end before the start, a submit after it."""
    (attempt,) = attempts_of([broken], [])
    assert (attempt.start_ms, attempt.end_ms) == (ms(start), ms(end))
    assert attempt.begin_ms is not None
    assert attempt.begin_ms <= ms(start)


def test_what_names_no_time_is_no_attempt_and_a_broken_hostlist_has_no_nodes() -> None:
    """Neither stops the account."""
    assert attempts_of([job(None, None)], []) == []
    assert hosts("gpu-[1-") == frozenset()
    assert hosts("gpu-[1-2]") == {"gpu-1", "gpu-2"}


def test_a_start_that_no_scheduler_knows_begins_with_its_first_step() -> None:
    """The steps that led to it; one that repeats belongs to a startup that failed."""
    steps = [
        TrainingLine("training_phase", ms(s), words=word) for s, word in ((1, "a"), (20, "a"), (25, "b"), (300, "a"))
    ]
    (alone,) = attempts_of([], sessions([line(1, 60)]), phases=steps)
    assert alone.start_ms == ms(20)
    (far,) = attempts_of([], sessions([line(1, 9000)]), phases=steps)
    assert far.start_ms == ms(8990)
    first, second = attempts_of([], sessions([line(1, 60), line(1, 320)]), phases=[*steps[:1], *steps[3:]])
    assert (first.start_ms, second.start_ms) == (ms(1), ms(300))


def test_how_a_log_alone_ended_is_what_its_last_lines_say() -> None:
    """An error after the last iteration; the launcher's words of it do not undo it, work after it does."""

    def state(*words: str) -> str:
        """The state after an iteration and some errors, where `go` is another iteration."""
        lines = [line(1, 20)]
        for number, word in enumerate(words, start=2):
            lines.append(
                line(number, 20 * number) if word == "go" else TrainingLine("training_error", None, words=word)
            )
        return matched([], *lines)[0].state

    assert (state("cancelled"), state("time_limit"), state("node_failure")) == ("CANCELLED", "TIMEOUT", "NODE_FAIL")
    assert state("ValueError", "cancelled") == "FAILED"
    assert state("nccl_socket") == state("ValueError", "go") == "RUNNING"


def test_lines_without_a_time_reach_as_far_as_they_tell() -> None:
    """Two sessions of which only the starts are dated: the first ends with its work."""
    log = [TrainingLine("training_start", ms(0)), line(1, None), TrainingLine("evaluation", None, duration_ms=3_000)]
    log += [line(2, None), TrainingLine("training_start", ms(500)), line(1, None)]
    first, second = matched([], *log)
    assert (first.end_ms, second.start_ms, second.end_ms) == (ms(23), ms(500), None)


def test_a_program_that_says_nothing_when_it_starts_is_cut_where_its_job_ends() -> None:
    """Its iterations go on; what a line covers lies in the later job alone."""
    jobs = [job(0, 50), job(60, 100)]
    assert iterations(matched(jobs, line(1, 30), line(2, 40), line(3, 75), line(4, 85))) == [[1, 2], [3, 4]]
    assert iterations(matched(jobs, line(1, 30), line(2, 55), line(3, 59))) == [[1, 2, 3], []]


def test_no_attempt_ends_after_the_moment_of_the_account() -> None:
    """Lines without a time tell of work that may lie beyond: of a log alone, and of one that another start followed."""
    told = [line(1, 10), line(2, None), line(3, None), TrainingLine("training_end", None)]
    ends = [one.end_ms for one in attempts_of([], sessions(told), ms(15))]
    assert ends == [ms(15)]
    jobs = [job(0, None, "RUNNING"), job(12, None, "RUNNING")]
    closed = attempts_of(jobs, sessions([line(1, 10), line(2, None), line(1, 14)]), ms(15))
    assert [one.end_ms for one in closed] == [ms(15), None]


@pytest.mark.parametrize(("second", "place"), [(5, 0), (80, 0), (81, None), (95, 2), (150, 2), (205, 2), (270, None)])
def test_a_session_finds_its_job_past_those_that_wait(second: float, place: int | None) -> None:
    """One that has not started wrote nothing; clocks differ by a minute, before a start and after an end."""
    jobs = [job(0, 20, submit=0), job(None, None, "PENDING", submit=50), job(150, 200, submit=60)]
    found = attempts_of(jobs, [Session((TrainingLine("training_start", ms(second)),))])
    own = [at for at, one in enumerate(found) if one.lines and not one.from_log]
    assert own == ([] if place is None else [place])


def test_a_session_that_begins_with_a_job_is_that_job_s() -> None:
    """To the millisecond, while the one before has not ended yet."""
    jobs = [job(0, 300), job(150, 400)]
    for second, place in ((149.999, 0), (150, 1)):
        found = attempts_of(jobs, [Session((TrainingLine("training_start", ms(second)),))])
        assert [at for at, one in enumerate(found) if one.lines] == [place]
