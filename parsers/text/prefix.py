"""Prefixes of kernel messages: time, host and tag, in every form that a reader of the kernel log prints.

    11,8416,2122548539,-;NVRM: ...                                   /dev/kmsg
    [ 2122.548539] NVRM: ...                                         dmesg (-d, -r, -x, -T, --time-format too)
    Nov 20 22:31:54 vm kernel: NVRM: ...                             journalctl, RFC 3164, rsyslog's files
    2026-11-20T22:31:54.121678+0000 vm kernel: NVRM: ...             journalctl -o short-iso-precise, RFC 3339
    Fri 2026-11-20 22:31:54 UTC vm kernel: NVRM: ...                 journalctl -o short-full
    [ 2156.863044] vm kernel: NVRM: ...                              journalctl -o short-monotonic
    148 <11>1 2026-11-20T22:35:38+00:00 vm kernel - - - NVRM: ...    RFC 5424, octet counted
    2026-11-20T22:35:38.123456789Z stderr F [ 2122.548539] NVRM: ... a container's log (CRI), kubectl logs --timestamps
    [Jul 23 2024 07:53:55] [ERROR] [tid 841] detected ...            NVIDIA Fabric Manager's own file
    -> Record(time=..., node="vm", tag="kernel", message="NVRM: ...")

Each form is matched from the start of the line, so a tool that quotes a kernel line is never taken for the kernel.
"""

import re
from datetime import datetime
from typing import NamedTuple

from parsers.text.stamp import Stamps

# journald takes the first word of a record written by hand to /dev/kmsg as its identifier.
DRIVER_TAG = re.compile(r"NVRM|nvidia-nvswitch\d{1,4}", re.ASCII)
FABRIC_MANAGER_TAG = "nv-fabricmanager"

# A line goes through a container's log, a collector and a shipper: each puts its time before it.
MAX_DEPTH = 3

_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"
_ISO = rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(?:Z|[+-]\d{{2}}:?\d{{2}})?"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
# Busybox's syslogd names the facility and the level before the tag.
_TAG = r"(?:kern\.[a-z]{1,7} )?(?P<tag>[^\s:\[\]]{1,128})(?:\[\d{1,10}\])?:(?: |$)"

_DIGITS = frozenset("0123456789")
_OCTETS = re.compile(r"\d{1,7} (?=<\d{1,3}>)", re.ASCII)
_PRIORITY = re.compile(r"<(?P<priority>\d{1,3})>", re.ASCII)
_KMSG = re.compile(r"\d{1,5},\d{1,20},(?P<usec>\d{1,20})(?:,[^;]{0,200})?;", re.ASCII)
_RFC5424 = re.compile(
    r"<\d{1,3}>1 (?P<time>\S+) (?P<node>\S+) (?P<tag>\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: (?:\ufeff)?|$)"
)
_LEVELS = re.compile(
    r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]) *"
    r":(?:emerg|alert|crit|err|warn|notice|info|debug) *: "
)
_POD = re.compile(r"\[pod/\S{1,512}\] ", re.ASCII)
# What may stand before all others, by its first letter: dmesg -x names the facility, `kubectl logs --prefix` the pod.
_BEFORE = {**dict.fromkeys("kumdaslnlcf", _LEVELS), "[": _POD}
_UPTIME = re.compile(r"\[ *(?P<uptime>\d{1,12}(?:\.\d{1,9})?)(?: <[^>]{0,40}>)?\] ?", re.ASCII)
_CALLER = re.compile(r"\[ *[TC]\d{1,10}\] ?", re.ASCII)
# `dmesg -T` writes the day and the month in the language of whoever calls it.
_MONTH = r"(?P<month>[^\W\d_]{2,10}\.?|\d{1,2}[月월])"
_CTIME = re.compile(rf"\[[^\W\d_]{{1,6}}\.? {_MONTH} +(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}) (?P<year>\d{{4}})\] ?")
_MINUTE = re.compile(r"\[(?P<month>[A-Z][a-z]{2}) ?(?P<day>\d{1,2}) (?P<minute>\d{2}:\d{2})\] ?", re.ASCII)
_FABRIC_MANAGER = re.compile(
    rf"\[(?P<month>[A-Z][a-z]{{2}}) (?P<day>\d{{1,2}}) (?P<year>\d{{4}}) (?P<clock>{_CLOCK})\] \[\w{{1,16}}\] ?"
    r"(?:\[tid \d{1,12}\] ?)?",
    re.ASCII,
)
_FABRIC_MANAGER_BARE = re.compile(rf"{FABRIC_MANAGER_TAG}(?:\[\d{{1,10}}\])?: ", re.ASCII)
_CONTAINER = re.compile(r"(?:stdout|stderr) [FP] ", re.ASCII)
_DELTA = re.compile(r"\[ *\+(?P<delta>\d{1,9}\.\d{1,9})\] ?", re.ASCII)
_ELIDED = re.compile(r"\[(?:\.\.\.|…)\] ?")
_BRACKET_ISO = re.compile(rf"\[(?P<iso>{_ISO})\](?:\[ *\d{{1,12}}\.\d{{1,9}}\])? ?", re.ASCII)
_TALOS = re.compile(rf"(?P<node>\S{{1,128}}): (?:kern|user|daemon): +\w{{1,16}}: \[(?P<iso>{_ISO})\]: ", re.ASCII)
_SYSLOG_ISO = re.compile(rf"(?P<iso>{_ISO}) ", re.ASCII)
_FULL = re.compile(
    rf"{_DAY} (?P<date>\d{{4}}-\d{{2}}-\d{{2}} {_CLOCK}) (?P<zone>[A-Z]{{3,5}}|[+-]\d{{2}}(?:\d{{2}})?) ", re.ASCII
)
# The month in any language: `Nov`, `kwi`, `févr.`, `11月`.
_YEARLESS = re.compile(rf"{_MONTH} +(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}) ")
_DATED = re.compile(rf"{_DAY} (?P<month>\w{{3}}) +(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}) (?P<year>\d{{4}}) ")
# `Nov 20 2026 22:31:54`, `2026 Nov 20 22:31:54`: templates of syslog daemons that add the year.
_WITH_YEAR = re.compile(
    rf"(?:(?P<first>\d{{4}}) )?{_MONTH} +(?P<day>\d{{1,2}}),? (?:(?P<year>\d{{4}}),? )?(?P<clock>{_CLOCK}) "
)
# What a collector's time may stand before: a line with a prefix of its own.
_WHOLE = re.compile(
    rf"\[ *\d{{1,12}}\.\d|\[{_DAY} |<\d{{1,3}}>|\d{{1,5}},\d{{1,20}},\d{{1,20}},|[A-Z][a-z]{{2}} +\d{{1,2}} {_CLOCK} ",
    re.ASCII,
)
_UNIX = re.compile(r"(?P<epoch>\d{9,11}\.\d{1,9}) ", re.ASCII)
_TAGGED = re.compile(_TAG)
_HOST_TAGGED = re.compile(rf"(?P<node>\S{{0,254}}[^\s:]) {_TAG}")
_HOST = re.compile(r"(?P<node>\S{0,254}[^\s:]) ")
_MONOTONIC = re.compile(
    r"(?P<node>[A-Za-z0-9][\w.-]{0,253}) (?P<tag>kernel|NVRM|nvidia-nvswitch\d{1,4})(?:\[\d{1,10}\])?: ", re.ASCII
)
_TIMELESS = re.compile(r" {0,3}(?P<node>[A-Za-z0-9][\w.-]{0,253}) kernel(?:\[\d{1,10}\])?: ", re.ASCII)
# What nearly every line of a syslog file or of journald is: one search in place of eight. Nothing that it finds may be
# read otherwise by the forms in turn.
_KERNEL_LINE = re.compile(
    rf"(?:(?P<iso>\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{1,2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,9}})?(?:Z|[+-]\d{{2}}:?\d{{2}})?)"
    rf"|(?P<month>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}))"
    r" (?P<node>(?!kern\.)[A-Za-z0-9][\w.-]{0,253}) kernel: (?:\[ *\d{1,12}(?:\.\d{1,9})?\] ?|(?!\[ *\d))",
    re.ASCII,
)
_REPEATED_HEAD = "message repeated "
_REPEATED = re.compile(r"message repeated (\d{1,6}) times: \[ ?(.*?)\]?$", re.ASCII)
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class LogRecord(NamedTuple):
    """One log record. `tag` is the program that logged it, None where the form names none (dmesg, a bare line).

    `facility` is syslog's, a number or its word; `by_user` is set where the record itself tells that neither the kernel
    nor a daemon of root's wrote it.
    """

    time: datetime | None
    node: str | None
    tag: str | None
    message: str
    repeats: int = 1
    facility: str | None = None
    by_user: bool = False

    def from_kernel(self) -> bool:
        """Whether the kernel may have written it, rather than a program that quotes it."""
        return self.tag is None or self.tag == "kernel"


def kernel_line(text: str) -> re.Match[str] | None:
    """The prefix of a line of the kernel's, in the form that nearly every line has; its message follows."""
    return _KERNEL_LINE.match(text)


def is_repeated(message: str) -> bool:
    """Whether a message may stand for several of another."""
    return message.startswith(_REPEATED_HEAD)


class PrefixReader:
    """Takes the prefix off a line. Holds what dmesg's relative times need: the last moment."""

    def __init__(self, stamps: Stamps, is_strict: bool = False) -> None:
        """`is_strict`: whoever reads the records refuses those that say of themselves that another wrote them."""
        self.stamps = stamps
        self.is_strict = is_strict
        self._moment: datetime | None = None

    def read(self, text: str, depth: int = 0) -> LogRecord:
        """The record of a line; a line in no known form is a bare message, as it stands.

        `depth` is how many collectors' prefixes stood before it.
        """
        line = _KERNEL_LINE.match(text)
        return self.by_form(text, depth) if line is None else self.read_kernel_line(line)

    def read_kernel_line(self, line: re.Match[str]) -> LogRecord:
        """The record of what `kernel_line` found."""
        iso, month, day, clock, node = line.groups()
        time = self.stamps.iso(iso) if iso else self.stamps.yearless(month, day, clock)
        message = line.string[line.end() :]
        if message.startswith(_REPEATED_HEAD) and (match := _REPEATED.match(message)):
            return LogRecord(time, node, "kernel", match[2], int(match[1]))
        return LogRecord(time, node, "kernel", message)

    def by_form(self, text: str, depth: int = 0) -> LogRecord:
        """The record of a line by each form in turn: what `read` gives as well."""
        if host := _TIMELESS.match(text):
            return settle(LogRecord(None, host["node"], "kernel", text[host.end() :]))
        first = text[:1]
        if first in _DIGITS:
            if match := _KMSG.match(text):
                time = self.stamps.since_boot(int(match["usec"]) / 1e6)
                return settle(LogRecord(time, None, None, unescape(text[match.end() :])))
            if match := _OCTETS.match(text):
                text = text[match.end() :]
                first = text[:1]
        facility = None
        if first == "<" and (match := _PRIORITY.match(text)):
            facility = str(int(match["priority"]) >> 3)
            if full := _RFC5424.match(text):
                node = None if full["node"] == "-" else full["node"]
                time, message = self.stamps.iso(full["time"]), text[full.end() :]
                return settle(LogRecord(time, node, full["tag"], message, facility=facility))
            text = text[match.end() :]
        elif (before := _BEFORE.get(first)) and (match := before.match(text)):
            text = text[match.end() :]
        record = self._dmesg(text) if text.startswith("[") else self._syslog(text, depth)
        record = record or _bare(text)
        return settle(record if facility is None else record._replace(facility=facility))

    def _dmesg(self, text: str) -> LogRecord | None:
        """A line of the kernel ring itself, whose time stands in brackets."""
        if match := _UPTIME.match(text):
            time = self.stamps.since_boot(float(match["uptime"]))
            rest = text[match.end() :]
        elif match := _CTIME.match(text):
            time = self.stamps.dated(match["month"], match["day"], match["clock"], match["year"])
        elif (match := _MINUTE.match(text)) or (match := _DELTA.match(text)):
            time = self.relative(text)
        elif match := _BRACKET_ISO.match(text):
            time = self.stamps.iso(match["iso"])
        elif match := _FABRIC_MANAGER.match(text):
            time = self.stamps.dated(match["month"], match["day"], match["clock"], match["year"])
            return LogRecord(time, None, FABRIC_MANAGER_TAG, text[match.end() :])
        elif match := _ELIDED.match(text):
            time = None
        else:
            return None
        rest = text[match.end() :]
        if caller := _CALLER.match(rest):
            rest = rest[caller.end() :]
        if host := _MONOTONIC.match(rest):
            return LogRecord(time, host["node"], host["tag"], rest[host.end() :])
        return LogRecord(time, None, None, rest)

    def relative(self, text: str) -> datetime | None:
        """The moment of a `dmesg --time-format reltime` line, good to the minute; each such line in order."""
        if match := _MINUTE.match(text):
            self._moment = self.stamps.yearless(match["month"], match["day"], f"{match['minute']}:00")
        elif (match := _DELTA.match(text)) and self._moment is not None:
            self._moment = self.stamps.since_epoch(self._moment.timestamp() + float(match["delta"]))
        return self._moment

    def _syslog(self, text: str, depth: int) -> LogRecord | None:
        """A line with a time, a host and a tag."""
        stamps = self.stamps
        if match := _SYSLOG_ISO.match(text):
            time = stamps.iso(match["iso"])
            if "," in match["iso"]:  # dmesg --time-format iso: neither host nor tag
                return LogRecord(time, None, None, text[match.end() :])
            container = _CONTAINER.match(text, match.end())
            if depth < MAX_DEPTH and (container or _WHOLE.match(text, match.end())):
                inner = self.read(text[(container or match).end() :], depth + 1)
                return inner._replace(time=inner.time or time)
        elif match := _YEARLESS.match(text):
            time = stamps.yearless(match["month"], match["day"], match["clock"])
        elif match := _DATED.match(text) or _WITH_YEAR.match(text):
            time = _dated(stamps, match)
        elif match := _FULL.match(text):
            time = stamps.zoned(match["date"], match["zone"])
        elif match := _UNIX.match(text):
            time = stamps.since_epoch(float(match["epoch"]))
        elif match := _TALOS.match(text):
            return LogRecord(stamps.iso(match["iso"]), match["node"], "kernel", text[match.end() :])
        else:
            return None
        rest = text[match.end() :].lstrip(" ")
        if found := _TAGGED.match(rest):
            return LogRecord(time, None, found["tag"], rest[found.end() :])
        if found := _HOST_TAGGED.match(rest):
            return LogRecord(time, found["node"], found["tag"], rest[found.end() :])
        if found := _HOST.match(rest):
            return LogRecord(time, found["node"], "", rest[found.end() :])
        return LogRecord(time, None, "", rest)


def _bare(text: str) -> LogRecord:
    message = text.lstrip()
    if message.startswith("Xid (PCI:"):  # journalctl -o cat of a record whose identifier was NVRM
        return LogRecord(None, None, "NVRM", message)
    if match := _FABRIC_MANAGER_BARE.match(message):
        return LogRecord(None, None, FABRIC_MANAGER_TAG, message[match.end() :])
    return LogRecord(None, None, None, message)


def settle(record: LogRecord) -> LogRecord:
    """The record as the kernel wrote it: the driver's name back in the message, the uptime off, repeats counted."""
    tag, message, repeats = record.tag, record.message, record.repeats
    if tag is None:
        if not message.startswith("kernel: "):
            return record
        tag, message = "kernel", message[8:]
    if DRIVER_TAG.fullmatch(tag):
        tag, message = "kernel", f"{tag}: {message}"
    if tag == "kernel":
        if match := _UPTIME.match(message):
            message = message[match.end() :]
        if match := _REPEATED.match(message):
            repeats, message = int(match[1]), match[2]
    return record._replace(tag=tag, message=message, repeats=repeats)


def _dated(stamps: Stamps, match: re.Match[str]) -> datetime | None:
    """The time of a date with a year, before the month or behind it."""
    year = match["year"] or match.groupdict().get("first")
    return None if year is None else stamps.dated(match["month"], match["day"], match["clock"], year)


def unescape(text: str) -> str:
    """The text of a /dev/kmsg record: `\\xNN` are bytes, of UTF-8 where they can be."""
    if "\\x" not in text:
        return text
    raw = text.encode("utf-8", errors="surrogatepass")
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), raw).decode("utf-8", errors="replace")
