"""Where an event was seen: its device as a place of the graph, and the others that its line names."""

from collections.abc import Iterator

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from store.records.event import Event
from store.records.verdict import CauseClass

# Device types as records name them, and the class of place that each is.
_PARTS: dict[str, CauseClass] = {
    "gpu": "gpu",
    "npu": "gpu",
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


def place_of_event(event: Event, graph: DeviceGraph) -> Place:
    """The place of an event: by the graph's names where it knows them, else by the event's own."""
    device, node = event.device, event.node
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
