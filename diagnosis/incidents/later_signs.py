"""Later signs of a fault that has its incident: what a gauge shows long after the line, a GPU that is gone days after.

An exporter's gauge shows an Xid up to an interval after the kernel's line of it; a GPU that fell off the bus may be
reported on for days before it is gone from the page. Both are one fault with what came before, and its incident counts
them. They do not stretch it: its end stays that of its own events, so that nothing else of the node is drawn in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol, Self, TypeVar

from diagnosis.incidents.root import IncidentHead, root
from store.records.event import kind_key

# How far a clock may be off, and the gap of a node's incident.
_SLACK = timedelta(minutes=1)
# A gauge that looks once a day shows a fault a day later: how far ahead its incident may lie.
LONGEST_INTERVAL = timedelta(days=1)
_OFF_THE_BUS = 79


def shown_by(head: IncidentHead, heads: Sequence[IncidentHead]) -> IncidentHead:
    """What names an incident that a gauge shows: of several GPUs at once the first, with the others in its words."""
    if head.sign_since is None or head.kind != "xid":
        return head
    alike = [one for one in heads if (one.kind, one.code) == (head.kind, head.code) and one.device.index is not None]
    gpus = sorted({one.device.index: one for one in reversed(alike)}.items())
    if len(gpus) < 2:
        return head
    words = f"{head.message} (GPUs {', '.join(str(index) for index, _ in gpus)})"
    return replace(head, device=gpus[0][1].device, message=words)


class IncidentFault(Protocol):
    """A fault of a node, folded."""

    id: str
    node: str | None
    start: datetime
    end: datetime
    kinds: dict[str, int]
    heads: list[IncidentHead]
    shown: datetime | None

    def join(self, *others: Self) -> None:
        """Take other parts of the same fault in."""


FaultT = TypeVar("FaultT", bound=IncidentFault)


def sign_of(fault: IncidentFault) -> IncidentHead | None:
    """What names a fault that is but a later sign; None for a fault of its own."""
    if all(head.sign_since is None for head in fault.heads):
        return None
    head = root(fault.heads, fault.kinds)
    return head if head.sign_since is not None and head.sign_of is not None else None


# A gauge shows what stands for longer than this only where the node's own word goes back further than anybody keeps.
LONGEST_STAND = timedelta(days=91)


def is_shown(head: IncidentHead) -> bool:
    """Whether it says that a fault stands which an earlier moment showed: told again and again while it does."""
    return head.kind == "xid_hint" and head.sign_of is not None and head.sign_since is not None


def fault_shown(head: IncidentHead, end: datetime, faults: Iterable[FaultT]) -> FaultT | None:
    """The fault that a gauge shows to stand, by a head of a new one that ended at `end`; it then says so."""
    if head.sign_since is None:
        return None
    key, since = kind_key("xid", head.sign_of), head.sign_since - _SLACK
    found = [one for one in faults if key in one.kinds and one.start < head.time and one.end >= since]
    target = min(found, key=lambda one: (sign_of(one) is not None, one.start, one.id), default=None)
    if target is not None:
        target.shown = end if target.shown is None else max(target.shown, end)
    return target


def reach_of(faults: Iterable[IncidentFault]) -> tuple[datetime | None, bool]:
    """How far back the faults that these are later signs of may lie; whether later signs of these may be stored."""
    signs = [
        max(head.sign_since, fault.start - LONGEST_STAND)
        for fault in faults
        for head in (sign_of(fault), *filter(is_shown, fault.heads))
        if head is not None and head.sign_since is not None
    ]
    coded = any(key.startswith(("xid:", "gpu_lost")) for fault in faults for key in fault.kinds)
    return min(signs, default=None), coded


def is_sign_of(fault: IncidentFault, target: IncidentFault) -> bool:
    """Whether a fault is a later sign of another one of the same node."""
    head = sign_of(fault)
    if head is None or head.sign_since is None or head.sign_of is None or target is fault:
        return False
    keys = {kind_key(kind, head.sign_of) for kind in ("xid", "gpu_lost", "xid_hint")}
    keys |= {"gpu_lost"} if head.sign_of == _OFF_THE_BUS else set()
    earlier = (target.start, target.id) < (fault.start, fault.id)
    return earlier and target.end >= head.sign_since - _SLACK and not keys.isdisjoint(target.kinds)


def target_of(fault: FaultT, faults: Sequence[FaultT]) -> FaultT | None:
    """The fault that one is a later sign of: one that is none itself before one that is, then the earliest."""
    found = [] if sign_of(fault) is None else [target for target in faults if is_sign_of(fault, target)]
    return min(found, key=lambda one: (sign_of(one) is not None, one.start, one.id), default=None)


def join_sign(target: FaultT, sign: FaultT) -> None:
    """Count a later sign with its fault."""
    end = target.end
    target.join(sign)
    target.end = end


def with_signs_joined(faults: Iterable[FaultT]) -> list[FaultT]:
    """Faults in any order, with the later signs among them counted with theirs."""
    of_node: dict[str | None, list[FaultT]] = {}
    for fault in sorted(faults, key=lambda one: (one.start, one.id)):
        of_node.setdefault(fault.node, []).append(fault)
    kept: list[FaultT] = []
    for node, ones in of_node.items():
        mine: list[FaultT] = []
        for fault in ones:
            target = None if node is None else target_of(fault, mine)
            if target is None:
                mine.append(fault)
            else:
                join_sign(target, fault)
        kept += mine
    return kept
