"""The error counters of an InfiniBand port, as infiniband-diags names them: which tell a fault, and of what.

counter_name("SymbolErrors") -> "SymbolErrorCounter"     (versions before 1.5 print shorter names)
counter_name("PortXmitData") -> None                     (data, no error)
counter_name("PortXmitWait") -> None                     (waiting for credit: load, no error)
"""

from parsers.parser import ParseError
from store.catalog import judged
from store.event import Attribute, Device, Event

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
    return judged(event, "harmless" if name in _HARMLESS else "port")
