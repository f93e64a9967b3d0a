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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from parsers.formats.sacct import NOTHING
from parsers.text.documents import DocumentParser, JsonDocument
from parsers.text.parser import Context, Format, ParseError
from parsers.text.stamp import Stamps
from store.records.event import Event
from store.records.fault_catalog import with_kind_meaning
from store.records.outage import classify

# A node's state as Slurm's commands print it, in words, flags and signs, made one; the event of a node out of service.
#
#     read_state("drained*")       -> NodeState(flags=("DRAIN", "NOT_RESPONDING"), busy=False)      sinfo %T
#     read_state("drng")           -> NodeState(flags=("DRAIN",), busy=True)                        sinfo %t
#     read_state("MIXED+DRAIN")    -> NodeState(flags=("DRAIN",), busy=True)                        scontrol, REST
#     read_state("idle")           -> NodeState(flags=(), busy=False): in service
#
# A node in service gives no event, whether it is idle, allocated, completing, reserved or planned for a job.

# What each word says beyond "in service"; long forms (sinfo %T, scontrol) and short ones (sinfo %t).
_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("DOWN",), "DOWN"),
    **dict.fromkeys(("DRAIN", "DRAINED", "DRAINING", "DRNG"), "DRAIN"),
    **dict.fromkeys(("FAIL", "FAILING", "FAILG"), "FAIL"),
    **dict.fromkeys(("ERROR", "ERR"), "ERROR"),
    **dict.fromkeys(("INVAL", "INVALID", "INVALID_REG"), "INVALID_REG"),
    **dict.fromkeys(("UNKNOWN", "UNK"), "UNKNOWN"),
    **dict.fromkeys(("NOT_RESPONDING", "NO_RESPOND"), "NOT_RESPONDING"),
    **dict.fromkeys(("MAINT", "MAINTENANCE"), "MAINT"),
    **dict.fromkeys(("REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "BOOT"), "REBOOT"),
    **dict.fromkeys(("POWER_DOWN", "POWERED_DOWN", "POWERING_DOWN", "POW_DN", "POWER"), "POWERED_DOWN"),
    **dict.fromkeys(("POWERING_UP", "POWER_UP", "POW_UP"), "POWERING_UP"),
}
_BUSY = frozenset(("DRAINING", "DRNG", "FAILING", "FAILG", "ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP"))
# Signs behind a word (sinfo's manual, "NODE STATE CODES"); `-` is planned for a job, which is in service.
_SIGNS: Mapping[str, str] = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "!": "POWERED_DOWN",
    "%": "POWERED_DOWN",
    "#": "POWERING_UP",
    "$": "MAINT",
    "@": "REBOOT",
    "^": "REBOOT",
}
# States that somebody wanted. With any other flag beside them the reason decides.
_WANTED = frozenset(("MAINT", "REBOOT", "POWERED_DOWN", "POWERING_UP"))
# Who writes a reason, by how it begins: ours, node health check, Nebius soperator, SchedMD's operator.
_OWNERS = (
    (re.compile(r"foreshock:", re.IGNORECASE), "foreshock"),
    (re.compile(r"NHC:", re.IGNORECASE), "nhc"),
    (re.compile(r"\[(?:node|user)_problem\]"), "soperator"),
    (re.compile(r"slurm-operator:"), "slurm-operator"),
)
_NO_REASON = NOTHING | {"none", "unknown"}


@dataclass(frozen=True, slots=True)
class NodeState:
    """Why a node is out of service, in the words of scontrol; none where it is in service. `busy`: jobs still run."""

    flags: tuple[str, ...]
    busy: bool


def read_state(text: str) -> NodeState:
    """The state that a command printed; a word of no meaning here is one of a node in service."""
    flags: dict[str, None] = {}
    busy = False
    for part in text.upper().split("+"):
        word = part.strip().rstrip("*~!%#$@^-")
        busy = busy or word in _BUSY
        signs = (_SIGNS[sign] for sign in part.strip()[len(word) :] if sign in _SIGNS)
        flags |= dict.fromkeys(flag for flag in (_FLAGS.get(word), *signs) if flag)
    return NodeState(tuple(flags), busy)


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Why a node was taken out, when and by whom; None for what is not told."""

    text: str | None = None
    time: datetime | None = None
    user: str | None = None


def read_reason(text: str, time: datetime | None, user: str) -> NodeReason:
    """A reason with its words for nothing taken out; `root(0)` is root."""
    text, user = text.strip(), user.strip().split("(")[0]
    return NodeReason(None if text in _NO_REASON else text, time, None if user in _NO_REASON else user)


def node_events(
    source: str, nodes: Iterable[str], state: NodeState | None, reason: NodeReason, line: int
) -> list[Event]:
    """One event for each node that is out of service. `state` is None where only the reason was printed."""
    flags = () if state is None else state.flags
    if state is not None and not flags:
        return []
    words = "+".join(flags)
    planned, cause = classify(words, reason.text or "")
    wanted = planned or (bool(flags) and _WANTED.issuperset(flags))
    owner = next((name for begins, name in _OWNERS if begins.match(reason.text or "")), None)
    event = Event(
        time=reason.time,
        node=None,
        source=source,
        kind="node_state",
        message=f"{words} {reason.text or ''}".strip(),
        attributes={
            "state": words or None,
            "busy": None if state is None else state.busy,
            "reason": reason.text,
            "user": reason.user,
            "owner": owner,
        },
        line=line,
    )
    event = replace(with_kind_meaning(event, "planned" if wanted else ""), cause=cause)
    return [replace(event, node=node) for node in nodes]


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

    def _document(self, document: JsonDocument) -> list[Event]:
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
    recognises=re.compile(
        r"^NodeName=\S{1,255} (?:Arch=\S{1,40} )?CoresPerSocket=\d{1,6}(?: {1,2}CPUAlloc=| {0,2}$)"
        r"|^\s{0,20}\"(?:reason_set_by_user|next_state_after_reboot|slurmd_start_time)\": "
    ),
)
