"""Slurm's nodes as `sinfo` lists them, in any of its layouts: one event for each node out of service.

    NODELIST STATE REASON TIMESTAMP USER
    gpu001 draining foreshock: Xid 79 on GPU 3 (p=0.93) 2026-11-20T22:22:18 root
    -> {"kind": "node_state", "time": "2026-11-20T22:22:18Z", "node": "gpu001",
        "attributes": {"state": "DRAIN", "busy": true, "reason": "foreshock: Xid 79 on GPU 3 (p=0.93)", "user": "root",
                       "owner": "foreshock"}, ...}

Columns are separated by `|` or by blanks; by blanks, only the reason may hold some. `sinfo -R` prints no state. A node
that is listed once for each of its partitions is one event. The event's time is when the reason was set; where that is
not printed, that of the list (`sinfo -l` prints it); else unknown.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from parsers.reports.slurm import NOTHING, NodeState, node_events, read_reason, read_state
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from parsers.text.table import TableReader
from store.records.event import Event, RecordError
from store.records.hostlist import expand

_NODES = ("NODELIST", "HOSTNAMES")
_TELLING = frozenset(("STATE", "REASON"))
# Columns that may be empty in a row of blanks.
_OPTIONAL = "RESERVATION"
_COLUMN = re.compile(r"[A-Z][A-Z0-9_:/()]{0,40}", re.ASCII)
_TAKEN = re.compile(
    r"[MTWFS][a-z]{2} (?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>[\d:]{8}) (?P<year>\d{4}) {0,9}",
    re.ASCII,
)
# A node is reported once a list: so many are remembered.
MAX_NODES = 200_000
_COMMAND = "sinfo -N -o '%N|%T|%E|%H|%u'"


def _is_header(names: frozenset[str]) -> bool:
    return not names.isdisjoint(_NODES) and not names.isdisjoint(_TELLING) and "JOBID" not in names


class SinfoParser:
    """Decodes the lines of a sinfo list. Holds which nodes of the list were reported."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._table = TableReader(_is_header, _COMMAND, free_text="REASON")
        self._columns: list[str] = []  # of a list whose columns are separated by blanks
        self._ended = False  # such a list has been read: what stands below it is something else
        self._taken: datetime | None = None
        self._reported: set[tuple[str, str]] = set()

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The nodes out of service that a line tells.

        Raises:
            ParseError: a row does not fit its header, a time or a list of nodes is none.
        """
        if taken := _TAKEN.fullmatch(text):
            self._taken = self._stamps.dated(taken["month"], taken["day"], taken["clock"], taken["year"])
            return []
        if columns := _blank_header(text):
            self._columns = columns
            self._reported.clear()
            return []
        if self._columns and not text.strip():  # a list has no blank lines: it has ended
            self._columns, self._ended = [], True
            return []
        piped = _is_header(frozenset(name.strip(" #") for name in text.split("|"))) if "|" in text[:1000] else False
        if self._ended and not self._table.names and not piped:
            return []
        if self._columns and not piped:
            return self._nodes(_by_blanks(text, self._columns), line)
        names = self._table.names
        rows = self._table.feed(text, line)
        if self._table.names is not names:
            self._columns = []
            self._reported.clear()
        return [event for row in rows for event in self._nodes(row.fields, row.line)]

    def flush(self) -> Iterable[Event]:
        """The rows still held.

        Raises:
            ParseError: the last row is not whole, or there was no header.
        """
        return [event for row in self._table.flush() for event in self._nodes(row.fields, row.line)]

    def _nodes(self, fields: Mapping[str, str], line: int) -> list[Event]:
        state = read_state(fields["STATE"]) if "STATE" in fields else None
        if state is not None and not state.flags:
            return []
        stamp = fields.get("TIMESTAMP", "").strip()
        time = None if stamp in NOTHING else self._stamps.iso(stamp)
        if time is None and stamp not in NOTHING:
            raise ParseError(f"TIMESTAMP is {stamp[:40]!r}: sinfo writes times as 2025-03-01T04:05:06")
        reason = read_reason(fields.get("REASON", ""), time or self._taken, fields.get("USER", ""))
        try:
            nodes = expand(next((fields[name].strip() for name in _NODES if name in fields), ""))
        except RecordError as error:
            raise ParseError(str(error)) from error
        return node_events("sinfo", self._fresh(nodes, state), state, reason, line)

    def _fresh(self, nodes: Iterable[str], state: NodeState | None) -> list[str]:
        """The nodes that the list has not reported in this state yet."""
        words = "+".join(state.flags) if state else ""
        fresh = [node for node in dict.fromkeys(nodes) if (node, words) not in self._reported]
        if len(self._reported) < MAX_NODES:
            self._reported.update((node, words) for node in fresh)
        return fresh


def _blank_header(text: str) -> list[str] | None:
    """The columns of a header whose names are separated by blanks; None for a line that is none."""
    if len(text) > 1000:
        return None
    names = text.split()
    return names if _is_header(frozenset(names)) and all(_COLUMN.fullmatch(name) for name in names) else None


def _by_blanks(text: str, columns: list[str]) -> dict[str, str]:
    """The fields of a row; the reason is what the others leave.

    Raises:
        ParseError: it has too few.
    """
    if "REASON" in columns:
        at = columns.index("REASON")
        before, after = columns[:at], columns[at + 1 :]
        parts = text.split(None, len(before))
        ends = parts[-1].rsplit(None, len(after)) if after and len(parts) > len(before) else parts[-1:]
        values = [*parts[: len(before)], *ends]
    else:
        values = text.split()
        if len(values) == len(columns) - 1 and _OPTIONAL in columns:
            values.insert(columns.index(_OPTIONAL), "")
    if len(values) != len(columns):
        raise ParseError(f"the row has {len(values)} fields, its header {len(columns)}: list with `{_COMMAND}`")
    return dict(zip(columns, values, strict=True))


FORMAT = Format(
    name="sinfo",
    description="Slurm's nodes and their states: sinfo, in any layout",
    sample="NODELIST STATE REASON TIMESTAMP USER",
    make=SinfoParser,
    testimony="scheduler",
    recognises=re.compile(
        r"^(?=[A-Z][A-Z0-9_:/() |#]{0,900}$)(?!.*JOBID)(?=.*(?:NODELIST|HOSTNAMES)(?:[\s|]|$))"
        r"(?=(?:.*[\s|#])?(?:STATE|REASON)(?:[\s|]|$))"
    ),
    shape="table",
    loosely="NODELIST|HOSTNAMES",
)
