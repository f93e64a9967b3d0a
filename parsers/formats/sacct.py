"""Slurm's accounting, `sacct -P`: one event per job allocation; its steps are left out.

    JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode
    4711|llm-70b|NODE_FAIL|2025-03-01T00:00:00|2025-03-01T00:02:00|2025-03-03T10:00:00|64|gpu-[001-064]|0:0
    -> {"kind": "job", "time": "2025-03-03T10:00:00Z", "attributes": {"run": "llm-70b", "job_id": "4711", ...}}

Times are in the context's zone. `Unknown` is a time to come or never told: missing. Any columns in any order will do.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from parsers.reports.slurm import NOTHING, STATES
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from parsers.text.table import Row, TableReader
from store.records.event import Attribute, Event, format_time


def _is_header(names: frozenset[str]) -> bool:
    return "JobID" in names and bool(names & {"State", "Start", "End", "JobName", "NodeList"})


class SacctParser:
    """Decodes the lines of `sacct -P`. Holds a row whose field has a line break in it."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._table = TableReader(_is_header, "sacct -P", headless="-n")

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The jobs that this line ends.

        Raises:
            ParseError: a row does not fit the header.
        """
        if self._table.is_whole_row(text) and self._table.names[0] == "JobID" and "." in text[: text.find("|")]:
            return []  # a step, as most rows are: not taken apart
        return [event for row in self._table.feed(text, line) for event in self._job(row)]

    def flush(self) -> Iterable[Event]:
        """The jobs still held.

        Raises:
            ParseError: the last row is not whole, or there was no header.
        """
        return [event for row in self._table.flush() for event in self._job(row)]

    def _job(self, row: Row) -> list[Event]:
        job_id = _text(row, "JobID")
        if job_id is None or "." in job_id:
            return []
        words = (_text(row, "State") or "UNKNOWN").split()
        state = words[0].rstrip("+")
        submit, start, end = (_time(self._stamps, row, name) for name in ("Submit", "Start", "End"))
        attributes: dict[str, Attribute] = {
            "run": _text(row, "JobName"),
            "job_id": job_id,
            "name": _text(row, "JobName"),
            "state": state,
            "submit": None if submit is None else format_time(submit),
            "start": None if start is None else format_time(start),
            "end": None if end is None else format_time(end),
            "nodes": _number(_text(row, "NNodes") or _text(row, "AllocNodes")),
            "node_list": _text(row, "NodeList") or "",
            "exit_code": _text(row, "ExitCode"),
        }
        if words[1:2] == ["by"] and len(words) > 2:
            attributes["cancelled_by"] = words[2]
        severity, cause = STATES.get(state, ("info", "unknown"))
        return [
            Event(
                time=end or start or submit,
                node=None,
                source="sacct",
                kind="job",
                severity=severity,
                cause=cause,
                message=f"job {job_id} {state}",
                attributes=attributes,
                line=row.line,
            )
        ]


def _text(row: Row, name: str) -> str | None:
    value = row.fields.get(name, "").strip()
    return None if value in NOTHING else value


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _time(stamps: Stamps, row: Row, name: str) -> datetime | None:
    text = _text(row, name)
    if text is None:
        return None
    moment = stamps.iso(text)
    if moment is None:
        raise ParseError(
            f"{name} is {text[:40]!r}: sacct writes times as 2025-03-01T00:02:00 where SLURM_TIME_FORMAT is not set"
        )
    return moment


FORMAT = Format(
    name="sacct",
    description="Slurm's jobs: sacct -P",
    sample="JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode",
    make=SacctParser,
    testimony="scheduler",
    recognises=re.compile(
        r"(?:^|\|#?)JobID\|.*(?:State|Start|End|JobName|NodeList)|(?:State|JobName)\|#?.*\|#?JobID(?:\||$)"
    ),
    shape="table",
)
