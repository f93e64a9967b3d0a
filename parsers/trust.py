"""What a log's writer may say: events that are not his to tell are refused, each line once, with its reason.

    parser = TrustedParser(make(context), context)      # context.trust == "user"
    parser.feed("NVRM: Xid (PCI:0000:0f:00): 79, ...", 1)    raises RefusedLineError(reason="trust")

Who can write a log is what its registration says (`Context.trust`). A record can only say less of itself: journald's
fields tell that a program wrote it, a container's log that a container did.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

from parsers.text.parser import Context, ParseError, Parser
from store.records.event import Event
from store.records.event_sources import Trust, may_tell

# trust      the log's writer may be a user, and the line speaks of what is not his: the kernel, the fabric, a scheduler
# writer     the record's own fields tell that neither the kernel nor root's daemon wrote it
# facility   it claims to be the kernel's, and its facility is another's
# crash      it stands inside the name of a program that crashed: a file's name may hold line breaks
RefusalReason: TypeAlias = Literal["trust", "writer", "facility", "crash"]
REFUSAL_REASONS: tuple[RefusalReason, ...] = get_args(RefusalReason)
_WORDS: Mapping[RefusalReason, str] = {
    "trust": "a user may have written this log, and the line speaks of what only the machine may tell",
    "writer": "the record's fields tell that a user's program wrote it, not the kernel or a daemon of root's",
    "facility": "the line claims to be the kernel's, and its facility is another's",
    "crash": "the line stands inside the name of a program that crashed",
}


class RefusedLineError(ParseError):
    """A line that says what its writer may not; the rest of the log goes on."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(f"refused ({reason}): {_WORDS[reason]}")
        self.reason = reason


# What a record says of its writer.

_CONTAINER = frozenset(("kubernetes", "docker", "container_id", "container_name", "CONTAINER_ID", "CONTAINER_NAME"))
_OUTPUTS = frozenset(("stdout", "stderr"))
_FACILITIES = ("SYSLOG_FACILITY", "FACILITY", "facility", "syslogfacility", "syslogfacility-text", "facility-text")
_PRIORITIES = ("pri", "PRI", "syslogpri")
# Daemons that run as users of their own, in units in which nothing else does.
SERVICES = frozenset(("nvidia-persistenced", "slurmctld", "systemd-oomd"))
# Linux cuts the name of a process here.
_COMM_BYTES = 15


def in_container(fields: Mapping[str, Any]) -> bool:
    """Whether a JSON record is what a container printed, as log shippers mark it."""
    return bool(_CONTAINER & fields.keys()) or fields.get("stream") in _OUTPUTS


def writer_trust(fields: Mapping[str, Any], tag: str | None) -> Trust | None:
    """The trust of a record of journald by its own fields; None for any other record.

    Fields that begin with `_` are journald's: no client can set them.
    """
    transport = fields.get("_TRANSPORT")
    if transport is None:
        return None
    if transport == "kernel":
        return "kernel"
    return "system" if _is_daemon(fields, tag) else "user"


def _is_daemon(fields: Mapping[str, Any], tag: str | None) -> bool:
    """Whether root's own program of that name wrote the record: a container's daemon writes as root what others say.

    A daemon that gives root's rights away is known by its unit: systemd alone puts a process there.
    """
    if not tag or not (str(fields.get("_UID")) == "0" or _is_service(fields, tag)):
        return False
    program = str(fields.get("_EXE") or "").rpartition("/")[2]
    return fields.get("_COMM") == tag[:_COMM_BYTES] or program == tag


def _is_service(fields: Mapping[str, Any], tag: str) -> bool:
    return tag in SERVICES and fields.get("_SYSTEMD_UNIT") == f"{tag}.service"


def facility_of(fields: Mapping[str, Any]) -> str | None:
    """The syslog facility of a JSON record, as a number or its word; None where it names none."""
    for name in _FACILITIES:
        if isinstance(value := fields.get(name), str | int) and value != "":
            return str(value).lower()
    for name in _PRIORITIES:
        if isinstance(value := fields.get(name), str | int) and str(value).isascii() and str(value).isdigit():
            return str(int(str(value)[:6]) >> 3)
    return None


def is_kernel_facility(facility: str | None) -> bool:
    """Whether a facility is the kernel's, or unknown."""
    return facility in (None, "0", "kern")


# Lines by which somebody who may not claims to be the kernel.
_CLAIM = re.compile(r"NVRM: |nvidia-nvswitch\d|SXid \(| kernel: |nv-fabricmanager")
_FAULT = re.compile(r"NVRM: |nvidia-nvswitch\d|SXid \(|Kernel panic|Hardware Error|mlx5_core|AER: ")
# What the kernel prints of a program that crashed holds the name of its file, up to where that was mapped. A name may
# hold line breaks: where the lines of a log have the kernel's stamp, all lines of one message have the same.
CRASH = re.compile(r"\[\d{1,10}\]:? (?:segfault at|general protection|trap |bad frame|unhandled )", re.ASCII)
_CRASH_BYTES, _CLAIM_BYTES = (re.compile(one.pattern.encode(), re.ASCII) for one in (CRASH, _CLAIM))
_MAPPED = re.compile(r"\[[0-9a-f,]{1,60}\+[0-9a-f]{1,16}\]", re.ASCII)
_STAMP = re.compile(r"\[ *(\d{1,12}\.\d{6})\]", re.ASCII)
_PREFIX = 200
_CRASH_LINES = 64


class CrashNames:
    """Tells lines that are part of the name of a program that crashed."""

    def __init__(self) -> None:
        self._stamp: str | None = None
        self._open_lines = 0  # that may yet come before the name's end, where lines have no stamp

    @property
    def is_open(self) -> bool:
        """Whether lines without a stamp are counted: the name may not have ended."""
        return self._open_lines > 0

    def holds(self, text: str) -> bool:
        """Whether a line claims a fault and stands in such a name."""
        found = _STAMP.search(text, 0, _PREFIX)
        stamp = found[1] if found else None
        if CRASH.search(text):
            self._stamp = stamp
            is_open = stamp is None and " in " in text and not _MAPPED.search(text)
            self._open_lines = _CRASH_LINES if is_open else 0
            return False
        if self._open_lines and stamp is None:
            self._open_lines = 0 if _MAPPED.search(text) else self._open_lines - 1
            return bool(_FAULT.search(text))
        return stamp is not None and stamp == self._stamp and bool(_FAULT.search(text))


class TrustedParser:
    """Another parser's events, as far as the log's writer may tell them."""

    def __init__(self, inner: Parser, context: Context) -> None:
        self._inner = inner
        self._node = context.node
        self._trust = context.trust
        self._crashes = CrashNames()

    def feed(self, text: str, line: int) -> Iterator[Event]:
        """The events of the line that its writer may tell.

        Raises:
            RefusedLineError: there were others.
            ParseError: the format says so.
        """
        if self._trust != "user" and self._crashes.holds(text):
            yield from self._kept(self._inner.flush())
            raise RefusedLineError("crash")
        yield from self._kept(self._inner.feed(text, line))
        if self._trust == "user" and _CLAIM.search(text):
            raise RefusedLineError("trust")

    @property
    def holds(self) -> bool:
        """Whether the format may hold something back."""
        return bool(getattr(self._inner, "holds", True))

    def is_quiet(self, block: bytes) -> bool:
        """Whether of some whole lines none need be fed but the last; what claims or crashes is looked at by line."""
        if self._trust == "user":
            if _CLAIM_BYTES.search(block):
                return False
        elif self._crashes.is_open or _CRASH_BYTES.search(block):
            return False
        is_quiet: Callable[[bytes], bool] | None = getattr(self._inner, "is_quiet", None)
        return is_quiet is not None and is_quiet(block)

    def flush(self) -> Iterator[Event]:
        """What the format held back."""
        yield from self._kept(self._inner.flush())

    def _kept(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events that may be told; at the end an error where there were others."""
        refused = False
        for event in events:
            if not may_tell(self._trust, event.source):
                refused = True
                continue
            yield self._own(event) if self._trust == "user" else event
        if refused:
            raise RefusedLineError("trust")

    def _own(self, event: Event) -> Event:
        """The event, which speaks of no other node: whom a user's program blames stays readable, and blames nobody."""
        if event.node is None or event.node == self._node:
            return event
        if self._node is not None and event.node.partition(".")[0] == self._node.partition(".")[0]:
            return replace(event, node=self._node)
        return replace(event, node=None, attributes={**event.attributes, "named_node": event.node})
