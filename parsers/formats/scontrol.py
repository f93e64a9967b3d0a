"""Slurm's nodes as `scontrol show node` prints them: over several lines, on one (`-o`), or `--json`.

    NodeName=gpu001 Arch=x86_64 CoresPerSocket=1
       State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
       Reason=foreshock: Xid 79 on GPU 3 (p=0.93) [root@2026-11-20T22:22:18]
    -> {"kind": "node_state", "time": "2026-11-20T22:22:18Z", "node": "gpu001",
        "attributes": {"state": "DRAIN", "busy": true, "reason": "foreshock: Xid 79 ...", "user": "root", ...}, ...}

A node in service gives no event. JSON is that of `scontrol show node --json`, of `sinfo --json` of Slurm 22.05 and of
slurmrestd: an object whose `nodes` are listed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from parsers.reports.slurm import node_events, read_reason, read_state
from parsers.text.documents import Document, DocumentParser
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from store.records.event import Event

_NODE = re.compile(r"\s{0,8}NodeName=(?P<node>\S{1,255})", re.ASCII)
_STATE = re.compile(r"(?:^|\s)State=(?P<state>\S{1,200})")
_REASON = re.compile(r"(?:^|\s)Reason=")
_SET_BY = re.compile(r"\s?\[(?P<user>[^\s@\[\]]{1,64})@(?P<time>[^\s@\[\]]{1,40})\]")
# Slurm 22.05 puts a reason's further lines below the first one, which ends with who set it, further in than a key.
_MORE_REASON = re.compile(r" {8,12}(?![A-Z][A-Za-z_]{2,30}=)(?P<text>\S.*)")
_NEXT_KEY = re.compile(r"\s[A-Z][A-Za-z_]{2,30}=")
# Slurm cuts a reason nowhere; one that goes on for more lines than this is none.
MAX_REASON_LINES = 16


@dataclass(slots=True)
class _ScontrolNode:
    """A node whose lines are still coming."""

    name: str
    line: int
    state: str | None = None
    reason: str = ""
    reason_lines: int = 0  # lines of a reason whose end has not come
    below_reason: int = 0  # lines that may still go on with a reason whose first line has ended
    user: str = ""
    time: datetime | None = None


class ScontrolParser:
    """Decodes the lines of `scontrol show node`. Holds one node, or one JSON object."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._node: _ScontrolNode | None = None
        self._documents = DocumentParser(self._document, lists=("nodes",))

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The node that this line ends.

        Raises:
            ParseError: a node without a state, a JSON object that is cut short.
        """
        if match := _NODE.match(text):
            node, self._node = self._node, _ScontrolNode(match["node"], line)
            self._read(self._node, text[match.end() :])
            return _events(node) if node else []
        if self._node is not None and text[:1].isspace():
            self._read(self._node, text)
            return []
        if self._node is not None:
            node, self._node = self._node, None
            return _events(node)
        return self._documents.feed(text, line)

    def flush(self) -> Iterable[Event]:
        """The last node.

        Raises:
            ParseError: it has no state, or a JSON object is cut short.
        """
        node, self._node = self._node, None
        return _events(node) if node else self._documents.flush()

    def _read(self, node: _ScontrolNode, text: str) -> None:
        """What a line says of its node."""
        if node.reason_lines:
            self._read_reason(node, text)
            return
        if node.below_reason and (more := _MORE_REASON.match(text)):
            node.below_reason -= 1
            node.reason += f"\n{more['text'].strip()}"
            return
        node.below_reason = 0
        found = _REASON.search(text)
        if node.state is None and (state := _STATE.search(text)):
            node.state = state["state"]
        if found:
            self._read_reason(node, text[found.end() :])

    def _read_reason(self, node: _ScontrolNode, text: str) -> None:
        """A reason, or more of it: it ends with who set it and when."""
        end = _SET_BY.search(text)
        more = text[: end.start()] if end else text
        node.reason = f"{node.reason}\n{more.strip()}" if node.reason_lines else more.strip()
        if end:
            node.reason_lines, node.below_reason = 0, MAX_REASON_LINES
            node.user, node.time = end["user"], self._stamps.iso(end["time"])
            return
        if key := _NEXT_KEY.search(node.reason):
            node.reason, node.reason_lines = node.reason[: key.start()], 0
            return
        node.reason_lines = (node.reason_lines + 1) % MAX_REASON_LINES

    def _document(self, document: Document) -> list[Event]:
        """The event of one node of a JSON answer."""
        value = document.value
        name = value.get("name")
        if not isinstance(name, str) or not name or "state" not in value:
            return []
        states = [*_words(value["state"]), *_words(value.get("state_flags"))]
        number = _number(value.get("reason_changed_at"))
        time = self._stamps.since_epoch(number) if number else None
        reason = read_reason(_text(value.get("reason")), time, _text(value.get("reason_set_by_user")))
        return node_events("scontrol", [name], read_state("+".join(states)), reason, document.line)


def _events(node: _ScontrolNode) -> list[Event]:
    if node.state is None:
        raise ParseError(f"the node {node.name[:60]} has no State: its lines are cut short")
    reason = read_reason(node.reason, node.time, node.user)
    return node_events("scontrol", [node.name], read_state(node.state), reason, node.line)


def _words(value: Any) -> list[str]:
    """The words of a state: one in Slurm 22.05, a list in later ones."""
    return [word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """A number; later Slurms wrap one: {"set": true, "infinite": false, "number": 1795214728}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


FORMAT = Format(
    name="scontrol",
    description="Slurm's nodes and their states: scontrol show node, with -o, --json; slurmrestd's nodes",
    sample="NodeName=gpu002 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.02 Gres=gpu:h100:8 "
    "State=DOWN+NOT_RESPONDING ThreadsPerCore=1 Partitions=train Reason=Not responding [slurm@2026-11-20T22:23:10]",
    make=ScontrolParser,
    testimony="scheduler",
    recognises=re.compile(
        r"^NodeName=\S{1,255} (?:Arch=\S{1,40} )?CoresPerSocket=\d{1,6}(?: {1,2}CPUAlloc=| {0,2}$)"
        r"|^\s{0,20}\"(?:reason_set_by_user|next_state_after_reboot|slurmd_start_time)\": "
    ),
)
