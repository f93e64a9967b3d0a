"""An incident in the making: what must be known of its events so that others may join them, in any order.

    fault = fault_of(events)              # of one group, in time order
    fault.join(fault_from(row))           # the stored incident next to it
    fault.incident()

Joining is associative and commutative: however events arrive, the same incident comes out, and none is read again.
Each event may be handed in once; nothing here can tell that it was counted before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
import orjson

from diagnosis.root import Head, badness, head_of, kind_key, root
from store.event import NAMING, Device, Event, event_id
from store.incident import Incident

# Different things that may name one incident: a node of eight GPUs with a dozen codes each. Beyond, the worst stay.
MAX_HEADS = 128


class FaultError(ValueError):
    """A text that is none of faults."""


@dataclass(slots=True)
class Fault:
    """One fault's events, folded: when, how many of each kind, and the earliest of each different thing that happened.

    `id` is that of the first event; `kinds` counts by `kind_key`; `heads` are candidates for its name, the earliest
    first, no two of one kind, code, severity and device.
    """

    id: str
    node: str | None
    start: datetime
    end: datetime
    kinds: dict[str, int]
    heads: list[Head]

    @property
    def count(self) -> int:
        """How many events it is."""
        return sum(self.kinds.values())

    def join(self, *others: "Fault") -> None:
        """Take other parts of the same fault in; no event may be in two."""
        heads = self.heads
        for other in others:
            if (other.start, other.id) < (self.start, self.id):
                self.start, self.id = other.start, other.id
            self.end = max(self.end, other.end)
            for kind, count in other.kinds.items():
                self.kinds[kind] = self.kinds.get(kind, 0) + count
            heads = heads + other.heads
        self.heads = _kept(heads)

    def incident(self) -> Incident:
        """What all of it comes to."""
        head = root(self.heads, self.kinds)
        return Incident(
            id=self.id,
            node=self.node,
            start=self.start,
            end=self.end,
            kind=head.kind,
            code=head.code,
            severity=head.severity,
            cause=head.cause,
            action=head.action,
            device=head.device,
            message=head.message,
            count=self.count,
            kinds=dict(sorted(self.kinds.items())),
            source=head.source,
            name=head.name,
        )

    def heads_text(self) -> str | None:
        """The candidates as JSON, for `incidents.heads`; None where the incident's own words say as much."""
        first = self.heads[0]
        told = len(self.heads) == 1 and first.id == self.id and not first.follows
        return None if told else orjson.dumps(self.heads).decode()


class FaultTally:
    """The events of one fault, counted as they come in time order; of those alike only the first is kept."""

    __slots__ = ("_alike", "_first", "_start", "end")

    def __init__(self, first: Event, time: datetime) -> None:
        self._first, self._start = first, time
        self._alike: dict[tuple[object, ...], list[Any]] = {}  # what may be another candidate: [its first event, count]
        self.end = time

    def add(self, event: Event, time: datetime) -> None:
        """Count an event; the first one, too."""
        self.end = time
        device, attributes = event.device, event.attributes
        name, label = map(attributes.get, NAMING)
        what = (event.kind, event.code, event.severity, event.source, attributes.get("caused_by") is None, name, label)
        key = (what, device.type, device.pci, device.uuid, device.index, device.port)
        known = self._alike.get(key)
        if known is None:
            self._alike[key] = [event, 1]
        else:
            known[1] += 1

    def fault(self) -> Fault:
        """What they come to."""
        first = self._first
        kinds: dict[str, int] = {}
        for event, count in self._alike.values():
            kind = kind_key(event.kind, event.code)
            kinds[kind] = kinds.get(kind, 0) + count
        heads = _kept([head_of(event, when(event)) for event, _ in self._alike.values()])
        return Fault(first.id or event_id(first), first.node, self._start, self.end, kinds, heads)


def fault_of(events: Sequence[Event]) -> Fault:
    """The fault of events of one group, at least one, all with a time, in time order."""
    tally = FaultTally(events[0], when(events[0]))
    for event in events:
        tally.add(event, when(event))
    return tally.fault()


def when(event: Event) -> datetime:
    """The time of an event that has one.

    Raises:
        ValueError: it has none; callers have filtered those.
    """
    if event.time is None:
        raise ValueError(f"the event {event.id} bears no time")
    return event.time


# What `fault_from` wants of `incidents`, in this order; `device` and `kinds` as text.
FAULT_COLUMNS = (
    *("id", "node", "start", "end", "kinds", "heads"),
    *("kind", "code", "severity", "cause", "action", "device", "message", "source", "name"),
)
_HEADS = msgspec.json.Decoder(list[Head])
_KINDS = msgspec.json.Decoder(dict[str, int])
_DEVICE = msgspec.json.Decoder(Device)


def fault_from(row: Sequence[Any]) -> Fault:
    """The fault of a row of `incidents`, of FAULT_COLUMNS."""
    name, node, start, end, kinds, heads, *words = row
    if not heads:
        kind, code, severity, cause, action, device, message, source, called = words
        where = _DEVICE.decode(device)
        found = [Head(start, kind, code, severity, cause, action, where, message, source, called, id=name)]
    else:
        found = _HEADS.decode(heads)
    return Fault(name, node, start, end, _KINDS.decode(kinds), found)


_FAULTS = msgspec.json.Decoder(list[Fault])
_ENCODER = msgspec.json.Encoder()


def encode_faults(faults: Sequence[Fault]) -> bytes:
    """Faults as a JSON array."""
    return _ENCODER.encode(faults)


def decode_faults(text: bytes) -> list[Fault]:
    """The faults that `encode_faults` wrote.

    Raises:
        FaultError: it wrote something else.
    """
    try:
        return _FAULTS.decode(text)
    except msgspec.MsgspecError as error:
        raise FaultError(f"this is no JSON of faults: {error}") from error


def _kept(heads: list[Head]) -> list[Head]:
    """The earliest of each different thing, by their time; of too many, the worst."""
    if len(heads) == 1:
        return heads
    alike: dict[tuple[object, ...], Head] = {}
    for head in sorted(heads, key=_moment):
        device = head.device
        what = (head.kind, head.code, head.severity, head.follows, head.name, head.source)
        key = (what, device.type, device.pci, device.uuid, device.index, device.port)
        if key not in alike:
            alike[key] = head
    if len(alike) == 1:
        return list(alike.values())
    found: dict[tuple[object, ...], Head] = {}
    for head in alike.values():
        same = (head.kind, head.code, head.severity, head.follows, head.device.key(), head.name, head.second_hand)
        found.setdefault(same, head)
    kept = list(found.values())
    if len(kept) > MAX_HEADS:
        kept = sorted(sorted(kept, key=lambda head: -badness(head.severity))[:MAX_HEADS], key=_moment)
    return kept


_moment = attrgetter("time", "id")
