"""An interruption: an attempt that ended badly, when it stopped getting on, whose fault it was and what it cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from goodput.timeline import from_ms
from goodput.wall_time.attempts import RESIZED, STILL_OPEN, SUCCESSFUL, Attempt
from store.event import Cause, Device, Event, format_time

FAULT_SEVERITIES = ("error", "fatal")
FAULT_CAUSES = ("hardware", "fabric", "host", "driver", "storage")
# What a lost link is called by the subnet manager and by the host that lost it.
LOST_LINKS = ("link_down", "port_removed", "ib_port", "net_link", "bond_down", "node_down")
# Without a training log nobody knows when the work stopped: only faults this close to the end may have ended it.
BLIND_WINDOW_MS = 30 * 60_000


@dataclass(frozen=True, slots=True)
class Culprit:
    """The device that is held to have ended an attempt, and what it said."""

    node: str | None
    device: Device
    kind: str
    code: int | None

    def to_json(self) -> dict[str, Any]:
        """The device with its node; `kind` and `code` of the event that names it."""
        d = self.device
        return {
            "type": d.type,
            "node": self.node,
            "pci": d.pci,
            "index": d.index,
            "uuid": d.uuid,
            "port": d.port,
            "kind": self.kind,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class Interruption:
    """One attempt's bad end. `restart_ms` = detection, then waiting, startup and load of the next attempt.

    `gpus` = how many the attempt had; None = not known.
    """

    time_ms: int
    cause: Cause
    culprit: Culprit | None
    lost_work_ms: int
    restart_ms: int
    gpus: int | None = None

    @property
    def lost_ms(self) -> int:
        """What it cost in wall time: the work thrown away and the way back."""
        return self.lost_work_ms + self.restart_ms

    def to_json(self) -> dict[str, Any]:
        """The object of `foreshock goodput --json`."""
        return {
            "time": format_time(from_ms(self.time_ms)),
            "cause": self.cause,
            "culprit": None if self.culprit is None else self.culprit.to_json(),
            "lost_s": self.lost_ms / 1000,
        }


def is_fault(event: Event) -> bool:
    """Whether an event may have ended an attempt: a grave one of the machine, a lost link, a reported error."""
    grave = event.severity in FAULT_SEVERITIES
    if event.kind == "training_error":  # a warning only tells that the scheduler ended the program
        return grave
    return (grave and event.cause in FAULT_CAUSES) or (event.kind in LOST_LINKS and event.severity != "info")


def fault_window(attempt: Attempt, end_ms: int, worked_ms: int | None = None) -> tuple[int, int]:
    """The closed window in which the fault that ended an attempt must lie: after its last iteration.

    `worked_ms` is where the last iteration was placed, for lines that bear no time.
    """
    last = worked_ms if attempt.last_iteration_ms is None else attempt.last_iteration_ms
    if last is not None:
        return min(last, end_ms), end_ms
    start = end_ms if attempt.start_ms is None else attempt.start_ms
    return (start, end_ms) if attempt.lines else (max(start, end_ms - BLIND_WINDOW_MS), end_ms)


def first_fault(attempt: Attempt, faults: Iterable[Event]) -> Event | None:
    """The earliest fault on the attempt's nodes (or of its program), of those in its window."""
    found = [
        event
        for event in faults
        if (event.node in attempt.nodes or event.kind == "training_error")
        and not event.attributes.get("time_assumed")
        and is_fault(event)
    ]
    return min(found, key=lambda e: (e.time, e.kind == "training_error", e.line or 0, e.id or ""), default=None)


def ended_badly(attempt: Attempt, fault: Event | None) -> bool:
    """Whether an attempt was interrupted. One that was cancelled is, if a fault made someone cancel it."""
    if attempt.end_ms is None or attempt.state in SUCCESSFUL or attempt.state in STILL_OPEN:
        return False
    if attempt.state == RESIZED:  # the next record of the same job goes on where this one ends
        return False
    return fault is not None or attempt.state != "CANCELLED"
