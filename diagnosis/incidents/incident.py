"""Events to incidents: the events of one fault, coalesced.

    coalesce([xid 79 at 12:00:00, xid 45 at 12:00:01, link_down at 12:00:20])  # one node: one incident, head xid 79

Events of one node less than a minute apart are one incident; events that name no node are, when their device and
code are the same and they are less than 5 s apart. The grouping does not depend on the order of the input.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import orjson

from diagnosis.incidents.later_signs import shown_by, with_signs_joined
from diagnosis.incidents.maintenance import TOGETHER_GAP, is_head_of_many, is_of_many, of_many
from diagnosis.incidents.root import LINK_FAULTS, IncidentHead, badness, domain_part, head_of, root
from store.records.event import NAMING, Device, Event, event_id, kind_key
from store.records.event_sources import NO_FAULT
from store.records.incident import Incident

# An incident in the making: what must be known of its events so that others may join them, in any order.
#
#     fault = fault_of(events)              # of one group, in time order
#     fault.join(fault_from(row))           # the stored incident next to it
#     fault.incident()
#
# Joining is associative and commutative: however events arrive, the same incident comes out, and none is read again.
# Each event may be handed in once; nothing here can tell that it was counted before.

# Different things that may name one incident: a node of eight GPUs with a dozen codes each. Beyond, the worst stay.
MAX_HEADS = 128


class FaultError(ValueError):
    """A text that is none of faults."""


@dataclass(slots=True)
class FaultSummary:
    """One fault's events, folded: when, how many of each kind, and the earliest of each different thing that happened.

    `id` is that of the first event; `kinds` counts by `kind_key`; `heads` are candidates for its name, the earliest
    first, no two of one kind, code, severity and device. `part`: what it may be of its node's NVLink domain
    (`diagnosis/incidents/domain_faults.py`). `shown`: when a gauge last showed that it stands.
    """

    id: str
    node: str | None
    start: datetime
    end: datetime
    kinds: dict[str, int]
    heads: list[IncidentHead]
    part: str = ""
    shown: datetime | None = None

    @property
    def count(self) -> int:
        """How many events it is."""
        return sum(self.kinds.values())

    def join(self, *others: "FaultSummary") -> None:
        """Take other parts of the same fault in; no event may be in two."""
        heads = self.heads
        for other in others:
            if (other.start, other.id) < (self.start, self.id):
                self.start, self.id = other.start, other.id
            self.end = max(self.end, other.end)
            self.shown = max(filter(None, (self.shown, other.shown)), default=None)
            self.node = self.node if self.node == other.node else None
            for kind, count in other.kinds.items():
                self.kinds[kind] = self.kinds.get(kind, 0) + count
            heads = heads + other.heads
        self.heads = kept_heads(heads)

    def incident(self) -> Incident:
        """What all of it comes to."""
        head = shown_by(root(self.heads, self.kinds), self.heads)
        found = Incident(
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
            link=head.link,
            shown=self.shown,
        )
        return of_many(found, self.heads) if fault_group(self) == MANY else found

    def heads_text(self) -> str | None:
        """The candidates as JSON, for `incidents.heads`; None where the incident's own words say as much."""
        first = self.heads[0]
        is_own = not first.follows and first.sign_since is None
        is_plain = len(self.heads) == 1 and first.id == self.id and is_own
        return None if is_plain else orjson.dumps(self.heads).decode()


class FaultTally:
    """The events of one fault, counted as they come in time order; of those alike only the first is kept."""

    __slots__ = ("_alike", "_first", "_part", "_start", "end")

    def __init__(self, first: Event, time: datetime, part: str = "") -> None:
        self._first, self._start, self._part = first, time, part
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

    def fault(self) -> FaultSummary:
        """What they come to."""
        first = self._first
        kinds: dict[str, int] = {}
        for event, count in self._alike.values():
            kind = kind_key(event.kind, event.code)
            kinds[kind] = kinds.get(kind, 0) + count
        heads = kept_heads([head_of(event, when(event)) for event, _ in self._alike.values()])
        nodes = {event.node for event, _ in self._alike.values()}
        node = first.node if len(nodes) == 1 else None
        return FaultSummary(first.id or event_id(first), node, self._start, self.end, kinds, heads, self._part)


def fault_of(events: Sequence[Event]) -> FaultSummary:
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
    *("kind", "code", "severity", "cause", "action", "device", "message", "source", "name", "link"),
    "shown",
)
_HEADS = msgspec.json.Decoder(list[IncidentHead])
_KINDS = msgspec.json.Decoder(dict[str, int])
_DEVICE = msgspec.json.Decoder(Device)


def fault_from(row: Sequence[Any]) -> FaultSummary:
    """The fault of a row of `incidents`, of FAULT_COLUMNS."""
    name, node, start, end, kinds, heads, *words, shown = row
    if not heads:
        kind, code, severity, cause, action, device, message, source, called, link = words
        where = _DEVICE.decode(device)
        said = (start, kind, code, severity, cause, action, where, message, source, called)
        found = [IncidentHead(*said, id=name, link=link)]
    else:
        found = _HEADS.decode(heads)
    return FaultSummary(name, node, start, end, _KINDS.decode(kinds), found, shown=shown)


_FAULTS = msgspec.json.Decoder(list[FaultSummary])
_ANY = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


def encode_faults(faults: Sequence[FaultSummary]) -> bytes:
    """Faults as a JSON array."""
    return _ENCODER.encode(faults)


def decode_faults(text: bytes) -> list[FaultSummary]:
    """The faults that `encode_faults` wrote.

    Raises:
        FaultError: it wrote something else.
    """
    try:
        return _FAULTS.decode(text)
    except msgspec.MsgspecError as error:
        raise FaultError(f"this is no JSON of faults: {error}") from error


def split_faults(text: bytes) -> list[bytes]:
    """The same, each as an array of its own, whatever it holds.

    Raises:
        FaultError: this is no JSON array.
    """
    try:
        return [b"[%b]" % bytes(one) for one in _ANY.decode(text)]
    except msgspec.MsgspecError as error:
        raise FaultError(f"this is no JSON array: {error}") from error


def kept_heads(heads: list[IncidentHead]) -> list[IncidentHead]:
    """The earliest of each different thing, by their time; of too many, the worst."""
    if len(heads) == 1:
        return heads
    alike: dict[tuple[object, ...], IncidentHead] = {}
    for head in sorted(heads, key=_moment):
        device = head.device
        what = (head.kind, head.code, head.severity, head.follows, head.name, head.source)
        key = (what, device.type, device.pci, device.uuid, device.index, device.port)
        if key not in alike:
            alike[key] = head
    if len(alike) == 1:
        return list(alike.values())
    found: dict[tuple[object, ...], IncidentHead] = {}
    for head in alike.values():
        same = (head.kind, head.code, head.severity, head.follows, head.device.key(), head.name, head.second_hand)
        found.setdefault(same, head)
    kept = list(found.values())
    if len(kept) > MAX_HEADS:
        kept = sorted(sorted(kept, key=lambda head: -badness(head.severity))[:MAX_HEADS], key=_moment)
    return kept


_moment = attrgetter("time", "id")


NODE_GAP = timedelta(minutes=1)
DEVICE_GAP = timedelta(seconds=5)

# Kinds that report work or plans, not faults, whoever tells them.
NO_FAULT_KINDS = frozenset({"telemetry", "job", "outage", "iteration", "node_state", "pod_failed"})
# Fabric managers number this their own way: the code is no part of what went down.
_UNNUMBERED = frozenset({"link_down", "port_removed"})

Group: TypeAlias = tuple[str | None, str]
# Nodes that reboot or fall silent together.
MANY: Group = (None, "")


def is_fault(event: Event) -> bool:
    """Whether an event belongs into an incident: more than information, and from a source that reports faults.

    What a fault of an NVLink led to is information, and yet the only word of it where the fault's own line is lost.
    """
    if event.severity == "info" and event.attributes.get("caused_by") not in LINK_FAULTS:
        return False
    return event.source not in NO_FAULT and event.kind not in NO_FAULT_KINDS


def event_group(event: Event) -> Group:
    """Whose incidents an event may join: its node's, else those of the same device and code."""
    if is_of_many(event):
        return MANY
    return (event.node, "") if event.node is not None else _group(event.device, event.name(), event.kind, event.code)


def fault_group(fault: FaultSummary) -> Group:
    """The group of a fault."""
    if is_head_of_many(fault.heads[0]):
        return MANY
    if fault.node is not None:
        return fault.node, ""
    head = fault.heads[0]
    return _group(head.device, head.name, head.kind, head.code)


def _group(device: Device, name: str | None, kind: str, code: int | None) -> Group:
    """Events that name no node: by device (two that bear a name alone are two devices) and what happened."""
    key = kind_key(kind, None if kind in _UNNUMBERED else code)
    return None, f"{device.words(name) if device.is_bare() else device.key()} {key}"


def gap_of(group: Group) -> timedelta:
    """How far apart events of a group may be and still be one incident."""
    if group == MANY:
        return TOGETHER_GAP
    return DEVICE_GAP if group[0] is None else NODE_GAP


def coalesce(events: Iterable[Event]) -> list[Incident]:
    """The incidents of events in any order, by start. Events that are no fault or bear no time make none."""
    incidents = [fault.incident() for fault in with_signs_joined(faults_of(events))]
    return sorted(incidents, key=lambda incident: (incident.start, incident.id))


def faults_of(events: Iterable[Event], *, in_parts: bool = False) -> list[FaultSummary]:
    """What events in any order come to. Those that are no fault or bear no time come to nothing.

    Args:
        in_parts: keep apart what the node's NVLink domain may have a part in.
    """
    made: list[FaultTally] = []
    open_tallies: dict[tuple[Group, str], FaultTally] = {}
    for event in sorted((event for event in events if event.time is not None and is_fault(event)), key=_order):
        time, group = when(event), event_group(event)
        part = domain_part(event) if in_parts and event.node is not None else ""
        tally = open_tallies.get((group, part))
        if tally is None or time - tally.end > gap_of(group):
            tally = open_tallies[group, part] = FaultTally(event, time, part)
            made.append(tally)
        tally.add(event, time)
    return [tally.fault() for tally in made]


def _order(event: Event) -> tuple[datetime | None, str, int]:
    return event.time, event.id or "", event.line or 0
