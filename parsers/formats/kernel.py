"""The kernel log of a GPU node, as any reader prints it (`prefix.py`): Xid, SXid and GPUs that are gone.

    2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has ...
    -> {"kind": "xid", "code": 79, "node": "gpu-017", "device": {"type": "gpu", "pci": "0000:0f:00.0"}, ...}

Almost every line of a kernel log says nothing: one without any of SIGNS is refused before anything else looks at it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from parsers.journal import field_of, record_from_fields, record_from_json
from parsers.kernel_messages.decoder import MessageDecoder, goes_on, may_tell
from parsers.kernel_messages.registry import FAMILIES
from parsers.text.parser import Context, Format, FormatSigns, ParseError, holds_any
from parsers.text.prefix import LogRecord, PrefixReader, is_repeated, kernel_line
from parsers.text.scan import Search, by_re2
from parsers.text.stamp import Stamps
from parsers.trust import CRASH, RefusalReason, is_kernel_facility
from store.records.event import Event

# A line of interest holds one of these; a whole buffer may be searched for them. Beside the families' signs: the lines
# that `GpuNames` learns from, and journald's message as an array of bytes, which hides all others.
_OWN_SIGNS = ("NVRM: loading NVIDIA UNIX", "NVRM: The NVIDIA GPU", "Xid (PCI:", '"MESSAGE":[')
SIGNS: tuple[str, ...] = tuple(dict.fromkeys((*_OWN_SIGNS, *(sign for family in FAMILIES for sign in family.signs))))
_SIGN = holds_any(SIGNS)
# Lines that belong to a record of several lines: journalctl -o export, verbose, json-pretty; dmesg -J, reltime.
_PART = ("_", "    ", "\t", "SYSLOG_IDENTIFIER=", "MESSAGE=", "[ +", "[  +", "[+")
_FIELD = re.compile(r"[A-Z][A-Z0-9_]{0,62}=", re.ASCII)
# The same, and reltime's lines, for a search of whole blocks.
_STARTS = r"_|    |\t|SYSLOG_IDENTIFIER=|MESSAGE=|\[ *\+|\[[A-Z][a-z][a-z] ?[0-9]"
_RELATIVE = re.compile(r"\[(?: *\+|[A-Z][a-z]{2} ?\d)")
# A JSON object; `{1}[Hardware Error]: ` numbers the firmware's report.
_OBJECT = re.compile(r"\{(?!\d{1,9}\}\[)")
_SEPARATORS = frozenset({"{", "}", "},{", "},", "]"})
_FORMAT_SIGNS = FormatSigns(SIGNS, _STARTS, _FIELD)
# A record has some twenty fields; more is no record.
MAX_FIELDS = 128


class KernelParser:
    """Decodes lines of a kernel log. Holds the fields of a record that spans several lines."""

    def __init__(self, context: Context) -> None:
        # An operator's own file may hold what root wrote to /dev/kmsg, and what he took out of a container's log.
        self._reader = PrefixReader(Stamps(context), is_strict=context.trust is not None)
        self._head = ""
        self._in_crash = False  # what follows may stand in the name of a program that crashed
        self._fields: dict[str, Any] = {}
        self._first_line = 0
        self._messages = MessageDecoder(context.node)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line: none for nearly all of them.

        Raises:
            ParseError: JSON that is cut short.
            RefusedLineError: neither the kernel nor a daemon of root's wrote it, and it claims that.
        """
        events = self._feed(text, line)
        return events if self._messages.refused is None else self._with_refusal(events)

    def _with_refusal(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, and then the error."""
        refused, self._messages.refused = self._messages.refused, None
        yield from events
        if refused is not None:
            raise refused

    def _feed(self, text: str, line: int) -> list[Event]:
        prefix = kernel_line(text)
        if prefix is None and (text.startswith(_PART) or (self._fields and _FIELD.match(text))):
            return self._part(text, line)
        held = self._close() if self._fields else []
        self._head, self._in_crash = text, False
        if prefix is not None:
            if not self._may_tell(prefix):
                return held
            record: LogRecord | None = self._reader.read_kernel_line(prefix)
        elif _SIGN.search(text):
            record = record_from_json(text, self._reader) if _OBJECT.match(text) else self._reader.by_form(text)
        else:
            if text.startswith("[") and _RELATIVE.match(text):
                self._reader.relative(text)
            return held
        if record is None:
            return held
        return held + self._decoded(record, line) if held else self._decoded(record, line)

    def _may_tell(self, prefix: re.Match[str]) -> bool:
        """Whether a line of the kernel's may tell anything. A time without a year is read all the same: later ones
        go by it."""
        message = prefix.string[prefix.end() :]
        if prefix["iso"] is None or is_repeated(message):
            return _SIGN.search(prefix.string) is not None
        return may_tell(message)

    def _decoded(self, record: LogRecord, line: int) -> list[Event]:
        """The events of a record that was not forged."""
        reason: RefusalReason | None = "writer" if record.by_user else None
        if self._reader.is_strict and record.from_kernel() and not is_kernel_facility(record.facility):
            reason = reason or "facility"
        if reason is None:
            return self._messages.decode(record, line)
        self._messages.refuse(record, reason)
        return []

    @property
    def holds(self) -> bool:
        """Whether a flush would give anything: of nearly all lines nothing is held back."""
        return bool(self._fields or self._messages.holds)

    def is_quiet(self, block: bytes) -> bool:
        """Whether of some whole lines none need be fed but the last: they tell nothing, nor go on with a record."""
        return not _places_of_interest()(b"\n" + block, 1, len(block) + 1)

    def flush(self) -> Iterable[Event]:
        """The record whose fields are still held, and the faults whose details might still have come."""
        events = [*self._close(), *self._messages.flush()]
        return events if self._messages.refused is None else self._with_refusal(events)

    def _part(self, text: str, line: int) -> list[Event]:
        """A line of a record of several lines: a field of it, or more of its text."""
        if text.startswith("["):
            record = self._reader.read(text)
            return self._decoded(record, line)
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
        if self._in_crash:
            return []
        self._in_crash = CRASH.search(text) is not None
        if not _SIGN.search(text):
            return []
        head, message = self._reader.read(self._head), text.strip()
        record = self._reader.read(message)
        if record.message == message or not head.from_kernel():  # more of the head's text; else a line that is indented
            if self._head and head.from_kernel() and not goes_on(head.message):
                return []
            record = head._replace(message=message, repeats=1)
        return self._decoded(record, line)

    def _close(self) -> list[Event]:
        """The events of the fields held, which are let go."""
        fields, self._fields = self._fields, {}
        if not fields:
            return []
        record = record_from_fields(fields, self._reader)
        if record is None:
            return []
        if record.time is None and self._head:  # journalctl -o verbose: the time stands in the line above
            record = record._replace(time=self._reader.read(self._head).time)
        return self._decoded(record, self._first_line)


@cache
def _places_of_interest() -> Search:
    """Only where blocks are searched: RE2 takes a megabyte."""
    return by_re2(_FORMAT_SIGNS)


def is_bare_message(text: str) -> bool:
    """Whether a line is a kernel's message that tells of a fault, with whatever a reader put before it or nothing."""
    if not _SIGN.search(text):
        return False
    parser = KernelParser(Context())
    try:
        return bool([*parser.feed(text, 1), *parser.flush()])
    except ParseError:
        return False


FORMAT = Format(
    name="kernel",
    description="Kernel log of a GPU node: /dev/kmsg, dmesg, journalctl, syslog",
    sample="2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, "
    "GPU has fallen off the bus.",
    make=KernelParser,
    testimony="machine",
    recognises=re.compile(
        r"NVRM: |^Xid \(PCI:"
        r"|\bnv-fabricmanager(?:\[\d{1,10}\])?: "
        r"|nvidia-nvswitch\d+: |\bkernel(?:\[\d+\])?: |^\d{1,5},\d+,\d+,[^;]*;|^(?:<\d+>)?\[ *\d+\.\d{6}\] "
        r"|_TRANSPORT\"? ?[:=] ?\"?kernel|^kern +:\w+ *: |\"(?:syslogtag|tag|PROGRAM)\": ?\"kernel"
        r"|^\[[^\W\d_]{1,6}\.? [^\W_]{2,10}\.? +\d{1,2} \d{2}:\d{2}:\d{2} \d{4}\] "
    ),
    signs=_FORMAT_SIGNS,
    reads=is_bare_message,
)
