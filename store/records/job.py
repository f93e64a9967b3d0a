"""A job: one attempt of a training run, as `sacct -P` prints it.

    JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode
    4711|llm-70b|NODE_FAIL|2025-03-01T00:00:00|2025-03-01T00:02:00|2025-03-03T10:00:00|64|gpu-[001-064]|0:0

The run is the job's name: its attempts share it. The record rides in an `Event` of kind `job`
(attributes `job_id name state submit start end nodes node_list exit_code`, times in RFC 3339).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from store.records.event import Event, RecordError, time_among

# By what the lost work of runs can be grouped.
LossKey: TypeAlias = Literal["device", "node", "leaf", "code", "driver", "run", "cause"]
# FIELD B2: a job failed by a node's fault, if that came at most 10 min before its end or 5 min after.
BEFORE_END, AFTER_END = timedelta(minutes=10), timedelta(minutes=5)
# Indexed text, as that of events; and beyond what a column of PostgreSQL holds.
_MOST_NAME, _NODES = 255, 2**31
FAILED_STATES = ("FAILED", "NODE_FAIL", "BOOT_FAIL")


@dataclass(frozen=True, slots=True)
class Job:
    """One start of a run. `end` is None while it runs; `start` is None while it waits."""

    job_id: str
    run: str
    state: str
    submit: datetime | None
    start: datetime | None
    end: datetime | None
    nodes: int | None
    node_list: str
    exit_code: str | None = None


def job_from_event(event: Event) -> Job:
    """The job that an event of kind `job` carries.

    Raises:
        RecordError: a time is none, or its name or number is longer than any.
    """
    a = event.attributes
    job_id, run = str(a.get("job_id") or ""), str(a.get("run") or a.get("name") or a.get("job_id") or "")
    if max(len(job_id), len(run)) > _MOST_NAME:
        raise RecordError(f"a job's name and number have {_MOST_NAME} characters at most")
    nodes = a.get("nodes")
    exit_code = a.get("exit_code")
    return Job(
        job_id=job_id,
        run=run,
        state=str(a.get("state") or "UNKNOWN"),
        submit=time_among(a, "submit"),
        start=time_among(a, "start"),
        end=time_among(a, "end"),
        nodes=nodes if isinstance(nodes, int) and 0 <= nodes < _NODES else None,
        node_list=str(a.get("node_list") or ""),
        exit_code=None if exit_code is None else str(exit_code),
    )
