"""Slurm's words for the states of jobs and nodes, and the event of a node out of service.

    read_state("drained*")       -> NodeState(flags=("DRAIN", "NOT_RESPONDING"), busy=False)      sinfo %T
    read_state("drng")           -> NodeState(flags=("DRAIN",), busy=True)                        sinfo %t
    read_state("MIXED+DRAIN")    -> NodeState(flags=("DRAIN",), busy=True)                        scontrol, REST
    read_state("idle")           -> NodeState(flags=(), busy=False): in service

A node in service gives no event, whether it is idle, allocated, completing, reserved or planned for a job.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from store.records.event import Cause, Event, Severity
from store.records.fault_catalog import with_kind_meaning
from store.records.outage import classify

# What Slurm's commands print where they know nothing.
NOTHING = frozenset({"", "Unknown", "None", "N/A", "(null)", "None assigned", "Invalid"})
# State -> severity and cause, of states that say more than that a job ran.
STATES: Mapping[str, tuple[Severity, Cause]] = {
    "NODE_FAIL": ("error", "host"),
    "BOOT_FAIL": ("error", "host"),
    "FAILED": ("warning", "unknown"),
    "OUT_OF_MEMORY": ("warning", "application"),
    "TIMEOUT": ("info", "unknown"),
    "DEADLINE": ("info", "unknown"),
}

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
    """Why a node was taken out, when and by whom; None for what is not reported."""

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
