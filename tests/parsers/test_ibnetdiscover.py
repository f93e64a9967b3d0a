"""The topology as ibnetdiscover prints it, and as ibsim and older versions do."""

from pathlib import Path

import pytest

from parsers.formats.ibnetdiscover import IbnetdiscoverParser, links, switch_name
from parsers.text.parser import Context, ParseError, parse

REAL = Path(__file__).parents[2].parent / "shared/data/opensm/diags/diag-08-ibnetdiscover.txt"

TEXT = """\
# Topology file: generated on Fri Nov 20 22:25:58 2026
vendid=0x2c9
switchguid=0xb83fd20300100080(b83fd20300100080)
Switch\t40 "S-b83fd20300100080"\t\t# "MF0;leaf03:MQM8700/U1" enhanced port 0 lid 21 lmc 0
[1]\t"H-b83fd20300200100"[1](b83fd20300200101) \t\t# "gpu017 mlx5_0" lid 4 4xHDR
[39]\t"S-b83fd2030010fa00"[3]\t\t# "MF0;spine01:MQM8700/U1" lid 3 4xHDR

Ca\t1 "H-b83fd20300200100"\t\t# "gpu017 mlx5_0"
[1](b83fd20300200101) \t"S-b83fd20300100080"[1]\t\t# lid 4 lmc 0 "MF0;leaf03:MQM8700/U1" lid 21 4xHDR
"""


def test_each_port_of_a_switch_is_a_cable() -> None:
    """To a host by its name, to a switch by the name in its description; the host's own block repeats them."""
    leaf = {"switch": "leaf03", "switch_guid": "0xb83fd20300100080", "switch_lid": 21, "rate": "4xHDR"}
    host = {"peer": "gpu017", "peer_port": 1, "peer_type": "hca", "hca": "mlx5_0", "peer_lid": 4}
    guids = {"peer_guid": "0xb83fd20300200100", "peer_port_guid": "0xb83fd20300200101"}
    spine = {"peer": "spine01", "peer_port": 3, "peer_type": "switch", "peer_guid": "0xb83fd2030010fa00", "peer_lid": 3}
    assert list(links(TEXT.splitlines())) == [{**leaf, "port": 1, **host, **guids}, {**leaf, "port": 39, **spine}]


def test_a_cable_that_only_the_adapter_tells_of_is_taken_from_its_block() -> None:
    """As where the text was cut, or the switch's block is of another run; with the same GUIDs and LIDs."""
    adapter_alone = TEXT[TEXT.index("Ca\t1") :]
    (found,) = links(adapter_alone.splitlines())
    (told, _) = links(TEXT.splitlines())
    assert found == told


def test_two_switches_of_one_name_are_called_by_their_guids() -> None:
    """Whoever names a switch as another is named takes nothing from it: neither has the name."""
    rows = [
        'Switch\t40 "S-00000000000000a1"\t\t# "MF0;leaf01:MQM8700/U1" enhanced port 0 lid 2 lmc 0',
        '[1]\t"H-00000000000000c0"[1](c1) \t\t# "gpu001 mlx5_0" lid 4 4xHDR',
        'Switch\t40 "S-00000000000000a2"\t\t# "MF0;leaf01:MQM8700/U1" enhanced port 0 lid 3 lmc 0',
        '[1]\t"H-00000000000000d0"[1](d1) \t\t# "gpu002 mlx5_0" lid 5 4xHDR',
    ]
    found = [(link["switch"], link["peer"]) for link in links(rows)]
    assert found == [("0x00000000000000a1", "gpu001"), ("0x00000000000000a2", "gpu002")]


def test_a_port_without_a_description_is_named_by_its_guid() -> None:
    """As a fabric without node descriptions prints it."""
    rows = ['Switch 8 "S-0008f10500100212"', '[2] "H-0002c9030000a1b2"[1]', '[3] "S-0008f10500100999"[7] # "" lid 1']
    assert [(link["switch"], link["peer"]) for link in links(rows)] == [
        ("S-0008f10500100212", "H-0002c9030000a1b2"),
        ("S-0008f10500100212", "S-0008f10500100999"),
    ]


def test_a_broken_port_is_told_of_and_the_rest_goes_on() -> None:
    """A line cut in half, by its number."""
    told: list[tuple[int, str]] = []

    def tell(line: int, error: ParseError) -> None:
        told.append((line, str(error)))

    rows = ['Switch 8 "S-1" # "leaf01"', '[2] "H-0002c9', '[3] "H-0002c9030000a1b2"[1] # "gpu001 mlx5_0"']
    assert [link["port"] for link in links(rows, tell)] == [3]
    assert told == [(2, "'[2] \"H-0002c9' is no port of a switch: run ibnetdiscover anew")]
    assert [link["port"] for link in links(rows)] == [3]


@pytest.mark.parametrize(
    ("description", "name"),
    [("MF0;leaf03:MQM8700/U1", "leaf03"), ("leaf-02", "leaf-02"), ("sw1 Mellanox", "sw1 Mellanox"), (";", ";")],
)
def test_a_switch_bears_the_name_within_its_description(description: str, name: str) -> None:
    """Managed switches pad it with their chassis and model."""
    assert switch_name(description) == name


@pytest.mark.skipif(not REAL.exists(), reason="the shared data is not beside this repository")
def test_a_real_topology_reads_without_a_broken_line() -> None:
    """Four leaves of which one host is down, two spines: every cable twice but for the hosts'."""
    told: list[int] = []
    found = list(links(REAL.read_text().splitlines(), lambda line, _: told.append(line)))
    assert told == []
    assert {link["switch"] for link in found} == {"leaf01", "leaf02", "leaf03", "leaf04", "spine01", "spine02"}
    assert len([link for link in found if link["peer_type"] == "hca"]) == 31
    assert len([link for link in found if link["peer_type"] == "switch"]) == 16


def test_each_cable_is_one_informational_event() -> None:
    """A cable between switches stands in both their blocks; an adapter's own block repeats its cable."""
    spine = [
        'Switch\t40 "S-b83fd2030010fa00"\t\t# "MF0;spine01:MQM8700/U1" enhanced port 0 lid 3 lmc 0',
        '[3]\t"S-b83fd20300100080"[39]\t\t# "MF0;leaf03:MQM8700/U1" lid 21 4xHDR',
    ]
    events = list(parse(IbnetdiscoverParser(Context()), [*TEXT.splitlines(), *spine]))
    assert [(e.kind, e.severity, e.node, e.device.uuid, e.device.port, dict(e.attributes)) for e in events] == [
        (
            "fabric_link",
            "info",
            "gpu017",
            "0xb83fd20300100080",
            1,
            {"switch": "leaf03", "peer": "gpu017 mlx5_0", "peer_port": 1, "lid": 21, "rate": "4xHDR"},
        ),
        (
            "fabric_link",
            "info",
            None,
            "0xb83fd20300100080",
            39,
            {"switch": "leaf03", "peer": "MF0;spine01:MQM8700/U1", "peer_port": 3, "lid": 21, "rate": "4xHDR"},
        ),
    ]


def test_the_list_of_ports_gives_the_same_cables() -> None:
    """`ibnetdiscover -p`: each cable from both its ends; an empty port is none."""
    rows = [
        "CA     4  1 0xb83fd20300200101 4x HDR - SW    21  1 0xb83fd20300100080 "
        "( 'gpu017 mlx5_0' - 'MF0;leaf03:MQM8700/U1' )",
        "SW    21  9 0xb83fd20300100080 4x SDR                                  'MF0;leaf03:MQM8700/U1'",
        "SW    21  1 0xb83fd20300100080 4x HDR - CA     4  1 0xb83fd20300200101 "
        "( 'MF0;leaf03:MQM8700/U1' - 'gpu017 mlx5_0' )",
    ]
    events = list(parse(IbnetdiscoverParser(Context()), rows))
    assert [(e.line, e.node, e.device.port, e.attributes["rate"]) for e in events] == [(1, "gpu017", 1, "4xHDR")]


def test_a_broken_port_of_a_block_is_an_error_of_its_line() -> None:
    """And the next is read."""
    told: list[int] = []
    rows = ['Switch 8 "S-0008f10500100212"', '[2] "H-0002c9', '[3] "H-0002c9030000a1b2"[1] # "gpu001 mlx5_0"']
    events = list(parse(IbnetdiscoverParser(Context()), rows, lambda line, _: told.append(line)))
    assert ([event.node for event in events], told) == (["gpu001"], [2])
