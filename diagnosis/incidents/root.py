"""Which event of a fault is its root: the worst one first, then the earliest, and never a mere consequence.

An Xid 45 (channels torn down) follows nearly every fault of a GPU; the fault that it follows is the one to act on.
Of a fault that several detectors tell, the witness names the incident: the kernel's line has device and process.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from store.records.event import SEVERITIES, Action, Cause, Device, Event, Severity
from store.records.event_sources import DETECTORS

# Xids that only report what another fault led to: channels torn down, a channel reset, a changed recovery action.
REPORTS = frozenset({45, 43, 154})
# Xid -> what leads to it: an MMU fault follows a failed PMU call in 82 % of cases (FIELD D5); a GPU off the bus, a dead
# system processor or lost memory take the program along. A GPU off the bus leaves its system processor without answer.
_OFF_THE_BUS = frozenset({"xid:79", "gpu_lost", "gpu_lost:79"})
_GPU_GONE = _OFF_THE_BUS | {"xid:119", "xid:120", "xid:48", "xid:94", "xid:95"}
CONSEQUENCE_OF: Mapping[int, frozenset[str]] = {
    31: _GPU_GONE | {"xid:122"},
    13: _GPU_GONE,
    119: _OFF_THE_BUS,
    120: _OFF_THE_BUS,
}
# The lines that only spell out another one: `sxid_detail` of `sxid`.
_DETAIL = "_detail"
_MACHINE: frozenset[Cause] = frozenset({"hardware", "fabric", "driver", "host", "storage"})


@dataclass(frozen=True, slots=True)
class IncidentHead:
    """What an incident is called by: the part of an event that it takes over."""

    time: datetime
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    action: Action
    device: Device
    message: str
    source: str | None = None
    name: str | None = None
    follows: bool = False  # its own line says that another fault caused it
    id: str = ""  # the event's

    @property
    def second_hand(self) -> bool:
        """Whether it repeats what another witness said."""
        return self.source in DETECTORS


def head_of(event: Event, time: datetime) -> IncidentHead:
    """The head that an event would make."""
    return IncidentHead(
        time,
        event.kind,
        event.code,
        event.severity,
        event.cause,
        event.action,
        event.device,
        event.message,
        source=event.source,
        name=event.name(),
        follows=event.attributes.get("caused_by") is not None,
        id=event.id or "",
    )


def kind_key(kind: str, code: int | None) -> str:
    """How an incident counts a kind of event: `xid:79`, `link_down`."""
    return kind if code is None else f"{kind}:{code}"


def plain(key: str) -> str:
    """The kind of a `kind_key`, without its code."""
    return key.partition(":")[0]


_REPORT_KEYS = frozenset(kind_key("xid", code) for code in REPORTS)


def root(heads: Sequence[IncidentHead], kinds: Collection[str]) -> IncidentHead:
    """The head of an incident in which these kinds occurred: the worst, the machine's, a witness's, the earliest.

    Args:
        heads: candidates, at least one, the earliest first where times are equal.
        kinds: every kind of the incident, as `kind_key` writes it.
    """
    if len(heads) == 1:
        return heads[0]
    kinds = frozenset(kinds)
    seen = {kind_key(head.kind, head.code) for head in heads if not head.second_hand}

    def rank(head: IncidentHead) -> tuple[bool, int, bool, bool, datetime]:
        second_hand = head.second_hand
        echo = second_hand and kind_key(head.kind, head.code) in seen
        return echo, -badness(head.severity), not_machine(head), second_hand, head.time

    ordered = sorted(heads, key=rank)
    return next((head for head in ordered if not is_consequence(head, kinds)), ordered[0])


def is_consequence(head: IncidentHead, kinds: Collection[str]) -> bool:
    """Whether another fault of the incident led to this one.

    Asked of each head of an incident of very many kinds: `kinds` is not gone through where it need not be.
    """
    own = kind_key(head.kind, head.code)
    if head.follows and len(kinds) > (own in kinds):
        return True
    if head.kind.endswith(_DETAIL):
        spelled_out = head.kind.removesuffix(_DETAIL)
        return any(plain(kind) == spelled_out for kind in kinds)
    if head.kind == "alert" and head.code is not None:
        return f"xid:{head.code}" in kinds or f"sxid:{head.code}" in kinds
    if head.kind != "xid" or head.code is None:
        return False
    if head.code in REPORTS:  # one report is no cause of another
        return any(kind.startswith(("xid:", "sxid:")) and kind not in _REPORT_KEYS for kind in kinds)
    return any(kind in kinds for kind in CONSEQUENCE_OF.get(head.code, ()))


def badness(severity: Severity) -> int:
    """0 for info up to 3 for fatal."""
    return SEVERITIES.index(severity)


def not_machine(head: IncidentHead) -> bool:
    """Whether the fault is not known to be one of the machine."""
    return head.cause not in _MACHINE
