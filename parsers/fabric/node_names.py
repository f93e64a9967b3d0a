"""Names in a fabric, as its log reported them so far: GUIDs, LIDs of switches, the ends of routes.

    Discovered new port with GUID:0xb83fd203001000c0 LID range [30,30] of node: MF0;leaf04:MQM8700/U1
    -> guid_of(30) == "0xb83fd203001000c0"; place_of("0xb83fd203001000c0").switch == "leaf04"

The memory is bounded: the oldest entry goes first.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import TypeVar

from parsers.text.parser import ParseError
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

# InfiniBand node descriptions: which host and adapter, or which switch, a name means.
#
# place("gpu007 mlx5_0")          -> Place(host="gpu007", hca="mlx5_0")
# place("MF0;leaf03:MQM8700/U1")  -> Place(switch="leaf03")
# place("<unknown>")              -> Place()
# place("localhost mlx5_0")       -> Place(text=...): a host that had no name yet

_SWITCH = re.compile(
    r"(?:[A-Z]{2}\d+;)(?P<name>[^:;]+)|(?P<plain>\S*(?:[Ss]witch|SWITCH)\S*)"
    r"|Quantum|Infiniscale"
)
_HOST = re.compile(r"'?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})'?(?:\s+(?P<hca>[\w.-]{1,64}))?\s*'?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class FabricNode:
    """A node description, read: a host with its adapter, or a switch, or neither."""

    text: str = ""
    host: str | None = None
    hca: str | None = None
    switch: str | None = None

    def attributes(self) -> dict[str, Attribute]:
        """What an event's attributes say of it."""
        named: dict[str, Attribute] = {"hca": self.hca, "switch": self.switch}
        return {name: value for name, value in named.items() if value is not None}


def fabric_node(description: str) -> FabricNode:
    """What a node description names; a form that is neither a host's nor a switch's names nothing."""
    text = description.strip()[:256]
    if match := _SWITCH.match(text):
        return FabricNode(text=text, switch=match["name"] or text)
    if (match := _HOST.match(text)) and match["host"] != "localhost":
        return FabricNode(text=text, host=match["host"], hca=match["hca"])
    return FabricNode(text="" if text == "<unknown>" else text)


def fabric_switch(description: str) -> FabricNode:
    """What the description of a node that is known to be a switch names: `ISR9024 Voltaire` looks like a host's."""
    found = fabric_node(description)
    return found if found.switch or not found.text else FabricNode(text=found.text, switch=found.text)


# The error counters of an InfiniBand port, as infiniband-diags names them: which tell a fault, and of what.
#
# counter_name("SymbolErrors") -> "SymbolErrorCounter"     (versions before 1.5 print shorter names)
# counter_name("PortXmitData") -> None                     (data, no error)
# counter_name("PortXmitWait") -> None                     (waiting for credit: load, no error)

# Names of today and of infiniband-diags before 1.5 (InfiniBand Architecture Specification, volume 1, section 16.1.3.5).
_NAMES = {
    "SymbolErrorCounter": "SymbolErrors",
    "LinkErrorRecoveryCounter": "LinkRecovers",
    "LinkDownedCounter": "LinkDowned",
    "PortRcvErrors": "RcvErrors",
    "PortRcvRemotePhysicalErrors": "RcvRemotePhysErrors",
    "PortRcvSwitchRelayErrors": "RcvSwRelayErrors",
    "PortXmitDiscards": "XmtDiscards",
    "PortXmitConstraintErrors": "XmtConstraintErrors",
    "PortRcvConstraintErrors": "RcvConstraintErrors",
    "LocalLinkIntegrityErrors": "LinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors": "ExcBufOverrunErrors",
    "QP1Dropped": "QP1Drops",
    "VL15Dropped": "VL15Drops",
    # The details of PortRcvErrors and PortXmitDiscards.
    "PortLocalPhysicalErrors": "LocalPhysicalErrors",
    "PortMalformedPktErrors": "MalformedPktErrors",
    "PortBufferOverrunErrors": "BufferOverrunErrors",
    "PortDLIDMappingErrors": "DLIDMappingErrors",
    "PortVLMappingErrors": "VLMappingErrors",
    "PortLoopingErrors": "LoopingErrors",
    "PortInactiveDiscards": "InactiveDiscards",
    "PortNeighborMTUDiscards": "NeighborMTUDiscards",
    "PortSwLifetimeLimitDiscards": "SwLifetimeLimitDiscards",
    "PortSwHOQLifetimeLimitDiscards": "SwHOQLifetimeLimitDiscards",
}
_BY_NAME = {name: name for name in _NAMES} | {old: name for name, old in _NAMES.items()}
# A switch counts its own multicast that comes back to it.
_HARMLESS = frozenset({"PortRcvSwitchRelayErrors"})


def counter_name(printed: str) -> str | None:
    """The name of an error counter, however a version prints it; None for one that tells no error."""
    return _BY_NAME.get(printed)


def counter_event(source: str, name: str, count: int, node: str | None, device: Device) -> Event:
    """A counter that stands above zero. The tools print no time: the event has none.

    Raises:
        ParseError: more than the 64 bits that a counter of a port can have.
    """
    if count >= 2**64:
        raise ParseError(f"{name} is {count}: a port's counter has 64 bits at most")
    attributes: dict[str, Attribute] = {"counter": name, "count": count}
    event = Event(None, node, source, "counter", device=device, message=f"{name} = {count}", attributes=attributes)
    return with_kind_meaning(event, "harmless" if name in _HARMLESS else "port")


# More ports than any fabric has LIDs for (49,151); a route and a name each take some 200 bytes.
MOST_NAMES = 65_536
# A route is kept only where a switch stands at its end: fabrics have some thousand switches.
MOST_ROUTES = 16_384

_NAMED = (
    re.compile(
        r"(?:\w{1,64}: )?Node (?P<guid>0x[0-9a-f]{1,16}),?\s{1,20}Description = (?P<name>\S[^\n]{0,255})", re.ASCII
    ),
    re.compile(r"[^\n]{0,200}?(?P<guid>0x[0-9a-f]{16}) \((?:node )?'?(?P<name>[^()'\n]{1,128})", re.ASCII),
)
_MANAGER = re.compile(r"(?:\w{1,64}: )?Setting IS_SM on port (?P<guid>0x[0-9a-f]{1,16})", re.ASCII)
_LOCAL = 2**64 - 1
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class NodeNames:
    """The names of one fabric, as its log tells them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._guids: dict[int, str] = {}
        self._switches: dict[str, None] = {}
        self._routes: dict[str, str] = {}
        self.manager: str | None = None  # the GUID of the manager's own port, where every route begins

    def learn(self, guid: str, description: str) -> None:
        """A GUID belongs to the node of a description."""
        if description.strip() not in ("", "<unknown>"):
            _keep(self._names, guid, description.strip()[:256], MOST_NAMES)

    def learn_lid(self, lid: int, guid: str, *, of_switch: bool = False) -> None:
        """A LID belongs to a port's GUID."""
        if lid:
            _keep(self._guids, lid, guid, MOST_NAMES)
        if of_switch:
            _keep(self._switches, guid, None, MOST_ROUTES)

    def learn_route(self, path: str, guid: str) -> None:
        """A switch stands at the end of a directed route from the manager."""
        _keep(self._routes, path, guid, MOST_ROUTES)

    def listen(self, text: str) -> None:
        """A record that may say whose a GUID is: `nd_rcv_process_nd`, or a GUID with a name in parentheses.

        Or which port is the manager's own.
        """
        if "IS_SM" in text and (own := _MANAGER.match(text)):
            self.manager = canonical_guid(own["guid"])
            # Its routes begin elsewhere now.
            self._routes.clear()
        if "Description = " not in text and " (" not in text:
            return
        for form in _NAMED:
            if match := form.match(text):
                self.learn(canonical_guid(match["guid"]), match["name"])
                return

    def guid_of(self, lid: int) -> str | None:
        """The GUID that has a LID, where the log has named it."""
        return self._guids.get(lid)

    def at_end_of(self, path: str) -> str | None:
        """The GUID of the switch at the end of a route, where the log has named it."""
        return self._routes.get(path)

    def is_switch(self, guid: str) -> bool:
        """Whether a GUID is known to be a switch's: it sent a trap that only switches send."""
        return guid in self._switches

    def place_of(self, guid: str | None, description: str | None = None) -> FabricNode:
        """Whose a GUID is, by a description at hand or, where that is none or `<unknown>`, by one told before."""
        found = fabric_node(description or "")
        if not found.text:
            found = fabric_node(self._names.get(guid or "", ""))
        return fabric_switch(found.text) if guid in self._switches else found


def _keep(into: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    into[key] = value
    if len(into) > most:
        del into[next(iter(into))]


def canonical_guid(text: str) -> str:
    """`0x200000` and `0x0000000000200000` are one GUID: 0x and sixteen digits."""
    return f"0x{int(text, 16):016x}"


def guid_of_gid(text: str) -> str | None:
    """The GUID within a GID that is printed as IPv6 text; None where it is none.

    fe80::b83f:d203:20:61 -> 0xb83fd20300200061
    """
    try:
        return f"0x{int(IPv6Address(text)) & _LOCAL:016x}"
    except (AddressValueError, ValueError):
        return None
