"""The syslog of Ethernet switches."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest

from parsers.formats.switch import MAX_UNNAMED, SYSTEMS, SwitchParser
from parsers.registry import detect, recognise
from parsers.text.parser import Context, parse
from store.records.event import Event

OPER = "swss#orchagent: :- updatePortOperStatus: Port {} oper state set from {} to {}"
PUDE = "kernel: [  618.609820] sx_netdev_handle_pude_event: Called for logical port - {} status {}"
BERLIN = ZoneInfo("Europe/Berlin")


def sonic(text: str, second: float = 0, switch: str = "leaf01", level: str = "NOTICE") -> str:
    """One line of SONiC's syslog at 09:17 and some seconds."""
    return f"May 23 09:17:{second:09.6f} {switch} {level} {text}"


def decode(*lines: str, context: Context | None = None) -> list[Event]:
    """The events of some lines, none of which may be broken."""
    return list(parse(SwitchParser(context or Context(year=2026)), lines))


def told(events: Sequence[Event]) -> list[tuple[object, ...]]:
    """Line, kind, severity, and the port's name of events."""
    return [(e.line, e.kind, e.severity, e.attributes.get("name")) for e in events]


def test_a_switch_is_a_device_and_never_a_node() -> None:
    """A port is told by its switch and its name, so that no two are one."""
    first, second = decode(
        sonic(OPER.format("Ethernet8", "up", "down")), sonic(OPER.format("Ethernet8", "up", "down"), switch="leaf02")
    )
    assert (first.node, first.device.type, first.device.uuid) == (None, "port", "leaf01/Ethernet8")
    assert first.device.key() != second.device.key()
    assert (first.cause, first.attributes) == ("fabric", {"switch": "leaf01", "name": "Ethernet8"})
    assert first.message == "Port Ethernet8 oper state set from up to down"


def test_a_log_that_names_no_switch_is_that_of_the_contexts() -> None:
    """A file of one switch."""
    text = "switchd[5692]: netlink.c:291 libnl: swp17, family 0, ifi 20, oper up"
    assert decode(text, context=Context(node="leaf07"))[0].device.uuid == "leaf07/swp17"
    assert decode(text)[0].device.uuid == "swp17"


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("up", "down", "link_down"),
        ("up", "not present", "link_down"),
        ("down", "up", "link_up"),
        ("unknown", "up", "link_up"),
        ("down", "down", None),
        ("up", "up", None),
        ("unknown", "down", None),
    ],
)
def test_only_a_change_of_state_is_told(before: str, after: str, kind: str | None) -> None:
    """A switch that starts says down of every port that has no cable."""
    assert [e.kind for e in decode(sonic(OPER.format("Ethernet8", before, after)))] == ([kind] if kind else [])


def test_programs_that_tell_of_one_change_make_one_event() -> None:
    """The chip's driver, orchagent, the host interface: the first one's time, the port's name."""
    events = decode(
        sonic(PUDE.format(65792, "DOWN"), 0.1),
        sonic(OPER.format("Ethernet8", "up", "down"), 0.2),
        sonic("swss#orchagent: :- setHostIntfsOperStatus: Set operation status DOWN to host interface Ethernet8", 0.3),
        sonic(OPER.format("Ethernet8", "down", "up"), 1),
        sonic(OPER.format("Ethernet8", "up", "down"), 2),
        sonic(OPER.format("Ethernet8", "down", "up"), 40),
        sonic(OPER.format("Ethernet8", "down", "up"), 50),
    )
    assert told(events) == [
        (1, "link_down", "error", "Ethernet8"),
        (4, "link_up", "info", "Ethernet8"),
        (5, "link_down", "error", "Ethernet8"),
        (6, "link_up", "info", "Ethernet8"),
        (7, "link_up", "info", "Ethernet8"),
    ]
    assert events[0].attributes["logical_port"] == 65792


def test_a_change_whose_port_nobody_names_is_told_all_the_same() -> None:
    """By the chip's number; of another switch or state, or too late, is another change."""
    down = sonic(OPER.format("Ethernet8", "up", "down"), 0.2)
    unnamed = (1, "link_down", "error", "logical 65792")
    assert told(decode(sonic(PUDE.format(65792, "DOWN")))) == [unnamed]
    assert unnamed in told(decode(sonic(PUDE.format(65792, "DOWN"), switch="leaf02"), down))
    assert unnamed in told(decode(sonic(PUDE.format(65792, "DOWN")), down.replace("09:17:00", "09:17:09")))
    up = (1, "link_up", "info", "logical 65792")
    assert up in told(decode(sonic(PUDE.format(65792, "UP")), down))


def test_changes_that_wait_for_a_name_are_bounded() -> None:
    """A storm of them is told, oldest first."""
    parser = SwitchParser(Context(year=2026))
    lines = [sonic(PUDE.format(number, "DOWN")) for number in range(MAX_UNNAMED + 3)]
    early = [event for number, text in enumerate(lines, start=1) for event in parser.feed(text, number)]
    assert [event.attributes["logical_port"] for event in early] == [0, 1, 2]
    assert len(list(parser.flush())) == MAX_UNNAMED


def test_ports_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that changed longest ago is let go: its change is told again."""
    monkeypatch.setattr("parsers.formats.switch.MAX_PORTS", 2)
    lines = [sonic(OPER.format(f"Ethernet{number}", "up", "down")) for number in (1, 2, 1, 3, 1, 2)]
    assert [e.line for e in decode(*lines)] == [1, 2, 4, 6]


def test_a_port_that_was_shut_on_purpose_is_information() -> None:
    """The link's own loss follows within the second."""
    events = decode(
        sonic("swss#portmgrd: :- doTask: Configure Ethernet8 admin status to down", 0),
        sonic(OPER.format("Ethernet8", "up", "down"), 0.5),
        "2026-05-22T11:22:00.0-04:00 leaf11 switchd[1]: sync_base.c:596 swp52: ifindex 55, admin down",
        "2026-05-22T11:22:00.1-04:00 leaf11 switchd[1]: sync_base.c:604 swp52: ifindex 55, oper down",
        "2026-05-22T11:22:09.1-04:00 leaf11 switchd[1]: sync_base.c:596 swp52: ifindex 55, admin up",
        "*Jun 19 12:00:12.123: %LINK-5-CHANGED: Interface Gi1/0/2, changed state to administratively down",
        "*Jun 19 12:00:13.123: %LINEPROTO-5-UPDOWN: Line protocol on Interface Gi1/0/2, changed state to down",
    )
    assert told(events) == [
        (1, "link_down", "info", "Ethernet8"),
        (3, "link_down", "info", "swp52"),
        (6, "link_down", "info", "Gi1/0/2"),
    ]


UP = "%LINK-3-UPDOWN: Interface Ethernet1, changed state to up"


@pytest.mark.parametrize(
    ("head", "switch", "time"),
    [
        ("Jun 28 15:06:19 leaf03 Ebra: ", "leaf03", "2026-06-28 13:06:19"),
        ("Jun 28 15:06:19 SPINE Ebra: ", "SPINE", "2026-06-28 13:06:19"),
        ("2026 Jun  8 15:06:19 IST leaf03 Ebra: ", "leaf03", "2026-06-08 13:06:19"),
        ("2026 Jun 28 15:06:19 leaf03 ", "leaf03", "2026-06-28 13:06:19"),
        ("2026 Jun 28 15:06:19 SPINE ", "SPINE", "2026-06-28 13:06:19"),
        ("2026 Jun 28 15:06:19 leaf03 %$ VDC-1 %$ ", "leaf03", "2026-06-28 13:06:19"),
        ("<189>: 2026 Jun 28 15:06:19 CEST: ", None, "2026-06-28 13:06:19"),
        ("<189>: 2026 Jun 28 15:06:19 UTC: ", None, "2026-06-28 15:06:19"),
        ("000123: *Jun 28 15:06:19.123: ", None, "2026-06-28 13:06:19.123000"),
        ("<190>1541800: Jun 28 15:06:19.485: ", None, "2026-06-28 13:06:19.485000"),
        (
            "Jun 28 15:06:19 relay local3.notice: relay: 2026 Jun 28 14:06:19.637 UTC: ",
            "relay",
            "2026-06-28 14:06:19.637000",
        ),
        ("Jun 28 15:06:19 sw1 123: *Jun 28 15:06:18.000: ", "sw1", "2026-06-28 13:06:19"),
        (
            "May 22 11:15:38 10.9.8.7 52: LC/0/0/CPU0:May 22 11:16:02.886 UTC: ifmgr[213]: ",
            "10.9.8.7",
            "2026-05-22 11:16:02.886000",
        ),
        ("RP/0/RP0/CPU0:May 22 11:16:02.886 UTC: ifmgr[213]: ", None, "2026-05-22 11:16:02.886000"),
        ("pe2.x RP/0/RP0/CPU0:May 22 11:16:02.886 +06: ifmgr[213]: ", "pe2.x", "2026-05-22 05:16:02.886000"),
        ("pe2.x RP/0/RP0/CPU0:May 22 11:16:02.886 -0330: ifmgr[213]: ", "pe2.x", "2026-05-22 14:46:02.886000"),
        ("<189>1 2026-06-12T10:00:00Z leaf33 - - - - ", "leaf33", "2026-06-12 10:00:00"),
        ("2026-06-12 10:00:00 leaf33 ", "leaf33", "2026-06-12 08:00:00"),
        ("", None, "None"),
        ("00:00:19: ", None, "None"),
        ("Jun 31 15:06:19 leaf03 ", "leaf03", "None"),
    ],
)
def test_heads_of_every_form_tell_switch_and_time(head: str, switch: str | None, time: str) -> None:
    """Without a year and without a zone; of two times the one whose zone is sure."""
    (event,) = decode(head + UP, context=Context(year=2026, zone=BERLIN))
    assert event.attributes.get("switch") == switch
    assert str(event.time).removesuffix("+00:00") == time


def test_a_year_ends_within_a_log() -> None:
    """Times without a year never step back by half a year."""
    events = decode(
        "Dec 31 23:59:59 a " + UP,
        "Jan  1 00:00:01 b " + UP,
        "RP/0/RP0/CPU0:Jan  1 00:00:02 UTC: x: " + UP,
        context=Context(year=2025),
    )
    assert [e.time and e.time.year for e in events][:2] == [2025, 2026]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (sonic(OPER.format("Ethernet8", "up", "down")), "switch"),
        (sonic(PUDE.format(1, "UP"), level="WARNING"), "switch"),
        (UP, "switch"),
        ("Nov 20 22:31:54 gpu-017 kernel: mlx5_core 0000:53:00.0 enp83s0f0np0: Link down", "kernel"),
        ("2026-05-22T11:21:07.153000-04:00 leaf11 kernel: [85412.76] device swp1 entered promiscuous mode", "kernel"),
        ("Nov 20 22:31:54 gpu-017 app: progress 50%-5-UP: no", None),
        ("Nov 20 22:31:54 gpu-017 sshd[1]: WARNING nothing", None),
    ],
)
def test_lines_of_switches_are_recognised_and_hosts_are_left_alone(text: str, name: str | None) -> None:
    """A host's kernel log is no switch's."""
    assert recognise(text) == name
    assert detect([text]) == name


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_survives_any_program_and_message(system: object) -> None:
    """Empty, long and broken ones."""
    for tag in ("", "kernel", "orchagent", "switchd", "smond", "clagd", "bgpd", "mib2d", "alarmd", "xcvrd", "psud"):
        for message in ("", ":", "%", "%A-1-B:", ": x", "x" * 5000, ": : :"):
            assert next(s for s in SYSTEMS if s is system).decode("sw", tag, message) is None
