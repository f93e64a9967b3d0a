"""Which nodes a job runs on, as far as anybody tells."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_jobs
from store.records.job import Job
from store.runs.jobs import busy_nodes, jobs_of_runs, read_jobs, running_jobs

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = 24 * HOUR


def job(ident: str, start: float, end: float | None, node_list: str) -> Job:
    """A job that began and ended so many hours ago."""
    begin = NOW - start * HOUR
    return Job(ident, "run", "RUNNING", begin, begin, None if end is None else NOW - end * HOUR, 2, node_list)


@pytest.mark.parametrize(
    ("jobs", "busy"),
    [
        ([], None),
        ([job("1", 50, 24.5, "a")], None),
        ([job("1", 50, 23.5, "a")], frozenset()),
        ([job("1", 50, 0, "a")], frozenset()),
        (
            [job("1", 50, None, "n[1-2]"), job("2", 5, -1, "b"), job("3", 9, 1, "c"), job("4", -1, None, "d")],
            {*"b", "n1", "n2"},
        ),
        ([job("1", 50, None, "n[1-")], frozenset()),
    ],
)
def test_the_nodes_of_running_jobs_are_busy(any_engine: sa.Engine, jobs: list[Job], busy: set[str] | None) -> None:
    """Where no job has run for a day nobody tells of them: that is not known, rather than idle."""
    with writing(any_engine).begin() as connection:
        append_jobs(connection, jobs)
        assert busy_nodes(connection, NOW, DAY) == busy
        running = {node for _job, _run, nodes in running_jobs(connection, NOW) for node in nodes}
    assert running == (busy or set())


def test_the_parts_of_a_heterogeneous_job_are_one_job(any_engine: sa.Engine) -> None:
    """It ends once, with its last part, on all its nodes; parts of another name or start stay, and tasks of arrays."""
    parts = [
        replace(job("7+0", 5, 2, "n[1-2]"), state="CANCELLED"),
        replace(job("7+1", 5, 1, "m1"), state="NODE_FAIL", nodes=1),
        replace(job("7+2", 5, 1, "k1"), run="other"),
        replace(job("7+0", 1, None, "n[1-2]"), state="RUNNING"),
        job("8_1", 5, 2, "a"),
        job("8_2", 5, 2, "b"),
    ]
    with writing(any_engine).begin() as connection:
        append_jobs(connection, parts)
    with any_engine.connect() as connection:
        found = read_jobs(connection, "run")
        assert jobs_of_runs(connection, ["run"]) == {"run": found}
        assert [one.job_id for one in read_jobs(connection)] == ["7+0", "7+2", "8_1", "8_2", "7+0"]
    whole = replace(parts[0], state="NODE_FAIL", end=NOW - HOUR, nodes=3, node_list="n[1-2],m1")
    assert found == [whole, parts[4], parts[5], parts[3]]


@pytest.mark.parametrize(
    ("states", "state", "code"),
    [
        (["COMPLETED", "OUT_OF_MEMORY"], "OUT_OF_MEMORY", "1:0"),
        (["FAILED", "BOOT_FAIL"], "BOOT_FAIL", "1:0"),
        (["FAILED", "COMPLETED", "NODE_FAIL"], "NODE_FAIL", "2:0"),
        (["NODE_FAIL", "RUNNING"], "RUNNING", "1:0"),
        (["COMPLETED", "COMPLETED"], "COMPLETED", "0:0"),
    ],
)
def test_a_part_that_ended_badly_is_not_hidden_by_one_that_ended_well(
    engine: sa.Engine, states: list[str], state: str, code: str
) -> None:
    """While a part runs the job does."""
    ends = [None if one == "RUNNING" else 2 for one in states]
    parts = [
        replace(job(f"7+{i}", 5, end, f"n{i}"), state=one, exit_code=f"{i}:0")
        for i, (one, end) in enumerate(zip(states, ends, strict=True))
    ]
    with writing(engine).begin() as connection:
        append_jobs(connection, parts)
        (found,) = read_jobs(connection, "run")
    assert (found.state, found.exit_code) == (state, code)


def test_a_name_with_a_plus_is_no_part_of_a_job(engine: sa.Engine) -> None:
    """Only numbers have parts."""
    with writing(engine).begin() as connection:
        append_jobs(connection, [job("train+1", 5, 2, "a"), job("train+2", 5, 2, "b")])
        assert len(read_jobs(connection, "run")) == 2
