"""Cambricon's driver's messages."""

import pytest

from parsers.formats.kernel import FORMAT
from parsers.kernel_messages.families.accelerators import CAMBRICON, decode_cambricon
from parsers.text.parser import Context, parse
from store.records.event import Event
from store.records.fault_catalog import kind_description


def told(text: str) -> Event:
    """The event of a message, which the scan finds too."""
    event = decode_cambricon(text)
    assert event is not None
    assert any(sign in text for sign in CAMBRICON.signs)
    return event


@pytest.mark.parametrize(
    ("text", "index", "code", "severity", "cause", "action"),
    [
        ("CNRM: Xid [Card3]: 15, mc[2] ECC multiple error", 3, 15, "error", "hardware", "reset_gpu"),
        ("CNRM: Xid [Card0]: 9, Over temperature power-off times: 1", 0, 9, "error", "hardware", "drain_node"),
        ("CNRM: Xid [Card11-MI2]: 3, ECC Error, ddr0 3:x", 11, 3, "warning", "hardware", "watch"),
        ("CNRM: Xid [N/A]: 14, device lost", None, 14, "fatal", "hardware", "reboot_node"),
        ("CNRM: Xid [Card1]: 1, User input cap value 900 out of range!", 1, 1, "warning", "application", "restart_app"),
        ("CNRM: Xid [Card1]: 77, something new", 1, 77, "warning", "unknown", "run_diagnostics"),
    ],
)
def test_an_xid_of_an_mlu_is_read_by_cambricons_numbers(
    text: str, index: int | None, code: int, severity: str, cause: str, action: str
) -> None:
    """They have nothing to do with NVIDIA's."""
    event = told(text)
    assert (event.kind, event.device.type, event.device.index) == ("mlu_xid", "mlu", index)
    assert (event.code, event.severity, event.cause, event.action) == (code, severity, cause, action)
    assert event.message == text.split(", ", 1)[1]


def test_an_instance_is_told_beside_its_card() -> None:
    """A MIM instance."""
    assert told("CNRM: Xid [Card11-MI2]: 3, x").attributes == {"instance": 2}


@pytest.mark.parametrize("text", ["CNRM: Xid [Card3]: x, y", "CNRM: Xid [", "CNRM: loaded", "NVRM: Xid [Card3]: 15, y"])
def test_what_is_no_xid_of_an_mlu_is_nothing(text: str) -> None:
    """Cut short or another's."""
    assert decode_cambricon(text) is None


def test_a_kernel_log_gives_the_fault_with_its_node() -> None:
    """Through the whole reader."""
    line = "2026-03-01T04:05:06+00:00 mlu-01 kernel: CNRM: Xid [Card5]: 12, heartbeat lost"
    (event,) = parse(FORMAT.make(Context()), [line])
    assert (event.node, event.source, event.kind, event.code) == ("mlu-01", "kernel", "mlu_xid", 12)


def test_a_code_is_described_as_what_it_is_not_as_another_as_grave() -> None:
    """Many codes are errors of the hardware."""
    assert kind_description("mlu_xid", 15, "error", "hardware") == "A memory error that ECC could not correct"
    assert kind_description("gpu_afid", 19, "error", "hardware") == (
        "The GPU has retired as many pages of its memory as it may"
    )
