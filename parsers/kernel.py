"""The kernel log of a GPU node, as any reader prints it (`prefix.py`): Xid, SXid and GPUs that are gone.

    2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has ...
    -> {"kind": "xid", "code": 79, "node": "gpu-017", "device": {"type": "gpu", "pci": "0000:0f:00.0"}, ...}

Almost every line of a kernel log says nothing: one without any of SIGNS is refused before anything else looks at it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parsers.journal import field_of, record_from_fields, record_from_json
from parsers.kernel_messages.decoder import MessageDecoder
from parsers.kernel_messages.registry import FAMILIES
from parsers.parser import Context, Format
from parsers.prefix import PrefixReader
from parsers.signs import Signs, holds_any
from parsers.stamp import Stamps
from store.event import Event

# A line of interest holds one of these; a whole buffer may be searched for them. Beside the families' signs: what
# `kernel_messages/gpu_names.py` learns from, and journald's message as an array of bytes, which hides all others.
_OWN_SIGNS = ("NVRM: loading NVIDIA UNIX", "NVRM: The NVIDIA GPU", "Xid (PCI:", '"MESSAGE":[')
SIGNS: tuple[str, ...] = tuple(dict.fromkeys((*_OWN_SIGNS, *(sign for family in FAMILIES for sign in family.signs))))
_SIGN = holds_any(SIGNS)
# Lines that belong to a record of several lines: journalctl -o export, verbose, json-pretty; dmesg -J, reltime.
_PART = ("_", "    ", "\t", "SYSLOG_IDENTIFIER=", "MESSAGE=", "[ +", "[  +", "[+")
_FIELD = re.compile(r"[A-Z][A-Z0-9_]{0,62}=", re.ASCII)
# The same, and reltime's lines, for a search of whole blocks.
_STARTS = r"_|    |\t|SYSLOG_IDENTIFIER=|MESSAGE=|\[ *\+|\[[A-Z][a-z][a-z] ?[0-9]"
_RELATIVE = re.compile(r"\[(?: *\+|[A-Z][a-z]{2} ?\d)")
_SEPARATORS = frozenset({"{", "}", "},{", "},", "]"})
# A record has some twenty fields; more is no record.
MAX_FIELDS = 128


class KernelParser:
    """Decodes lines of a kernel log. Holds the fields of a record that spans several lines."""

    def __init__(self, context: Context) -> None:
        self._reader = PrefixReader(Stamps(context))
        self._head = ""
        self._fields: dict[str, Any] = {}
        self._first_line = 0
        self._messages = MessageDecoder(context.node)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line: none for nearly all of them."""
        if text.startswith(_PART) or (self._fields and _FIELD.match(text)):
            return self._part(text, line)
        held = self._close() if self._fields else []
        self._head = text
        if not _SIGN.search(text):
            if text.startswith("[") and _RELATIVE.match(text):
                self._reader.relative(text)
            return held
        record = record_from_json(text, self._reader) if text.startswith("{") else self._reader.read(text)
        return held if record is None else [*held, *self._messages.decode(record, line)]

    @property
    def holds(self) -> bool:
        """Whether a flush would give anything: of nearly all lines nothing is held back."""
        return bool(self._fields or self._messages.holds)

    def flush(self) -> Iterable[Event]:
        """The record whose fields are still held, and the faults whose details might still have come."""
        return [*self._close(), *self._messages.flush()]

    def _part(self, text: str, line: int) -> list[Event]:
        """A line of a record of several lines: a field of it, or more of its text."""
        if text.startswith("["):
            record = self._reader.read(text)
            return list(self._messages.decode(record, line))
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
        if not _SIGN.search(text):
            return []
        head, message = self._reader.read(self._head), text.strip()
        record = self._reader.read(message)
        if record.message == message or not head.from_kernel():  # more of the head's text; else a line that is indented
            record = replace(head, message=message, repeats=1)
        return list(self._messages.decode(record, line))

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
        return list(self._messages.decode(record, self._first_line))


FORMAT = Format(
    name="kernel",
    description="Kernel log of a GPU node: /dev/kmsg, dmesg, journalctl, syslog",
    sample="2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, "
    "GPU has fallen off the bus.",
    make=KernelParser,
    recognises=re.compile(
        r"NVRM: |^Xid \(PCI:"
        r"|\bnv-fabricmanager(?:\[\d{1,10}\])?: "
        r"|nvidia-nvswitch\d+: |\bkernel(?:\[\d+\])?: |^\d{1,5},\d+,\d+,[^;]*;|^(?:<\d+>)?\[ *\d+\.\d{6}\] "
        r"|_TRANSPORT\"? ?[:=] ?\"?kernel|^kern +:\w+ *: |\"(?:syslogtag|tag|PROGRAM)\": ?\"kernel"
        r"|^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]"
    ),
    signs=Signs(SIGNS, _STARTS, _FIELD),
)
