"""The graph of devices as the store knows it."""

from datetime import datetime

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from store.nodes.inventory import read_links, read_nodes


def read_graph(connection: sa.Connection, at: datetime | None = None) -> DeviceGraph:
    """Nodes with their racks, leafs, drivers; cables."""
    graph = DeviceGraph()
    for node in read_nodes(connection):
        place = Place("node", node.node)
        graph.add(place)
        if node.rack:
            graph.hang(place, Place("rack", node.rack))
        if node.leaf:
            graph.hang(place, Place("switch", node.leaf))
        if node.driver:
            graph.hang(place, Place("driver", node.driver))
    for link in read_links(connection):
        switch = Place("switch", link["switch"])
        port = Place("port", f"{link['switch']}/{link['port']}")
        graph.hang(port, switch)
        if link["peer_type"] == "hca":
            graph.hang(Place("node", link["peer"]), switch)
        else:
            graph.join(port, Place("port", f"{link['peer']}/{link['peer_port']}"))
    return graph
