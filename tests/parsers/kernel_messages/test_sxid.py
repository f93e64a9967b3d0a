"""SXid messages."""

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.nvswitch import decode_sxid
from parsers.text.parser import Context, parse
from store.records.event import Event

PREFIX = "nvidia-nvswitch3: SXid (PCI:0000:C1:00.0): "


def test_a_switch_fault_names_switch_and_link() -> None:
    """The link is the device's port too: links of one switch are different places."""
    event = decode_sxid(f"{PREFIX}12020, Fatal, Link 46 egress sequence ID error")
    assert event is not None
    assert (event.kind, event.code, event.severity) == ("sxid", 12020, "fatal")
    assert (event.device.type, event.device.pci, event.device.port) == ("nvswitch", "0000:c1:00.0", 46)
    assert event.attributes == {"switch": 3, "link": 46, "severity": "fatal"}
    assert event.message == "egress sequence ID error"


@pytest.mark.parametrize(
    ("rest", "severity"),
    [
        ("99999, Fatal, Link 1 x", "fatal"),
        ("99999, Non-fatal, Link 1 x", "warning"),
        ("99999, Correctable, Link 1 x", "info"),
        ("10003, Non-fatal, x", "error"),
        ("10003, x", "fatal"),
    ],
)
def test_the_printed_word_corrects_the_catalogue(rest: str, severity: str) -> None:
    """10003 is fatal by the catalogue; a driver that prints Non-fatal knows better."""
    event = decode_sxid(PREFIX + rest)
    assert event is not None
    assert event.severity == severity


def test_an_unknown_code_is_kept() -> None:
    """Cause unknown."""
    event = decode_sxid(f"{PREFIX}99999, Non-fatal, something")
    assert event is not None
    assert (event.cause, event.action) == ("unknown", "run_diagnostics")


def test_a_line_that_lost_the_drivers_name_is_read() -> None:
    """As `journalctl -o cat` prints a record whose identifier the name was: which switch is not known."""
    event = decode_sxid(PREFIX.partition(": ")[2] + "12020, Fatal, Link 46 egress sequence ID error")
    assert event is not None
    assert (event.code, event.device.pci, "switch" in event.attributes) == (12020, "0000:c1:00.0", False)


def test_a_line_without_severity_or_link_is_a_fault_too() -> None:
    """Temperatures."""
    event = decode_sxid(f"{PREFIX}10004, NVSWITCH Temperature 93C | TSENSE WARN Threshold 90C")
    assert event is not None
    assert event.device.port is None
    assert event.message.startswith("NVSWITCH Temperature")


@pytest.mark.parametrize(
    ("rest", "severity"),
    [
        ("10004, Thermal slowdown Engaged", "error"),
        ("10005, Thermal slowdown Disengaged", "info"),
        ("28003, OSFP Thermal Overt Activated", "warning"),
        ("28004, OSFP Thermal Overt Deactivated", "info"),
        ("99999, OSFP Thermal Warn Deactivated", "info"),
    ],
)
def test_a_thermal_state_that_is_over_is_no_fault(rest: str, severity: str) -> None:
    """By its code, and by its word where the code is new."""
    event = decode_sxid(PREFIX + rest)
    assert event is not None
    assert event.severity == severity


def test_an_instance_is_an_attribute() -> None:
    """Of the engine in the switch."""
    event = decode_sxid(f"{PREFIX}10001, Non-fatal, PRI WRITE SYSB error, instance=3")
    assert event is not None
    assert event.attributes["instance"] == 3


@pytest.mark.parametrize(
    "message",
    [
        "nvidia-nvswitch3: SXid (invalid): 20034, Fatal, x",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): Fatal",
        "nvidia-nvswitch3: open (major=235)",
        f"quoting {PREFIX}20034, Fatal, x",
    ],
)
def test_a_near_miss_is_no_fault(message: str) -> None:
    """No address, no code, not from the start."""
    assert decode_sxid(message) is None


def decode(*lines: str) -> list[Event]:
    """The events of some lines of the kernel log."""
    return list(parse(KernelParser(Context(year=2026)), lines))


HEAD = f"{PREFIX}22013, Non-fatal, Link 60 Minion Link DLREQ interrupt"
PLACE = f"{PREFIX}22013, Severity 0 Engine instance 60 Sub-engine instance 01"
DATA = f"{PREFIX}22013, Data {{0x0000003c, 0x00000001}}"


def test_the_lines_of_a_fault_are_one_event() -> None:
    """The head's line and words, the details' numbers; a second line of data is the rest of the first."""
    (event,) = decode(HEAD, PLACE, DATA, DATA)
    assert (event.kind, event.line, event.severity, event.device.port) == ("sxid", 1, "warning", 60)
    assert event.message == "Minion Link DLREQ interrupt"
    assert {key: event.attributes[key] for key in ("link", "severity_num", "engine_instance", "data")} == {
        "link": 60,
        "severity_num": 0,
        "engine_instance": 60,
        "data": "0x0000003c 0x00000001 0x0000003c 0x00000001",
    }
    assert event.attributes["sub_engine_instance"] == 1


def test_faults_of_several_links_keep_their_own_details() -> None:
    """Heads first, details after, as two links that fail at once are printed."""
    other = HEAD.replace("Link 60", "Link 61")
    events = decode(HEAD, other, PLACE.replace("instance 60", "instance 61"), PLACE)
    assert [(e.device.port, e.attributes["engine_instance"], e.line) for e in events] == [(60, 60, 1), (61, 61, 2)]


@pytest.mark.parametrize(
    ("detail", "severity", "port", "number"),
    [
        (f"{PREFIX}12033, Severity 1 Engine instance 00 Sub-engine instance 00", "fatal", 0, 1),
        (f"{PREFIX}10003, Severity 0 Engine instance 07", "error", 7, 0),
        (f"{PREFIX}12028, Severity 2 Engine instance 12 Sub-engine instance 00", "info", 12, 2),
        (f"{PREFIX}12028, Severity 9 Engine instance 12 Sub-engine instance 00", "info", 12, 9),
        (f"{PREFIX}20034, Data {{0x50610002, 0x10100030}}", "info", None, None),
    ],
)
def test_a_detail_without_its_head_is_an_event(
    detail: str, severity: str, port: int | None, number: int | None
) -> None:
    """Judged by the number that the driver gives its severities."""
    (event,) = decode(detail)
    assert (event.kind, event.severity, event.device.port) == ("sxid_detail", severity, port)
    assert event.attributes.get("severity_num") == number
    assert event.attributes["switch"] == 3


@pytest.mark.parametrize(
    "detail",
    [
        PLACE.replace("22013", "22012"),
        PLACE.replace("nvswitch3", "nvswitch2"),
        PLACE.replace("0000:C1", "0000:C2"),
        PLACE.replace("instance 60", "instance 59"),
    ],
)
def test_the_detail_of_another_fault_is_not_merged(detail: str) -> None:
    """Another code, switch, address or link."""
    assert {event.kind for event in decode(HEAD, detail)} == {"sxid", "sxid_detail"}


def test_a_detail_that_comes_a_second_later_is_of_another_fault() -> None:
    """The driver prints them at once."""
    events = decode(f"Nov 20 22:31:54 vm kernel: {HEAD}", f"Nov 20 22:31:55 vm kernel: {PLACE}")
    assert [event.kind for event in events] == ["sxid", "sxid_detail"]


def test_the_same_fault_on_two_hosts_is_two() -> None:
    """Details go to the head of their host."""
    lines = [f"Nov 20 22:31:54 {host} kernel: {text}" for text in (HEAD, PLACE) for host in ("a", "b")]
    events = decode(*lines)
    assert [(event.node, event.attributes["severity_num"]) for event in events] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("word", ["Non-fatal", "Nonfatal", "NON FATAL"])
def test_a_severity_is_one_however_it_is_written(word: str) -> None:
    """Hyphen, blank, capitals."""
    event = decode_sxid(f"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, {word}, Link 28 sourcetrack timeout error")
    assert event is not None
    assert (event.attributes["severity"], event.severity, event.attributes["link"]) == ("nonfatal", "error", 28)
