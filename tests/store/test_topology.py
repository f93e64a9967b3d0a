"""The topology in the store: what is cabled now, what was cabled then, and the names and groups of devices."""

import itertools
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from diagnosis.graph.place import Place
from diagnosis.graph.stored_graph import GraphHistory, read_graph
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.nodes.domains import note_domains
from store.nodes.topology import (
    append_groups,
    append_links,
    append_names,
    read_cables,
    read_groups,
    read_names,
    topology_version,
)
from store.records.event import Device, Event
from store.records.node import DeviceName, FabricLink, Node, NodeGroup
from store.tables import schema, topology_tables

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
CABLE = {
    "switch": "leaf04",
    "port": 12,
    "peer": "gpu-017",
    "peer_port": 1,
    "peer_type": "hca",
    "hca": "mlx5_3",
    "peer_port_guid": "0x21",
    "peer_lid": 31,
}


def cabled(engine: sa.Engine, at: datetime | None = None) -> dict[str, str]:
    """Which adapter is at which port."""
    with engine.connect() as connection:
        return {f"{link.switch}/{link.port}": f"{link.peer}/{link.hca}" for link in read_cables(connection, at)}


def put(engine: sa.Engine, at: datetime, *links: dict[str, object]) -> int:
    """Append cables; returns how many rows changed."""
    with writing(engine).begin() as connection:
        return append_links(connection, links, at).changed


def test_what_was_cabled_at_a_moment_stays_known(any_engine: sa.Engine) -> None:
    """An adapter moves to another port, another one comes in its place, and both moments have their answer."""
    put(any_engine, NOW, CABLE)
    put(any_engine, NOW + HOUR, {**CABLE, "port": 13})
    other = {**CABLE, "peer": "gpu-018", "peer_port_guid": "0x22", "peer_lid": 32}
    put(any_engine, NOW + 2 * HOUR, other)
    assert cabled(any_engine, NOW - 99 * HOUR) == {"leaf04/12": "gpu-017/mlx5_3"}
    assert cabled(any_engine, NOW + HOUR) == {"leaf04/13": "gpu-017/mlx5_3"}
    assert cabled(any_engine, NOW + 2 * HOUR) == cabled(any_engine)
    assert cabled(any_engine) == {"leaf04/12": "gpu-018/mlx5_3", "leaf04/13": "gpu-017/mlx5_3"}
    with any_engine.connect() as connection:
        then = read_graph(connection, NOW)
    assert then.far_end(Place("port", "leaf04/12")) == Place("nic", "gpu-017/mlx5_3")


def test_a_cable_that_is_told_again_is_the_same(any_engine: sa.Engine) -> None:
    """Whoever tells less takes nothing away, who tells more adds; neither is a new cable, nor is another rate."""
    put(any_engine, NOW, {name: CABLE[name] for name in ("switch", "port", "peer", "peer_port", "peer_type")})
    assert put(any_engine, NOW + HOUR, {**CABLE, "rate": "4xNDR"}) == 1
    assert put(any_engine, NOW + HOUR, {**CABLE, "hca": None, "peer_lid": None}) == 0
    assert put(any_engine, NOW + HOUR, {**CABLE, "rate": "1xNDR"}) == 1
    with any_engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(topology_tables.former_links)) == 0
        [link] = read_cables(connection)
        assert connection.scalar(sa.select(schema.links.c.since)) is None
    assert (link.hca, link.peer_lid, link.rate) == ("mlx5_3", 31, "1xNDR")


def test_a_new_lid_is_a_version_and_the_newest_wins(any_engine: sa.Engine) -> None:
    """The subnet manager gave it to another after a restart: now it means that one."""
    other = {**CABLE, "port": 13, "peer": "gpu-018", "peer_port_guid": "0x31"}
    put(any_engine, NOW, CABLE, {**other, "peer_lid": 32})
    put(any_engine, NOW + HOUR, {**CABLE, "peer_lid": 32}, {**other, "peer_lid": 31})
    with any_engine.connect() as connection:
        now, then = read_graph(connection), read_graph(connection, NOW)
    assert (now.place_of("lid 32"), then.place_of("lid 32")) == (
        Place("nic", "gpu-017/mlx5_3"),
        Place("nic", "gpu-018/mlx5_3"),
    )


def test_an_uplink_that_moves_leaves_both_its_ports(any_engine: sa.Engine) -> None:
    """From one spine to another: the first spine's port is free."""
    up = {"switch": "leaf04", "port": 33, "peer": "spine01", "peer_port": 4, "peer_type": "switch"}
    down = {"switch": "spine01", "port": 4, "peer": "leaf04", "peer_port": 33, "peer_type": "switch"}
    put(any_engine, NOW, up, down)
    put(any_engine, NOW + HOUR, {**up, "peer": "spine02"})
    with any_engine.connect() as connection:
        graph = read_graph(connection)
        assert [link.switch for link in read_cables(connection)] == ["leaf04"]
    assert graph.far_end(Place("port", "leaf04/33")) == Place("port", "spine02/4")
    assert graph.far_end(Place("port", "spine01/4")) is None


def test_an_adapter_of_a_name_that_another_bears_moves_no_cable(any_engine: sa.Engine) -> None:
    """A host that names itself as another is a second adapter, and not the first one moved."""
    put(any_engine, NOW, CABLE)
    put(any_engine, NOW + HOUR, {**CABLE, "port": 14, "peer_port_guid": "0x66", "peer_lid": 66})
    assert cabled(any_engine) == {"leaf04/12": "gpu-017/mlx5_3", "leaf04/14": "gpu-017/mlx5_3"}


def test_an_address_is_the_newest_bearers_and_a_serial_is_both(any_engine: sa.Engine) -> None:
    """By an operator's word; the former bearer had it until then."""
    first = [DeviceName("node", "gpu-001", kind, name) for kind, name in (("ip", "10.0.0.4"), ("serial", "s1"))]
    second = [name._replace(device="gpu-002") for name in first]
    with writing(any_engine).begin() as connection:
        append_names(connection, first, NOW)
        append_names(connection, second, NOW + HOUR)
    with any_engine.connect() as connection:
        now, then = read_graph(connection), read_graph(connection, NOW)
        assert len(read_names(connection)) == 3
    assert now.place_of("10.0.0.4") == Place("node", "gpu-002")
    assert then.place_of("10.0.0.4") == Place("node", "gpu-001")
    assert now.place_of("s1") is None


def test_what_nodes_share_is_known_as_it_was(any_engine: sa.Engine) -> None:
    """A driver that was updated, a feed that was changed, a domain that a scheduler's labels name."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("n1", "r1", driver="550", groups=(("power", "a"), ("power", "b")))], NOW)
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("n1", "r1", driver="570", groups=(("power", "b"),))], NOW + HOUR)
        append_groups(connection, [NodeGroup("n1", "firmware", "28.1"), NodeGroup("n2", "rack", "r2")], NOW + HOUR)
    with any_engine.connect() as connection:
        version = topology_version(connection)
        now = {(one.kind, one.name) for one in read_groups(connection) if one.node == "n1"}
        then = {(one.kind, one.name) for one in read_groups(connection, NOW) if one.node == "n1"}
    assert now == {("rack", "r1"), ("driver", "570"), ("power", "b"), ("firmware", "28.1")}
    assert then == {("rack", "r1"), ("driver", "550"), ("power", "a"), ("power", "b"), ("firmware", "28.1")}
    with writing(any_engine).begin() as connection:
        note_domains(connection, {"n1": "c.1"}, is_told=True)
    with any_engine.connect() as connection:
        assert topology_version(connection) != version
        assert read_graph(connection).nodes_below(Place("nvswitch", "c.1")) == ("n1",)


def test_graphs_of_moments_are_those_of_each_and_one_object_while_nothing_changed(any_engine: sa.Engine) -> None:
    """A cable that moves, an address that another takes, a driver that is updated: each at the very moment."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("gpu-017", "r1", driver="550")], NOW)
        append_names(connection, [DeviceName("node", "gpu-001", "ip", "10.0.0.4")], NOW)
    put(any_engine, NOW, CABLE)
    put(any_engine, NOW + HOUR, {**CABLE, "port": 13})
    with writing(any_engine).begin() as connection:
        append_names(connection, [DeviceName("node", "gpu-002", "ip", "10.0.0.4")], NOW + 2 * HOUR)
        append_nodes(connection, [Node("gpu-017", "r1", driver="570")], NOW + 3 * HOUR)
    moments = [NOW + half * HOUR / 2 for half in range(-1, 9)]
    with any_engine.connect() as connection:
        graphs = GraphHistory(connection)
        found = [graphs.at(moment) for moment in moments]
        alone = [read_graph(connection, moment) for moment in moments]
    for graph, other in zip(found, alone, strict=True):
        assert graph.far_end(Place("nic", "gpu-017/mlx5_3")) == other.far_end(Place("nic", "gpu-017/mlx5_3"))
        assert graph.place_of("10.0.0.4") == other.place_of("10.0.0.4")
        assert graph.nodes_below(Place("driver", "550")) == other.nodes_below(Place("driver", "550"))
    assert len({graph.nodes_below(Place("driver", "550")) for graph in found}) == 2
    assert len({graph.far_end(Place("nic", "gpu-017/mlx5_3")) for graph in found}) == 2
    another = [
        moment for moment, (one, after) in zip(moments[1:], itertools.pairwise(found), strict=True) if one is not after
    ]
    assert another == [NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR]


def test_a_sidecars_ports_are_names_of_its_own_adapters(any_engine: sa.Engine) -> None:
    """By an event of each port: its GUIDs, place on the bus, interface; a new LID takes the place of the old one."""

    def told(lid: int) -> Event:
        said = {"name": "mlx5_3", "port_guid": "0x21", "netdev": "ib3", "lid": lid, "firmware": f"28.{lid}.1002"}
        device = Device(type="hca", pci="0000:4f:00.0", uuid="0x20", port=1)
        return Event(NOW, "gpu-017", "infiniband", "adapter_port", device=device, attributes=said, id=f"lid {lid}")

    put(any_engine, NOW, {**CABLE, "peer_lid": None, "hca": None})
    for lid in (31, 32):
        with writing(any_engine).begin() as connection:
            append_events(connection, [told(lid)], NOW + lid * HOUR)
    with any_engine.connect() as connection:
        graph, before = read_graph(connection), read_graph(connection, NOW + 31.5 * HOUR)
    nic = Place("nic", "gpu-017/mlx5_3")
    assert [graph.nodes_below(Place("firmware", f"28.{lid}.1002")) for lid in (31, 32)] == [(), ("gpu-017",)]
    assert before.nodes_below(Place("firmware", "28.31.1002")) == ("gpu-017",)
    for name in ("gpu-017/0000:4f:00.0", "gpu-017/ib3", "0x20", "0x21", "lid 32"):
        assert graph.place_of(name) == nic, name
    assert graph.place_of("lid 31") is None
    assert graph.far_end(nic) == Place("port", "leaf04/12")


def test_a_cable_record_is_a_row_of_both_tables() -> None:
    """A field that one of them lacks would be lost without a word."""
    fields = set(FabricLink._fields)
    for table in (schema.links, topology_tables.former_links):
        assert fields <= set(table.columns.keys())
