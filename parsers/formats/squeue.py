"""Slurm's jobs that wait, run or have just ended: `scontrol show job` (also `-o`), `squeue -o` with `|`, and `--json`.

    JobId=4711 JobName=llm-70b
       JobState=RUNNING Reason=None Dependency=(null)
       SubmitTime=2025-03-01T00:00:00 EligibleTime=2025-03-01T00:00:00
       StartTime=2025-03-01T00:02:00 EndTime=2025-03-08T00:02:00 Deadline=N/A
       NodeList=gpu-[001-064]
    -> {"kind": "job", "time": "2025-03-01T00:02:00Z", "attributes": {"run": "llm-70b", "job_id": "4711", ...}}

    JOBID|NAME|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODES|NODELIST       of squeue -o '%i|%j|%T|%V|%S|%e|%D|%N'

The end of a job that runs is its time limit, and the start of one that waits is a plan: neither is reported.
`sacct` has the same jobs to their end, under the same number and submit, and replaces what was reported here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from parsers.reports.slurm import NOTHING, STATES
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import record_of, text_of, whole_of
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from parsers.text.table import TableReader
from store.records.event import Attribute, Event, format_time

_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z:/_]{1,40})=", re.ASCII)
# A row without its header, and the columns that squeue prints unasked: the table reader says how to ask.
_ODD_TABLE = re.compile(r"\d[\w\[\],%-]{0,40}\||\s*JOBID\s", re.ASCII)
_WAITS = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
_RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"})
# What each way to print them calls a field: scontrol, squeue's headers.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "job_id": ("JobId", "JOBID"),
    "name": ("JobName", "NAME"),
    "state": ("JobState", "STATE"),
    "submit": ("SubmitTime", "SUBMIT_TIME"),
    "start": ("StartTime", "START_TIME"),
    "end": ("EndTime", "END_TIME"),
    "nodes": ("NumNodes", "NODES"),
    "node_list": ("NodeList", "NODELIST"),
    "exit_code": ("ExitCode", "EXIT_CODE"),
    "restarts": ("Restarts", "RESTARTS"),
    "array_job": ("ArrayJobId", "ARRAY_JOB_ID"),
    "array_task": ("ArrayTaskId", "ARRAY_TASK_ID"),
}


def _is_header(names: frozenset[str]) -> bool:
    return "JOBID" in names and bool(names & {"STATE", "START_TIME", "NODELIST"})


class SqueueParser:
    """Decodes jobs. Holds one job of scontrol's, a row, or a JSON object."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._table = TableReader(_is_header, "squeue -o '%i|%j|%T|%V|%S|%e|%D|%N'")
        self._documents = DocumentParser(self._document, lists=("jobs",))
        self._job: dict[str, str] = {}
        self._line = 0
        self._in_table = False

    def feed(self, text: str, line: int) -> Iterator[Event]:
        """The jobs that this line ends.

        Raises:
            ParseError: a row does not fit its header, JSON is broken, or a time is none.
        """
        bare = text.lstrip()
        if bare.startswith("JobId="):
            (job, at), self._job, self._line = (self._job, self._line), {}, line
            self._keys(text)
            yield from self._event(job, at)  # what is wrong with it loses no line of the next one
        elif self._job:
            if bare:
                self._keys(text)
            else:
                yield from self._taken()
        elif self._in_table or "JOBID|" in text or "|JOBID" in text or _ODD_TABLE.match(text):
            self._in_table = True
            for row in self._table.feed(text, line):
                yield from self._event({key: row.fields.get(names[1], "") for key, names in _COLUMNS.items()}, row.line)
        else:
            yield from self._documents.feed(text, line)

    def flush(self) -> Iterator[Event]:
        """The job still held.

        Raises:
            ParseError: the last row or document is not whole.
        """
        yield from self._taken()
        if self._in_table:
            for row in self._table.flush():
                yield from self._event({key: row.fields.get(names[1], "") for key, names in _COLUMNS.items()}, row.line)
        yield from self._documents.flush()

    def _keys(self, text: str) -> None:
        wanted = {names[0]: key for key, names in _COLUMNS.items()}
        keys = list(_KEY.finditer(text))
        # Of a line without a key there is an end, and nothing that ends there.
        ends = [match.start() for match in keys[1:]] + [len(text)]
        for match, end in zip(keys, ends, strict=False):
            if (key := wanted.get(match[1])) is not None:
                self._job.setdefault(key, text[match.end() : end].strip())

    def _taken(self) -> list[Event]:
        job, self._job = self._job, {}
        return self._event(job, self._line)

    def _document(self, document: Document) -> Iterable[Event]:
        """A job of --json: times are numbers of seconds, since 22.05 within an object."""
        found = document.value
        states = found.get("job_state")
        state = states[0] if isinstance(states, list) and states else states
        resources = record_of(found, "job_resources")
        job = {
            "job_id": str(_number_in(found.get("job_id")) or ""),
            "name": text_of(found, "name") or "",
            "state": state if isinstance(state, str) else "",
            "nodes": str(_number_in(found.get("node_count")) or ""),
            "node_list": text_of(found, "nodes") or text_of(resources, "nodes") or "",
            "restarts": str(_number_in(found.get("restart_cnt")) or ""),
        }
        if array := _number_in(found.get("array_job_id")):
            task = _number_in(found.get("array_task_id"))
            job |= {"array_job": str(array), "array_task": "[]" if task is None else str(task)}
        for key in ("submit", "start", "end"):
            moment = self._stamps.since_epoch(_number_in(found.get(f"{key}_time")) or 0)
            job[key] = format_time(moment) if moment is not None and moment.year > _NO_YEAR else ""
        return self._event(job, document.line) if job["job_id"] and job["state"] else []

    def _event(self, job: Mapping[str, str], line: int) -> list[Event]:
        fields = {key: value for key, value in job.items() if value not in NOTHING}
        job_id, words = fields.get("job_id"), fields.get("state", "UNKNOWN").split()
        if (array := fields.get("array_job")) is not None:
            job_id = f"{array}_{fields.get('array_task', '[]')}"  # as sacct names it
        if job_id is None or not job_id.replace("_", "").replace("+", "").isdigit():
            return []  # tasks of an array that wait together are no jobs yet
        state = words[0].rstrip("+").upper()
        submit, start, end = (self._time(fields, key) for key in ("submit", "start", "end"))
        start = None if state in _WAITS else start
        end = None if state in _WAITS | _RUNS else end
        attributes: dict[str, Attribute] = {
            "run": fields.get("name"),
            "job_id": job_id,
            "name": fields.get("name"),
            "state": state,
            "submit": None if submit is None else format_time(submit),
            "start": None if start is None else format_time(start),
            "end": None if end is None else format_time(end),
            "nodes": whole_of(fields.get("nodes", "").partition("-")[0]),
            "node_list": "" if start is None else fields.get("node_list", ""),
            "exit_code": fields.get("exit_code"),
        }
        if (restarts := whole_of(fields.get("restarts"))) is not None:
            attributes["restarts"] = restarts
        severity, cause = STATES.get(state, ("info", "unknown"))
        return [
            Event(
                time=end or start or submit,
                node=None,
                source="squeue",
                kind="job",
                severity=severity,
                cause=cause,
                message=f"job {job_id} {state}",
                attributes=attributes,
                line=line,
            )
        ]

    def _time(self, fields: Mapping[str, str], key: str) -> datetime | None:
        text = fields.get(key)
        if text is None:
            return None
        moment = self._stamps.iso(text)
        if moment is None:
            raise ParseError(f"{key} is {text[:40]!r}: Slurm writes times as 2025-03-01T00:02:00 (SLURM_TIME_FORMAT)")
        return moment


# A time that was never set is 0.
_NO_YEAR = 1970


def _number_in(value: Any) -> int | None:
    """A number of --json: by itself, or within an object that says whether it is set."""
    if isinstance(value, dict):
        return whole_of(value.get("number")) if value.get("set", True) else None
    return whole_of(value)


FORMAT = Format(
    name="squeue",
    description="Slurm's jobs that wait or run: scontrol show job, squeue -o with |, --json",
    sample="JobId=4711 JobName=llm-70b JobState=RUNNING SubmitTime=2025-03-01T00:00:00 StartTime=2025-03-01T00:02:00 "
    "EndTime=2025-03-08T00:02:00 NumNodes=64 NodeList=gpu-[001-064] ExitCode=0:0",
    make=SqueueParser,
    testimony="scheduler",
    recognises=re.compile(
        r"^\s{0,8}JobId=\d+ |(?:^|\|)JOBID\|.*(?:STATE|NODELIST|START_TIME)|(?:STATE|NAME)\|.*\|JOBID(?:\||$)"
        r'|"job_state" ?:|"pending_reason" ?:'
    ),
)
