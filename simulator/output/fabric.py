"""The fabric's own words: the subnet manager's log and the topology, in the forms of opensm 3.3.23.

    Jan 03 07:12:09 482000 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061
        LID range [17, 17] of node:gpu-007 mlx5_0

(one line; its time bears no year and is the machine's own, here UTC).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from simulator.faults.trace import LinkLoss
from simulator.site import (
    FIRST_UPLINK,
    SimulationSettings,
    SiteLayout,
    hca_guid,
    hca_lid,
    leaf_guid,
    leaf_lid,
    leaf_name,
    leaf_of,
    leaf_port,
    spine_guid,
    spine_lid,
)

_TRAPS = "AEB06C0"  # the threads that wrote the lines this form was taken from
_SWEEP = "8EAC6C0"


def opensm_lines(settings: SimulationSettings, layout: SiteLayout, losses: list[LinkLoss]) -> list[tuple[int, str]]:
    """The whole log as (microseconds from the start, line), in time order."""
    lines = list(_greeting(settings))
    for loss in losses:
        lines += _down(settings, layout, loss)
        if loss.up_ms < settings.length_ms:
            lines += _up(settings, layout, loss)
    lines.sort(key=lambda line: line[0])
    return lines


def _line(settings: SimulationSettings, time_us: int, thread: str, level: int, words: str) -> tuple[int, str]:
    moment: datetime = settings.start + timedelta(microseconds=time_us)
    return time_us, f"{moment:%b %d %H:%M:%S %f} [{thread}] 0x{level:02x} -> {words}"


def _greeting(settings: SimulationSettings) -> Iterator[tuple[int, str]]:
    for after, level, words in (
        (0, 0x03, "OpenSM 3.3.23"),
        (365, 0x80, "OpenSM 3.3.23"),
        (11_384, 0x80, "Entering DISCOVERING state"),
        (68_193, 0x80, "Entering MASTER state"),
        (77_696, 0x02, "SUBNET UP"),
    ):
        yield _line(settings, 1_000_000 + after, "BEB3740", level, words)


def _trap(settings: SimulationSettings, time_us: int, node: int) -> list[tuple[int, str]]:
    leaf = leaf_of(node)
    path = "1 hop path: Path = 0,1" if leaf == 0 else f"3 hop path: Path = 0,1,{FIRST_UPLINK},{leaf + 1}"
    return [
        _line(
            settings,
            time_us,
            _TRAPS,
            0x01,
            "log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) "
            f"from LID:{leaf_lid(leaf)} TID:0x0000000000000000",
        ),
        _line(settings, time_us + 36, _TRAPS, 0x02, f"SM class trap 128: Directed Path Dump of {path}"),
        _line(
            settings,
            time_us + 46,
            _TRAPS,
            0x02,
            f'log_notice: Reporting Urgent Notice "Link state change" from switch LID {leaf_lid(leaf)}, '
            f"GUID 0x{leaf_guid(leaf):016x}",
        ),
    ]


def _gid(node: int) -> str:
    port = hca_guid(node) + 1
    return "fe80::" + ":".join(f"{port >> shift & 0xFFFF:x}" for shift in (48, 32, 16, 0))


def _down(settings: SimulationSettings, layout: SiteLayout, loss: LinkLoss) -> list[tuple[int, str]]:
    """The port's removal bears the time of the loss; the trap that made the manager look comes just before."""
    at, node = loss.down_ms * 1000, loss.node
    removed = (
        f"drop_mgr_remove_port: Removed port with GUID:0x{hca_guid(node) + 1:016x} "
        f"LID range [{hca_lid(node)}, {hca_lid(node)}] of node:{layout.names[node]} mlx5_0"
    )
    return [
        *_trap(settings, max(at - 9_214, 0), node),
        _line(
            settings,
            max(at - 7, 0),
            _SWEEP,
            0x02,
            f'log_notice: Reporting Informational Notice "GID out of service", GID:{_gid(node)}',
        ),
        _line(settings, at, _SWEEP, 0x02, removed),
        _line(settings, at + 1_814, _SWEEP, 0x02, "osm_ucast_mgr_process: minhop tables configured on all switches"),
        _line(settings, at + 3_767, _SWEEP, 0x02, "SUBNET UP"),
    ]


def _up(settings: SimulationSettings, layout: SiteLayout, loss: LinkLoss) -> list[tuple[int, str]]:
    at, node = loss.up_ms * 1000, loss.node
    found = (
        f"state_mgr_report_new_ports: Discovered new port with GUID:0x{hca_guid(node) + 1:016x} "
        f"LID range [{hca_lid(node)},{hca_lid(node)}] of node: {layout.names[node]} mlx5_0"
    )
    return [
        *_trap(settings, at, node),
        _line(settings, at + 11_114, _SWEEP, 0x02, "osm_ucast_mgr_process: minhop tables configured on all switches"),
        _line(
            settings,
            at + 13_278,
            _SWEEP,
            0x02,
            f'log_notice: Reporting Informational Notice "GID in service", GID:{_gid(node)}',
        ),
        _line(settings, at + 13_281, _SWEEP, 0x02, found),
        _line(settings, at + 13_816, _SWEEP, 0x02, "SUBNET UP"),
    ]


def ibnetdiscover(settings: SimulationSettings, layout: SiteLayout) -> str:
    """The topology as `ibnetdiscover` prints it: two levels of switches, one adapter a host."""
    parts = [
        f"#\n# Topology file: generated on {settings.start:%a %b %d %H:%M:%S %Y}\n#\n"
        f"# Initiated from node {hca_guid(0):016x} port {hca_guid(0) + 1:016x}\n"
    ]
    for leaf in range(layout.leaves):
        cables = [
            f'[{leaf_port(n)}]\t"H-{hca_guid(n):016x}"[1]({hca_guid(n) + 1:016x}) '
            f'\t\t# "{layout.names[n]} mlx5_0" lid {hca_lid(n)} 4xNDR'
            for n in range(layout.nodes)
            if leaf_of(n) == leaf
        ]
        cables += [
            f'[{FIRST_UPLINK + s}]\t"S-{spine_guid(s):016x}"[{leaf + 1}]\t\t# "{_description(f"spine-{s + 1:02d}")}" '
            f"lid {spine_lid(s)} 4xNDR"
            for s in range(layout.spines)
        ]
        parts.append(_switch(leaf_guid(leaf), leaf_name(leaf), leaf_lid(leaf), 40, cables))
    for s in range(layout.spines):
        cables = [
            f'[{leaf + 1}]\t"S-{leaf_guid(leaf):016x}"[{FIRST_UPLINK + s}]\t\t# "{_description(leaf_name(leaf))}" '
            f"lid {leaf_lid(leaf)} 4xNDR"
            for leaf in range(layout.leaves)
        ]
        parts.append(_switch(spine_guid(s), f"spine-{s + 1:02d}", spine_lid(s), max(40, layout.leaves), cables))
    parts += [_host(layout, node) for node in range(layout.nodes)]
    return "\n".join(parts)


def _description(name: str) -> str:
    return f"MF0;{name}:MQM9700/U1"


def _switch(guid: int, name: str, lid: int, ports: int, cables: list[str]) -> str:
    head = (
        f"vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid:016x}\nswitchguid=0x{guid:016x}({guid:016x})\n"
        f'Switch\t{ports} "S-{guid:016x}"\t\t# "{_description(name)}" enhanced port 0 lid {lid} lmc 0\n'
    )
    return head + "".join(cable + "\n" for cable in cables)


def _host(layout: SiteLayout, node: int) -> str:
    guid, leaf = hca_guid(node), leaf_of(node)
    return (
        f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid:016x}\ncaguid=0x{guid:016x}\n"
        f'Ca\t1 "H-{guid:016x}"\t\t# "{layout.names[node]} mlx5_0"\n'
        f'[1]({guid + 1:016x}) \t"S-{leaf_guid(leaf):016x}"[{leaf_port(node)}]\t\t# lid {hca_lid(node)} lmc 0 '
        f'"{_description(leaf_name(leaf))}" lid {leaf_lid(leaf)} 4xNDR\n'
    )
