"""The graph of devices from plain records: nodes, cables, further names, groups. No SQL, no clock.

    graph = build_graph(TopologyRecords(nodes=("gpu-017",), links=[FabricLink(...)], groups=[NodeGroup(...)]))

An adapter hangs on its node and on the switch's port that it is cabled to; the port on its switch; a switch on another
one only where that is its only way (`fabric_cuts.py`); a node on a switch only where all its adapters do.

What a fabric says of an adapter's host is the host's own word: any host can call itself another. So an adapter hangs on
the node that it names unless that node's own sidecar knows of no such adapter, or two adapters claim the same name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.fabric_cuts import cut_off
from diagnosis.graph.place import Place, adapter_model
from store.records.node import LOCAL_KINDS, RELEASE_KINDS, DeviceName, FabricLink, NodeGroup
from store.records.verdict import CAUSE_CLASSES, CauseClass

_CLASSES: Mapping[str, CauseClass] = {kind: kind for kind in CAUSE_CLASSES}
# Releases that a node may tell of itself: few, for it has few models of adapters, and none that may be another's
# address or name.
_MOST_RELEASES = 8
# Words before a name of a kind: a number alone would mean many things.
_WORD = {"lid": "lid ", "rank": "rank "}


@dataclass(frozen=True, slots=True)
class TopologyRecords:
    """What a graph is built from."""

    nodes: Sequence[str] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)  # of each node, as the inventory counts them
    links: Sequence[FabricLink] = ()
    names: Sequence[DeviceName] = ()
    groups: Sequence[NodeGroup] = ()


@dataclass(slots=True)
class _AdapterIndex:
    """Who an adapter is: by its GUID, and by what nodes say of their own."""

    own: dict[str, dict[str, str]] = field(default_factory=dict)  # of each node: GUID -> the adapter's place
    netdevs: dict[str, str] = field(default_factory=dict)  # gpu-017/eth2 -> the adapter's place
    twice: set[str] = field(default_factory=set)  # names that two adapters claim

    def place_of(self, link: FabricLink) -> tuple[Place, bool]:
        """The adapter at a cable's end, and whether it is sure to be its node's."""
        name = f"{link.peer}/{link.hca or link.peer_port or 1}"
        name = self.netdevs.get(name, name)
        guids = self.own.get(link.peer)
        if guids:
            known = guids.get(link.peer_guid or "") or guids.get(link.peer_port_guid or "")
            if known is not None:
                return Place("nic", known), True
            if link.peer_guid is not None:
                return Place("nic", link.peer_guid), False
        if name in self.twice and link.peer_guid is not None:
            return Place("nic", link.peer_guid), False
        return Place("nic", name), True


def build_graph(records: TopologyRecords) -> DeviceGraph:
    """The graph of what is known."""
    graph = DeviceGraph()
    graph.gpus = records.gpus
    for node in records.nodes:
        graph.add(Place("node", node))
    adapters = _adapters(records)
    leaves: dict[str, set[str]] = {}
    trunks: dict[str, set[str]] = {}
    switches: dict[str, Place] = {}
    for link in records.links:
        port = _port(graph, link, switches)
        trunks.setdefault(link.switch, set())
        if link.peer_type == "hca":
            _cable_adapter(graph, link, port, adapters, leaves)
        else:
            _cable_switch(graph, link, port)
            trunks[link.switch].add(link.peer)
    hosts = Counter(switch for own in leaves.values() for switch in own)
    for switch, above in cut_off(trunks, hosts).items():
        graph.hang(Place("switch", switch), Place("switch", above))
    for node, own in leaves.items():
        if len(own) == 1:
            graph.hang(Place("node", node), Place("switch", next(iter(own))))
    _group(graph, records.groups, leaves)
    _name(graph, records.names)
    return graph


def _adapters(records: TopologyRecords) -> _AdapterIndex:
    found = _AdapterIndex()
    for name in records.names:
        if name.kind_of_device != "nic":
            continue
        node = name.device.partition("/")[0]
        if name.kind == "netdev":
            found.netdevs[f"{node}/{name.name}"] = name.device
        if name.kind in ("guid", "port_guid") and name.known_by is not None and node == name.known_by:
            found.own.setdefault(node, {})[name.name] = name.device
    claims: dict[str, str] = {}
    for link in records.links:
        if link.peer_type == "hca" and link.peer_guid is not None:
            name_of = f"{link.peer}/{link.hca or link.peer_port or 1}"
            if claims.setdefault(name_of, link.peer_guid) != link.peer_guid:
                found.twice.add(name_of)
    return found


def _port(graph: DeviceGraph, link: FabricLink, switches: dict[str, Place]) -> Place:
    switch = switches.get(link.switch)
    if switch is None:
        switch = switches[link.switch] = Place("switch", link.switch)
        graph.add(switch, (link.switch_guid or "", "" if link.switch_lid is None else f"lid {link.switch_lid}"))
    port = Place("port", f"{link.switch}/{link.port_name or link.port}")
    graph.hang(port, switch)
    if link.port_name is not None:
        graph.add(port, (f"{link.switch}/{link.port}",))
    return port


def _cable_adapter(
    graph: DeviceGraph, link: FabricLink, port: Place, adapters: _AdapterIndex, leaves: dict[str, set[str]]
) -> None:
    adapter, is_sure = adapters.place_of(link)
    lid = "" if link.peer_lid is None else f"lid {link.peer_lid}"
    claimed = () if is_sure else (f"{link.peer}/{link.hca or link.peer_port or 1}",)
    graph.add(adapter, (link.peer_guid or "", link.peer_port_guid or "", lid, *claimed))
    if is_sure:
        graph.hang(adapter, Place("node", link.peer))
        leaves.setdefault(link.peer, set()).add(link.switch)
    if graph.far_end(adapter) not in (None, port):
        # The second port of an adapter is an adapter of its own, which hangs on it.
        second = Place("nic", f"{adapter.name}/{link.peer_port or 2}")
        graph.hang(second, adapter)
        if is_sure:
            graph.hang(second, Place("node", link.peer))
        adapter = second
    graph.hang(adapter, port)
    graph.join(adapter, port)


def _cable_switch(graph: DeviceGraph, link: FabricLink, port: Place) -> None:
    far = Place("switch", link.peer)
    graph.add(far, (link.peer_guid or "",))
    if link.peer_port is None:
        return
    end = Place("port", f"{link.peer}/{link.peer_port}")
    known = graph.place_of(end.name, "port")
    end = known if known is not None and known.name.startswith(f"{link.peer}/") else end
    graph.hang(end, far)
    graph.join(port, end)


def _group(graph: DeviceGraph, groups: Iterable[NodeGroup], leaves: Mapping[str, set[str]]) -> None:
    for group in groups:
        # A leaf that is only named says less than a cable that is known.
        if group.kind in _CLASSES and not (group.kind == "switch" and group.node in leaves):
            graph.hang(Place("node", group.node), Place(_CLASSES[group.kind], group.name))


def _name(graph: DeviceGraph, names: Iterable[DeviceName]) -> None:
    """Further names; what a node says of its own takes no name that another device has by the fabric or an operator."""
    own: list[tuple[Place, str]] = []
    releases: dict[str, set[str]] = {}
    for name in names:
        kind = _CLASSES.get(name.kind_of_device)
        if kind is None:
            continue
        place = Place(kind, name.device)
        node, slash, _ = name.device.partition("/")
        is_part = bool(slash) and kind in ("nic", "gpu", "nvswitch")
        if is_part:
            graph.hang(place, Place("node", node))
        if name.kind in RELEASE_KINDS:
            told = releases.setdefault(node, set())
            is_free = name.known_by is None or (len(told) < _MOST_RELEASES and adapter_model(name.name))
            if (is_part or kind == "node") and is_free:
                told.add(name.name)
                graph.hang(Place("node", node), Place(_CLASSES[name.kind], name.name))
            continue
        text = f"{node}/{name.name}" if name.kind in LOCAL_KINDS else f"{_WORD.get(name.kind, '')}{name.name}"
        if name.known_by is None:
            graph.add(place, (text,))
        else:
            own.append((place, text))
    free = [(place, text) for place, text in own if graph.place_of(text) in (None, place)]
    for place, text in free:
        graph.add(place, (text,))
