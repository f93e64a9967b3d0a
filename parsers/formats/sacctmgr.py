"""Slurm's record of nodes out of service, `sacctmgr show event -P`: one event per outage.

    NodeName|TimeStart|TimeEnd|State|Reason|User
    gpu-017|2025-03-01T04:05:06|2025-03-01T06:00:00|DOWN|Xid 79|root
    -> {"kind": "outage", "time": "2025-03-01T04:05:06Z", "node": "gpu-017",
        "attributes": {"start": "2025-03-01T04:05:06...Z", "end": "2025-03-01T06:00:00...Z", "state": "DOWN", ...}}

`Unknown` for an end is an outage that lasts. Rows without a node (the whole cluster's own events) are left out.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from parsers.reports.slurm import NOTHING
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from parsers.text.table import Row, TableReader
from store.records.event import Event, format_time
from store.records.outage import classify

# sacctmgr names its columns by --format: TimeStart by default, Start where asked for.
_START = ("TimeStart", "Start")
_END = ("TimeEnd", "End")


def _is_header(names: frozenset[str]) -> bool:
    return "NodeName" in names and bool(names & set(_START))


class SacctmgrParser:
    """Decodes the lines of `sacctmgr show event -P`."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._table = TableReader(_is_header, "sacctmgr show event -P", free_text="Reason", headless="-n")

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The outages that this line ends.

        Raises:
            ParseError: a row does not fit the header, or a time is none.
        """
        return [event for row in self._table.feed(text, line) for event in self._outage(row)]

    def flush(self) -> Iterable[Event]:
        """The outages still held.

        Raises:
            ParseError: the last row is not whole, or there was no header.
        """
        return [event for row in self._table.flush() for event in self._outage(row)]

    def _outage(self, row: Row) -> list[Event]:
        node = row.fields["NodeName"].strip()
        if node in NOTHING:
            return []
        start, end = self._time(row, _START), self._time(row, _END)
        if start is None:
            raise ParseError(f"the outage of {node[:60]} has no start")
        state, reason = row.fields.get("State", "").strip(), row.fields.get("Reason", "").strip()
        planned, cause = classify(state, reason)
        user = row.fields.get("User", "").strip()
        return [
            Event(
                time=start,
                node=node,
                source="sacctmgr",
                kind="outage",
                severity="info" if planned else "warning",
                cause=cause,
                message=f"{state} {reason}".strip(),
                attributes={
                    "start": format_time(start),
                    "end": None if end is None else format_time(end),
                    "state": state,
                    "reason": reason,
                    "user": user or None,
                },
                line=row.line,
            )
        ]

    def _time(self, row: Row, names: tuple[str, ...]) -> datetime | None:
        text = next((row.fields[name].strip() for name in names if name in row.fields), "")
        if text in NOTHING:
            return None
        moment = self._stamps.iso(text)
        if moment is None:
            raise ParseError(
                f"{names[0]} is {text[:40]!r}: sacctmgr writes times as 2025-03-01T04:05:06 "
                "where SLURM_TIME_FORMAT is not set"
            )
        return moment


FORMAT = Format(
    name="sacctmgr",
    description="Slurm's nodes out of service: sacctmgr show event -P",
    sample="NodeName|TimeStart|TimeEnd|State|Reason|User",
    make=SacctmgrParser,
    testimony="scheduler",
    recognises=re.compile(r"(?:^|\|)NodeName\|(?:.*\|)?(?:Time)?Start\|"),
    shape="table",
)
