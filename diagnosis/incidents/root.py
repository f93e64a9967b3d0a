"""Which event of a fault is its root: the worst one first, then the earliest, and never a mere consequence.

An Xid 45 (channels torn down) follows nearly every fault of a GPU; the fault that it follows is the one to act on.
Of a fault that several detectors tell, the witness names the incident: the kernel's line has device and process.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from store.records.event import SEVERITIES, Action, Attribute, Cause, Device, Event, Severity, kind_key
from store.records.event_sources import DETECTORS

# Xids that only report what another fault led to: channels torn down, a channel reset, a changed recovery action.
REPORTS = frozenset({45, 43, 154})
# NVLink 5: a link or unit that failed in one GPU; and what the other GPUs of its domain print because of that.
LINK_FAULTS = frozenset({144, 146, 147, 148, 149, 150})
DOWNSTREAM = frozenset({145})
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
    # A later sign of a fault that another witness saw or an earlier moment showed: its Xid, and since when it stands.
    sign_of: int | None = None
    sign_since: datetime | None = None
    link: int | None = None  # of the device
    caused_by: int | None = None  # the Xid that its own line names as its cause

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
        "warning" if event.severity == "info" and _caused_by(event) in LINK_FAULTS else event.severity,
        event.cause,
        event.action,
        event.device,
        event.message,
        source=event.source,
        name=event.name(),
        follows=event.attributes.get("caused_by") is not None,
        id=event.id or "",
        link=_link_of(event),
        caused_by=_caused_by(event),
        **_sign(event),
    )


def _sign(event: Event) -> dict[str, Any]:
    """Of which fault it is a later sign: what an exporter's gauge shows, or what came after an Xid that stood."""
    attributes = event.attributes
    if event.kind == "xid" and attributes.get("gauge"):
        return _reach(event.code, attributes.get("after"))
    xid, _, code = str(attributes.get("follows", "")).partition(":")
    is_code = xid == "xid" and code.isdecimal() and len(code) <= _MOST_DIGITS
    return _reach(int(code), attributes.get("since")) if is_code else {}


def _reach(code: int | None, since: Attribute) -> dict[str, Any]:
    try:
        moment = datetime.fromisoformat(str(since))
    except ValueError:
        return {}
    return {} if moment.tzinfo is None else {"sign_of": code, "sign_since": moment}


def _caused_by(event: Event) -> int | None:
    code = event.attributes.get("caused_by")
    return code if event.kind == "xid" and _is_number(code) else None


def _link_of(event: Event) -> int | None:
    """The link of an NVLink fault; other formats number their links otherwise, and -1 is none."""
    link = event.attributes.get("link")
    return link if event.kind in _WITH_LINK and _is_number(link) and 0 <= link < MOST_LINKS else None


def _is_number(value: Attribute) -> TypeGuard[int]:
    """Whether it is a whole number: True is an int to Python, and is none to what reads a fault."""
    return isinstance(value, int) and not isinstance(value, bool)


# Of a code that another event names.
_MOST_DIGITS = 9
# A GPU has 18 today.
MOST_LINKS = 256
_WITH_LINK = frozenset({"xid", "nvlink_outlier"})


def is_link_fault(head: IncidentHead) -> bool:
    """Whether it says that the NVLink part of its own GPU failed, or that this led to it: a line may be lost."""
    if head.kind != "xid":
        return False
    return head.caused_by in LINK_FAULTS or (head.code in LINK_FAULTS and badness(head.severity) >= _GRAVE)


def domain_part(event: Event) -> str:
    """What an event of a node may be a part of in its NVLink domain: `nvlink`, `reports` of another Xid, or nothing."""
    if event.kind != "xid":
        return ""
    caused_by = event.attributes.get("caused_by")
    if event.code in LINK_FAULTS or event.code in DOWNSTREAM or caused_by in LINK_FAULTS or caused_by in DOWNSTREAM:
        return "nvlink"
    return "reports" if event.code in REPORTS and caused_by is None else ""


def plain(key: str) -> str:
    """The kind of a `kind_key`, without its code."""
    return key.partition(":")[0]


REPORT_KEYS = frozenset(kind_key("xid", code) for code in REPORTS)


_DOWNSTREAM_KEYS = frozenset(kind_key("xid", code) for code in DOWNSTREAM)
_GRAVE = SEVERITIES.index("error")


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
    if kinds >= _DOWNSTREAM_KEYS and any(head.code in LINK_FAULTS and is_link_fault(head) for head in heads):
        ordered = [head for head in ordered if head.kind != "xid" or head.code not in DOWNSTREAM] or ordered
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
        return any(kind.startswith(("xid:", "sxid:")) and kind not in REPORT_KEYS for kind in kinds)
    return any(kind in kinds for kind in CONSEQUENCE_OF.get(head.code, ()))


def badness(severity: Severity) -> int:
    """0 for info up to 3 for fatal."""
    return SEVERITIES.index(severity)


def not_machine(head: IncidentHead) -> bool:
    """Whether the fault is not known to be one of the machine."""
    return head.cause not in _MACHINE
