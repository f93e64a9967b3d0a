"""Which event of a fault is its root: the worst one first, then the earliest, and never a mere consequence.

An Xid 45 (channels torn down) follows nearly every fault of a GPU; the fault that it follows is the one to act on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from store.event import SEVERITIES, Action, Cause, Device, Event, Severity

# Xids that only report what another fault led to: channels torn down, a channel reset, a changed recovery action.
REPORTS = frozenset({45, 43, 154})
# Xid -> the Xids that lead to it: an MMU fault follows a failed PMU call in 82 % of cases (FIELD D5); a GPU off the
# bus, a dead system processor or lost memory take the program along.
CONSEQUENCE_OF: Mapping[int, frozenset[int]] = {
    31: frozenset({122, 79, 119, 120, 48, 94, 95}),
    13: frozenset({79, 119, 120, 48, 94, 95}),
}
_MACHINE: frozenset[Cause] = frozenset({"hardware", "fabric", "driver", "host", "storage"})


@dataclass(frozen=True, slots=True)
class Head:
    """What an incident is called by: the part of an event that it takes over."""

    time: datetime
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    action: Action
    device: Device
    message: str
    follows: bool = False  # its own line says that another fault caused it


def head_of(event: Event, time: datetime) -> Head:
    """The head that an event would make."""
    return Head(
        time,
        event.kind,
        event.code,
        event.severity,
        event.cause,
        event.action,
        event.device,
        event.message,
        follows=event.attributes.get("caused_by") is not None,
    )


def kind_key(kind: str, code: int | None) -> str:
    """How an incident counts a kind of event: `xid:79`, `link_down`."""
    return kind if code is None else f"{kind}:{code}"


def root(heads: Sequence[Head], kinds: Collection[str]) -> Head:
    """The head of an incident in which these kinds occurred: the worst, the machine's, the earliest.

    Args:
        heads: candidates, at least one, the earliest first where times are equal.
        kinds: every kind of the incident, as `kind_key` writes it.
    """
    return min(
        heads, key=lambda head: (is_consequence(head, kinds), -badness(head.severity), not_machine(head), head.time)
    )


def is_consequence(head: Head, kinds: Collection[str]) -> bool:
    """Whether another fault of the incident led to this one."""
    others = {kind for kind in kinds if kind != kind_key(head.kind, head.code)}
    if head.follows and others:
        return True
    if head.kind != "xid" or head.code is None:
        return False
    if head.code in REPORTS:  # one report is no cause of another
        faults = {kind for kind in others if kind.startswith(("xid:", "sxid:"))}
        return bool(faults - {kind_key("xid", code) for code in REPORTS})
    return any(kind_key("xid", code) in others for code in CONSEQUENCE_OF.get(head.code, ()))


def badness(severity: Severity) -> int:
    """0 for info up to 3 for fatal."""
    return SEVERITIES.index(severity)


def not_machine(head: Head) -> bool:
    """Whether the fault is not known to be one of the machine."""
    return head.cause not in _MACHINE
