"""Where an event was seen: its device as a place of the graph, and the others that its line names."""

from collections.abc import Hashable, Iterator

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.lost_ways import port_at, way_of
from store.records.event import NAMING, Event
from store.records.event_sources import FLEET_SOURCES, WORK
from store.records.verdict import CauseClass

# Device types as records name them, and the class of place that each is.
_PARTS: dict[str, CauseClass] = {
    "gpu": "gpu",
    "npu": "gpu",
    "hpu": "gpu",
    "mlu": "gpu",
    "nvswitch": "nvswitch",
    "hca": "nic",
    "nic": "nic",
}
# Attributes that name another one: whom somebody waits for, a server, the far end of a cable.
_NAMING_OTHERS = ("peer", "target", "peer_uuid", "server")
# Whose `peer` is the far end of the same cable, and no complaint about it.
_CABLE_KINDS = frozenset(
    {"link_down", "link_up", "counter", "link_degraded", "link_inactive", "bit_errors", "port_unhealthy", "fabric_link"}
)
_MOST_NAMES = 4
# Where the subnet manager says that all is well.
SUBNET = Place("unknown", "opensm subnet_up")
# A GUID that two devices bear, and a request that no device answered.
_TWICE, _UNANSWERED = "0D01", "smp_timeout"
# The attributes that a place may follow from; places that are remembered, and characters of one: senders choose them.
PLACING = ("run", "hca", "switch", "error", "via", "end_1", "end_2", "manager", "path", *NAMING)
_MOST_PLACES, _MOST_CHARS = 16_384, 400


class EventPlaces:
    """The places of events in one graph. A storm says the same of a place a thousand times: it is found out once."""

    def __init__(self, graph: DeviceGraph) -> None:
        self.graph = graph
        self._known: dict[Hashable, Place] = {}

    def of(self, event: Event) -> Place:
        """The same as `place_of_event`."""
        said = (event.source, event.kind, event.node, event.device, *map(event.attributes.get, PLACING))
        place = self._known.get(said)
        if place is None:
            place = place_of_event(event, self.graph)
            if sum(len(part) for part in said if isinstance(part, str)) <= _MOST_CHARS:
                if len(self._known) >= _MOST_PLACES:
                    self._known.clear()
                self._known[said] = place
        return place


def place_of_event(event: Event, graph: DeviceGraph) -> Place:
    """The place of an event: by the graph's names where it knows them, else by the event's own.

    What a node or a program tells is of its own parts, and of ports at the other end of its own cables: whoever can
    write one node's lines must not make, or cure, what another shows.
    """
    place = _named_place(event, graph)
    if event.source in FLEET_SOURCES or place.kind in ("node", "job", "unknown"):
        return place
    far = graph.far_end(place)
    owners = {graph.node_of(place), None if far is None else graph.node_of(far)} - {None}
    if event.node is None:
        return place if not owners or event.source not in WORK else _of_nobody(event)
    is_own = event.node in owners or (not owners and place.name.startswith(f"{event.node}/"))
    return place if is_own else Place("node", event.node)


def _of_nobody(event: Event) -> Place:
    run = event.run()
    return Place("unknown", f"{event.source} {event.kind}") if run is None else Place("job", run)


def _named_place(event: Event, graph: DeviceGraph) -> Place:
    device, node = event.device, event.node
    if event.source == "opensm" and (found := _told_by_manager(event, graph)) is not None:
        return found
    if node is not None and device.type in _PARTS:
        return _part(event, node, graph)
    if device.type in ("switch", "port") or event.attributes.get("switch") is not None:
        found = _of_fabric(event, graph)
        if found is not None:
            return found
    if device.uuid is not None and (known := graph.place_of(device.uuid)) is not None:
        return known
    if node is not None:
        return Place("node", node)
    run = event.run()
    if run is not None:
        return Place("job", run)
    return Place("unknown", device.uuid or f"{event.source} {event.kind}")


def _told_by_manager(event: Event, graph: DeviceGraph) -> Place | None:
    """The place that only the way to it names: who bears another's GUID, where a request was lost."""
    if event.kind == _UNANSWERED:
        return _end_of_way(event, graph)
    if event.attributes.get("error") != _TWICE or event.device.uuid is None:
        return SUBNET if event.kind == "subnet_up" else None
    owner = graph.place_of(event.device.uuid, "nic")
    ends = (_switch_port(_text(event, f"end_{number}"), graph) for number in (1, 2))
    there = [far for end in ends if end is not None and (far := graph.far_end(end)) is not None]
    return next((far for far in there if far != owner), owner)


def _end_of_way(event: Event, graph: DeviceGraph) -> Place | None:
    """The last port of a directed route from the manager's own port, or the adapter at that port."""
    way = way_of(event)
    port = None if way is None else port_at(way, graph)
    port = port or _switch_port(_text(event, "via"), graph)
    if port is None or port.kind != "port":
        return None
    far = graph.far_end(port)
    return far if far is not None and far.kind == "nic" else port


def _switch_port(text: str | None, graph: DeviceGraph) -> Place | None:
    """The port of a switch that is named by its GUID: `0xb83fd20300100200/11`."""
    guid, _, number = (text or "").partition("/")
    switch = graph.place_of(guid, "switch") if guid else None
    return None if switch is None else graph.place_of(f"{switch.name}/{number}", "port")


def _part(event: Event, node: str, graph: DeviceGraph) -> Place:
    """A GPU, a switch of NVLinks or an adapter of a node, whichever of its names the event gives."""
    device, kind = event.device, _PARTS[event.device.type]
    index = None if device.index is None else f"{kind}{device.index}"
    given = (event.name(), _text(event, "hca"), device.pci, index) if kind == "nic" else (device.pci, index)
    names = [name for name in given if name]
    for name in names:
        known = graph.place_of(f"{node}/{name}", kind)
        if known is not None:
            return known
    if device.uuid is not None:
        known = graph.place_of(device.uuid, kind)
        if known is not None and graph.node_of(known) == node:
            return known
        names.append(device.uuid)
    return Place(kind, f"{node}/{names[0]}") if names else Place("node", node)


def _of_fabric(event: Event, graph: DeviceGraph) -> Place | None:
    """A port or switch of the fabric; a host's port is its adapter."""
    device, node = event.device, event.node
    hca = _text(event, "hca")
    if node is not None and hca is not None:
        return graph.place_of(f"{node}/{hca}", "nic") or Place("nic", f"{node}/{hca}")
    if device.uuid is not None and (known := graph.place_of(device.uuid, "nic")) is not None:
        return known
    switch = graph.place_of(device.uuid, "switch") if device.uuid else None
    called = _text(event, "switch")
    if switch is None and called is not None:
        switch = graph.place_of(called, "switch") or Place("switch", called)
    if switch is None and device.uuid is not None and (device.type == "switch" or device.port is not None):
        switch = Place("switch", device.uuid)
    if switch is None:
        return None
    port = str(device.port) if device.port is not None else (event.name() if device.type == "port" else None)
    if port is None:
        return switch
    return graph.place_of(f"{switch.name}/{port}", "port") or Place("port", f"{switch.name}/{port}")


def names_of_others(event: Event) -> Iterator[str]:
    """The names of others in an event: a file server's address, a peer's; few."""
    if event.kind in _CABLE_KINDS:
        return
    found = 0
    for key in _NAMING_OTHERS:
        name = _text(event, key)
        if name is not None and found < _MOST_NAMES:
            found += 1
            yield name


def _text(event: Event, key: str) -> str | None:
    value = event.attributes.get(key)
    return value[:200] if isinstance(value, str) and value else None
