"""ibqueryerrors: error counters of a fabric's ports."""

from parsers.formats.ibqueryerrors import IbqueryerrorsParser
from parsers.text.parser import Context, parse
from store.records.event import Event

LINK = (
    "       Link info:      2   1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  "
    '0xb83fd20300200001      1    1[  ] "gpu001 mlx5_0" (Could be 12X )'
)


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(IbqueryerrorsParser(Context()), lines))


def test_each_error_counter_of_a_port_is_an_event_without_a_time() -> None:
    """The host is the block's; waiting for credit and data are no errors, nor is a sum of ports."""
    events = decode(
        'Errors for "gpu020 mlx5_0"',
        "   GUID 0xb83fd20300200131 port 1: [PortRcvErrors == 77] [PortXmitWait == 9] [PortXmitData == 5 (5.000B)]",
        'Errors for 0xb83fd20300100040 "MF0;leaf02:MQM8700/U1"',
        "   GUID 0xb83fd20300100040 port ALL: [SymbolErrorCounter == 65535]",
        "   GUID 0xb83fd20300100040 port 39: [SymbolErrorCounter == 65535 (63.999K)] [VL15Dropped == 0]",
        "",
        "## Summary: 37 nodes checked, 3 bad nodes found",
    )
    assert [(e.line, e.time, e.node, e.device.uuid, e.device.port, dict(e.attributes)) for e in events] == [
        (2, None, "gpu020", "0xb83fd20300200131", 1, {"counter": "PortRcvErrors", "count": 77, "hca": "mlx5_0"}),
        (
            5,
            None,
            None,
            "0xb83fd20300100040",
            39,
            {"counter": "SymbolErrorCounter", "count": 65535, "switch": "leaf02"},
        ),
    ]
    assert {event.kind for event in events} == {"counter"}


def test_the_link_below_a_port_names_its_other_end() -> None:
    """And makes the host of a switch's port known; the next port is not touched by it."""
    events = decode(
        'Errors for 0xb83fd20300100000 "MF0;leaf01:MQM8700/U1"',
        "   GUID 0xb83fd20300100000 port 1: [LinkDownedCounter == 23]",
        LINK,
        "   GUID 0xb83fd20300100000 port 2: [LinkDownedCounter == 1]",
        '       Link info:      2   2[  ] ==(                Down/ Polling)==>             [  ] "" ( )',
    )
    assert [
        (e.line, e.node, e.attributes.get("peer"), e.attributes.get("peer_port"), e.attributes["lid"]) for e in events
    ] == [
        (2, "gpu001", "gpu001 mlx5_0", 1, 2),
        (4, None, None, None, 2),
    ]


def test_a_switch_is_one_though_its_name_looks_like_a_hosts() -> None:
    """The tool prints a GUID in the head of a switch's block alone; names of old versions are today's."""
    events = decode(
        'Errors for 0x0008f10400411f56 "ISR9024 Voltaire"',
        "   GUID 0x8f10400411f56 port 3: [SymbolErrors == 4] [RcvSwRelayErrors == 9]",
    )
    assert [(e.node, e.attributes["counter"], e.severity, e.device.uuid) for e in events] == [
        (None, "SymbolErrorCounter", "warning", "0x0008f10400411f56"),
        (None, "PortRcvSwitchRelayErrors", "info", "0x0008f10400411f56"),
    ]
    assert events[0].attributes["switch"] == "ISR9024 Voltaire"


def test_the_data_counters_of_a_whole_fabric_are_no_events() -> None:
    """As `--data` without errors prints them."""
    assert (
        decode(
            'Data Counters for 0xb83fd20300200170 "gpu024 mlx5_0"',
            "   GUID 0xb83fd20300200170 port 1: [PortXmitData == 2232 (8.719KB)] [PortRcvPkts == 32 (32.000)]",
        )
        == []
    )
