"""Errors with a number, requests that nobody answers, and what is repeated."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.text.parser import Context
from store.records.event import Event
from store.records.fault_catalog import opensm_errors

from .opensm_log import decode, line

MESSAGES = Path(__file__).parents[3] / ".." / "shared" / "data" / "fabric" / "opensm_messages.tsv"
DUPLICATE = [
    line("report_duplicated_guid: ERR 0D01: Found duplicated node GUID."),
    (
        "Node 0xb83fd203002000c0 port 1 is reachable from remote node "
        "0xb83fd20300100040 port 5 and remote node 0xb83fd20300100040 port 4."
    ),
    "Paths are:",
    line("Directed Path Dump of 4 hop path: Path = 0,1,39,2,5"),
]


@pytest.mark.parametrize(
    ("text", "severity", "node", "device"),
    [
        (
            (
                "state_mgr_light_sweep_start: ERR 3315: Unknown remote side for node "
                "0xb83fd2030010fa40 (MF0;spine02:MQM8700/U1) port 3. Adding to light sweep sampling list"
            ),
            "warning",
            None,
            ("port", "0xb83fd2030010fa40", 3),
        ),
        (
            (
                "perfmgr_mad_send_err_callback: ERR 5402: gpu007 mlx5_0 "
                "(0xb83fd20300200060) port 1 LID 17 TID 0x1200000003"
            ),
            "warning",
            "gpu007",
            ("port", "0xb83fd20300200060", 1),
        ),
        (
            (
                "ni_rcv_process_new: ERR 0D0A: New Channel Adapter node GUID "
                "0xb83fd20300200060is non-compliant and is being ignored"
            ),
            "error",
            None,
            ("hca", "0xb83fd20300200060", None),
        ),
        (
            "disable_port: ERR 3810: Disabling physical port 0xb83fd20300100040 num:7",
            "error",
            None,
            ("port", "0xb83fd20300100040", 7),
        ),
        (
            "link_mgr_set_physp_pi: ERR 4201: Cannot find switch by guid: 0x200000",
            "error",
            None,
            ("switch", "0x0000000000200000", None),
        ),
        ("vl15_poller: ERR 3E02: Event wait failed (IB_ERROR)", "error", None, ("node", None, None)),
        (
            "osm_mcmr_rcv_join_mgrp: ERR 1B11: method = SubnAdmSet from port 0xb83fd20300200061 (gpu007 mlx5_0)",
            "warning",
            "gpu007",
            ("port", "0xb83fd20300200061", None),
        ),
        (
            "PerfMgr: ERR 540A: Detected an out of band error clear on gpu007 mlx5_0 (0xb83fd20300200060) port 1",
            "info",
            "gpu007",
            ("port", "0xb83fd20300200060", 1),
        ),
    ],
    ids=["3315", "5402", "0D0A", "3810", "4201", "3E02", "1B11", "540A"],
)
def test_an_error_is_at_the_node_or_port_that_its_words_name(
    text: str, severity: str, node: str | None, device: tuple[str, str | None, int | None]
) -> None:
    """Known codes are judged by the table; a LID, a TID or an attribute is no GUID."""
    (event,) = decode(line(text))
    assert (event.kind, event.severity, event.node) == ("sm_error", severity, node)
    assert (event.device.type, event.device.uuid, event.device.port) == device
    assert event.attributes["error"] == text.partition("ERR ")[2][:4]


def test_a_node_is_named_by_what_the_log_told_of_its_guid() -> None:
    """The verbose log describes each node that it finds."""
    events = decode(
        line("nd_rcv_process_nd: Node 0xb83fd20300200060, Description = gpu007 mlx5_0"),
        line("pi_rcv_process_switch_ext_port: Unlinking local node 0xb83fd20300100000, port 7", second=12),
        "\t\t\t\tand remote node 0xb83fd20300200060, port 1",
        line("ni_rcv_process_existing: ERR 0D09: Unknown node type 9 with GUID 0xb83fd20300200060", second=13),
    )
    assert [(e.kind, e.node) for e in events] == [("link_down", "gpu007"), ("sm_error", "gpu007")]
    assert events[0].attributes == {"peer": "gpu007 mlx5_0", "peer_port": 1}


def test_one_loss_that_two_functions_tell_is_one_event() -> None:
    """Within one sweep; a second later it is another loss."""
    text = "Unlinking local node 0xb83fd20300100000, port 7"
    end = "\t\t\t\tand remote node 0xb83fd20300200060, port 1"
    events = decode(
        line(f"pi_rcv_process_switch_ext_port: {text}"),
        end,
        line(f"drop_mgr_clean_physp: {text}", micros=40_000),
        end,
        line(f"pi_rcv_process_switch_ext_port: {text}", second=12),
        end,
    )
    assert [event.line for event in events] == [1, 5]


def test_the_records_of_one_timeout_are_one_event() -> None:
    """By thread, whatever other threads write between; the switch at the route's end is known from a trap."""
    mine, other = "7EAA6C0", "8EAC6C0"
    events = decode(
        line(
            "log_trap_info: Received Generic Notice type:1 num:128 (Link state "
            "change) Producer:2 (Switch) from LID:21 TID:0x0"
        ),
        line("SM class trap 128: Directed Path Dump of 3 hop path: Path = 0,1,39,3", micros=5),
        line(
            'log_notice: Reporting Urgent Notice "Link state change" from switch LID 21, GUID 0xb83fd20300100080',
            micros=9,
        ),
        line("log_send_error: ERR 5411: DR SMP Send completed with error (IB_TIMEOUT) -- dropping", 12, 1, mine),
        "\t\t\tMethod 0x1, Attr 0x11, TID 0x4f90",
        line("Exiting SM", 12, 2, other),
        line("Received SMP on a 3 hop path: Initial path = 0,1,39,3, Return path  = 0,0,0,0", 12, 3, mine),
        line(
            (
                "sm_mad_ctrl_send_err_cb: ERR 3113: MAD completed in error "
                "(IB_TIMEOUT): SubnGet(NodeInfo), attr_mod 0x0, TID 0x4f90"
            ),
            12,
            4,
            mine,
        ),
        line(
            (
                "sm_mad_ctrl_send_err_cb: ERR 3120: Timeout while getting attribute "
                "0x11 (NodeInfo); Possible mis-set mkey?"
            ),
            12,
            5,
            mine,
        ),
    )
    assert [event.kind for event in events] == ["link_state_change", "sm_state", "smp_timeout"]
    assert (events[2].line, events[2].device.uuid) == (4, "0xb83fd20300100080")
    assert events[2].attributes == {
        "error": "5411",
        "status": "IB_TIMEOUT",
        "attr": "0x11",
        "path": "0,1,39,3",
        "method": "SubnGet",
        "request": "NodeInfo",
    }


def test_timeouts_whose_first_records_were_not_logged_are_told_too() -> None:
    """Each 3113 that belongs to no other is one."""
    text = "sm_mad_ctrl_send_err_cb: ERR 3113: MAD completed in error (IB_TIMEOUT): SubnGet({}), attr_mod 0x0, TID 0x1"
    events = decode(line(text.format("NodeInfo")), line(text.format("PortInfo"), second=40, minute=19))
    assert [(e.kind, e.attributes["request"]) for e in events] == [
        ("smp_timeout", "NodeInfo"),
        ("smp_timeout", "PortInfo"),
    ]


def test_a_duplicate_guid_names_the_ports_at_which_the_two_nodes_are() -> None:
    """In one order, though opensm names them in either."""
    (event,) = decode(*DUPLICATE)
    assert (event.severity, event.device.uuid) == ("error", "0xb83fd203002000c0")
    assert event.attributes["seen_at_1"] == "0xb83fd20300100040 port 4"
    assert event.attributes["seen_at_2"] == "0xb83fd20300100040 port 5"


def total(events: list[Event]) -> int:
    """How many records the events stand for."""
    return sum(int(event.attributes.get("count") or 1) for event in events)


@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    codes=st.lists(st.sampled_from(["3E02", "2E01", "3E03"]), min_size=60),
)
def test_no_repeat_is_lost_and_each_minute_has_two_events_at_most(gaps: list[int], codes: list[str]) -> None:
    """The first at once; a count of the others."""
    second, texts = 0, []
    for gap, code in zip(gaps, codes, strict=False):
        second = min(second + gap, 3599)
        texts.append(line(f"vl15_poller: ERR {code}: Event wait failed", second % 60, minute=second // 60))
    events = decode(*texts)
    assert total(events) == len(texts)
    for code in set(codes):
        told = [event for event in events if event.attributes["error"] == code]
        assert len(told) <= 2 * (second // 60 + 1)
        assert not any("count" in event.attributes for event in told[:1])


def test_a_storm_of_one_error_without_a_year_is_counted_by_lines() -> None:
    """No time at all: a minute's worth of lines."""
    events = decode(*(line("vl15_poller: ERR 3E02: Event wait failed") for _ in range(500)), context=Context())
    assert [event.attributes.get("count") for event in events] == [None, 499]


def test_more_different_errors_than_are_remembered_are_all_told() -> None:
    """The oldest is forgotten, its count told."""
    texts = [line(f"x: ERR 3A04: Port 0x{number:016x} has LID 0") for number in range(4200)]
    events = decode(*texts[:100], *texts, *texts[:200])
    assert total(events) == 4500


def test_every_error_of_the_sources_is_an_event_with_its_number() -> None:
    """The message table: each format that bears a number, with plausible words in its places."""
    if not MESSAGES.is_file():
        pytest.skip("the table of opensm's messages (../shared/data) is not on this machine")
    with MESSAGES.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if "ERR " in row["format"]]
    assert len(rows) > 100
    for row in rows:
        text = (
            row["format"]
            .replace("ERR %s", "ERR 5402")
            .replace("%<PRIx64>", "b83fd20300200061")
            .replace("%016<PRIx64>", "b83fd20300200061")
        )
        for form in ("%zu", "%u", "%d"):
            text = text.replace(form, "7")
        text = text.replace("%s", "gpu007 mlx5_0").replace("%X", "15").replace("%x", "15").replace("\\t", "\t")
        first, *rest = text.rstrip("\\n").split("\\n")
        events = decode(line(f"{row['function']}: {first}"), *rest)
        assert len(events) == 1, text
        assert events[0].kind in ("sm_error", "smp_timeout"), text


def test_the_table_of_codes_has_each_once_and_every_row_is_sound() -> None:
    """Four letters or digits; the loader checks the words."""
    assert len(opensm_errors()) > 40
    assert all(len(error) == 4 for error, _ in opensm_errors())
