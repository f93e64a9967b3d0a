"""Xid messages."""

import pytest

from parsers.kernel_messages.families.xid import decode_xid
from store.records.event import Event


def xid(rest: str, where: str = "PCI:0000:3b:00") -> Event:
    """The event of one message."""
    event = decode_xid(f"NVRM: Xid ({where}): {rest}")
    assert event is not None
    return event


def test_a_fault_is_judged_by_the_catalogue() -> None:
    """Xid 79 as DESIGN shows it."""
    event = xid("79, pid=1234, name=python, GPU has fallen off the bus.")
    assert (event.kind, event.code, event.severity, event.cause) == ("xid", 79, "fatal", "hardware")
    assert event.device.pci == "0000:3b:00.0"
    assert event.message == "GPU has fallen off the bus."
    assert event.attributes == {"pid": 1234, "process": "python"}


def test_an_unknown_code_is_kept() -> None:
    """A driver of tomorrow: cause unknown, run diagnostics."""
    event = xid("99999, unknown error")
    assert (event.code, event.severity, event.cause, event.action) == (99999, "warning", "unknown", "run_diagnostics")


@pytest.mark.parametrize(
    ("rest", "pid", "process", "message"),
    [
        ("79, pid='<unknown>', name=<unknown>, off the bus", None, None, "off the bus"),
        ("79, pid=<unknown>, off the bus", None, None, "off the bus"),
        ("31, pid=XXX", None, None, None),
        ("38, pid=1659,", 1659, None, None),
        ("109, pid=8494,   name=RenderThread, text", 8494, "RenderThread", "text"),
        ("119, pid=1, name=nvc:[driver], Timeout", 1, "nvc:[driver]", "Timeout"),
        ("45, pid=2, name=ray::Worker Dict, x", 2, "ray::Worker Dict", "x"),
        ("31, pid=3, name=python3", 3, "python3", None),
        ("31, pid=3, name=, text", 3, None, "text"),
        ("31, pid=99999999999999999999, text", None, None, "text"),
        ("31, pid='77', name=a, text", 77, "a", "text"),
        ("13, name=a, text", None, "a", "text"),
        ("43, pid=4, name=a, b: c, Ch 00000008", 4, "a, b: c", "Ch 00000008"),
        ("119, pid=4, name=x [y], z, Timeout after 6s of waiting", 4, "x [y], z", "Timeout after 6s of waiting"),
        ("145, pid=4, name=it's, RLW_RXPIPE Nonfatal XC0", 4, "it's", "RLW_RXPIPE Nonfatal XC0"),
        ("43, pid=4, name=a, b, of no known form", 4, "a", "b, of no known form"),
        ("79, pid='<unknown>', name='<unknown>', off", None, None, "off"),
    ],
)
def test_process_and_message_are_taken_apart(
    rest: str, pid: int | None, process: str | None, message: str | None
) -> None:
    """An unknown process is no attribute; without a text the catalogue's stands in."""
    event = xid(rest)
    assert event.attributes.get("pid") == pid
    assert event.attributes.get("process") == process
    if message is not None:
        assert event.message == message
    assert event.message


@pytest.mark.parametrize(
    ("where", "pci"),
    [
        ("PCI:0000:0f:00", "0000:0f:00.0"),
        ("0000:03:00", "0000:03:00.0"),
        ("PCI:0000:B3:00.0", "0000:b3:00.0"),
        ("0001:00", "0000:01:00.0"),
        ("PCI:...", None),
        ("PCI:00000000:0F:00.0", "0000:0f:00.0"),
        ("PCI:000d:00:00", "000d:00:00.0"),
        (" pci:0000:0f:00.0 ", "0000:0f:00.0"),
        ("PCI: 0000:0f:00", "0000:0f:00.0"),
    ],
)
def test_an_address_is_made_canonical(where: str, pci: str | None) -> None:
    """One that was elided stays unknown, the event stays."""
    assert xid("79, x", where).device.pci == pci


def test_mig_instances_are_attributes() -> None:
    """GPU instance and compute instance."""
    event = xid("13, pid=9, name=a, x", "PCI:0000:3b:00 GPU-I:01 GPU-CI:02")
    assert (event.attributes["mig_gi"], event.attributes["mig_ci"]) == (1, 2)


@pytest.mark.parametrize(
    ("rest", "channel"),
    [
        ("45, pid=1, name=python3, Ch 0000000C", "0x0000000c"),
        ("43, pid=1, name=a, channel 0x00000030", "0x00000030"),
        ("43, channel 0x1", "0x00000001"),
        ("8, Channel 00000000", "0x00000000"),
        ("69, pid=1, name=a, Class Error: ChId 0008", None),
    ],
)
def test_a_channel_is_an_attribute_in_every_spelling(rest: str, channel: str | None) -> None:
    """`Ch` or `channel`, with or without 0x, eight digits."""
    assert xid(rest).attributes.get("channel") == channel


def test_a_consequence_of_another_xid_is_no_fault_of_its_own() -> None:
    """Its cause is the first one's, and it opens no incident."""
    event = xid("45, pid=1, name=python3, Ch 0000000C caused by previous Xid 149")
    assert event.attributes["caused_by"] == 149
    assert (event.severity, event.cause, event.action) == ("info", "hardware", "none")
    assert xid("45, pid=1, name=a, Ch 0000000C").severity == "error"


@pytest.mark.parametrize(
    "line", ["nvrm:  xid ( pci:0000:00:1e.0 ) : 43, channel 0x1", "NVRM: XID (PCI:0000:00:1E): 43"]
)
def test_blanks_and_letter_case_do_not_matter(line: str) -> None:
    """As tools that rewrite lines print them."""
    event = decode_xid(line)
    assert event is not None
    assert (event.kind, event.code, event.device.pci) == ("xid", 43, "0000:00:1e.0")


def test_a_reset_that_the_line_asks_for_is_the_action() -> None:
    """RST: Yes."""
    assert xid("94, pid=1, Contained: DRAM (0x1, 0x0). RST: Yes, D-RST: No").action == "reset_gpu"
    assert xid("94, pid=1, Contained: DRAM (0x1, 0x0). RST: No, D-RST: No").action == "restart_app"


def test_the_link_of_a_link_error_is_an_attribute() -> None:
    """Xid 74."""
    event = xid("74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")
    assert event.attributes["link"] == 14


@pytest.mark.parametrize(
    ("after", "severity", "action"),
    [
        ("0x1 (GPU Reset Required)", "error", "reset_gpu"),
        ("0x2 (Node Reboot Required)", "fatal", "reboot_node"),
        ("0x3 (Drain P2P)", "error", "drain_node"),
        ("0x4 (Drain and Reset)", "error", "drain_node"),
        ("0x9 (Of A Newer Driver)", "warning", "run_diagnostics"),
    ],
)
def test_a_recovery_action_is_the_action(after: str, severity: str, action: str) -> None:
    """Xid 154 says what the driver asks for, and is as grave as that."""
    event = xid(f"154, GPU recovery action changed from 0x0 (None) to {after}")
    assert (event.severity, event.action) == (severity, action)
    assert event.attributes["recovery_to"] == after[:3]


def test_a_recovery_that_is_over_asks_for_nothing() -> None:
    """Back to None: told, but no fault."""
    event = xid("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert (event.severity, event.action) == ("info", "none")
    assert xid("154, GPU recovery action changed").code == 154


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:65:00): invalid",
        "NVRM: Xid (PCI:0000:65:00)",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (invalid): 79, some error",
        "NVRM: Xid error: xyz",
        "NVRM: Xid (PCI:0000:65:00): 79x",
        "NVRM: Xid (PCI:0000:65:00): 9999999999, x",
        "NVRM: Xid (PCI:0000:65:00): 0, x",
        "quoting NVRM: Xid (PCI:0000:65:00): 79, x",
        "",
    ],
)
def test_a_near_miss_is_no_event(message: str) -> None:
    """No code, no address, not from the start."""
    assert decode_xid(message) is None


@pytest.mark.parametrize("rest", ["79.", "79;", "79: x", "79 (", "79, "])
def test_a_code_ends_at_any_mark(rest: str) -> None:
    """A text cut or written otherwise leaves the code whole."""
    event = decode_xid(f"NVRM: Xid (PCI:0000:3b:00): {rest}")
    assert event is not None
    assert event.code == 79


def test_an_instance_that_is_none_leaves_the_address() -> None:
    """The driver prints what it holds, were it the number for none."""
    event = decode_xid("NVRM: Xid (PCI:0000:3b:00 GPU-I:4294967295): 43")
    assert event is not None
    assert event.device.pci == "0000:3b:00.0"
