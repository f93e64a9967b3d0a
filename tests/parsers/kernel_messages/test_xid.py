"""Xid messages."""

import pytest

from parsers.kernel_messages.xid import decode_xid
from store.event import Event


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
    ],
)
def test_an_address_is_made_canonical(where: str, pci: str | None) -> None:
    """One that was elided stays unknown, the event stays."""
    assert xid("79, x", where).device.pci == pci


def test_mig_instances_are_attributes() -> None:
    """GPU instance and compute instance."""
    event = xid("13, pid=9, name=a, x", "PCI:0000:3b:00 GPU-I:01 GPU-CI:02")
    assert (event.attributes["mig_gi"], event.attributes["mig_ci"]) == (1, 2)


def test_channel_and_earlier_fault_are_attributes() -> None:
    """`Ch` or `channel`, with or without 0x; and which Xid came before."""
    event = xid("45, pid=1, name=python3, Ch 0000000C caused by previous Xid 149")
    assert (event.attributes["channel"], event.attributes["caused_by"]) == ("0x0000000c", 149)
    assert xid("43, pid=1, name=a, channel 0x00000030").attributes["channel"] == "0x00000030"
    assert "channel" not in xid("69, pid=1, name=a, Class Error: ChId 0008").attributes


def test_the_link_of_a_link_error_is_an_attribute() -> None:
    """Xid 74."""
    event = xid("74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")
    assert event.attributes["link"] == 14


@pytest.mark.parametrize(
    ("after", "action"),
    [
        ("0x1 (GPU Reset Required)", "reset_gpu"),
        ("0x2 (Node Reboot Required)", "reboot_node"),
        ("0x3 (Drain P2P)", "drain_node"),
    ],
)
def test_a_recovery_action_is_the_action(after: str, action: str) -> None:
    """Xid 154 says what the driver asks for."""
    event = xid(f"154, GPU recovery action changed from 0x0 (None) to {after}")
    assert event.action == action
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
