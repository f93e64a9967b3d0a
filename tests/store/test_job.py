"""A job in an event: complete, waiting, and with what sources leave out."""

from datetime import UTC, datetime

import pytest

from store.records.event import Event, RecordError
from store.records.job import Job, job_from_event

WHOLE = {
    "job_id": "4711",
    "run": "llm",
    "state": "NODE_FAIL",
    "submit": "2025-03-01T00:00:00Z",
    "start": "2025-03-01T00:02:00Z",
    "end": "2025-03-01T04:06:00Z",
    "nodes": 64,
    "node_list": "gpu-[001-064]",
    "exit_code": "0:0",
}


def test_a_job_rides_in_an_event() -> None:
    """Every field."""
    assert job_from_event(Event(None, None, "sacct", "job", attributes=WHOLE)) == Job(
        "4711",
        "llm",
        "NODE_FAIL",
        datetime(2025, 3, 1, tzinfo=UTC),
        datetime(2025, 3, 1, 0, 2, tzinfo=UTC),
        datetime(2025, 3, 1, 4, 6, tzinfo=UTC),
        64,
        "gpu-[001-064]",
        "0:0",
    )


def test_what_is_not_there_is_unknown() -> None:
    """A job that waits; a name stands in for the run, the id for a name."""
    waiting = {**WHOLE, "start": None, "end": "", "nodes": "many", "exit_code": None, "run": None, "name": "llm-7b"}
    job = job_from_event(Event(None, None, "sacct", "job", attributes=waiting))  # type: ignore[arg-type]
    assert (job.start, job.end, job.nodes, job.exit_code, job.run) == (None, None, None, None, "llm-7b")
    empty = job_from_event(Event(None, None, "sacct", "job", attributes={"job_id": "7"}))
    assert (empty.run, empty.state, empty.node_list, empty.submit) == ("7", "UNKNOWN", "", None)


def test_a_time_that_is_none_is_refused() -> None:
    """The event stays, the job is not kept."""
    with pytest.raises(RecordError):
        job_from_event(Event(None, None, "sacct", "job", attributes={**WHOLE, "start": "soon"}))
