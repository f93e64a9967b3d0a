"""The topology as other tools tell it: LLDP, Slurm, Kubernetes, UFM, iblinkinfo, further columns of nodes.csv."""

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.text.parser import ParseError
from parsers.topology.lldp import port_number
from parsers.topology.topology_sources import SOURCES, read_topology
from store.records.node import DeviceName, FabricLink, NodeGroup

DIAGS = Path(__file__).parents[3].parent / "shared/data/opensm/diags"
# What lldpd 1.0.16 prints of a neighbour over a pair of virtual interfaces, one end named leaf04, swp12.
NEIGHBOUR = {
    "via": "LLDP",
    "rid": "1",
    "age": "0 day, 00:00:02",
    "chassis": {
        "leaf04": {
            "id": {"type": "mac", "value": "c6:96:a2:b9:2d:e0"},
            "descr": "Debian GNU/Linux 12 (bookworm) Linux 6.18.44",
            "capability": [{"type": "Bridge", "enabled": False}, {"type": "Station", "enabled": True}],
        }
    },
    "port": {"id": {"type": "ifname", "value": "swp12"}, "descr": "uplink 99", "ttl": "120"},
}
JSON0 = {
    "lldp": [
        {
            "interface": [
                {
                    "name": "eth2",
                    "via": "LLDP",
                    "chassis": [{"id": [{"type": "mac", "value": "c6:96:a2:b9:2d:e0"}], "name": [{"value": "leaf04"}]}],
                    "port": [{"id": [{"type": "mac", "value": "c6:96:a2:b9:2d:e0"}], "descr": [{"value": "swp12"}]}],
                }
            ]
        }
    ]
}
KEYS = """\
lldp.eth2.via=LLDP
lldp.eth2.rid=1
lldp.eth2.age=0 day, 00:00:02
lldp.eth2.chassis.mac=c6:96:a2:b9:2d:e0
lldp.eth2.chassis.name=leaf04
lldp.eth2.chassis.Bridge.enabled=off
lldp.eth2.port.ifname=swp12
lldp.eth2.port.descr=uplink 99
lldp.eth2.port.ttl=120
"""
CABLE = FabricLink("leaf04", 12, "gpu-017", None, "hca", switch_guid="c6:96:a2:b9:2d:e0", port_name="swp12", hca="eth2")


@pytest.mark.parametrize(
    "text",
    [
        orjson.dumps({"lldp": {"interface": [{"eth2": NEIGHBOUR}]}}).decode(),
        orjson.dumps({"lldp": {"interface": {"eth2": NEIGHBOUR}}}).decode(),
        orjson.dumps(JSON0).decode(),
        KEYS,
    ],
)
def test_each_form_of_lldpd_gives_the_same_cable(text: str) -> None:
    """JSON of one neighbour and of several, json0, key and value; the port by its interface, else its description."""
    assert read_topology("lldp", text, "gpu-017").links == (CABLE,)


def test_a_neighbour_without_a_port_s_number_is_no_cable() -> None:
    """A phone, or a switch that tells its address alone; nor is an empty list an error."""
    phone = {**NEIGHBOUR, "port": {"id": {"type": "mac", "value": "c6:96:a2:b9:2d:e0"}, "descr": "PC"}}
    assert read_topology("lldp", orjson.dumps({"lldp": {"interface": {"eth2": phone}}}).decode(), "n").links == ()
    assert read_topology("lldp", '{"lldp": {}}', "n").links == ()


@pytest.mark.parametrize(
    ("name", "number"),
    [("swp12", 12), ("Ethernet1/12", 1012), ("Ethernet1/12/1", 1012001), ("Eth1/1/12/1", 1012001), ("PC", None)],
)
def test_a_port_s_number_is_made_of_those_in_its_name(name: str, number: int | None) -> None:
    """Two ports of a switch never share one."""
    assert port_number(name) == number


# Two lines of opensm 3.3.23's opensm-subnet.lst: an adapter's and an uplink's, at their switch.
LISTED = """\
{ SW Ports:28 SystemGUID:b83fd20300100000 NodeGUID:b83fd20300100000 PortGUID:b83fd20300100000 VenID:000000 DevID:0000 \
Rev:000000A1 {MF0;leaf01:MQM8700/U1} LID:0002 PN:02 } { CA Ports:01 SystemGUID:b83fd20300200080 \
NodeGUID:b83fd20300200080 PortGUID:b83fd20300200081 VenID:00000000 DevID:0000 Rev:000000A1 {gpu-002 mlx5_0} LID:0113 \
PN:01 } PHY=4x LOG=ACT SPD=50
{ SW Ports:28 SystemGUID:b83fd20300100000 NodeGUID:b83fd20300100000 PortGUID:b83fd20300100000 VenID:000000 DevID:0000 \
Rev:000000A1 {MF0;leaf01:MQM8700/U1} LID:0002 PN:21 } { SW Ports:28 SystemGUID:b83fd20300100400 \
NodeGUID:b83fd20300100400 PortGUID:b83fd20300100400 VenID:000000 DevID:0000 Rev:000000A1 {MF0;spine01:MQM8700/U1} \
LID:0006 PN:01 } PHY=4x LOG=ACT SPD=50
"""


def test_opensm_s_own_list_of_links_gives_their_cables() -> None:
    """Ports and LIDs are hexadecimal there; a link that is down, and a line of another form, is no cable."""
    leaf = {"switch_guid": "0xb83fd20300100000", "switch_lid": 2}
    host = {"peer_guid": "0xb83fd20300200080", "peer_port_guid": "0xb83fd20300200081", "peer_lid": 275, "hca": "mlx5_0"}
    cables = (
        FabricLink("leaf01", 2, "gpu-002", 1, "hca", **leaf, **host),
        FabricLink("leaf01", 33, "spine01", 1, "switch", **leaf, peer_guid="0xb83fd20300100400", peer_lid=6),
    )
    assert read_topology("opensm", LISTED).links == cables
    assert read_topology("opensm", LISTED.replace("LOG=ACT", "LOG=DWN") + "{ SW Ports:28 }\n").links == ()


def test_slurm_s_switches_and_blocks_are_groups_of_nodes() -> None:
    """Of `topology.conf` and of `topology.yaml` alike; switches of switches hold no nodes."""
    text = (
        "# made by hand\nSwitchName=leaf01 Nodes=gpu-[001-002] LinkSpeed=4\nSwitchName=spine Switches=leaf[01-02]\n"
        "blockname=rack7 nodes=gpu-001\n"
    )
    expected = {
        NodeGroup("gpu-001", "switch", "leaf01"),
        NodeGroup("gpu-002", "switch", "leaf01"),
        NodeGroup("gpu-001", "nvswitch", "rack7"),
    }
    assert set(read_topology("slurm", text).groups) == expected
    text = """
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[01-02]
      - switch: leaf01
        nodes: gpu-[001-002]
- topology: racks
  block:
    block_sizes: [1, 2]
    blocks:
      - block: rack7
        nodes: gpu-001
"""
    assert set(read_topology("slurm_yaml", text).groups) == expected


def test_a_broken_line_of_topology_conf_is_told_of_and_the_rest_goes_on() -> None:
    """By its number."""
    told: list[tuple[int, str]] = []
    text = "SwitchName=a Nodes=gpu-[1\nNodes=gpu-1\nSwitchName=b Nodes=gpu-2"
    found = read_topology("slurm", text, on_error=lambda line, error: told.append((line, str(error))))
    assert found.groups == (NodeGroup("gpu-2", "switch", "b"),)
    assert [line for line, _ in told] == [1, 2]
    assert "write" in told[0][1]


def test_the_labels_of_kubernetes_nodes_are_groups() -> None:
    """The clique, the rack, the leaf, the driver; of two labels of a class the first; others are passed over."""
    labels = {
        "nvidia.com/gpu.clique": "5000-05.1",
        "network.topology.nvidia.com/accelerator": "nvl7",
        "network.topology.nvidia.com/leaf": "leaf04",
        "topology.kubernetes.io/rack": "r7",
        "topology.kubernetes.io/zone": "z1",
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "90",
        "nvidia.com/cuda.driver.rev": "07",
    }
    node = {"kind": "Node", "metadata": {"name": "gpu-017", "labels": labels}}
    text = orjson.dumps({"kind": "List", "items": [node, {"kind": "Pod", "metadata": {"name": "x"}}, 7]}).decode()
    assert set(read_topology("kubernetes", text).groups) == {
        NodeGroup("gpu-017", kind, name)
        for kind, name in (("nvswitch", "5000-05.1"), ("switch", "leaf04"), ("rack", "r7"), ("driver", "550.90.07"))
    }


def test_ufm_s_links_are_cables_from_their_switch() -> None:
    """Whichever end stands first; between two switches as it is told; without a switch none."""

    def end(side: str, name: str, guid: str, port: int) -> dict[str, str]:
        return {f"{side}_guid": guid, f"{side}_port": f"{guid}_{port}", f"{side}_port_node_description": name}

    host, leaf = ("gpu017 mlx5_0", "b83fd20300200100", 1), ("leaf03", "b83fd20300100080", 7)
    spine = ("MF0;spine01:MQM9700/U1", "b83fd2030010fa00", 3)
    pairs = [(host, leaf), (leaf, host), (leaf, spine), (host, host)]
    links = [{**end("source", *one), **end("destination", *other), "width": "IB_4x"} for one, other in pairs]
    found = read_topology("ufm", orjson.dumps([*links, 7, {}]).decode()).links
    guids = {"switch_guid": "0xb83fd20300100080", "peer_guid": "0xb83fd20300200100"}
    cable = FabricLink("leaf03", 7, "gpu017", 1, "hca", **guids, hca="mlx5_0")
    assert found[:2] == (cable, cable)
    assert (found[2].peer, found[2].peer_port, found[2].peer_type, len(found)) == ("spine01", 3, "switch", 3)


@pytest.mark.skipif(not DIAGS.exists(), reason="the shared data is not beside this repository")
def test_iblinkinfo_and_ibnetdiscover_agree_on_a_real_fabric() -> None:
    """Every cable of a host, by switch, port, host and adapter, of the real tools on one fabric."""
    told = {
        name: {
            (link.switch, link.port, link.peer, link.hca)
            for link in read_topology(name, (DIAGS / file).read_text()).links
            if link.peer_type == "hca"
        }
        for name, file in (("iblinkinfo", "diag-06-iblinkinfo.txt"), ("ibnetdiscover", "diag-08-ibnetdiscover.txt"))
    }
    assert len(told["ibnetdiscover"]) == 31
    assert told["iblinkinfo"] == told["ibnetdiscover"]


def test_further_columns_of_nodes_csv_are_groups_and_names() -> None:
    """Feeds, rows, servers, releases, addresses, serials, places on the bus; a column that means nothing is passed."""
    text = (
        "node,rack,pdu,row,storage,firmware,address,serial,pci,netdev,owner\n"
        "gpu-017,r3,r3-a;r3-b,row1,nfs1 nfs2,28.41,10.0.0.4,S1,mlx5_0=0000:18:00.0;gpu0=0000:1B:00.0,mlx5_0=ib0,me\n"
    )
    found = read_topology("nodes", text)
    assert {(group.kind, group.name) for group in found.groups} == {
        *(("rack", "r3"), ("power", "r3-a"), ("power", "r3-b"), ("cooling", "row1")),
        *(("storage", "nfs1"), ("storage", "nfs2"), ("firmware", "28.41")),
    }
    assert set(found.names) == {
        DeviceName("node", "gpu-017", "ip", "10.0.0.4"),
        DeviceName("node", "gpu-017", "serial", "S1"),
        DeviceName("nic", "gpu-017/mlx5_0", "pci", "0000:18:00.0"),
        DeviceName("gpu", "gpu-017/0000:1b:00.0", "name", "gpu-017/gpu0"),
        DeviceName("nic", "gpu-017/mlx5_0", "netdev", "ib0"),
    }


@pytest.mark.parametrize("form", sorted(SOURCES))
@given(
    text=st.one_of(st.text(max_size=300), st.sampled_from(["[", "{", "- a: [", KEYS[:60], "Nodes=", "node,pci\na,=\n"]))
)
def test_any_text_gives_records_or_one_clear_error(form: str, text: str) -> None:
    """No other exception, of any form."""
    try:
        read_topology(form, text, "gpu-017")
    except ParseError as error:
        assert str(error)
