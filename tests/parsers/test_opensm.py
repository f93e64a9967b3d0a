"""opensm's log."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from parsers.fabric.node_names import FabricNode, fabric_node
from parsers.formats.opensm import OpensmParser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

TRAP = (
    "log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) from LID:2 TID:0x0"
)
PATH = "SM class trap 128: Directed Path Dump of 1 hop path: Path = 0,1"
REMOVED = "drop_mgr_remove_port: Removed port with GUID"
FOUND = "state_mgr_report_new_ports: Discovered new port with GUID"
NOTICE = 'log_notice: Reporting Urgent Notice "Link state change" from switch LID 2, GUID 0xb83fd20300100000'


def line(text: str, second: int = 11, micros: int = 0) -> str:
    """A line of the log at 22:18 and some seconds."""
    return f"Nov 20 22:18:{second:02d} {micros:06d} [8EAC6C0] 0x02 -> {text}"


def decode(*lines: str, context: Context | None = None) -> list[Event]:
    """The events of some lines."""
    return list(parse(OpensmParser(context or Context(year=2026)), lines))


def test_a_trap_and_its_notice_are_one_event() -> None:
    """With the trap's line and time, and the notice's GUID."""
    events = decode(line(TRAP), line(PATH), line(NOTICE, micros=60))
    assert [(e.kind, e.line, e.device.type, e.device.uuid, e.attributes) for e in events] == [
        ("link_state_change", 1, "switch", "0xb83fd20300100000", {"lid": 2})
    ]
    assert events[0].time == datetime(2026, 11, 20, 22, 18, 11, tzinfo=UTC)
    assert events[0].cause == "fabric"


def test_a_trap_alone_is_told_when_the_source_is_quiet() -> None:
    """opensm does not flush the notice on a quiet fabric; when it comes at last it adds nothing."""
    parser = OpensmParser(Context(year=2026))
    assert list(parser.feed(line(TRAP), 1)) == []
    assert [event.device.uuid for event in parser.flush()] == [None]
    assert list(parser.feed(line(NOTICE, second=12), 2)) == []
    assert list(parser.feed(line(TRAP, second=20), 3)) == []
    assert [event.device.uuid for event in parser.flush()] == ["0xb83fd20300100000"], "the GUID was learnt"


def test_a_trap_alone_is_told_by_the_next_line_that_is_later() -> None:
    """Half a second on, its notice will not come any more."""
    events = decode(line(TRAP), line("SUBNET UP", second=13))
    assert [event.line for event in events] == [1]


def test_a_notice_alone_is_an_event() -> None:
    """A log with the trap's level switched off."""
    events = decode(line(NOTICE))
    assert [(event.kind, event.line) for event in events] == [("link_state_change", 1)]


def test_two_traps_of_one_switch_are_two_events() -> None:
    """A flap."""
    events = decode(line(TRAP), line(TRAP, micros=100_000), line(NOTICE, micros=100_060))
    assert [event.line for event in events] == [1, 2]


def test_without_a_year_pairs_are_still_one_event() -> None:
    """No time at all: nearness of lines decides."""
    events = decode(line(TRAP), line(NOTICE), *[line("SUBNET UP")] * 30, line(TRAP), context=Context())
    assert [(event.line, event.time) for event in events] == [(1, None), (33, None)]


def test_a_removed_port_names_host_and_adapter() -> None:
    """And LID 0 is none."""
    events = decode(
        line(
            "drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 LID range [17, 17] of node:gpu007 mlx5_0"
        ),
        line("drop_mgr_remove_port: Removed port with GUID:0xb83fd20300100080 LID range [0, 0] of node:<unknown>"),
        line(f"{REMOVED}:0xb83fd203001000c0 LID range [30, 30] of node:MF0;leaf04:MQM8700/U1"),
        line(f"{FOUND}:0xb83fd20300200061 LID range [17,17] of node: gpu007 mlx5_0"),
    )
    assert [(e.kind, e.node, e.device.type, dict(e.attributes), e.severity) for e in events] == [
        ("port_removed", "gpu007", "port", {"lid": 17, "hca": "mlx5_0"}, "error"),
        ("port_removed", None, "port", {}, "error"),
        ("port_removed", None, "switch", {"lid": 30, "switch": "leaf04"}, "error"),
        ("port_discovered", "gpu007", "port", {"lid": 17, "hca": "mlx5_0"}, "info"),
    ]


@pytest.mark.parametrize(
    ("states", "kind", "severity"),
    [
        ("ACTIVE to DOWN", "link_down", "error"),
        ("DOWN to INIT", "link_up", "info"),
        ("INIT to ARMED", "link_state_change", "info"),
    ],
)
def test_a_port_that_changes_state_is_up_or_down(states: str, kind: str, severity: str) -> None:
    """As MLNX opensm and nvlsm say it, with or without a label."""
    for name, label in (("Switch1", ""), ("MF0;gb-nvl-087-switch03:N5110_LD/U1", " (sw7p1s1)")):
        events = decode(
            line(f"osm_spst_rcv_process: Switch 0xb0cf0e0300e31440 {name} port 61{label} changed state from {states}")
        )
        assert [(e.kind, e.severity, e.device.type, e.device.port) for e in events] == [(kind, severity, "port", 61)]
        assert events[0].attributes["switch"] in ("Switch1", "gb-nvl-087-switch03")


def test_an_unlinked_port_takes_its_other_end_from_the_next_line() -> None:
    """Or goes without it."""
    text = line("pi_rcv_process_switch_ext_port: Unlinking local node 0xb83fd20300100000, port 7")
    paired = decode(text, "\t\t\t\tand remote node 0xb83fd20300200060, port 1")
    alone = decode(text, line("SUBNET UP"))
    assert [(e.kind, e.device.port, dict(e.attributes)) for e in paired + alone] == [
        ("link_down", 7, {"peer": "0xb83fd20300200060", "peer_port": 1}),
        ("link_down", 7, {}),
    ]


def test_a_counter_is_placed_at_its_port_and_host() -> None:
    """The host is the named node's or, at a switch, the peer's; the peer's GUID is not to be trusted."""
    events = decode(
        line(
            'perfmgr_log_errors: ERR 5431: SymbolErrorCounter : 4990 : node "MF0;leaf01:MQM8700/U1" (NodeGUID: '
            '0xb83fd20300100000) : port 5 connected to "gpu005 mlx5_0" (NodeGUID: 0x4000200003d23fb8) : port 1'
        )
    )
    assert [(e.kind, e.node, e.device.uuid, e.device.port) for e in events] == [
        ("counter", "gpu005", "0xb83fd20300100000", 5)
    ]
    assert events[0].attributes == {
        "counter": "SymbolErrorCounter",
        "count": 4990,
        "switch": "leaf01",
        "peer": "gpu005 mlx5_0",
        "peer_port": 1,
    }


def test_threshold_traps_are_counters_at_a_port() -> None:
    """129, 130, 131; a trap of another number is none."""
    trap = "log_trap_info: Received Generic Notice type:1 num:{} (x) Producer:2 (Switch) from LID:2 Port 5 TID:0x0"
    events = decode(*(line(trap.format(number)) for number in (129, 130, 131, 144)))
    assert [(e.kind, e.device.port, e.attributes["trap"]) for e in events] == [
        ("counter", 5, n) for n in (129, 130, 131)
    ]


def test_the_managers_own_state_and_errors_are_events() -> None:
    """The error's number is text: it is hexadecimal, and some begin with the letter O."""
    events = decode(
        line("Entering MASTER state"), line("Exiting SM"), line("ni_rcv_set_links: ERR OD0E: Failed to find physp")
    )
    assert [(e.kind, e.message) for e in events] == [
        ("sm_state", "Entering MASTER state"),
        ("sm_state", "Exiting SM"),
        ("sm_error", "Failed to find physp"),
    ]
    assert events[2].attributes == {"error": "OD0E", "function": "ni_rcv_set_links"}


def test_local_time_is_the_contexts_zone() -> None:
    """The log names no zone."""
    events = decode(line("Exiting SM"), context=Context(year=2026, zone=ZoneInfo("Asia/Tokyo")))
    assert events[0].time == datetime(2026, 11, 20, 13, 18, 11, tzinfo=UTC)


def test_an_impossible_date_is_an_error_and_no_line_is_lost() -> None:
    """The next line is read."""
    errors: list[str] = []
    lines = [line("Exiting SM").replace("Nov 20", "Nov 31"), "", "garbage", line("Exiting SM")]
    events = list(parse(OpensmParser(Context(year=2026)), lines, lambda n, e: errors.append(f"{n}: {e}")))
    assert len(events) == 1
    assert len(errors) == 1
    assert errors[0].startswith("1: 'Nov 31")


def test_an_error_type_names_the_line() -> None:
    """It is the one error that a parser may raise."""
    with pytest.raises(ParseError, match="no date"):
        list(OpensmParser(Context(year=2026)).feed(line("x").replace("Nov 20", "Feb 30"), 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu007 mlx5_0", FabricNode("gpu007 mlx5_0", host="gpu007", hca="mlx5_0")),
        ("gpu-001.example HCA-1", FabricNode("gpu-001.example HCA-1", host="gpu-001.example", hca="HCA-1")),
        ("Hca2", FabricNode("Hca2", host="Hca2")),
        ("MF0;leaf03:MQM8700/U1", FabricNode("MF0;leaf03:MQM8700/U1", switch="leaf03")),
        ("Switch2", FabricNode("Switch2", switch="Switch2")),
        (
            "Quantum Mellanox Technologies",
            FabricNode("Quantum Mellanox Technologies", switch="Quantum Mellanox Technologies"),
        ),
        ("<unknown>", FabricNode()),
        ("", FabricNode()),
    ],
)
def test_a_node_description_is_a_host_or_a_switch(text: str, expected: FabricNode) -> None:
    """Or neither."""
    assert fabric_node(text) == expected
