"""The syslog of Ethernet switches (RoCE fabrics): SONiC, Cumulus, Arista EOS, Cisco NX-OS, IOS, IOS-XR, Junos, OS10.

    May 23 09:17:30.561319 leaf01 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet8 oper state set from up
      to down                                                                                             (one line)
    -> {"kind": "link_down", "node": null, "device": {"type": "port", "uuid": "leaf01/Ethernet8"},
        "attributes": {"switch": "leaf01", "name": "Ethernet8"}, ...}

The logs of all switches may be one stream; each system is a file under `switch_systems/`. A node is a host: a switch
and its ports are devices. Several programs of a switch tell of the same change: it is one event, the first one's.
A port that was shut on purpose goes down as `info`.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from parsers.parser import Context, Format
from parsers.switch_systems.head import HeadReader
from parsers.switch_systems.registry import SYSTEMS
from store.event import Event

# Programs of one switch tell of the same change within this time.
SAME_CHANGE = timedelta(seconds=5)
# The chip's driver tells of a change so long before the program that knows the port's name.
NAMED_WITHIN = timedelta(seconds=1)
NAMED_WITHIN_LINES = 50
# Ports whose last change is remembered, and changes whose name is awaited; beyond, the oldest are let go.
MAX_PORTS = 100_000
MAX_UNNAMED = 256
_CHANGES = ("link_down", "link_up", "bgp_down", "bgp_up")


class SwitchParser:
    """Decodes lines of switches' logs. Holds each port's last change, and changes whose port is not named yet."""

    def __init__(self, context: Context) -> None:
        self._heads = HeadReader(context)
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
        """A change of state, unless it was told already; one whose port is not named yet waits."""
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
        """The change with what the chip's driver told of it."""
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
    """Whether two tell of one change: the same state of a port, soon after."""
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
    recognises=re.compile("|".join(system.recognises for system in SYSTEMS), re.ASCII),
)
