"""Messages of the kernel log to events: the families in turn, faults of several messages made one.

nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link DLREQ interrupt
nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Severity 0 Engine instance 60 Sub-engine instance 00
-> one Event
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.gpu_names import GpuNames
from parsers.kernel_messages.registry import FAMILIES
from parsers.prefix import Record
from parsers.signs import any_of
from store.event import Event

# A fault told by several messages: they follow each other within this time or, where times are unknown, these lines.
DETAILS_S = 1.0
DETAILS_LINES = 20
# Faults whose details are awaited at once; more are let go without.
MAX_HELD = 256
# Kinds of the details themselves: without their head they are events of their own, and hold nothing.
DETAIL = "_detail"
_DRIVER = re.compile(r"NVRM: |nvidia-nvswitch\d")
_NEXT = re.compile(r"(?<!^)(?=NVRM: Xid \(|nvidia-nvswitch\d{1,4}: SXid \()")

_SIGN = any_of(sign for family in FAMILIES for sign in family.signs)


@cache
def _families_of(sign: str) -> tuple[int, ...]:
    """The places in the registry of the families that have a sign, or one that begins with it."""
    return tuple(n for n, family in enumerate(FAMILIES) if any(own.startswith(sign) for own in family.signs))


class MessageDecoder:
    """Decodes messages. Holds faults whose details may still come, and what the driver said of its GPUs."""

    def __init__(self, node: str | None) -> None:
        """`node` is the host of records that name none."""
        self._node = node
        self._held: list[tuple[Family, Event]] = []
        self._gpus = GpuNames()

    def decode(self, record: Record, line: int) -> Iterator[Event]:
        """The events of a record; it may hold several messages."""
        tag = None if record.from_kernel() else record.tag
        node = record.node or self._node
        for message in _messages(record.message):
            found = _decoded(message, tag)
            if found is None:
                if tag is None:
                    self._gpus.learn(message, node, line)
                continue
            family, event = found
            whole = self._gpus.complete(event, node, line)
            if whole is not None:
                event = _placed(whole, record, node, line)
                yield from self._released(event)
                yield from self._merged(family, event)

    @property
    def holds(self) -> bool:
        """Whether there are any."""
        return bool(self._held)

    def flush(self) -> list[Event]:
        """The faults held: nothing more belongs to them."""
        held, self._held = self._held, []
        return [event for _family, event in held]

    def _merged(self, family: Family, event: Event) -> Iterator[Event]:
        """The event, unless it is more of a held one or must itself wait for more."""
        if family.merge is None:
            yield event
            return
        for place in range(len(self._held) - 1, -1, -1):  # the newest first: details follow their head
            of, head = self._held[place]
            if of is family and head.node == event.node and (whole := family.merge(head, event)):
                self._held[place] = (of, whole)
                return
        if event.kind.endswith(DETAIL) or (family.heads and event.kind not in family.heads):
            yield event
            return
        self._held.append((family, event))
        if len(self._held) > MAX_HELD:
            yield self._held.pop(0)[1]

    def _released(self, now: Event) -> list[Event]:
        """What is held for too long, as of an event."""
        if not self._held:
            return []
        late = [(family, event) for family, event in self._held if _apart(event, now)]
        if late:
            self._held = [entry for entry in self._held if entry not in late]
        return [event for _family, event in late]


def _messages(text: str) -> Iterator[str]:
    """The messages of a record. Two that a console wrote at once stand on one line; a quotation is no message."""
    for line in map(str.strip, text.split("\n")):
        if _DRIVER.match(line):
            yield from map(str.strip, _NEXT.split(line))
        else:
            yield line


def _decoded(message: str, tag: str | None) -> tuple[Family, Event] | None:
    """The first family that knows the message, and its event; `tag` is the program's where it is not the kernel."""
    places: set[int] = set()
    at = 0
    while match := _SIGN.search(message, at):
        new = set(_families_of(match[0])) - places
        places |= new
        if 0 in new and (found := _by(0, message, tag)):  # none comes before the first: no need to look further
            return found
        at = match.start() + 1
    return next(filter(None, (_by(place, message, tag) for place in sorted(places))), None)


def _by(place: int, message: str, tag: str | None) -> tuple[Family, Event] | None:
    """What a family makes of the message."""
    family = FAMILIES[place]
    event = family.decode(message) if tag is None or tag in family.tags else None
    return None if event is None else (family, event)


def _placed(event: Event, record: Record, node: str | None, line: int) -> Event:
    """The event at its time, node and line."""
    attributes = event.attributes
    if record.repeats > 1:
        attributes = {**attributes, "repeats": record.repeats}
    return replace(event, time=record.time, node=event.node or node, line=event.line or line, attributes=attributes)


def _apart(head: Event, now: Event) -> bool:
    """Whether an event is too far from a held one to be of the same fault."""
    if head.time is None or now.time is None:
        return (now.line or 0) - (head.line or 0) > DETAILS_LINES
    return abs((now.time - head.time).total_seconds()) >= DETAILS_S
