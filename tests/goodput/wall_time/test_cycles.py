"""NVRx's cycles as attempts, within the scheduler's jobs and without them."""

from datetime import UTC, datetime, timedelta

from goodput.wall_time.cycles import Cycle, cycles_of, with_cycles
from store.records.event import Event
from store.records.job import Job

START = datetime(2025, 3, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """A moment."""
    return START + timedelta(minutes=minutes)


def cycle(number: int, start: float, end: float | None, attempt: int = 0, job: str = "7") -> Cycle:
    """A cycle on nodes of its own."""
    return Cycle(job, attempt, number, at(start), None if end is None else at(end), f"gpu-[1-{number + 2}]")


def job(start: float, end: float | None, state: str = "COMPLETED", job_id: str = "7") -> Job:
    """A job of the run llm, a minute in the queue."""
    return Job(job_id, "llm", state, at(start - 1), at(start), None if end is None else at(end), 4, "gpu-[1-4]", "0:0")


def parts(found: list[Job]) -> list[tuple[object, ...]]:
    """Submit, start, end in minutes, state, nodes."""

    def minutes(moment: datetime | None) -> float | None:
        return None if moment is None else (moment - START).total_seconds() / 60

    return [(minutes(x.submit), minutes(x.start), minutes(x.end), x.state, x.node_list) for x in found]


def test_a_job_is_cut_at_the_ends_of_its_cycles() -> None:
    """The first part has its wait, the last its end and state; between them the nodes stay the job's."""
    found = with_cycles([job(0, 100, "TIMEOUT")], [cycle(0, 2, 50), cycle(1, 55, 98)])
    assert parts(found) == [(-1, 0, 50, "RESTARTED", "gpu-[1-2]"), (None, 50, 100, "TIMEOUT", "gpu-[1-3]")]
    assert {one.run for one in found} == {"llm"}


def test_a_cycle_whose_end_nobody_wrote_lasted_to_the_next_one() -> None:
    """The launcher itself was killed; an end after the next start is no end."""
    assert parts(with_cycles([job(0, 100)], [cycle(0, 2, None), cycle(1, 55, None)]))[0][2] == 55
    assert parts(with_cycles([job(0, 100)], [cycle(0, 2, 60), cycle(1, 55, None)]))[0][2] == 55


def test_a_requeued_job_has_its_own_cycles() -> None:
    """Slurm keeps its number: the times tell which start is meant."""
    found = with_cycles([job(0, 40, "NODE_FAIL"), job(60, 100)], [cycle(0, 2, 39), cycle(0, 61, 99, attempt=1)])
    assert [(one[1], one[2], one[3]) for one in parts(found)] == [(0, 40, "NODE_FAIL"), (60, 100, "COMPLETED")]


def test_other_jobs_are_left_alone() -> None:
    """A cycle of a job that is not known is an attempt by itself."""
    found = with_cycles([job(0, 100, job_id="8")], [cycle(0, 2, 50)])
    assert [one.job_id for one in found] == ["8", "7.0.0"]
    assert with_cycles([job(0, 100)], []) == [job(0, 100)]


def test_cycles_alone_are_attempts() -> None:
    """Within one allocation without a wait, over several with one; only the last may have ended well."""
    found = with_cycles([], [cycle(0, 2, 50), cycle(1, 55, 98), cycle(0, 200, None, attempt=1)])
    assert [(one[1], one[2], one[3]) for one in parts(found)] == [
        (2, 50, "RESTARTED"),
        (50, 98, "RESTARTED"),
        (200, None, "RUNNING"),
    ]
    assert parts(with_cycles([], [cycle(0, 2, 50)]))[0][3] == "COMPLETED"


def test_events_told_twice_are_one_cycle() -> None:
    """A file is read at its start and at its end, perhaps by two sidecars."""
    told = {"run": "7", "job": "7", "attempt": 0, "cycle": 1, "nodes": "gpu-1"}
    begin = Event(at(1), None, "nvrx", "cycle_start", attributes=told)
    end = Event(at(9), None, "nvrx", "cycle_end", attributes=told)
    assert cycles_of([begin, begin, end, Event(None, None, "nvrx", "cycle_end", attributes=told)]) == [
        Cycle("7", 0, 1, at(1), at(9), "gpu-1")
    ]
    assert cycles_of([end]) == []
