"""A node: one host of the cluster, and when it counts; what it is cabled to, called by and shares.

One row of an archive's `nodes.csv`:

    node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until
    gpu-017,r03,leaf-02,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,

Further columns say what nodes share and what they are called: docs/topology.md.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

NodeState: TypeAlias = Literal["ok", "at_risk", "faulty", "out", "cordoned", "silent", "unknown"]
SidecarState: TypeAlias = Literal["ok", "troubled", "silent"]


@dataclass(frozen=True, slots=True)
class Node:
    """A host; a column that is missing is unknown. A node is at risk only while in service."""

    node: str
    rack: str | None = None
    leaf: str | None = None
    gpu_model: str | None = None
    gpus: int | None = None
    driver: str | None = None
    in_service_since: datetime | None = None
    in_service_until: datetime | None = None
    nvlink_domain: str | None = None  # nodes that share NVLink switches, as an NVL72's do
    groups: tuple[tuple[str, str], ...] = ()  # what else it shares: ("power", "r03-pdua")
    names: tuple[tuple[str, str, str, str], ...] = ()  # of its devices: class, device, kind, name (`DeviceName`)


# The fields that are columns of the table `nodes`.
NODE_COLUMNS = tuple(field.name for field in fields(Node) if field.name not in ("groups", "names"))

# The topology: cables with both their ends, what devices are called, and what nodes share.
#
# FabricLink("leaf04", 12, "gpu-017", 1, "hca", hca="mlx5_3", peer_guid="0x...", switch_guid="0x...", rate="4xNDR")
# DeviceName("nic", "gpu-017/mlx5_3", "pci", "0000:4f:00.0")
# NodeGroup("gpu-017", "power", "r03-pdua")

# What a name is of a device. Of some kinds a name is one device's at a time: the newest bearer has it.
NAME_KINDS = ("guid", "port_guid", "lid", "pci", "netdev", "ip", "serial", "rank", "name", "firmware")
MOVING_KINDS = frozenset({"lid", "ip", "rank"})
# What many devices run, and none is called by: their nodes share it.
RELEASE_KINDS = frozenset({"firmware"})
# Names that are unique only within their node.
LOCAL_KINDS = frozenset({"pci", "netdev"})
# Classes of devices that names are kept of, and of groups that nodes are kept in.
NAMED_CLASSES = ("node", "nic", "gpu", "nvswitch", "switch", "port", "storage", "power", "cooling")
GROUP_CLASSES = ("rack", "power", "cooling", "storage", "driver", "firmware", "nvswitch", "switch")
MOST_NAME = 256


class FabricLink(NamedTuple):
    """One cable as one switch has it. `peer` is a host or a switch; what is None is not known.

    `peer_guid` is of the adapter or switch, `peer_port_guid` of the adapter's port; `port_name` is what an Ethernet
    switch calls the port. `known_by` is the node that told of it; None: the fabric, or an operator.
    """

    switch: str
    port: int
    peer: str
    peer_port: int | None = None
    peer_type: str = "hca"
    switch_guid: str | None = None
    switch_lid: int | None = None
    port_name: str | None = None
    peer_guid: str | None = None
    peer_port_guid: str | None = None
    peer_lid: int | None = None
    hca: str | None = None
    rate: str | None = None
    known_by: str | None = None


# The fields that are numbers, and the texts that a sender may tell.
LINK_NUMBERS = ("port", "peer_port", "switch_lid", "peer_lid")
LINK_TEXTS = tuple(name for name in FabricLink._fields if name not in (*LINK_NUMBERS, "known_by"))


class DeviceName(NamedTuple):
    """One more name of a device. `device` is its place's name (`diagnosis/graph/place.py`)."""

    kind_of_device: str
    device: str
    kind: str
    name: str
    known_by: str | None = None


class NodeGroup(NamedTuple):
    """A node is in a group: a rack, a power feed, a cooling row, a file server, a release, an NVLink domain, a leaf."""

    node: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TopologyReport:
    """What one source tells of a topology."""

    links: tuple[FabricLink, ...] = ()
    names: tuple[DeviceName, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    def __len__(self) -> int:
        return len(self.links) + len(self.names) + len(self.groups)
