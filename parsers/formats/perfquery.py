"""Error counters of one port, as `perfquery` prints them (also -x, -a, and the detail counters of newer versions).

    # Port counters: Lid 2 port 5 (CapMask: 0x1300)
    SymbolErrorCounter:..............5000
    -> {"kind": "counter", "device": {"type": "port", "index": 2, "port": 5},
        "attributes": {"counter": "SymbolErrorCounter", "count": 5000, "lid": 2}, ...}

The tool names the port by its LID (the device's `index`: it tells two apart) or route alone, and prints no time:
events have none. Port 255 is the sum of a switch's ports.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.fabric.node_names import counter_event, counter_name
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event

_HEAD = re.compile(
    r"# (?:Port|\w{1,32})(?: extended| XmitDiscardDetails| RcvErrorDetails)? counters: "
    r"(?:Lid (?P<lid>\d{1,5})|(?P<path>DR path [^p]{1,200}?))(?: port (?P<port>\d{1,3}))?(?: \(CapMask|\s*$)",
    re.ASCII,
)
_COUNTER = re.compile(r"(?P<name>[A-Z]\w{1,63}):\.{1,64}(?P<count>\d{1,20})\s*$", re.ASCII)
_ALL_PORTS = 255


class PerfqueryParser:
    """Decodes the blocks of one or more ports. Holds which port the present block speaks of."""

    def __init__(self, _context: Context) -> None:
        self._device = Device(type="port")
        self._place: dict[str, Attribute] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of a counter above zero."""
        if match := _HEAD.match(text):
            port = int(match["port"]) if match["port"] else None
            everywhere, lid = port == _ALL_PORTS, int(match["lid"]) if match["lid"] else None
            kind = "switch" if everywhere else "port"
            self._device = Device(type=kind, index=lid, port=None if everywhere else port)
            self._place = {"lid": int(match["lid"])} if match["lid"] else {"path": match["path"].strip()}
            return []
        match = _COUNTER.match(text)
        name = counter_name(match["name"]) if match else None
        if match is None or name is None or int(match["count"]) == 0:
            return []
        event = counter_event("perfquery", name, int(match["count"]), None, self._device)
        return [replace(event, line=line, attributes={**event.attributes, **self._place})]

    def flush(self) -> Iterable[Event]:
        """Nothing is held."""
        return []


FORMAT = Format(
    name="perfquery",
    description="Error counters of one InfiniBand port (infiniband-diags)",
    sample="SymbolErrorCounter:..............5000",
    make=PerfqueryParser,
    testimony="machine",
    recognises=re.compile(
        r"^# (?:Port|\w{1,32})(?: extended)? counters: (?:Lid \d|DR path )"
        r"|^(?:PortSelect|CounterSelect2?|SymbolError(?:Counter|s)|Link(?:ErrorRecoveryCounter|Recovers|Downed(?:Counter)?)"
        r"|(?:Port)?(?:Rcv|Xmi?t)\w{2,40}):\.{2,64}\d",
        re.ASCII,
    ),
)
