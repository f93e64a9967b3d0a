"""What another detector tells, in our words: kernel messages, Xids, names of a table, the rest, and what is over."""

from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.reports.detector_report import (
    DetectorReport,
    event_of,
    fault_named,
    kernel_fault,
    xid_in,
)
from parsers.reports.reported_states import MAX_STATES, ReportedStates
from store.catalog_rows import rows
from store.records.event import Device, Severity
from store.records.fault_catalog import kind_meanings, sxid, xid

WHEN = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
DETECTORS = (
    *("kubernetes", "node-problem-detector", "eks-node-monitoring-agent", "gpud", "nvsentinel", "dcgmi"),
    "dra-driver-nvidia-gpu",
)


def told(**changes: Any) -> DetectorReport:
    """A report of an unknown fault."""
    fields: dict[str, Any] = {
        "source": "gpud",
        "detector": "gpud",
        "check": "some-check",
        "severity": "error",
        "line": 3,
        "message": "something is wrong",
        "time": WHEN,
        "node": "gpu-017",
    }
    return DetectorReport(**fields | changes)


def test_what_we_have_no_kind_for_is_judged_as_the_detector_judged_it() -> None:
    """With its name and its recommendation; the cause is not known."""
    event = event_of(told(action="replace_part", attributes={"x": 1}))
    assert (event.kind, event.severity, event.cause, event.action) == (
        "health_event",
        "error",
        "unknown",
        "replace_part",
    )
    assert (event.time, event.node, event.line, event.source) == (WHEN, "gpu-017", 3, "gpud")
    assert event.attributes == {"detector": "gpud", "check": "some-check", "x": 1}


@pytest.mark.parametrize(
    ("severity", "action"),
    [("info", "none"), ("warning", "watch"), ("error", "run_diagnostics"), ("fatal", "drain_node")],
)
def test_without_a_recommendation_the_severity_says_what_to_do(severity: str, action: str) -> None:
    """From nothing to draining."""
    assert event_of(told(severity=severity)).action == action


@pytest.mark.parametrize("code", [13, 31, 48, 63, 64, 74, 79, 94, 95, 119, 140, 145])
def test_an_xid_is_judged_by_our_table(code: int) -> None:
    """Whatever the detector thinks of it."""
    fault = xid(code)
    assert fault is not None
    event = event_of(told(family="xid", codes=(str(code),), severity="warning", action="none"))
    assert (event.kind, event.code) == ("xid", code)
    assert (event.severity, event.cause, event.action) == (fault.severity, fault.cause, fault.action)
    assert event.device == Device("gpu")


@pytest.mark.parametrize(("said", "severity"), [("fatal", "error"), ("error", "error"), ("info", "warning")])
def test_an_nvlink_5_error_is_as_grave_as_the_detector_read_it(said: Severity, severity: str) -> None:
    """The registers that decide are not in its report; our table only says that it is something."""
    event = event_of(told(family="xid", codes=("149",), severity=said, action="reset_gpu"))
    action = "reset_gpu" if severity == "error" else "run_diagnostics"
    assert (event.code, event.severity, event.action) == (149, severity, action)


def test_an_xid_that_the_table_does_not_know_is_judged_by_the_detector() -> None:
    """It is never dropped."""
    assert xid(997) is None
    event = event_of(told(family="xid", codes=("997",), action="reboot_node"))
    assert (event.kind, event.code, event.severity, event.cause) == ("xid", 997, "error", "unknown")
    assert event.action == "reboot_node"


@pytest.mark.parametrize(
    ("codes", "message", "expected"),
    [
        (("XID_79",), "", 79),
        (("145.RLW_REMAP",), "", 145),
        (("DCGM_FR_XID_ERROR", "48"), "", 48),
        ((), "XID 94 (Contained ECC error) detected", 94),
        (("no number",), "nothing", None),
        (("0",), "", None),
    ],
    ids=repr,
)
def test_a_code_is_found_in_every_spelling(codes: tuple[str, ...], message: str, expected: int | None) -> None:
    """Among several, in the message, or not at all."""
    event = event_of(told(family="xid", codes=codes, message=message))
    assert event.code == expected
    assert event.kind == ("xid" if expected else "health_event")


def test_an_sxid_is_of_a_switch_whatever_gpu_is_named_beside_it() -> None:
    """And judged with the detector's word for fatal, as the driver's line would be."""
    fault = sxid(24007)
    assert fault is not None
    device = Device("gpu", pci="0000:c3:00.0", index=3, port=28)
    event = event_of(told(family="sxid", codes=("24007",), severity="fatal", device=device))
    assert (event.kind, event.code, event.severity) == ("sxid", 24007, "fatal")
    assert event.device == Device("nvswitch", pci="0000:c3:00.0", port=28)
    assert event_of(told(family="sxid", codes=("99999",), action="watch")).severity == "error"


def test_a_quoted_kernel_message_says_most() -> None:
    """Process, address and text come from it; time, node and detector stay."""
    quoted = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
    event = event_of(told(quoted=quoted, device=Device("gpu", index=3, uuid="GPU-1"), attributes={"repeats": 2}))
    assert (event.kind, event.code, event.source, event.node, event.time) == ("xid", 79, "gpud", "gpu-017", WHEN)
    assert event.device == Device("gpu", pci="0000:0f:00.0", index=3, uuid="GPU-1")
    assert event.attributes == {
        "detector": "gpud",
        "check": "some-check",
        "repeats": 2,
        "pid": 1234,
        "process": "python",
    }


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", "xid"),
        ("kernel: [  12.3] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", "xid"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error", "sxid"),
        ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "gpu_lost"),
        ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d", None),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Severity 1 Engine instance 28 Sub-engine instance 00",
            None,
        ),
        ("a node is well", None),
        ("", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_kernel_messages_are_found_where_they_are_quoted(message: str, kind: str | None) -> None:
    """Details and maps of GPUs are no faults."""
    fault = kernel_fault(message)
    assert (fault.kind if fault else None) == kind


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("XID 79 (GPU has fallen off the bus) detected on GPU PCI:0000:9b:00", 79),
        ("Nvidia GPU 3 reported XID 31", 31),
        ("NvidiaXID79Error", 79),
        ("NvidiaXID31Warning", 31),
        ("Xid: 48", 48),
        ("XID_94", 94),
        ("XID error 79: GPU has fallen off the bus", 79),
        ("SXID 12028 detected", None),
        ("no Xid errors", None),
        ("XID 0", None),
        ("XIDs 12345678", None),
    ],
)
def test_an_xid_is_read_from_a_detectors_words(text: str, code: int | None) -> None:
    """In each tool's way of writing it; an SXid is none."""
    assert xid_in(text) == code


@pytest.mark.parametrize("detector", DETECTORS)
def test_every_name_of_the_table_is_told_as_its_kind(detector: str) -> None:
    """With that kind's judgement, and on what it is about."""
    found = [row for row in rows("detectors") if row["detector"] == detector]
    assert found
    for row in found:
        event = event_of(told(detector=detector, check=row["check"].upper(), severity="warning"))
        judgement = kind_meanings()[row["kind"], row["variant"]]
        assert (event.kind, event.severity, event.cause, event.action) == (
            row["kind"],
            judgement.severity,
            judgement.cause,
            judgement.action,
        )
        assert event.device.type == row["device"]
        assert row["source"]


def test_the_table_names_nothing_twice() -> None:
    """Names are the same in capitals and not."""
    names = [(row["detector"], row["check"].lower()) for row in rows("detectors")]
    assert len(names) == len(set(names))
    assert {detector for detector, _name in names} == set(DETECTORS)


def test_a_narrower_name_comes_first_and_another_detectors_table_may_be_used() -> None:
    """An error code before its check; what node-problem-detector tells through Kubernetes."""
    event = event_of(told(detector="nvsentinel", check="GpuMemWatch", names=("DCGM_FR_ROW_REMAP_FAILURE",)))
    assert event.kind == "row_remap_failure"
    assert event_of(told(check="TaskHung")).kind == "health_event"
    assert event_of(told(check="TaskHung"), tables=("kubernetes", "node-problem-detector")).kind == "hung_task"
    assert fault_named("gpud", "no such name") is None


def test_what_is_over_is_information() -> None:
    """A link is up, a node ready; of anything else the detector is content. It has no code."""
    over = [
        event_of(told(detector="nvsentinel", check="InfiniBandStateCheck", healthy=True, severity="info")),
        event_of(told(detector="kubernetes", check="KubeletReady", healthy=True)),
        event_of(told(detector="nvsentinel", check="GpuMemWatch", healthy=True, severity="fatal")),
        event_of(told(check="SysLogsXIDError", healthy=True, family="xid", codes=("79",))),
        event_of(told(healthy=True, action="reboot_node")),
    ]
    assert [event.kind for event in over] == ["link_up", "node_ready", "health_event", "health_event", "health_event"]
    assert {(event.severity, event.action, event.code) for event in over} == {("info", "none", None)}
    assert all(event.attributes["state"] == "healthy" for event in over)


def test_a_state_is_news_once_and_a_good_one_only_after_another() -> None:
    """Each device by itself."""
    states = ReportedStates()
    seen = [
        states.changed(("a",), None),
        states.changed(("a",), ("bad",)),
        states.changed(("a",), ("bad",)),
        states.changed(("b",), ("bad",)),
        states.changed(("a",), ("worse",)),
        states.changed(("a",), None),
        states.changed(("a",), None),
    ]
    assert seen == [False, True, False, True, True, True, False]


def test_states_are_forgotten_beyond_a_limit() -> None:
    """The oldest first; one seen again is young."""
    states = ReportedStates()
    for number in range(MAX_STATES):
        states.changed((str(number),), ("bad",))
    assert not states.changed(("0",), ("bad",))
    states.changed(("more",), ("bad",))
    assert states.changed(("1",), ("bad",))
    assert not states.changed(("0",), ("bad",))
