"""The subnet manager's requests that got no answer: where on its way each was lost, and which were lost for one reason.

Such a request names its route, the ports that it leaves by, from the manager's own adapter on: `0,1,37,8`. When a cable
goes while the manager sweeps, every request that is under way beyond it is lost, too: to all ports of the switch behind
it, and to all switches behind that. So what was lost behind a lost way is not down itself; and where at one time most
ports of a switch do not answer, it is the way to the switch.

    way = way_of(event)                    # Way("0x0000000000000011", ("37", "8"))
    port_at(way, graph)                    # Place("port", "spine01/8")
    reasons([way, ...], graph)             # of each way the one that was lost
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from store.records.event import Event

# Hops of a route; InfiniBand allows 63.
_MOST_HOPS = 64
# So many ports of a switch, and half of those that are cabled, do not answer: it is the way to the switch.
_SEVERAL = 3


class Way(NamedTuple):
    """A route: the GUID of the manager's adapter, and the ports of switches that it leaves by."""

    manager: str
    ports: tuple[str, ...]


def way_of(event: Event) -> Way | None:
    """The route of a request, where the line names it and the manager is known."""
    manager, path = event.attributes.get("manager"), event.attributes.get("path")
    if not isinstance(manager, str) or not isinstance(path, str) or not manager:
        return None
    # The first two numbers are of the manager's own port.
    return Way(manager[:64], tuple(port.strip() for port in path[:1024].split(",")[2 : _MOST_HOPS + 2]))


def port_at(way: Way, graph: DeviceGraph) -> Place | None:
    """The last port of a route, or the manager's own where it leaves by no switch; None where the graph has none."""
    port = graph.place_of(way.manager, "nic")
    for number in way.ports:
        entry = None if port is None else graph.far_end(port)
        switch = None if entry is None else _switch_of(entry, graph)
        port = None if switch is None else graph.place_of(f"{switch.name}/{number}", "port")
    return port


def reasons(ways: Iterable[Way], graph: DeviceGraph) -> dict[Way, Way]:
    """Of ways that were lost at one time, for each the one that was lost: its own, or a shorter one that it shares."""
    found = {way: way for way in ways}
    lost = set(found)
    for length in range(max((len(way.ports) for way in lost), default=0), 1, -1):
        behind: dict[Way, set[Way]] = defaultdict(set)
        for way in lost:
            if len(way.ports) == length:
                behind[Way(way.manager, way.ports[:-1])].add(way)
        lost |= {parent for parent, ends in behind.items() if len(ends) >= _many(parent, graph)}
    for way in found:
        shorter = (Way(way.manager, way.ports[:length]) for length in range(1, len(way.ports)))
        found[way] = next((one for one in shorter if one in lost), way)
    return found


def _many(way: Way, graph: DeviceGraph) -> float:
    """How many lost ports of the switch behind a way are its own loss."""
    port = port_at(way, graph)
    entry = None if port is None else graph.far_end(port)
    switch = None if entry is None else _switch_of(entry, graph)
    if switch is None:
        return float("inf")
    cabled = sum(graph.far_end(one) is not None for one in graph.children(switch, "port"))
    return max(_SEVERAL, (cabled - 1) / 2)


def _switch_of(port: Place, graph: DeviceGraph) -> Place | None:
    return next((above for above in graph.parents(port) if above.kind == "switch"), None)
