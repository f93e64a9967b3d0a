"""The graph of devices: every name of a device, what hangs on what, and what a host that lies about itself gains."""

import pytest

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.fabric_cuts import cut_off
from diagnosis.graph.graph_builder import TopologyRecords, build_graph
from diagnosis.graph.place import Place
from store.records.node import DeviceName, FabricLink, NodeGroup

RAILS, HOSTS, SPINES = 8, 4, 2


def guid(number: int) -> str:
    """A GUID by a number."""
    return f"0x{0xB83FD20300000000 + number:016x}"


def adapter(leaf: int, host: int, **other: object) -> FabricLink:
    """The cable of one rail of one host; leaf and rail have the same number."""
    number = 0x1000 + (host * RAILS + leaf) * 16
    link = FabricLink(
        f"leaf{leaf}",
        host + 1,
        f"gpu-{host}",
        1,
        "hca",
        switch_guid=guid(leaf),
        switch_lid=100 + leaf,
        peer_guid=guid(number),
        peer_port_guid=guid(number + 1),
        peer_lid=1000 + host * RAILS + leaf,
        hca=f"mlx5_{leaf}",
    )
    return link._replace(**other)


def uplink(leaf: int, spine: int) -> list[FabricLink]:
    """A cable between a leaf and a spine, as both their blocks tell it."""
    return [
        FabricLink(
            f"leaf{leaf}", 33 + spine, f"spine{spine}", leaf + 1, "switch", guid(leaf), peer_guid=guid(90 + spine)
        ),
        FabricLink(
            f"spine{spine}", leaf + 1, f"leaf{leaf}", 33 + spine, "switch", guid(90 + spine), peer_guid=guid(leaf)
        ),
    ]


def rails(spines: int = SPINES) -> list[FabricLink]:
    """Eight leafs, one for each rail, and spines over them."""
    hosts = [adapter(leaf, host) for leaf in range(RAILS) for host in range(HOSTS)]
    return [*hosts, *(link for leaf in range(RAILS) for spine in range(spines) for link in uplink(leaf, spine))]


@pytest.fixture
def graph() -> DeviceGraph:
    """The fabric of rails."""
    return build_graph(TopologyRecords(links=rails()))


NIC = Place("nic", "gpu-2/mlx5_3")


@pytest.mark.parametrize(
    "name",
    [
        *("gpu-2/mlx5_3", "GPU-2/MLX5_3", "gpu-2 mlx5_3", "gpu-2/mlx5_3/1", "lid 1019"),
        *(guid(0x1000 + 19 * 16), guid(0x1000 + 19 * 16 + 1), guid(0x1000 + 19 * 16).upper().replace("X", "x")),
    ],
)
def test_an_adapter_answers_to_each_of_its_names(graph: DeviceGraph, name: str) -> None:
    """Its own, its description, with its port, its LID, both its GUIDs, in any case."""
    assert graph.place_of(name) == graph.place_of(name, "nic") == NIC
    assert graph.place_of(name, "switch") is None


def test_a_rail_hangs_on_its_leaf_and_the_node_on_none(graph: DeviceGraph) -> None:
    """A leaf that goes takes one rail of each host; all rails of one host are that host's."""
    port = Place("port", "leaf3/3")
    cable = Place("cable", "gpu-2/mlx5_3--leaf3/3")
    assert set(graph.above(NIC)) == {Place("node", "gpu-2"), port, Place("switch", "leaf3"), cable}
    assert graph.far_end(NIC) == port and graph.far_end(port) == NIC
    assert set(graph.children(cable)) == {NIC, port} and graph.place_of(cable.name) == cable
    assert graph.nodes_below(Place("switch", "leaf3")) == tuple(f"gpu-{host}" for host in range(HOSTS))
    assert len(graph.children(Place("node", "gpu-2"), "nic")) == RAILS
    assert not [above for above in graph.above(Place("node", "gpu-2")) if above.kind == "switch"]


def test_a_spine_takes_no_leaf_that_has_another(graph: DeviceGraph) -> None:
    """With two spines nothing hangs on one but its own ports; with one alone every leaf does."""
    assert graph.nodes_below(Place("switch", "spine0")) == ()
    alone = build_graph(TopologyRecords(links=rails(spines=1)))
    assert len(alone.nodes_below(Place("switch", "spine0"))) == HOSTS
    assert len(graph.places("cable")) == RAILS * (HOSTS + SPINES)


def test_a_node_with_one_leaf_hangs_on_it() -> None:
    """By its cable, or by nodes.csv; a cable says more than a column."""
    groups = [NodeGroup("gpu-0", "switch", "leaf9"), NodeGroup("gpu-7", "switch", "leaf9")]
    graph = build_graph(TopologyRecords(links=[adapter(0, 0)], groups=groups))
    assert Place("switch", "leaf0") in graph.parents(Place("node", "gpu-0"))
    assert Place("switch", "leaf9") not in graph.above(Place("node", "gpu-0"))
    assert Place("switch", "leaf9") in graph.parents(Place("node", "gpu-7"))


def test_the_firmware_of_adapters_is_what_their_nodes_share() -> None:
    """By each node's own word: of few versions, and of none that is an address or name of somebody else."""

    def told(node: int, version: str, by: str | None, device: str = "mlx5_0") -> DeviceName:
        return DeviceName("nic", f"gpu-{node}/{device}", "firmware", version, by)

    lies = [told(2, f"28.{number:02}.1002", "gpu-2", f"mlx5_{number}") for number in range(99)]
    names = [
        *(told(node, "28.39.1002", f"gpu-{node}") for node in range(2)),
        *(told(3, text, "gpu-3") for text in ("10.0.0.4", "leaf04", "0x12")),
        told(4, "fw-2026-03", None),
        DeviceName("switch", "leaf04", "firmware", "31.2012.1024"),
        *lies,
    ]
    graph = build_graph(TopologyRecords(names=names))
    assert graph.nodes_below(Place("firmware", "28.39.1002")) == ("gpu-0", "gpu-1")
    assert graph.place_of("28.39.1002", "nic") is None  # no adapter is called so
    assert [one.kind for one in graph.parents(Place("node", "gpu-2"))] == ["firmware"] * 8
    assert not graph.parents(Place("node", "gpu-3"))
    assert graph.nodes_below(Place("firmware", "fw-2026-03")) == ("gpu-4",)
    assert Place("node", "leaf04") not in graph.places()


def test_what_is_cut_off_follows_from_reachability_alone() -> None:
    """A torus and a dragonfly lose nothing by one switch; a chain behind one, all that is behind it."""
    side = 4
    torus = {f"t{x}{y}": {f"t{(x + 1) % side}{y}", f"t{x}{(y + 1) % side}"} for x in range(side) for y in range(side)}
    hosts = dict.fromkeys(torus, 4)
    assert cut_off(torus, hosts) == {}
    groups = {f"g{g}s{s}": {f"g{g}s{o}" for o in range(4)} for g in range(5) for s in range(4)}
    for g in range(5):
        for s in range(4):
            groups[f"g{g}s{s}"].add(f"g{(g + s + 1) % 5}s{3 - s}")
    assert cut_off(groups, dict.fromkeys(groups, 2)) == {}
    # Two more switches on a string, and a ring at its end.
    tail = {"a": {"t00"}, "b": {"a", "c", "d"}, "c": {"d"}, "d": set()}
    assert cut_off({**torus, **tail}, hosts) == {"a": "t00", "b": "a", "c": "b", "d": "b"}


def test_loops_and_parallel_cables_do_no_harm() -> None:
    """A switch cabled to itself, a port to itself, two cables between two switches, a graph of a circle."""
    links = [
        FabricLink("s1", 1, "s1", 1, "switch"),
        FabricLink("s1", 2, "s1", 3, "switch"),
        *(FabricLink("s1", port, "s2", port, "switch") for port in (4, 5)),
    ]
    graph = build_graph(TopologyRecords(links=links))
    assert graph.far_end(Place("port", "s1/1")) is None
    assert graph.far_end(Place("port", "s1/4")) == Place("port", "s2/4")
    circle = DeviceGraph()
    circle.hang(Place("node", "a"), Place("rack", "b"))
    circle.hang(Place("rack", "b"), Place("node", "a"))
    assert circle.above(Place("node", "a")) == [Place("rack", "b")]
    assert circle.below(Place("node", "a")) == [Place("rack", "b")]


def test_a_name_that_two_devices_bear_means_neither() -> None:
    """Never a guess; with its class it may still mean one."""
    names = [DeviceName("nic", f"gpu-{host}/mlx5_0", "serial", "MT1") for host in (0, 1)]
    graph = build_graph(TopologyRecords(nodes=["gpu-0", "leaf0"], links=[adapter(0, 0)], names=names))
    assert graph.place_of("MT1") is None
    assert graph.place_of("leaf0") is None
    assert graph.place_of("leaf0", "switch") == Place("switch", "leaf0")


def test_a_host_that_calls_itself_another_gets_no_part_of_it() -> None:
    """Two adapters of one name hang on no node, unless a node's own sidecar says which is its."""
    true, false = adapter(0, 1), adapter(0, 0, peer="gpu-1")
    graph = build_graph(TopologyRecords(links=[true, false]))
    assert graph.place_of("gpu-1/mlx5_0") is None
    assert [graph.node_of(place) for place in graph.places("nic")] == [None, None]
    own = [DeviceName("nic", "gpu-1/mlx5_0", "guid", true.peer_guid or "", "gpu-1")]
    graph = build_graph(TopologyRecords(links=[true, false], names=own))
    assert graph.node_of(graph.place_of(true.peer_port_guid or "") or NIC) == "gpu-1"
    liar = graph.place_of(false.peer_guid or "")
    assert liar == Place("nic", false.peer_guid or "") and graph.node_of(liar) is None
    # A host that invents one more adapter of another is none of it either, once that one has spoken.
    invented = adapter(1, 0, peer="gpu-1", hca="mlx5_7")
    graph = build_graph(TopologyRecords(links=[true, invented], names=own))
    assert graph.children(Place("node", "gpu-1"), "nic") == [Place("nic", "gpu-1/mlx5_0")]


def test_a_host_that_calls_itself_a_switch_is_none() -> None:
    """Its adapter's kind comes from the fabric, not from its name."""
    graph = build_graph(TopologyRecords(links=[adapter(0, 0), adapter(0, 1, peer="leaf0")]))
    assert graph.place_of("leaf0", "switch") == Place("switch", "leaf0")
    assert graph.node_of(Place("nic", "leaf0/mlx5_0")) == "leaf0"
    assert graph.nodes_below(Place("switch", "leaf0")) == ("gpu-0", "leaf0")


def test_an_adapter_with_two_ports_has_two_cables() -> None:
    """The second is a part of the first."""
    first = adapter(0, 0)
    second_port = adapter(1, 0, hca="mlx5_0", peer_port=2, peer_guid=first.peer_guid)
    graph = build_graph(TopologyRecords(links=[first, second_port]))
    second = Place("nic", "gpu-0/mlx5_0/2")
    assert graph.far_end(Place("nic", "gpu-0/mlx5_0")) == Place("port", "leaf0/1")
    assert graph.far_end(second) == Place("port", "leaf1/1")
    assert graph.node_of(second) == "gpu-0"


def test_an_interface_that_lldp_names_is_the_adapter_that_the_node_names() -> None:
    """eth2 of the switch's neighbour is mlx5_2 of the sidecar."""
    link = FabricLink("leaf0", 1012, "gpu-0", hca="eth2", port_name="Ethernet1/12", known_by="gpu-0")
    names = [DeviceName("nic", "gpu-0/mlx5_2", "netdev", "eth2", "gpu-0")]
    graph = build_graph(TopologyRecords(links=[link], names=names))
    assert graph.far_end(Place("nic", "gpu-0/mlx5_2")) == Place("port", "leaf0/Ethernet1/12")
    assert graph.place_of("gpu-0/eth2") == Place("nic", "gpu-0/mlx5_2")
    assert graph.place_of("leaf0/1012") == Place("port", "leaf0/Ethernet1/12")


def test_what_nodes_share_is_above_them() -> None:
    """A rack, two feeds, a cooling row, a file server, releases, an NVLink domain; what is no class is passed over."""
    kinds = ("rack", "power", "cooling", "storage", "driver", "firmware", "nvswitch")
    groups = [NodeGroup("gpu-0", kind, f"{kind}-1") for kind in kinds]
    graph = build_graph(
        TopologyRecords(groups=[*groups, NodeGroup("gpu-0", "power", "power-2"), NodeGroup("x", "?", "y")])
    )
    assert {place.kind for place in graph.above(Place("node", "gpu-0"))} == set(kinds)
    assert len(graph.parents(Place("node", "gpu-0"))) == len(kinds) + 1
    assert graph.nodes_below(Place("power", "power-2")) == ("gpu-0",)


def test_a_hundred_thousand_names_of_one_device_are_a_few() -> None:
    """Whoever sends them fills no memory, and hides no name that was told before."""
    names = [DeviceName("nic", "gpu-0/mlx5_0", "serial", f"n{number}", "gpu-0") for number in range(100_000)]
    graph = build_graph(TopologyRecords(links=[adapter(0, 0)], names=names))
    place = Place("nic", "gpu-0/mlx5_0")
    assert len(graph.names_of(place)) <= 65
    assert graph.place_of(guid(0x1001)) == place
