"""NVRx's cycle files: starts, ends, restarts, told once."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.nvrx import NvrxParser
from parsers.text.parser import Context, parse
from store.records.event import Event


def cycle(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A cycle that has begun."""
    return {
        "job_id": "48213",
        "attempt_index": 0,
        "cycle_number": number,
        "cycle_start_time": "2025-03-01T04:05:06.789012Z",
        "cycle_end_time": "",
        "cycle_log_file": "/logs/c.log",
        "active_nodes": "gpu-[001-016]",
        "standby_nodes": "",
        "generation": 0,
        "active_ranks": "0-127",
    } | changes


def decoded(*cycles: dict[str, Any], run: str | None = None) -> list[Event]:
    """The events of files one after another, as they are printed."""
    text = "\n".join(json.dumps(one, indent=2) for one in cycles)
    return list(parse(NvrxParser(Context(run=run)), text.split("\n")))


def test_a_cycle_tells_who_takes_part() -> None:
    """Nodes and ranks as Slurm writes them; the job is the run."""
    (event,) = decoded(cycle())
    assert (event.kind, event.severity, event.source) == ("cycle_start", "info", "nvrx")
    assert event.time == datetime(2025, 3, 1, 4, 5, 6, 789012, tzinfo=UTC)
    assert event.attributes == {
        "run": "48213",
        "job": "48213",
        "attempt": 0,
        "cycle": 0,
        "nodes": "gpu-[001-016]",
        "ranks": "0-127",
        "log_file": "/logs/c.log",
    }


def test_the_readers_run_counts_more_than_the_job() -> None:
    """An archive names its runs."""
    (event,) = decoded(cycle(), run="llm-70b")
    assert (event.run(), event.attributes["job"]) == ("llm-70b", "48213")


def test_a_file_written_again_tells_only_its_end() -> None:
    """It bears the start again."""
    ended = cycle(cycle_end_time="2025-03-01T06:00:00Z", generation=1)
    assert [event.kind for event in decoded(cycle(), ended, ended)] == ["cycle_start", "cycle_end"]
    assert [event.kind for event in decoded(ended)] == ["cycle_start", "cycle_end"]


def test_a_later_cycle_stands_for_a_failure_before_it() -> None:
    """A restart is a warning; another attempt's first cycle is none."""
    found = decoded(cycle(), cycle(1), cycle(2), cycle(attempt_index=1))
    assert [(event.severity, event.attributes["cycle"]) for event in found] == [
        ("info", 0),
        ("warning", 1),
        ("warning", 2),
        ("info", 0),
    ]


def test_protobufs_own_spelling_is_read() -> None:
    """jobId for job_id, and numbers as text."""
    (event,) = decoded({"jobId": "1", "cycleNumber": "3", "cycleStartTime": "2025-03-01T04:05:06Z", "attemptIndex": 2})
    assert (event.attributes["cycle"], event.attributes["attempt"]) == (3, 2)


@pytest.mark.parametrize(
    "record",
    [{"job_id": "1"}, {"cycle_number": 1}, cycle(cycle_start_time="soon"), cycle(cycle_start_time=7)],
    ids=lambda record: str(record)[:40],
)
def test_without_a_time_there_is_no_event(record: dict[str, Any]) -> None:
    """Nor is another object one."""
    assert decoded(record) == []
