"""Error counters of a whole fabric, as `ibqueryerrors` prints them (with or without --report-port, --details, --data).

    Errors for "gpu020 mlx5_0"
       GUID 0xb83fd20300200131 port 1: [PortRcvErrors == 77] [LocalLinkIntegrityErrors == 3]
    -> {"kind": "counter", "node": "gpu020", "device": {"type": "port", "uuid": "0xb83fd20300200131", "port": 1},
        "attributes": {"counter": "PortRcvErrors", "count": 77, "hca": "mlx5_0"}, ...}, and one of the second counter

Counts are totals since the counters were cleared. The tool prints no time, so events have none (when it ran is not in
its output). `port ALL` repeats the sum of a switch's ports and is no event, nor are data counters.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.fabric.node_names import FabricNode, counter_event, counter_name, fabric_node, fabric_switch
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event

_NODE = re.compile(
    r'(?P<what>Errors|Data Counters) for (?:(?P<guid>0x[0-9a-f]{1,16}) )?"(?P<name>[^"]{0,128})"', re.ASCII
)
_PORT = re.compile(r"\s{0,8}GUID (?P<guid>0x[0-9a-f]{1,16}) port (?P<port>\d{1,3}):(?P<counters>.{1,4000})", re.ASCII)
_COUNTER = re.compile(r"\[(?P<name>\w{1,64}) == (?P<count>\d{1,20})", re.ASCII)
_LINK = re.compile(
    r"\s{0,16}Link info: {1,8}(?P<lid>\d{1,5}) {1,8}\d{1,3}\[[ \d]{0,4}\] {1,2}==\([^=]{1,160}==> {1,16}"
    r'(?:0x[0-9a-f]{16} {1,8})?(?:\d{1,5} {1,8}(?P<peer_port>\d{1,3}))?\[[ \d]{0,4}\] "(?P<peer>[^"]{0,128})"',
    re.ASCII,
)


class IbqueryerrorsParser:
    """Decodes one run's output. Holds the node of the present block and the last port until its link is known."""

    def __init__(self, _context: Context) -> None:
        self._where = FabricNode()
        self._held: list[Event] = []

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of the port before this line, or of this one where its link is not reported."""
        if match := _LINK.match(text):
            return self._linked(match)
        held, self._held = self._held, []
        if match := _NODE.match(text):
            # The tool names a switch by GUID and name, an adapter's node by name alone.
            self._where = fabric_switch(match["name"]) if match["guid"] else fabric_node(match["name"])
        elif match := _PORT.match(text):
            self._held = [replace(event, line=line) for event in self._counted(match)]
        return held

    def flush(self) -> Iterable[Event]:
        """The last port."""
        held, self._held = self._held, []
        return held

    def _counted(self, match: re.Match[str]) -> Iterable[Event]:
        device = Device(type="port", uuid=f"0x{int(match['guid'], 16):016x}", port=int(match["port"]))
        for found in _COUNTER.finditer(match["counters"]):
            name, count = counter_name(found["name"]), int(found["count"])
            if name and count:
                event = counter_event("ibqueryerrors", name, count, self._where.host, device)
                yield replace(event, attributes={**event.attributes, **self._where.attributes()})

    def _linked(self, match: re.Match[str]) -> Iterable[Event]:
        """What `--report-port` adds below a port: its LID and the other end, the host of a switch's port."""
        held, self._held = self._held, []
        extra: dict[str, Attribute] = {"lid": int(match["lid"])}
        peer = fabric_node(match["peer"])
        if match["peer_port"]:
            extra |= {"peer": peer.text, "peer_port": int(match["peer_port"])}
        return [
            replace(event, node=event.node or peer.host, attributes={**event.attributes, **extra}) for event in held
        ]


FORMAT = Format(
    name="ibqueryerrors",
    description="Error counters of a fabric's ports (infiniband-diags)",
    sample="   GUID 0xb83fd20300200131 port 1: [PortRcvErrors == 77]",
    make=IbqueryerrorsParser,
    testimony="machine",
    recognises=re.compile(
        r'^Errors for (?:0x[0-9a-f]{1,16} )?"|^\s{0,8}GUID 0x[0-9a-f]{1,16} port (?:\d{1,3}|ALL): ?\[\w+ == \d'
        r"|^\s{0,16}Link info: {1,8}\d{1,5} {1,8}\d{1,3}\[[ \d]{0,4}\] {1,2}==\(",
        re.ASCII,
    ),
)
