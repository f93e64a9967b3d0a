"""The kernel log of a GPU node, as any reader prints it (`prefix.py`): Xid, SXid and GPUs that are gone.

    2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has ...
    -> {"kind": "xid", "code": 79, "node": "gpu-017", "device": {"type": "gpu", "pci": "0000:0f:00.0"}, ...}

Almost every line of a kernel log says nothing: one without any of LITERALS is refused before anything else looks at it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parsers.journal import field_of, record_from_fields, record_from_json
from parsers.parser import Context
from parsers.pci import canonical
from parsers.prefix import PrefixReader, Record
from parsers.stamp import Stamps
from parsers.sxid import decode_sxid
from parsers.xid import decode_xid
from store.catalog import xid
from store.event import Device, Event

# A line of interest holds one of these bytes; a whole buffer may be searched for them.
# The last is journald's message as an array of bytes, which hides the others.
LITERALS: tuple[bytes, ...] = (b"Xid", b"NVRM", b'"MESSAGE":[')
_XID, _NVRM, _BYTES = (literal.decode() for literal in LITERALS)
# Lines that belong to a record of several lines: journalctl -o export, verbose, json-pretty; dmesg -J, reltime.
_PART = ("_", "    ", "\t", "SYSLOG_IDENTIFIER=", "MESSAGE=", "[ +", "[  +", "[+")
_FIELD = re.compile(r"[A-Z][A-Z0-9_]{0,62}=", re.ASCII)
_RELATIVE = re.compile(r"\[(?: *\+|[A-Z][a-z]{2} ?\d)")
_SEPARATORS = frozenset({"{", "}", "},{", "},", "]"})
# A record has some twenty fields; more is no record.
MAX_FIELDS = 128
# GPUs whose address is remembered; a log of many hosts is bounded too.
MAX_GPUS = 100_000

_LOST = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)", re.ASCII
)
_AT = re.compile(r"NVRM: GPU at (?P<pci>[0-9A-Za-z:.]{5,24}): (?P<uuid>GPU-[0-9a-f-]{36})$", re.ASCII)
_GONE = "fallen off the bus"


class KernelParser:
    """Decodes lines of a kernel log. Holds the fields of a record that spans several lines."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reader = PrefixReader(Stamps(context))
        self._head = ""
        self._fields: dict[str, Any] = {}
        self._first_line = 0
        self._lost: tuple[str, int] | None = None
        self._uuids: dict[tuple[str | None, str], str] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line: none for nearly all of them."""
        if text.startswith(_PART) or (self._fields and _FIELD.match(text)):
            return self._part(text, line)
        held = self._close() if self._fields else []
        self._head = text
        if _XID not in text and _NVRM not in text and _BYTES not in text:
            if text.startswith("[") and _RELATIVE.match(text):
                self._reader.relative(text)
            return held
        record = record_from_json(text, self._reader) if text.startswith("{") else self._reader.read(text)
        return held if record is None else [*held, *self._decode(record, line)]

    def flush(self) -> Iterable[Event]:
        """The record whose fields are still held."""
        return self._close()

    def _part(self, text: str, line: int) -> list[Event]:
        """A line of a record of several lines: a field of it, or more of its text."""
        if text.startswith("["):
            record = self._reader.read(text)
            return list(self._decode(record, line))
        if text.startswith("__CURSOR=") or text.strip() in _SEPARATORS:
            held = self._close()
            if text.startswith("__CURSOR="):
                self._head = ""
            return held
        if found := field_of(text):
            if not self._fields:
                self._first_line = line
            if len(self._fields) < MAX_FIELDS:
                self._fields[found[0]] = found[1]
            return []
        if _NVRM not in text and _XID not in text:
            return []
        head = self._reader.read(self._head)
        if not head.from_kernel():
            return []
        return list(self._decode(replace(head, message=text.strip(), repeats=1), line))

    def _close(self) -> list[Event]:
        """The events of the fields held, which are let go."""
        fields, self._fields = self._fields, {}
        if not fields:
            return []
        record = record_from_fields(fields, self._reader)
        if record is None:
            return []
        if record.time is None and self._head:  # journalctl -o verbose: the time stands in the line above
            record = replace(record, time=self._reader.read(self._head).time)
        return list(self._decode(record, self._first_line))

    def _decode(self, record: Record, line: int) -> Iterable[Event]:
        if not record.from_kernel():
            return
        node = record.node or self._context.node
        for message in record.message.split("\n"):
            self._learn_uuid(message, node)
            event = decode_xid(message) or decode_sxid(message) or self._gpu_lost(message, line)
            if event is None:
                continue
            if record.repeats > 1:
                event = replace(event, attributes={**event.attributes, "repeats": record.repeats})
            device = event.device
            if device.pci is not None and (uuid := self._uuids.get((node, device.pci))):
                device = replace(device, uuid=uuid)
            yield replace(event, time=record.time, node=node, line=event.line or line, device=device)

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
