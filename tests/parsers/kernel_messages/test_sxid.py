"""SXid messages."""

import pytest

from parsers.kernel_messages.sxid import decode_sxid

PREFIX = "nvidia-nvswitch3: SXid (PCI:0000:C1:00.0): "


def test_a_switch_fault_names_switch_and_link() -> None:
    """The link is the device's port too: links of one switch are different places."""
    event = decode_sxid(f"{PREFIX}12020, Fatal, Link 46 egress sequence ID error")
    assert event is not None
    assert (event.kind, event.code, event.severity) == ("sxid", 12020, "fatal")
    assert (event.device.type, event.device.pci, event.device.port) == ("nvswitch", "0000:c1:00.0", 46)
    assert event.attributes == {"switch": 3, "link": 46}
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


def test_a_line_without_severity_or_link_is_a_fault_too() -> None:
    """Temperatures."""
    event = decode_sxid(f"{PREFIX}10004, NVSWITCH Temperature 93C | TSENSE WARN Threshold 90C")
    assert event is not None
    assert event.device.port is None
    assert event.message.startswith("NVSWITCH Temperature")


def test_an_instance_is_an_attribute() -> None:
    """Of the engine in the switch."""
    event = decode_sxid(f"{PREFIX}10001, Non-fatal, PRI WRITE SYSB error, instance=3")
    assert event is not None
    assert event.attributes["instance"] == 3


@pytest.mark.parametrize(
    "message",
    [
        f"{PREFIX}12033, Severity 1 Engine instance 00 Sub-engine instance 00",
        f"{PREFIX}20034, Data {{0x50610002, 0x10100030}}",
        "nvidia-nvswitch3: SXid (invalid): 20034, Fatal, x",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): Fatal",
        "nvidia-nvswitch3: open (major=235)",
        f"quoting {PREFIX}20034, Fatal, x",
    ],
)
def test_detail_and_near_misses_are_no_faults(message: str) -> None:
    """One fault, one event."""
    assert decode_sxid(message) is None
