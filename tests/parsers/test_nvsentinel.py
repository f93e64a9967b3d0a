"""NVSentinel's health events: every wrapping, what its checks and codes mean, where it is."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.nvsentinel import NvsentinelParser, action_of, family_of
from parsers.text.parser import Context, parse
from store.records.event import Device, Event

WHEN = datetime(2025, 3, 1, 4, 5, 6, 789000, tzinfo=UTC)


def health(**changes: Any) -> dict[str, Any]:
    """A fatal Xid."""
    return {
        "version": 1,
        "agent": "syslog-health-monitor",
        "componentClass": "GPU",
        "checkName": "SysLogsXIDError",
        "isFatal": True,
        "isHealthy": False,
        "message": "ROBUST_CHANNEL",
        "recommendedAction": 15,
        "errorCode": ["79"],
        "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:0f:00"}],
        "generatedTimestamp": "2025-03-01T04:05:06.789Z",
        "nodeName": "gpu-017",
    } | changes


def decoded(*records: Mapping[str, Any], node: str | None = None) -> list[Event]:
    """The events of objects, one a line."""
    return list(parse(NvsentinelParser(Context(node=node)), [json.dumps(record) for record in records]))


def lowered(record: Any) -> Any:
    """As its database spells names."""
    if isinstance(record, dict):
        return {key.lower(): lowered(value) for key, value in record.items()}
    return [lowered(value) for value in record] if isinstance(record, list) else record


WRAPPINGS = [
    health(),
    {"specversion": "1.0", "type": "x", "data": {"metadata": {"cluster": "c"}, "healthEvent": health()}},
    {"version": 1, "events": [health()]},
    {"_id": {"$oid": "1"}, "healthevent": lowered(health()), "healtheventstatus": {}},
    {"operationType": "insert", "fullDocument": {"healthevent": lowered(health())}},
    {"healthEvent": health(recommendedAction="RESTART_VM", errorCode=["XID_79"])},
    health(generatedTimestamp={"seconds": "1740801906", "nanos": 789000000}),
]


def test_a_node_that_failed_cluster_readiness_is_a_failed_check() -> None:
    """As its monitor publishes each failed test (docs/configuration/nvcre-certification-monitor.md of NVSentinel)."""
    record = health(
        agent="nvcre-certification-monitor",
        componentClass="Node",
        checkName="NVCRECertFailed",
        errorCode=["nccl-all-reduce/ThresholdViolation"],
        recommendedAction="CONTACT_SUPPORT",
        entitiesImpacted=[{"entityType": "v1/Node", "entityValue": "gpu-017"}],
        message="bus bandwidth 310 GB/s is below 340 GB/s",
    )
    (event,) = decoded(record)
    assert (event.kind, event.severity, event.device.type, event.node) == (
        "health_check_failed",
        "error",
        "node",
        "gpu-017",
    )
    assert event.attributes["error_code"] == "nccl-all-reduce/ThresholdViolation"
    (over,) = decoded(record | {"isFatal": False, "isHealthy": True, "errorCode": []})
    assert over.severity == "info"


@pytest.mark.parametrize("record", WRAPPINGS, ids=lambda record: "_".join(record)[:40])
def test_a_health_event_is_the_same_in_every_wrapping(record: dict[str, Any]) -> None:
    """As it is, as CloudEvents, as protobuf's list, as its database exports and streams it."""
    (event,) = decoded(record)
    assert (event.kind, event.code, event.severity, event.cause, event.action) == (
        "xid",
        79,
        "fatal",
        "hardware",
        "reboot_node",
    )
    assert (event.time, event.node, event.source, event.line) == (WHEN, "gpu-017", "nvsentinel", 1)
    assert event.device == Device("gpu", pci="0000:0f:00.0")
    assert event.attributes["check"] == "SysLogsXIDError"


def test_the_time_is_when_it_was_found_else_when_the_envelope_was_made() -> None:
    """A CloudEvent bears both."""
    envelope = {"time": "2025-03-01T05:00:00Z", "data": {"healthEvent": health()}}
    assert decoded(envelope)[0].time == WHEN
    envelope["data"] = {"healthEvent": health(generatedTimestamp=None)}
    assert decoded(envelope)[0].time == datetime(2025, 3, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("check", "family"),
    [
        ("SysLogsXIDError", "xid"),
        ("GpuXidError", "xid"),
        ("XidError", "xid"),
        ("SysLogsSXIDError", "sxid"),
        ("GpuSxidError", "sxid"),
        ("sxid", "sxid"),
        ("GpuMemWatch", None),
    ],
)
def test_a_checks_name_says_whether_its_codes_are_xids(check: str, family: str | None) -> None:
    """The s of SysLogs is none of an SXid."""
    assert family_of(check) == family


@pytest.mark.parametrize(
    ("value", "action"),
    [
        (0, None),
        ("NONE", None),
        (2, "reset_gpu"),
        (5, "contact_support"),
        (6, "run_diagnostics"),
        (15, "reboot_node"),
        ("RESTART_BM", "reboot_node"),
        (25, "drain_node"),
        (26, "run_diagnostics"),
        (39, "restart_app"),
        (99, None),
        (1234, None),
        ("x", None),
        (None, None),
        (True, None),
    ],
    ids=repr,
)
def test_its_recommendation_is_one_of_our_words(value: object, action: str | None) -> None:
    """By the number or name of health_event.proto."""
    assert action_of(value) == action


def test_a_recommendation_counts_where_our_table_has_none() -> None:
    """Not for an Xid that it knows."""
    unknown, known = decoded(health(errorCode=["998"], recommendedAction=25), health(recommendedAction=39))
    assert (unknown.code, unknown.action, unknown.cause) == (998, "drain_node", "unknown")
    assert known.action == "reboot_node"


@pytest.mark.parametrize(
    ("check", "codes", "kind", "severity"),
    [
        ("SysLogsSXIDError", ["24007"], "sxid", "fatal"),
        ("SysLogsGPUFallenOff", ["GPU_FALLEN_OFF_BUS"], "gpu_lost", "fatal"),
        ("GpuMemWatch", ["DCGM_FR_VOLATILE_DBE_DETECTED"], "ecc_dbe", "error"),
        ("GpuMemWatch", ["DCGM_FR_ROW_REMAP_FAILURE"], "row_remap_failure", "error"),
        ("GpuNvlinkWatch", ["DCGM_FR_NVLINK_DOWN"], "nvlink_error", "error"),
        ("GpuPcieWatch", ["DCGM_FR_PCI_REPLAY_RATE"], "pcie_replay", "warning"),
        ("GpuThermalWatch", [], "thermal_violation", "warning"),
        ("InfiniBandStateCheck", [], "link_down", "error"),
        ("SysLogsNICDriverError", ["health_poll_failed"], "mlx5_health", "error"),
        ("CSPMaintenance", [], "health_event", "fatal"),
    ],
)
def test_checks_and_codes_are_our_kinds(check: str, codes: list[str], kind: str, severity: str) -> None:
    """The same fault that our own parsers tell bears the same kind."""
    (event,) = decoded(health(checkName=check, errorCode=codes, entitiesImpacted=[], message="x"))
    assert (event.kind, event.severity) == (kind, severity)


def test_what_is_not_fatal_and_has_no_kind_is_a_warning() -> None:
    """It asks for no quarantine."""
    assert decoded(health(checkName="New", errorCode=[], isFatal=False))[0].severity == "warning"


def test_the_kernel_message_in_its_metadata_says_more() -> None:
    """The journal's words, with the process."""
    quoted = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
    (event,) = decoded(health(metadata={"JOURNAL_MESSAGE": quoted}))
    assert event.message == "GPU has fallen off the bus."
    assert (event.attributes["pid"], event.attributes["process"]) == (1234, "python")


def test_a_healthy_event_is_information() -> None:
    """A check passes; a link that is well is up."""
    found = decoded(health(isHealthy=True, isFatal=False), health(isHealthy=True, checkName="InfiniBandStateCheck"))
    assert [(event.kind, event.severity, event.code) for event in found] == [
        ("health_event", "info", None),
        ("link_up", "info", None),
    ]


@pytest.mark.parametrize(
    ("entities", "component", "device", "attributes"),
    [
        (
            {"GPU": "3", "PCI": "0000:3B:00.0", "GPU_UUID": "GPU-1"},
            "GPU",
            Device("gpu", "0000:3b:00.0", 3, "GPU-1"),
            {},
        ),
        ({"gpu": "0"}, "GPU", Device("gpu", index=0), {}),
        ({"GPU": "GPU-7"}, "GPU", Device("gpu", uuid="GPU-7"), {}),
        ({}, "GPU", Device("gpu"), {}),
        ({}, "Node", Device(), {}),
        ({"NIC": "mlx5_0", "NICPort": "1"}, "NIC", Device("hca", port=1), {"name": "mlx5_0"}),
        (
            {"NVSWITCH": "0", "PCI": "0000:c3:00.0", "NVLINK": "28", "GPU": "3"},
            "GPU",
            Device("nvswitch", "0000:c3:00.0", port=28),
            {"switch": 0, "link": 28, "gpu_index": 3},
        ),
        ({"PCI": "0002:00:00", "NVLINK": "14"}, "GPU", Device("gpu", "0002:00:00.0"), {"link": 14}),
        ({"PCI": "nowhere"}, "CPU", Device(), {}),
    ],
    ids=str,
)
def test_impacted_entities_are_a_device(
    entities: dict[str, str], component: str, device: Device, attributes: dict[str, Any]
) -> None:
    """And what else they tell an attribute."""
    impacted = [{"entityType": kind, "entityValue": value} for kind, value in entities.items()]
    (event,) = decoded(
        health(checkName="New", errorCode=[], entitiesImpacted=impacted, componentClass=component, message="m")
    )
    assert event.device == device
    assert {name: event.attributes[name] for name in attributes} == attributes


@pytest.mark.parametrize(
    "record",
    [
        {"checkName": "alone"},
        {"checkName": 3, "isFatal": True},
        {"data": {}},
        {"data": {"data": {"data": {"data": {"data": health()}}}}},
        {"name": "x"},
    ],
    ids=lambda record: json.dumps(record)[:40],
)
def test_other_objects_tell_nothing(record: dict[str, Any]) -> None:
    """Though they bear a name of its."""
    assert decoded(record) == []


def test_fields_of_strange_types_are_missing() -> None:
    """The event is told as far as it can be read."""
    (event,) = decoded(
        health(errorCode="79", entitiesImpacted={"a": 1}, metadata=[], nodeName=7, generatedTimestamp=1, message=None),
        node="gpu-020",
    )
    assert (event.node, event.time, event.kind) == ("gpu-020", None, "health_event")
