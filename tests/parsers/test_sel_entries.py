"""Entries of a controller's event log, as ipmitool's locales and Redfish's servers write them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.redfish import message_event
from parsers.registry import detect, make_parser
from parsers.text.parser import Context, parse

ENTRY = {"EntryType": "SEL", "EntryCode": "Assert", "Severity": "Critical", "Created": "2026-03-07T14:44:00Z"}


@pytest.mark.parametrize(
    ("date", "day"),
    [
        ("01.03.26", datetime(2026, 3, 1, 4, 5, 6, tzinfo=UTC)),
        ("17.03.2026", datetime(2026, 3, 17, 4, 5, 6, tzinfo=UTC)),
        ("03/01/26", datetime(2026, 3, 1, 4, 5, 6, tzinfo=UTC)),
        ("99.03.26", None),
    ],
)
def test_where_dates_have_dots_the_day_stands_first(date: str, day: datetime | None) -> None:
    """As ipmitool's German, Polish and Czech locales have them; of no day there is no time."""
    line = f"  1a | {date} | 04:05:06 UTC | Fan #0x51 | Lower Critical going low  | Asserted"
    [event] = parse(make_parser("ipmi_sel", Context()), [line])
    assert (event.time, event.severity) == (day, "error" if day else "warning")
    assert detect([line]) == "ipmi_sel"


@pytest.mark.parametrize(
    ("fields", "kind", "severity", "device"),
    [
        ({"SensorType": "Memory", "Message": "DIMM A3 Uncorrectable ECC"}, "edac", "error", "dimm"),
        ({"SensorType": "Processor", "Message": "Uncorrectable machine check"}, "mce", "error", "cpu"),
        ({"SensorType": "Critical Interrupt", "Message": "Bus Fatal Error"}, "pcie_aer", "fatal", "node"),
        ({"SensorType": "Temperature", "Message": "Temperature threshold exceeded"}, "node_hot", "error", "node"),
        ({"SensorType": "Memory", "Message": "Something else"}, "health_event", "error", "node"),
        ({"Message": "DIMM A3 Uncorrectable ECC"}, "health_event", "error", "node"),
    ],
)
def test_an_entry_of_redfish_s_sel_means_what_its_sensor_says(
    fields: dict[str, Any], kind: str, severity: str, device: str
) -> None:
    """Where neither its id nor its words are of the registry; without a sensor it stays what the controller says."""
    event = message_event({**ENTRY, "MessageId": "0x0c0187", **fields}, "n1")
    assert event is not None
    assert (event.kind, event.severity, event.device.type) == (kind, severity, device)


def test_an_end_of_a_memory_error_is_no_memory_error() -> None:
    """Nothing is over that happened once."""
    ended = {**ENTRY, "EntryCode": "Deassert", "Severity": "OK", "SensorType": "Memory"}
    assert message_event({**ended, "Message": "Uncorrectable ECC", "MessageId": "0x1"}, "n1") is None


@pytest.mark.parametrize(
    ("kind", "words", "severity"),
    [
        ("System Firmware Error", "No usable system memory", "error"),
        ("System Firmware Error", "Unrecoverable system-board failure", "error"),
        ("System Firmware Error", "Unrecoverable PS/2 or USB keyboard failure", None),
        ("System Firmware Hang", "Video initialization", "error"),
        ("System Firmware Progress", "Video initialization", None),
    ],
)
def test_a_firmware_that_does_not_start_the_node_is_grave(kind: str, words: str, severity: str | None) -> None:
    """Where it hangs is told by the step that it was in; a keyboard that lacks is no fault of a node."""
    line = f"   1 | 03/20/2026 | 00:58:40 | {kind} #0x11 | {words} | Asserted"
    events = list(parse(make_parser("ipmi_sel", Context()), [line]))
    assert [event.severity for event in events] == ([severity] if severity else [])
