"""Traps: one event of a trap and its notice, in every build's form."""

import pytest

from .opensm_log import decode, line

NOTICE = 'log_notice: Reporting Urgent Notice "Link state change" from switch LID 2, GUID 0xb83fd20300100000'
UPSTREAM = (
    "log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) from LID:2 TID:0x0"
)
OLD = "__osm_trap_rcv_process_request: Received Generic Notice type:0x01 num:128 Producer:2 from LID:0x0002 TID:0x0"
GUID = "0xb83fd20300100000"


@pytest.mark.parametrize(
    ("trap", "notice"),
    [
        (UPSTREAM, NOTICE),
        (
            UPSTREAM,
            (
                "log_notice: Reporting Generic Notice type:1 num:128 (Link state "
                "change) from LID:2 GID:fe80::b83f:d203:10:0"
            ),
        ),
        (
            OLD,
            (
                "osm_report_notice: Reporting Generic Notice type:1 num:128 from "
                "LID:0x0002 GID:0xfe80000000000000,0xb83fd20300100000"
            ),
        ),
    ],
    ids=["upstream", "mlnx", "old"],
)
def test_a_trap_and_its_notice_are_one_event_in_every_form(trap: str, notice: str) -> None:
    """LIDs decimal or hexadecimal, the GUID bare, in IPv6 text or as the low half of a GID."""
    events = decode(line(trap), line(notice, micros=60))
    assert [(e.kind, e.line, e.device.type, e.device.uuid, e.attributes["lid"]) for e in events] == [
        ("link_state_change", 1, "switch", GUID, 2)
    ]


@pytest.mark.parametrize("traps", [2, 3, 9])
def test_each_of_several_traps_has_its_own_notice(traps: int) -> None:
    """A burst's notices may come after all of its traps: as many events as traps."""
    burst = [line(UPSTREAM, micros=n) for n in range(traps)] + [line(NOTICE, micros=50 + n) for n in range(traps)]
    assert [event.line for event in decode(*burst)] == list(range(1, traps + 1))
    assert len(decode(*burst, line(NOTICE, second=20))) == traps + 1, "a notice without its trap is the event"


def test_a_switch_is_named_where_an_earlier_line_told_its_name() -> None:
    """By GUID; its LID is known from a discovery too."""
    found = line(
        "state_mgr_report_new_ports: Discovered new port with "
        "GUID:0xb83fd20300100000 LID range [2,2] of node: MF0;leaf01:MQM8700/U1"
    )
    events = decode(line(UPSTREAM, second=1), found, line(UPSTREAM, second=12))
    assert [event.attributes.get("switch") for event in events] == [None, "leaf01", "leaf01"]
    assert [event.device.uuid for event in events] == [None, GUID, GUID]


def test_a_switch_whose_description_looks_like_a_hosts_is_a_switch_once_it_has_sent_a_trap() -> None:
    """`leaf01` alone could be a host."""
    removed = line(f"drop_mgr_remove_port: Removed port with GUID:{GUID} LID range [2, 2] of node:leaf01", second=20)
    assert [(e.node, e.device.type) for e in decode(removed)] == [("leaf01", "port")]
    events = decode(line(UPSTREAM), line(NOTICE, micros=5), removed)
    assert [(e.node, e.device.type, e.attributes.get("switch")) for e in events] == [
        (None, "switch", None),
        (None, "switch", "leaf01"),
    ]


def test_the_managers_own_notices_teach_no_lid() -> None:
    """65 bears the manager's LID beside the GID of the port that is gone."""
    own = line("log_notice: Reporting Generic Notice type:3 num:65 (GID out of service) from LID:2 GID:fe80::10:4")
    events = decode(own, line(UPSTREAM, second=12))
    assert [(e.kind, e.device.uuid) for e in events] == [("link_state_change", None)]


def test_a_threshold_trap_is_a_counter_at_a_port_that_the_log_has_named() -> None:
    """129 of a LID that a notice told of; other traps are no events."""
    text = "log_trap_info: Received Generic Notice type:{} num:{} (x) Producer:2 (Switch) from LID:2{} TID:0x0"
    events = decode(
        line(UPSTREAM),
        line(NOTICE, micros=5),
        line(text.format(1, 129, " Port 5"), second=12),
        line(text.format(4, 144, ""), second=13),
        line(text.format(4, 145, ""), second=13),
    )
    assert [(e.kind, e.device.type, e.device.uuid, e.device.port) for e in events[1:]] == [("counter", "port", GUID, 5)]
    assert events[1].attributes == {"lid": 2, "counter": "LocalLinkIntegrityErrors", "trap": 129}


def test_a_packet_with_a_bad_key_names_who_sent_it() -> None:
    """The trap's own line names the fact alone; the line after it the LIDs and the key."""
    events = decode(
        line(
            "log_trap_info: Received Generic Notice type:2 num:257 (Bad P_Key) Producer:2 (Switch) from LID:11 TID:0x0"
        ),
        line("log_trap_info: Bad P_Key:0x8001 on SL:0 from LID1:11 QP1:0x123 to LID2:3 QP2:0x456"),
        line(
            'log_notice: Reporting Security Notice "Bad P_Key" from LID 11, GUID 0xb83fd20300100040 : LID1 11, LID2 3'
        ),
    )
    assert [(e.kind, e.severity, dict(e.attributes)) for e in events] == [
        ("key_violation", "warning", {"lid": 11, "key": "P_Key", "value": "0x8001", "peer_lid": 3})
    ]
