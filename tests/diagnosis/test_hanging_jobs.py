"""A job that hangs while the scheduler's books still call it running: the stop that nobody names."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa
from fault_events import at, iteration, job, program_error, xid

from diagnosis.causes.stop import Stoppage, stop_of
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import append_events, append_jobs
from store.records.event import Event
from store.records.job import Job

STEADY = [iteration(10 * step) for step in range(1, 10)]


def found(engine: sa.Engine, events: Sequence[Event], jobs: Sequence[Job], run: str | None = None) -> Stoppage | None:
    """What `foreshock diagnose` would explain."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
        update_incidents(connection, append_events(connection, events, at(100_000)).new)
    with engine.begin() as connection:
        return stop_of(connection, run, None)


def test_a_job_that_prints_no_more_has_stopped(any_engine: sa.Engine) -> None:
    """The cluster's clock went on for half an hour, the job's did not."""
    stop = found(any_engine, [*STEADY, xid(79, 91), xid(63, 2000, "gpu-009")], [job(0, None, "RUNNING")])
    assert stop is not None
    assert (stop.run, stop.last_work, stop.end) == ("llm", at(90), at(2000))


def test_a_job_that_complains_has_stopped_at_once(any_engine: sa.Engine) -> None:
    """An error after the last iteration needs no waiting."""
    stop = found(any_engine, [*STEADY, program_error(100, "NCCL timeout", "nccl")], [job(0, None, "RUNNING")])
    assert stop is not None
    assert (stop.run, stop.last_work, stop.end) == ("llm", at(90), at(100))


def test_a_job_that_gets_on_has_not_stopped(any_engine: sa.Engine) -> None:
    """What happens elsewhere is looked at for the cluster, not for the job."""
    stop = found(any_engine, [*STEADY, xid(79, 91, "gpu-009")], [job(0, None, "RUNNING")])
    assert stop is not None
    assert stop.run is None


@pytest.mark.parametrize(("nodes", "run"), [(1, "llm"), (64, "other")])
def test_the_larger_of_two_stops_is_the_news(engine: sa.Engine, nodes: int, run: str) -> None:
    """A small job that failed later does not hide a large one that hangs."""
    small = replace(job(0, 3000, "FAILED"), job_id="99", run="other", nodes=nodes)
    stop = found(engine, [*STEADY, xid(79, 91), xid(63, 2000)], [replace(job(0, None, "RUNNING"), nodes=8), small])
    assert stop is not None
    assert stop.run == run
