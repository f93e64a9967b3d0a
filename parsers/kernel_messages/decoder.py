"""Messages of the kernel log to events: the families in turn, faults of several messages made one.

nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link DLREQ interrupt
nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Severity 0 Engine instance 60 Sub-engine instance 00
-> one Event
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from parsers.kernel_messages.family import LONGEST_SHAPE, SHAPES, MessageFamily, shape_of
from parsers.kernel_messages.nvlink import read_by_driver
from parsers.kernel_messages.registry import FAMILIES
from parsers.text.prefix import LogRecord
from parsers.trust import CRASH, RefusalReason, RefusedLineError
from store.records.event import Event, canonical_pci

# What a driver says once and later lines rely on: which GPU is at an address, which driver runs, which GPU is meant.
#
# NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03
# NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d
# NVRM: Xid (PCI:0000:9b:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 ...)
# -> the third event bears the second's UUID, and its registers are read in the layout of driver 535

# What is remembered of each host; a log of many hosts is bounded too.
MAX_GPUS = 100_000
MAX_NODES = 20_000
UUID_LENGTH = len("GPU-00000000-0000-0000-0000-000000000000")
# A sentence over three lines ends within so many.
SENTENCE_LINES = 4

_LOADING = re.compile(r"NVRM: loading NVIDIA UNIX .{1,60}? (?P<major>\d{3,4})\.\d{1,4}", re.ASCII)
_NAMED = re.compile(
    r"NVRM: The NVIDIA GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)", re.ASCII
)


class GpuNames:
    """Learns from every message of the driver, and fills in what an event lacks."""

    def __init__(self) -> None:
        self._uuids: dict[tuple[str | None, str], str] = {}
        self._drivers: dict[str | None, int] = {}
        self._named: tuple[str | None, str, int] | None = None

    def learn(self, message: str, node: str | None, line: int) -> None:
        """What a message without an event says of a host's GPUs."""
        if match := _LOADING.match(message):
            if node in self._drivers or len(self._drivers) < MAX_NODES:
                self._drivers[node] = int(match["major"])
        elif (match := _NAMED.match(message)) and (pci := canonical_pci(match["pci"])):
            self._named = (node, pci, line)

    def complete(self, event: Event, node: str | None, line: int) -> Event | None:
        """The event with its GPU's UUID, and the address that an earlier message named; None where nobody did."""
        device = event.device
        if event.kind == "gpu_lost" and device.pci is None:
            named, self._named = self._named, None
            if named is None or named[0] != node or line - named[2] >= SENTENCE_LINES:
                return None
            device = replace(device, pci=named[1])
            event = replace(event, device=device, line=named[2])
        if device.pci is not None and device.type == "gpu":
            if event.kind == "gpu_map":
                if device.uuid and len(device.uuid) == UUID_LENGTH:  # not one that is cut short
                    self._map(node, device.pci, device.uuid)
            elif uuid := self._uuids.get((node, device.pci)):
                event = replace(event, device=replace(device, uuid=uuid))
        driver = self._drivers.get(node)
        return event if driver is None else read_by_driver(event, driver)

    def _map(self, node: str | None, pci: str, uuid: str) -> None:
        if (node, pci) in self._uuids or len(self._uuids) < MAX_GPUS:
            self._uuids[node, pci] = uuid


# A fault told by several messages: they follow each other within this time or, where times are unknown, these lines.
DETAILS_S = 1.0
DETAILS_LINES = 20
_DETAILS = timedelta(seconds=DETAILS_S)
# Faults whose details are awaited at once; more are let go without.
MAX_HELD = 256
# Kinds of the details themselves: without their head they are events of their own, and hold nothing.
DETAIL = "_detail"
_DRIVER = re.compile(r"NVRM: |nvidia-nvswitch\d")
_XID = "Xid ("
# What stands so early is the word of a message's head, and begins no second message.
_XID_HEAD, _SWITCH_HEAD = "NVRM: Xid (", "nvidia-nvswitch"
_LONGEST_HEAD = len("nvidia-nvswitch0000: SXid (")
_NEXT = re.compile(r"(?<!^)(?:NVRM: Xid \(|nvidia-nvswitch\d{1,4}: SXid \()")

# Linux cuts the name of a process at so many bytes.
_COMM_BYTES = 15
_DRIVER_HEAD = "NVRM: "
# Of messages that begin so nearly all tell something.
_OF_DRIVERS = (_DRIVER_HEAD, _SWITCH_HEAD)

# The family that knows a message, and its event.
Reading: TypeAlias = tuple[MessageFamily, Event]


_SIGNS_OF_FAMILIES = tuple((family, tuple((sign, shape_of(sign)) for sign in family.signs)) for family in FAMILIES)


@lru_cache(maxsize=SHAPES)
def _families_of(shape: bytes) -> tuple[tuple[MessageFamily, tuple[str, ...]], ...]:
    """The families, in their order, of which a message of a shape may hold a sign; and these signs."""
    found = ((family, tuple(sign for sign, held in signs if held in shape)) for family, signs in _SIGNS_OF_FAMILIES)
    return tuple((family, signs) for family, signs in found if signs)


class MessageDecoder:
    """Decodes messages. Holds faults whose details may still come, and what the driver said of its GPUs."""

    def __init__(self, node: str | None) -> None:
        """`node` is the host of records that name none."""
        self._node = node
        self._held: list[tuple[MessageFamily, Event]] = []
        self._span: tuple[datetime, datetime] | None = None  # no time of what is held lies outside; None: not known
        self._gpus = GpuNames()
        self.refused: RefusedLineError | None = None  # what was refused last

    def refuse(self, record: LogRecord, reason: RefusalReason) -> None:
        """A record whose writer may not tell of faults: noted where it tells of one."""
        tag = None if record.from_kernel() else record.tag
        if any(reading for _message, reading in readings(record.message, tag)):
            self.refused = RefusedLineError(reason)

    def decode(self, record: LogRecord, line: int) -> list[Event]:
        """The events of a record; it may hold several messages."""
        tag = None if record.tag == "kernel" else record.tag
        node = record.node or self._node
        events: list[Event] = []
        for message, reading in readings(record.message, tag):
            if reading is None:
                if tag is None and message.startswith(_DRIVER_HEAD):
                    self._gpus.learn(message, node, line)
                continue
            family, event = reading
            whole = self._gpus.complete(event, node, line)
            if whole is not None:
                event = _placed(whole, record, node, line)
                if self._held:
                    events += self._released(event)
                if family.merge is None:
                    events.append(event)
                else:
                    events += self._merged(family, event)
        return events

    @property
    def holds(self) -> bool:
        """Whether there are any."""
        return bool(self._held)

    def flush(self) -> list[Event]:
        """The faults held: nothing more belongs to them."""
        held, self._held, self._span = self._held, [], None
        return [event for _family, event in held]

    def _is_early(self, now: Event) -> bool:
        """Whether none is held for too long, as their times tell at once: in a storm many are held."""
        if self._span is None:
            times = [event.time for _family, event in self._held if event.time is not None]
            if len(times) < len(self._held):
                return False
            self._span = min(times), max(times)
        first, last = self._span
        return now.time is not None and now.time - first < _DETAILS and last - now.time < _DETAILS

    def _merged(self, family: MessageFamily, event: Event) -> Iterator[Event]:
        """The event, unless it is more of a held one or must itself wait for more."""
        if family.merge is None:
            yield event
            return
        for place in range(len(self._held) - 1, -1, -1):  # the newest first: details follow their head
            of, head = self._held[place]
            if of is family and head.node == event.node and (whole := family.merge(head, event)):
                self._held[place] = of, whole
                if whole.time != head.time:
                    self._span = None
                return
        if event.kind.endswith(DETAIL) or (family.heads and event.kind not in family.heads):
            yield event
            return
        self._held.append((family, event))
        if self._span is not None and event.time is not None:
            self._span = min(self._span[0], event.time), max(self._span[1], event.time)
        else:
            self._span = None
        if len(self._held) > MAX_HELD:
            yield self._held.pop(0)[1]  # the span may then be too wide: it is looked at more closely, no more

    def _released(self, now: Event) -> list[Event]:
        """What is held for too long, as of an event."""
        if self._is_early(now):
            return []
        late = [(family, event) for family, event in self._held if _apart(event, now)]
        if late:
            self._held, self._span = [entry for entry in self._held if entry not in late], None
        return [event for _family, event in late]


def goes_on(text: str) -> bool:
    """Whether a record that begins so may hold several messages.

    The driver writes some sentences over several lines. Other lines of one record are no messages: the kernel prints
    the names of programs that crash, a user may put a line break into one, and his program may be called NVRM.
    """
    return text.startswith(_DRIVER_HEAD) and not CRASH.search(text)


def _messages(text: str) -> Sequence[str]:
    """The messages of a record. Two that a console wrote at once stand on one line; a quotation is no message."""
    whole = text.strip()
    if "\n" not in whole:
        return _of_line(whole)
    lines = whole.split("\n") if goes_on(whole) else [whole.split("\n", 1)[0]]
    return [message for line in lines for message in _of_line(line.strip())]


def _of_line(line: str) -> Sequence[str]:
    head = line.find(_XID, 0, _LONGEST_HEAD)
    if line.find(_XID, head + 1) < 0 and (head < 0 or _is_head(line, head)):
        return (line,)
    if not _DRIVER.match(line):
        return (line,)
    return [message.strip() for message in _apart_messages(line)]


def _is_head(line: str, place: int) -> bool:
    return line.startswith(_XID_HEAD) or (line.startswith(_SWITCH_HEAD) and line.startswith("S", place - 1))


def _apart_messages(line: str) -> Iterator[str]:
    """Messages that stand on one line; one that begins within the name of a process is part of the name."""
    begin = 0
    for match in _NEXT.finditer(line):
        name = line.rfind("name=", begin, match.start())
        between = line[name + len("name=") : match.start()]
        if name >= 0 and (len(between + match[0]) <= _COMM_BYTES or ", " not in between):
            continue
        yield line[begin : match.start()]
        begin = match.start()
    yield line[begin:]


# A fault is told in the same words again and again: what they mean, bar time and host, is read once. So many are kept.
_REMEMBERED = 2048
# None longer than this: somebody may send as many as he likes.
_REMEMBERED_LENGTH = 400


def readings(text: str, tag: str | None) -> Sequence[tuple[str, Reading | None]]:
    """The messages of a record, and what each tells; `tag` is the program's where it is not the kernel."""
    return (_remembered if len(text) <= _REMEMBERED_LENGTH else _read)(text, tag)


def may_tell(text: str) -> bool:
    """Whether the text of a record of the kernel's may tell anything: it is known sooner than its time and host.

    No is sure.
    """
    return len(text) > _REMEMBERED_LENGTH or text.startswith(_OF_DRIVERS) or _tells(text)


@lru_cache(maxsize=_REMEMBERED)
def _tells(text: str) -> bool:
    if _DRIVER_HEAD in text:  # it may name a GPU or a driver
        return True
    # A text without a sign, as nearly all are, is not remembered among those that tell.
    return bool(_families(text)) and any(reading is not None for _message, reading in _remembered(text, None))


def _read(text: str, tag: str | None) -> Sequence[tuple[str, Reading | None]]:
    return [(message, _decoded(message, tag)) for message in _messages(text)]


_remembered = lru_cache(maxsize=_REMEMBERED)(_read)


def _decoded(message: str, tag: str | None) -> Reading | None:
    """The first family that knows the message, and its event; `tag` is the program's where it is not the kernel."""
    for family, signs in _families(message):
        if tag is not None and tag not in family.tags:
            continue
        for sign in signs:
            if sign in message:
                if (event := family.decode(message)) is not None:
                    return family, event
                break
    return None


def _families(message: str) -> tuple[tuple[MessageFamily, tuple[str, ...]], ...]:
    """The families of which a message may hold a sign, with these signs."""
    shape = shape_of(message)
    return _families_of(shape) if len(shape) <= LONGEST_SHAPE else _families_of.__wrapped__(shape)


def _placed(event: Event, record: LogRecord, node: str | None, line: int) -> Event:
    """The event at its time, node and line."""
    attributes = event.attributes
    if record.repeats > 1:
        attributes = {**attributes, "repeats": record.repeats}
    return Event(  # three times faster than replace(), and the one step that each event of a log takes
        record.time,
        event.node or node,
        event.source,
        event.kind,
        event.code,
        event.severity,
        event.cause,
        event.action,
        event.device,
        event.message,
        attributes,
        event.line or line,
        event.file,
        event.id,
    )


def _apart(head: Event, now: Event) -> bool:
    """Whether an event is too far from a held one to be of the same fault."""
    if head.time is None or now.time is None:
        return (now.line or 0) - (head.line or 0) > DETAILS_LINES
    return abs((now.time - head.time).total_seconds()) >= DETAILS_S
