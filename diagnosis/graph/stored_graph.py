"""The graph of devices as the store knows it.

graph = read_graph(connection)                 # as it is cabled now
graph = read_graph(connection, at=moment)      # as it was cabled then
topology_version(connection)                   # of the store; another one than before: read it again

graphs = GraphHistory(connection)                # of many moments, one after the other
graphs.at(moment)
"""

import gc
from bisect import bisect_right
from datetime import datetime

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.graph_builder import TopologyRecords, build_graph
from store.nodes.topology import read_cables, read_groups, read_names
from store.tables import schema, topology_tables


def read_graph(connection: sa.Connection, at: datetime | None = None) -> DeviceGraph:
    """Nodes, adapters, cables and switches with all their names, and what nodes share; as of now or of a moment."""
    was_on = gc.isenabled()
    # A million new objects, none of which is garbage: looking for some takes a third of the time.
    gc.disable()
    try:
        gpus = dict(connection.execute(sa.select(schema.nodes.c.node, schema.nodes.c.gpus)).all())
        return build_graph(
            TopologyRecords(
                nodes=list(gpus),
                gpus={node: count for node, count in gpus.items() if count},
                links=read_cables(connection, at),
                names=read_names(connection, at),
                groups=read_groups(connection, at),
            )
        )
    finally:
        if was_on:
            gc.enable()


_SINCE = (schema.links, topology_tables.former_links, topology_tables.device_names, topology_tables.node_groups)


class GraphHistory:
    """The graphs of moments: the same one for all between which nothing was cabled, named or grouped otherwise."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        columns = [table.c.since for table in _SINCE] + [table.c.until for table in _SINCE[1:]]
        changes = (sa.select(column).where(column.is_not(None)) for column in columns)
        self._changes = sorted(connection.scalars(sa.union(*changes)))
        self._held: tuple[int, DeviceGraph] | None = None

    def at(self, moment: datetime) -> DeviceGraph:
        """The graph as of a moment; only the last one is held."""
        place = bisect_right(self._changes, moment)
        if self._held is None or self._held[0] != place:
            self._held = place, read_graph(self._connection, moment)
        return self._held[1]
