"""Whom to blame for an attempt's bad end: the device that failed first, or what its neighbours and records tell.

The subnet manager is the only witness of much: a host that crashes, a power supply that fails and a leaf switch that
dies all show as ports that vanish. The outage that follows, or who else vanished with it, tells them apart.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter

from goodput.timeline import from_ms, to_ms
from goodput.wall_time.attempts import Attempt
from goodput.wall_time.interruption import LOST_LINKS, Culprit
from store.event import Cause, Device, Event
from store.outage import Outage

# A node that dies silently is marked down by the scheduler up to this long after the attempt ended.
_MARKED_DOWN = timedelta(minutes=30)
# Ports under one switch vanish within one sweep of the subnet manager; three nodes are no coincidence.
_TOGETHER = timedelta(seconds=10)
_SEVERAL = 3
_MOMENT = itemgetter(0)

_CAUSE_OF_STATE: Mapping[str, Cause] = {"NODE_FAIL": "host", "BOOT_FAIL": "host", "OUT_OF_MEMORY": "application"}
_STORAGE = re.compile(
    r"Errno 5\b|Input/output error|Stale file handle|No space left|Read-only file system", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What may speak for or against someone: faults and reported errors, outages, each node's leaf switch."""

    faults: Sequence[Event] = ()
    outages: Sequence[Outage] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    _by_time: Sequence[tuple[int, Event]] = field(init=False)

    def __post_init__(self) -> None:
        timed = [(to_ms(event.time), event) for event in self.faults if event.time is not None]
        object.__setattr__(self, "_by_time", sorted(timed, key=_MOMENT))

    def between(self, since_ms: int, until_ms: int) -> list[Event]:
        """The faults of a closed window, by their times."""
        first = bisect_left(self._by_time, since_ms, key=_MOMENT)
        return [event for _, event in self._by_time[first : bisect_right(self._by_time, until_ms, key=_MOMENT)]]


def blame(
    attempt: Attempt, fault: Event | None, window_ms: tuple[int, int], evidence: Evidence
) -> tuple[Cause, Culprit | None]:
    """Cause and culprit of an attempt's end: of the fault that came first, else of whom the records name.

    Args:
        fault: the first fault, None where none was seen.
        window_ms: from the last progress to the end, milliseconds since 1970.
    """
    down = _went_down(attempt, window_ms, evidence)
    if fault is not None and fault.kind != "training_error":
        return _of_machine(fault, down, evidence)
    if down:
        return down[0].cause, Culprit(down[0].node, Device(type="node"), "outage", None)
    cause = _CAUSE_OF_STATE.get(attempt.state, "unknown") if fault is None else _of_words(fault)
    return cause, _failed_task(window_ms, evidence)


def _went_down(attempt: Attempt, window_ms: tuple[int, int], evidence: Evidence) -> list[Outage]:
    """Unplanned outages of the attempt's nodes that began between its last progress and shortly after its end."""
    since, until = from_ms(window_ms[0]), from_ms(window_ms[1]) + _MARKED_DOWN
    near = [
        outage
        for outage in evidence.outages
        if not outage.planned and outage.node in attempt.nodes and since <= outage.start <= until
    ]
    return sorted(near, key=lambda outage: (outage.start, outage.node))


def _of_machine(fault: Event, down: Sequence[Outage], evidence: Evidence) -> tuple[Cause, Culprit]:
    """The device of a fault; of a lost link, the switch above or the node behind it where that is what failed."""
    own = Culprit(fault.node, fault.device, fault.kind, fault.code)
    if fault.kind not in LOST_LINKS:
        return fault.cause, own
    leaf = evidence.leaves.get(fault.node or "")
    if leaf is not None and len(_vanished_with(fault, leaf, evidence)) >= _SEVERAL:
        return fault.cause, Culprit(leaf, Device(type="switch"), fault.kind, None)
    for outage in down:
        if outage.node == fault.node and outage.cause not in ("fabric", "unknown"):
            return outage.cause, Culprit(outage.node, Device(type="node"), "outage", None)
    return fault.cause, own


def _vanished_with(fault: Event, leaf: str, evidence: Evidence) -> set[str]:
    """The nodes under a leaf that lost a link within seconds of a fault, its own among them."""
    if fault.time is None:
        return set()
    return {
        event.node
        for event in evidence.between(to_ms(fault.time - _TOGETHER), to_ms(fault.time + _TOGETHER))
        if event.node is not None and event.kind in LOST_LINKS and evidence.leaves.get(event.node) == leaf
    }


def _of_words(fault: Event) -> Cause:
    """The cause of an error that the program reported: what its line says, else the program's own."""
    if fault.cause != "unknown":
        return fault.cause
    return "storage" if _STORAGE.search(fault.message) else "application"


def _failed_task(window_ms: tuple[int, int], evidence: Evidence) -> Culprit | None:
    """The node whose task failed, if the launcher names one alone: when all are killed, none of them is to blame."""
    told = evidence.between(*window_ms)
    named = {event.node for event in told if event.kind == "training_error" and event.node}
    return Culprit(named.pop(), Device(type="node"), "training_error", None) if len(named) == 1 else None
