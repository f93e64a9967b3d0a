"""The graph of devices as the store knows it.

graph = read_graph(connection)                 # as it is cabled now
graph = read_graph(connection, at=moment)      # as it was cabled then
graph_version(connection)                      # another one than before: read it again
"""

import gc
from datetime import datetime

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.graph_builder import TopologyRecords, build_graph
from store.nodes.topology import read_cables, read_groups, read_names, topology_version
from store.tables import schema


def read_graph(connection: sa.Connection, at: datetime | None = None) -> DeviceGraph:
    """Nodes, adapters, cables and switches with all their names, and what nodes share; as of now or of a moment."""
    was_on = gc.isenabled()
    # A million new objects, none of which is garbage: looking for some takes a third of the time.
    gc.disable()
    try:
        return build_graph(
            TopologyRecords(
                nodes=connection.scalars(sa.select(schema.nodes.c.node)).all(),
                links=read_cables(connection, at),
                names=read_names(connection, at),
                groups=read_groups(connection, at),
            )
        )
    finally:
        if was_on:
            gc.enable()


def graph_version(connection: sa.Connection) -> tuple[int, int]:
    """What changes whenever the graph does; as cheap to ask for as a row."""
    return topology_version(connection)
