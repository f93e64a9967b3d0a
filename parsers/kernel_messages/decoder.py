"""Messages of the kernel log to events: the families in turn, faults of several messages made one.

nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link DLREQ interrupt
nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Severity 0 Engine instance 60 Sub-engine instance 00
-> one Event
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.registry import FAMILIES
from parsers.pci import canonical
from parsers.prefix import Record
from store.catalog import xid
from store.event import Device, Event

# A fault told by several messages: they follow each other within this time or, where times are unknown, these lines.
DETAILS_S = 1.0
DETAILS_LINES = 20
# Faults whose details are awaited at once; more are let go without.
MAX_HELD = 256
# GPUs whose address is remembered; a log of many hosts is bounded too.
MAX_GPUS = 100_000
# Kinds of the details themselves: without their head they are events of their own, and hold nothing.
DETAIL = "_detail"

_LOST = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)", re.ASCII
)
_AT = re.compile(r"NVRM: GPU at (?P<pci>[0-9A-Za-z:.]{5,24}): (?P<uuid>GPU-[0-9a-f-]{36})$", re.ASCII)
_GONE = "fallen off the bus"


class MessageDecoder:
    """Decodes messages. Holds faults whose details may still come, and which GPU is at which address."""

    def __init__(self, node: str | None) -> None:
        """`node` is the host of records that name none."""
        self._node = node
        self._held: list[tuple[Family, Event]] = []
        self._lost: tuple[str, int] | None = None
        self._uuids: dict[tuple[str | None, str], str] = {}

    def decode(self, record: Record, line: int) -> Iterator[Event]:
        """The events of a record; it may hold several messages."""
        if record.from_kernel():
            families = FAMILIES
        else:
            families = tuple(family for family in FAMILIES if record.tag in family.tags)
            if not families:
                return
        node = record.node or self._node
        for message in record.message.split("\n"):
            self._learn_uuid(message, node)
            for family, event in self._events(families, message, line):
                if record.repeats > 1:
                    event = replace(event, attributes={**event.attributes, "repeats": record.repeats})
                device = event.device
                if device.pci is not None and (uuid := self._uuids.get((node, device.pci))):
                    device = replace(device, uuid=uuid)
                event = replace(event, time=record.time, node=node, line=event.line or line, device=device)
                yield from self._released(event)
                yield from self._merged(family, event)

    def flush(self) -> list[Event]:
        """The faults held: nothing more belongs to them."""
        held, self._held = self._held, []
        return [event for _family, event in held]

    def _events(self, families: tuple[Family, ...], message: str, line: int) -> Iterator[tuple[Family | None, Event]]:
        for family in families:
            if any(sign in message for sign in family.signs) and (event := family.decode(message)):
                yield family, event
                return
        if event := self._gpu_lost(message, line):
            yield None, event

    def _merged(self, family: Family | None, event: Event) -> Iterator[Event]:
        """The event, unless it is more of a held one or must itself wait for more."""
        if family is None or family.merge is None:
            yield event
            return
        for place, (of, head) in enumerate(self._held):
            if of is family and head.node == event.node and (whole := family.merge(head, event)):
                self._held[place] = (of, whole)
                return
        if event.kind.endswith(DETAIL):
            yield event
            return
        self._held.append((family, event))
        if len(self._held) > MAX_HELD:
            yield self._held.pop(0)[1]

    def _released(self, now: Event) -> list[Event]:
        """What is held for too long, as of an event."""
        late = [(family, event) for family, event in self._held if _apart(event, now)]
        if late:
            self._held = [entry for entry in self._held if entry not in late]
        return [event for _family, event in late]

    def _learn_uuid(self, message: str, node: str | None) -> None:
        """Which GPU is at an address: the driver says so once, before the first fault."""
        match = _AT.match(message)
        if match and (pci := canonical(match["pci"])) and len(self._uuids) < MAX_GPUS:
            self._uuids[node, pci] = match["uuid"]

    def _gpu_lost(self, message: str, line: int) -> Event | None:
        """A GPU that left the bus, told without an Xid; older drivers break the sentence over three lines."""
        match = _LOST.match(message)
        if match and canonical(match["pci"]):
            self._lost = (match["pci"], line)
        if _GONE not in message or self._lost is None or not message.startswith("NVRM: "):
            return None
        pci, first_line = self._lost
        self._lost = None
        fault = xid(79)
        return Event(
            time=None,
            node=None,
            source="kernel",
            kind="gpu_lost",
            code=79,
            severity=fault.severity if fault else "fatal",
            cause=fault.cause if fault else "hardware",
            action=fault.action if fault else "reboot_node",
            device=Device(type="gpu", pci=canonical(pci)),
            message="GPU has fallen off the bus.",
            line=first_line,
        )


def _apart(head: Event, now: Event) -> bool:
    """Whether an event is too far from a held one to be of the same fault."""
    if head.time is None or now.time is None:
        return (now.line or 0) - (head.line or 0) > DETAILS_LINES
    return abs((now.time - head.time).total_seconds()) >= DETAILS_S
