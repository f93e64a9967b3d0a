"""What a subnet manager writes of a fabric's faults, in the forms and the order of opensm 3.3.23 on a rail fabric."""

# ruff: noqa: E501  # a line of a log is kept whole

import random
from collections.abc import Iterable

from scenarios import lines
from scenarios.archive import Archive
from scenarios.site import FIRST_UPLINK, RAILS, SPINES


def greet(archive: Archive, at: float) -> None:
    """The log's beginning."""
    for after, level, text in (
        (0.0, 0x03, "OpenSM 3.3.23"),
        (0.011, 0x80, "Entering DISCOVERING state"),
        (0.19, 0x80, "Entering MASTER state"),
        (0.39, 0x02, "SUBNET UP"),
    ):
        archive.fabric.append((at + after, level, text))


def trap(archive: Archive, at: float, lid: int, guid: int, path: str) -> None:
    """A switch tells that one of its links changed; not which."""
    number = f"num:128 (Link state change) Producer:2 (Switch) from LID:{lid} TID:0x0000000000000000"
    hops = path.count(",")
    archive.fabric += [
        (at, 0x01, f"log_trap_info: Received Generic Notice type:1 {number}"),
        (at + 0.00004, 0x02, f"SM class trap 128: Directed Path Dump of {hops} hop path: Path = {path}"),
        (
            at + 0.00005,
            0x02,
            f'log_notice: Reporting Urgent Notice "Link state change" from switch LID {lid}, GUID 0x{guid:016x}',
        ),
    ]


def leaf_trap(archive: Archive, at: float, leaf: int) -> None:
    """A leaf tells that one of its links changed."""
    site = archive.site
    trap(archive, at, site.leaf_lid(leaf), site.leaf_guid(leaf), f"0,1,{FIRST_UPLINK},{leaf + 1}")


def spine_trap(archive: Archive, at: float, spine: int) -> None:
    """A spine tells that one of its links changed."""
    site = archive.site
    trap(archive, at, site.spine_lid(spine), site.spine_guid(spine), f"0,1,{FIRST_UPLINK + spine}")


def removed(archive: Archive, at: float, place: int, rail: int) -> None:
    """The manager takes an adapter's port out of the fabric."""
    site, guid = archive.site, archive.site.hca_guid(place, rail) + 1
    lid = site.hca_lid(place, rail)
    archive.fabric += [
        (at, 0x02, f'log_notice: Reporting Informational Notice "GID out of service", GID:fe80::{_gid(guid)}'),
        (
            at + 0.0001,
            0x02,
            f"drop_mgr_remove_port: Removed port with GUID:0x{guid:016x} LID range [{lid}, {lid}] "
            f"of node:{site.nodes[place]} mlx5_{rail}",
        ),
    ]


def discovered(archive: Archive, at: float, place: int, rail: int) -> None:
    """The manager finds an adapter's port again."""
    site, guid = archive.site, archive.site.hca_guid(place, rail) + 1
    lid = site.hca_lid(place, rail)
    archive.fabric += [
        (at, 0x02, f'log_notice: Reporting Informational Notice "GID in service", GID:fe80::{_gid(guid)}'),
        (
            at + 0.0001,
            0x02,
            f"state_mgr_report_new_ports: Discovered new port with GUID:0x{guid:016x} LID range [{lid},{lid}] "
            f"of node: {site.nodes[place]} mlx5_{rail}",
        ),
    ]


def switch_removed(archive: Archive, at: float, name: str, guid: int, lid: int) -> None:
    """The manager takes a switch out of the fabric."""
    archive.fabric += [
        (at, 0x02, f'log_notice: Reporting Informational Notice "GID out of service", GID:fe80::{_gid(guid)}'),
        (
            at + 0.0001,
            0x02,
            f"drop_mgr_remove_port: Removed port with GUID:0x{guid:016x} LID range [{lid}, {lid}] "
            f"of node:MF0;{name}:MQM9700/U1",
        ),
    ]


def swept(archive: Archive, at: float) -> None:
    """The end of a sweep."""
    archive.fabric += [
        (at, 0x02, "osm_ucast_mgr_process: minhop tables configured on all switches"),
        (at + 0.08, 0x02, "SUBNET UP"),
    ]


def _gid(guid: int) -> str:
    return ":".join(f"{guid >> shift & 0xFFFF:x}" for shift in (48, 32, 16, 0))


def port_lost(archive: Archive, at: float, place: int, rail: int, kernel: bool = True) -> None:
    """One adapter's link goes down, as the host and the manager see it."""
    leaf_trap(archive, at, archive.site.leaf_of(place, rail))
    removed(archive, at + 0.3, place, rail)
    swept(archive, at + 0.36)
    if kernel:
        archive.say(place, at, lines.port_down(archive.site.hca_pci(rail), rail))


def port_back(archive: Archive, at: float, place: int, rail: int, kernel: bool = True) -> None:
    """And comes up again."""
    leaf_trap(archive, at, archive.site.leaf_of(place, rail))
    discovered(archive, at + 0.4, place, rail)
    swept(archive, at + 0.5)
    if kernel:
        archive.say(place, at + 0.1, lines.port_up(archive.site.hca_pci(rail), rail))


def nodes_lost(archive: Archive, at: float, places: Iterable[int], rng: random.Random, spread_s: float = 0.2) -> None:
    """Nodes lose power or reset: all of their adapters leave the fabric."""
    traps = {(archive.site.leaf_of(place, rail), place) for place in places for rail in range(RAILS)}
    gone = sorted({place for _, place in traps})
    for leaf, _ in sorted(traps):
        leaf_trap(archive, at + rng.uniform(0, spread_s), leaf)
    for number, (place, rail) in enumerate((place, rail) for place in gone for rail in range(RAILS)):
        removed(archive, at + spread_s + 0.3 + 0.0003 * number, place, rail)
    swept(archive, at + spread_s + 0.7)


def nodes_back(archive: Archive, at: float, places: Iterable[int], rng: random.Random, spread_s: float = 20.0) -> None:
    """Nodes have started again."""
    for place in places:
        own = at + rng.uniform(0, spread_s)
        for rail in range(RAILS):
            leaf_trap(archive, own + 0.01 * rail, archive.site.leaf_of(place, rail))
            discovered(archive, own + 0.5 + 0.001 * rail, place, rail)
        swept(archive, own + 0.7)


def leaf_lost(archive: Archive, at: float, leaf: int, rng: random.Random, kernel_share: float = 0.9) -> None:
    """A leaf dies: its neighbours tell, its hosts lose one rail each."""
    site = archive.site
    rail, hosts = site.rail_of_leaf(leaf), site.hosts_of_leaf(leaf)
    for spine in range(SPINES):
        spine_trap(archive, at + rng.uniform(0, 0.002), spine)
    for number, place in enumerate(hosts):
        removed(archive, at + 0.3 + 0.0003 * number, place, rail)
        if rng.random() < kernel_share:
            archive.say(place, at + rng.uniform(0, 0.4), lines.port_down(site.hca_pci(rail), rail))
    switch_removed(archive, at + 0.35, site.leaf_name(leaf), site.leaf_guid(leaf), site.leaf_lid(leaf))
    swept(archive, at + 0.5)


def spine_lost(archive: Archive, at: float, spine: int, rng: random.Random) -> None:
    """A spine dies: every leaf tells that it lost a link; no host does."""
    site = archive.site
    for leaf in range(site.leafs()):
        leaf_trap(archive, at + rng.uniform(0, 0.004), leaf)
    switch_removed(archive, at + 0.35, site.spine_name(spine), site.spine_guid(spine), site.spine_lid(spine))
    swept(archive, at + 0.5)


def uplink_lost(archive: Archive, at: float, leaf: int, spine: int, rng: random.Random) -> None:
    """A cable between a leaf and a spine goes: both tell, within a thousandth of a second."""
    leaf_trap(archive, at, leaf)
    spine_trap(archive, at + rng.uniform(0.0001, 0.001), spine)
    swept(archive, at + 0.2)


def port_state(archive: Archive, at: float, name: str, guid: int, port: int, before: str, now: str) -> None:
    """What NVIDIA's build of the manager adds: the switch and the port."""
    archive.fabric.append(
        (
            at,
            0x02,
            f"osm_pi_rcv_process: Switch 0x{guid:016x} MF0;{name}:MQM9700/U1 port {port} changed state from {before} to {now}",
        )
    )


def counters_grow(archive: Archive, at: float, place: int, rail: int, counts: dict[str, int]) -> None:
    """The performance manager's word of a port with errors."""
    site = archive.site
    leaf = site.leaf_of(place, rail)
    codes = {
        "SymbolErrorCounter": "5431",
        "LinkErrorRecoveryCounter": "5432",
        "LinkDownedCounter": "5433",
        "PortRcvErrors": "5434",
    }
    for name, count in counts.items():
        archive.fabric.append(
            (
                at,
                0x01,
                f'perfmgr_log_errors: ERR {codes[name]}: {name} : {count} : node "MF0;{site.leaf_name(leaf)}:MQM9700/U1" '
                f"(NodeGUID: 0x{site.leaf_guid(leaf):016x}) : port {site.leaf_port(place)} connected to "
                f'"{site.nodes[place]} mlx5_{rail}" (NodeGUID: 0x{_swapped(site.hca_guid(place, rail))}) : port 1',
            )
        )


def _swapped(guid: int) -> str:
    """The manager prints the other end's GUID with its bytes in the wrong order."""
    return guid.to_bytes(8, "little").hex()
