"""iblinkinfo: links below what they could, links that wait, links that differ from a cache."""

import pytest

from parsers.formats.iblinkinfo import IblinkinfoParser
from parsers.text.parser import Context, parse
from store.records.event import Event

SWITCH = "Switch: 0xb83fd20300100000 MF0;leaf01:MQM8700/U1:"
EMPTY = '           2    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )'


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(IblinkinfoParser(Context()), lines))


def row(port: int, link: str, peer: str = "gpu002 mlx5_0", could: str = "") -> str:
    """A row of a switch's block, in the tool's columns."""
    return f'           2 {port:4d}[  ] ==({link})==>       {port + 10}    1[  ] "{peer}" ({could} )'


@pytest.mark.parametrize(
    ("link", "could", "expected"),
    [
        (
            " 1X        53.125 Gbps Active/  LinkUp",
            "Could be 4X",
            ("link_degraded", "warning", {"width_capable": "4X"}),
        ),
        (
            " 4X          10.0 Gbps Active/  LinkUp",
            "Could be 25.78125 Gbps",
            ("link_degraded", "warning", {"speed_capable": "25.78125 Gbps"}),
        ),
        (
            " 4X  10.0 Gbps (FDR10) Active/  LinkUp",
            "Could be 14.0625 Gbps",
            ("link_degraded", "warning", {"speed_capable": "14.0625 Gbps"}),
        ),
        (
            " 4X        10.0 Gbps Active/  LinkUp",
            "Could be FDR10",
            ("link_degraded", "warning", {"speed_capable": "FDR10"}),
        ),
        (
            " 1X 2.5 Gbps Active /   LinkUp",
            "Could be 4X Could be 5.0 Gbps",
            ("link_degraded", "warning", {"width_capable": "4X", "speed_capable": "5.0 Gbps"}),
        ),
        (" 4X        53.125 Gbps Active/  LinkUp", "Could be 12X", ("link_degraded", "info", {"width_capable": "12X"})),
        (
            " 4X        53.125 Gbps Active/  LinkUp) (HOQ:16 VL_Stall:7",
            "Could be 12X",
            ("link_degraded", "info", {"width_capable": "12X"}),
        ),
        (" 4X        53.125 Gbps Initialize/  LinkUp", "", ("link_inactive", "warning", {})),
        (" 4X        53.125 Gbps  Armed/  LinkUp", "", ("link_inactive", "warning", {})),
        (" 4X        53.125 Gbps Active/LinkErrorRecovery", "", ("link_inactive", "warning", {})),
        (" 4X        53.125 Gbps Active/  LinkUp", "", None),
    ],
)
def test_a_link_is_judged_by_its_state_and_by_what_it_could_be(
    link: str, could: str, expected: tuple[str, str, dict[str, str]] | None
) -> None:
    """Width and speed as printed; 12X is no lack of a 4X cable."""
    events = decode(SWITCH, row(2, link, could=could))
    if expected is None:
        assert events == []
        return
    (event,) = events
    assert (event.kind, event.severity) == expected[:2]
    assert {key: value for key, value in event.attributes.items() if key.endswith("capable")} == expected[2]
    assert (event.node, event.device.uuid, event.device.port) == ("gpu002", "0xb83fd20300100000", 2)
    assert event.attributes["width_now"] == link.split()[0]


def test_a_port_without_a_peer_is_no_event() -> None:
    """It may never have been cabled; that somebody has shut it is told, and no fault."""
    shut = row(4, "                Down/Disabled").replace('14    1[  ] "gpu002 mlx5_0"', '[  ] ""')
    assert decode(SWITCH, EMPTY) == []
    assert [(event.kind, event.severity) for event in decode(SWITCH, EMPTY, shut)] == [("port_disabled", "info")]


def test_a_link_is_told_once_in_either_form() -> None:
    """At the end that comes first."""
    line = (
        '0xb83fd20300200011 "  gpu002 mlx5_0"      4    1[  ] ==( 1X        53.125 Gbps Active/  LinkUp)==>  '
        '0xb83fd20300100000      2    2[  ] "MF0;leaf01:MQM8700/U1" (Could be 4X )'
    )
    back = (
        '0xb83fd20300100000 "MF0;leaf01:MQM8700/U1"      2    2[  ] ==( 1X        53.125 Gbps Active/  LinkUp)==>  '
        '0xb83fd20300200011      4    1[  ] "gpu002 mlx5_0" (Could be 4X )'
    )
    for lines, guid in (((line, back), "0xb83fd20300200011"), ((back, line), "0xb83fd20300100000")):
        assert [(e.line, e.node, e.device.uuid) for e in decode(*lines)] == [(1, "gpu002", guid)]


def test_a_link_that_differs_from_the_cache_went_down_or_came_up() -> None:
    """The half that names the peer names the node; a half alone is no event."""
    up = row(2, " 4X        53.125 Gbps Active/  LinkUp")
    down = EMPTY.replace("   3[", "   2[")
    for rows, expected in (
        ([f"< {up}", f"> {down}"], [("link_down", "error", "gpu002")]),
        ([f"< {down}", f"> {up}"], [("link_up", "info", "gpu002")]),
        ([f"< {up}"], []),
        ([f"> {down}"], []),
        ([f"< {up}", f"> {EMPTY}"], []),
    ):
        assert [(e.kind, e.severity, e.node) for e in decode(SWITCH, *rows)] == expected
