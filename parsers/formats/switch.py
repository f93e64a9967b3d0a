"""The syslog of Ethernet switches (RoCE fabrics): SONiC, Cumulus, Arista EOS, Cisco NX-OS, IOS, IOS-XR, Junos, OS10.

    May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state set from up
      to down                                                                                             (one line)
    -> {"kind": "link_down", "node": null, "device": {"type": "port", "uuid": "leaf01/Ethernet8"},
        "attributes": {"switch": "leaf01", "name": "Ethernet8"}, ...}

The logs of all switches may be one stream; `parsers/fabric/switch_*.py` hold the systems. A node is a host: a switch
and its ports are devices. Several programs of a switch report the same change: it is one event, of the first report.
A port that was shut on purpose goes down as `info`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone

from parsers.fabric.switch_linux import CUMULUS, SONIC
from parsers.fabric.switch_system import SwitchSystem
from parsers.fabric.switch_vendors import JUNOS, MNEMONIC, MNEMONICS
from parsers.text.parser import Context, Format
from parsers.text.stamp import Stamps
from store.records.event import Event

# What stands before a switch's message: time, switch, level and program, in the forms that network systems write.
#
#     May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: ...                 SONiC; since 2023 with the year before it
#     2017-05-22T11:21:07.153894-04:00 leaf01 switchd[19517]: ...              Cumulus, rsyslog
#     Jun 28 15:06:19 leaf03 Ebra: %ETH-4-ERRDISABLE: ...                      EOS
#     2016 May 26 15:41:47 IST leaf03 Ebra: %LINEPROTO-5-UPDOWN: ...           EOS
#     <189>: 2017 Mar  4 15:26:19 CST: %ETHPORT-5-IF_UP: ...                   NX-OS
#     000123: *Jun  9 12:00:01.123: %LINK-3-UPDOWN: ...                        IOS
#     May 22 11:15:38 spine1 52376: LC/0/0/CPU0:May 22 11:16:02.886 UTC: ifmgr[213]: %PKT_INFRA-LINK-3-UPDOWN : ...   XR
#     -> Head(time=..., switch="leaf01", tag="swss#orchagent", message="...")
#
# Of two times the one that says its zone counts, else the first, which is the collector's.

_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:\.\d{1,9})?"
_TIME = re.compile(
    rf"(?P<iso>\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(?P<offset>Z|[+-]\d{{2}}:?\d{{2}})?)"
    rf"|(?:(?P<year>\d{{4}}) )?(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {{1,2}}(?P<day>\d{{1,2}})"
    rf"(?: (?P<year2>\d{{4}}))? (?P<clock>{_CLOCK})(?: (?P<zone>[A-Z]{{3,5}}|[+-]\d{{2}}(?::?\d{{2}})?)(?=[\s:]))?",
    re.ASCII,
)
# What may stand before a time: a priority, RFC 5424's version, a sequence number, IOS's mark of a clock not set.
_BEFORE = re.compile(r"(?:<\d{1,3}>)?(?:1 )?(?:\d{1,12}: ?)*[:*. ]*", re.ASCII)
_HOST = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252})(?=\s|$)", re.ASCII)
_PROGRAM = re.compile(
    r"(?:(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG) )?"
    r"(?P<tag>[^\s:\[\]]{1,128})(?:\[\d{1,10}\])? ?:(?: |(?=:)|$)",
    re.ASCII,
)
_UPTIME = re.compile(r"\[ *\d{1,12}\.\d{1,9}\] ?", re.ASCII)
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})?", re.ASCII)
# Switches of so many zones stand in one log.
MAX_ZONES = 64
# A head is shorter than this.
MOST_HEAD = 300


@dataclass(frozen=True, slots=True)
class SwitchLineHead:
    """A line's parts. `switch` is None where it names none; the tag of a message with a mnemonic is not needed."""

    time: datetime | None
    switch: str | None
    tag: str
    message: str


class SwitchHeadReader:
    """Takes the head off a line. Holds the last time without a year, for each zone that times are in."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._zoned: dict[str, Stamps] = {}

    def read(self, text: str) -> SwitchLineHead | None:
        """The parts of a line; None for one that no switch writes."""
        mnemonic = _mnemonic(text)
        times = list(_TIME.finditer(text, 0, min(mnemonic or MOST_HEAD, MOST_HEAD)))
        if mnemonic is not None:
            best = next((time for time in times if _says_zone(time)), times[0] if times else None)
            moment = self._moment(best, best["zone"]) if best else None
            return SwitchLineHead(moment, _sender(text[:mnemonic], times), "", text[mnemonic:])
        if not times or not _BEFORE.fullmatch(text, 0, times[0].start()):
            return _bare(text)
        first = times[0]
        # These systems print no zone: five capitals after the time are the switch.
        rest = text[first.start("zone") if first["zone"] else first.end() :].lstrip(" ")
        host = _HOST.match(rest)
        program = host and _PROGRAM.match(rest, host.end() + 1)
        if not host or not program:
            return None
        message = rest[program.end() :]
        if uptime := _UPTIME.match(message):
            message = message[uptime.end() :]
        return SwitchLineHead(self._moment(first, None), host["host"], program["tag"], message)

    def _moment(self, time: re.Match[str], zone: str | None) -> datetime | None:
        """The moment of a time; a zone's name other than UTC says nothing that is sure."""
        if time["iso"]:
            return self._stamps.iso(time["iso"])
        stamps = self._stamps if zone is None else self._stamps_of(zone)
        year = time["year"] or time["year2"]
        if year:
            return stamps.dated(time["month"], time["day"], time["clock"], year)
        return stamps.yearless(time["month"], time["day"], time["clock"])

    def _stamps_of(self, zone: str) -> Stamps:
        offset = _OFFSET.fullmatch(zone)
        if zone not in ("UTC", "GMT") and not offset:
            return self._stamps
        if zone not in self._zoned and len(self._zoned) < MAX_ZONES:
            minutes = int(offset["hours"]) * 60 + int(offset["minutes"] or 0) if offset else 0
            shift = timedelta(minutes=-minutes if offset and offset["sign"] == "-" else minutes)
            shifted = timezone(shift) if abs(shift) < timedelta(days=1) else UTC
            self._zoned[zone] = Stamps(replace(self._context, zone=shifted))
        return self._zoned.get(zone, self._stamps)


def _bare(text: str) -> SwitchLineHead | None:
    """A line without a time: a program's own file or an excerpt."""
    program = _PROGRAM.match(text)
    return SwitchLineHead(None, None, program["tag"], text[program.end() :]) if program else None


def _mnemonic(text: str) -> int | None:
    """Where a message with a mnemonic begins."""
    at = text.find("%", 0, MOST_HEAD)
    while at >= 0:
        if (at == 0 or text[at - 1] in " :") and MNEMONIC.match(text, at):
            return at
        at = text.find("%", at + 1, MOST_HEAD)
    return None


def _says_zone(time: re.Match[str]) -> bool:
    zone = time["zone"]
    return time["offset"] is not None or (zone is not None and (zone in ("UTC", "GMT") or zone[0] in "+-"))


def _sender(head: str, times: list[re.Match[str]]) -> str | None:
    """The switch that a head names: before the first time (a relay that stamps nothing), else after it."""
    start = _BEFORE.match(head)
    before = head[start.end() if start else 0 : times[0].start() if times else len(head)]
    if host := _HOST.match(before):
        return host["host"]
    if not times:
        return None
    after = head[times[0].end() :]
    if host := _HOST.match(after.lstrip(": ")):
        return host["host"]
    zone = times[0]["zone"]
    # Capitals behind a time may be its zone or, where nothing else names a switch, the switch.
    return zone if zone and zone.isalpha() and not after.startswith(":") else None


# Tried in this order; the first that decodes a message has it.
SYSTEMS: tuple[SwitchSystem, ...] = (MNEMONICS, SONIC, CUMULUS, JUNOS)

# Programs of one switch report the same change within this time.
SAME_CHANGE = timedelta(seconds=5)
# The chip's driver reports a change so long before the program that knows the port's name.
NAMED_WITHIN = timedelta(seconds=1)
NAMED_WITHIN_LINES = 50
# Ports whose last change is remembered, and changes whose name is awaited; beyond, the oldest are let go.
MAX_PORTS = 100_000
MAX_UNNAMED = 256
_CHANGES = ("link_down", "link_up", "bgp_down", "bgp_up")


class SwitchParser:
    """Decodes lines of switches' logs. Holds each port's last change, and changes whose port is not named yet."""

    def __init__(self, context: Context) -> None:
        self._heads = SwitchHeadReader(context)
        self._switch = context.node
        self._last: dict[str, Event] = {}
        self._unnamed: list[Event] = []

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line, and those whose name has not come in time."""
        head = self._heads.read(text)
        if head is None:
            return []
        switch = head.switch or self._switch
        event = next((found for system in SYSTEMS if (found := system.decode(switch, head.tag, head.message))), None)
        if event is None:
            return []
        event = replace(event, time=head.time, line=line)
        late = self._late(event)
        return [*late, *self._change(event)] if event.kind in _CHANGES else [*late, event]

    def flush(self) -> Iterable[Event]:
        """The changes whose port nobody named."""
        held, self._unnamed = self._unnamed, []
        return held

    def _change(self, event: Event) -> list[Event]:
        """A change of state, unless it was reported already; one whose port is not named yet waits."""
        if "logical_port" in event.attributes:
            self._unnamed.append(event)
            return [self._unnamed.pop(0)] if len(self._unnamed) > MAX_UNNAMED else []
        event = self._named(event)
        key = f"{event.device.key()} {event.attributes.get('peer')}"
        before = self._last.pop(key, None)
        self._last[key] = event
        if len(self._last) > MAX_PORTS:
            del self._last[next(iter(self._last))]
        return [] if before is not None and _same(before, event) else [event]

    def _named(self, event: Event) -> Event:
        """The change with what the chip's driver reported of it."""
        for place, held in enumerate(self._unnamed):
            if held.kind == event.kind and held.attributes.get("switch") == event.attributes.get("switch"):
                del self._unnamed[place]
                number = held.attributes["logical_port"]
                return replace(
                    event, time=held.time, line=held.line, attributes={**event.attributes, "logical_port": number}
                )
        return event

    def _late(self, now: Event) -> list[Event]:
        """Changes that nobody has named in time, as of an event."""
        late = [event for event in self._unnamed if not _soon(event, now)]
        self._unnamed = [event for event in self._unnamed if event not in late] if late else self._unnamed
        return late


def _same(before: Event, event: Event) -> bool:
    """Whether two report one change: the same state of a port, soon after."""
    if before.kind != event.kind:
        return False
    if before.time is None or event.time is None:
        return (event.line or 0) - (before.line or 0) <= NAMED_WITHIN_LINES
    return abs(event.time - before.time) <= SAME_CHANGE


def _soon(held: Event, now: Event) -> bool:
    if held.time is None or now.time is None:
        return (now.line or 0) - (held.line or 0) <= NAMED_WITHIN_LINES
    return abs(now.time - held.time) <= NAMED_WITHIN


FORMAT = Format(
    name="switch",
    description="Syslog of Ethernet switches: SONiC, Cumulus, Arista EOS, Cisco NX-OS, IOS, IOS-XR, Junos, Dell OS10",
    sample="May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state "
    "set from up to down",
    make=SwitchParser,
    testimony="machine",
    recognises=re.compile("|".join(system.recognises for system in SYSTEMS), re.ASCII),
)
