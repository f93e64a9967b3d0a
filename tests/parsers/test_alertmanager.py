"""Alerts: identity, what fires and what is over, where it is and how grave."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.alertmanager import MAX_LABELS, AlertmanagerParser, alert_event
from parsers.text.parser import Context, parse
from store.records.event import Device, Event, RecordError


def alert(labels: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """A firing alert of a node."""
    return {
        "status": "firing",
        "labels": {"alertname": "GpuHot", "node": "gpu-017"} | dict(labels or {}),
        "annotations": {"summary": "too hot"},
        "startsAt": "2025-03-01T04:05:06.789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "74d5f021fc5cfa6f",
    } | changes


def decoded(*alerts: Any, node: str | None = None) -> list[Event]:
    """The events of webhooks with one alert each."""
    parser = AlertmanagerParser(Context(node=node))
    return list(parse(parser, [json.dumps({"version": "4", "groupKey": "{}", "alerts": [one]}) for one in alerts]))


def test_an_alert_is_told_when_it_fires_and_when_it_ends_however_often_it_is_sent() -> None:
    """Known by fingerprint and start; open while endsAt is year 1."""
    over = alert(status="resolved", endsAt="2025-03-01T05:00:00Z")
    found = decoded(alert(), alert(annotations={"summary": "other words"}), over, over)
    assert [(e.kind, e.severity, e.action, e.line) for e in found] == [
        ("alert", "warning", "watch", 1),
        ("alert_resolved", "info", "none", 3),
    ]
    assert [e.time for e in found] == [
        datetime(2025, 3, 1, 4, 5, 6, 789000, tzinfo=UTC),
        datetime(2025, 3, 1, 5, tzinfo=UTC),
    ]


def test_an_end_before_its_start_is_none() -> None:
    """Year 1, though it is over."""
    event = alert_event(alert(status="resolved"))
    assert (event.kind, event.time) == ("alert_resolved", datetime(2025, 3, 1, 4, 5, 6, 789000, tzinfo=UTC))


def test_the_same_alert_bears_the_same_id_and_a_new_start_another() -> None:
    """So that the store takes it once."""
    first = alert_event(alert()).id
    assert alert_event(alert(annotations={})).id == first
    assert len({first, alert_event(alert(status="resolved")).id, alert_event(alert(startsAt="2025-03-02T04:05:06Z")).id,
                alert_event(alert(fingerprint="0")).id}) == 4  # fmt: skip


@pytest.mark.parametrize(
    ("label", "severity"),
    [
        ("critical", "error"),
        ("Critical", "error"),
        ("page", "error"),
        ("error", "error"),
        ("warning", "warning"),
        ("info", "info"),
        ("none", "info"),
        ("P1", "warning"),
        ("fatal", "warning"),
    ],
)
def test_a_severity_label_is_ours_but_never_fatal(label: str, severity: str) -> None:
    """Only the node's own log confirms a fault."""
    assert alert_event(alert({"severity": label})).severity == severity


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"node": "a", "instance": "b:9100"}, "a"),
        ({"node": "", "Hostname": "b", "instance": "c:9400"}, "b"),
        ({"node": "", "hostname": "b"}, "b"),
        ({"node": "", "instance": "gpu-018:9100"}, "gpu-018"),
        ({"node": "", "instance": "[::1]:9100"}, None),
        ({"node": "", "instance": "127.0.0.1:9100"}, None),
        ({"node": "", "instance": "localhost:9100"}, None),
        ({"node": "", "instance": "10.1.0.17:9400"}, None),
        ({"node": "", "instance": "http://prometheus/metrics"}, None),
        ({"node": "localhost", "instance": "gpu-018:9100"}, "gpu-018"),
        ({"node": "127.0.0.1", "host": "gpu-019"}, "gpu-019"),
        ({"node": "", "nodename": "d"}, "d"),
        ({"node": ""}, None),
    ],
    ids=str,
)
def test_the_node_is_a_label_or_a_host_of_the_instance(labels: dict[str, str], node: str | None) -> None:
    """The most telling label first."""
    assert alert_event(alert(labels)).node == node


def test_the_readers_node_stands_in() -> None:
    """For an alert that names none."""
    assert [e.node for e in decoded(alert({"node": ""}), node="gpu-020")] == ["gpu-020"]


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({"gpu": "3"}, Device("gpu", index=3)),
        ({"gpu": "3", "UUID": "GPU-1", "pci_bus_id": "00000000:3B:00.0"}, Device("gpu", "0000:3b:00.0", 3, "GPU-1")),
        ({"device": "nvidia5"}, Device("gpu", index=5)),
        ({"gpu": "all", "device": "nvidia5"}, Device("gpu", index=5)),
        ({"uuid": "GPU-2"}, Device("gpu", uuid="GPU-2")),
        ({"device": "mlx5_3", "port": "1"}, Device("hca", port=1)),
        ({"device": "mlx5_bond_0"}, Device("hca")),
        ({"device": "nvme0n1"}, Device()),
        ({}, Device()),
    ],
    ids=str,
)
def test_the_device_is_what_the_labels_name(labels: dict[str, str], device: Device) -> None:
    """As dcgm-exporter and node_exporter label theirs."""
    assert alert_event(alert(labels)).device == device


@pytest.mark.parametrize(
    ("labels", "summary", "code"),
    [
        ({"xid": "79"}, "x", 79),
        ({"XID": "79"}, "x", 79),
        ({"alertname": "GPUXidError", "err_code": "48"}, "x", 48),
        ({"alertname": "DcgmXid"}, "Xid 63 on GPU 3", 63),
        ({"alertname": "HttpErrors", "err_code": "500"}, "x", None),
        ({"xid": "0"}, "x", None),
        ({"xid": "many"}, "x", None),
        ({}, "Xid 63 on GPU 3", None),
    ],
    ids=str,
)
def test_an_xid_is_the_code_of_an_alert_that_is_about_one(
    labels: dict[str, str], summary: str, code: int | None
) -> None:
    """A label of it, dcgm-exporter's error code, or the words."""
    event = alert_event(alert(labels, annotations={"summary": summary}))
    assert (event.kind, event.code) == ("alert", code)


def test_an_xids_cause_and_action_come_from_our_table_unless_a_label_says_the_cause() -> None:
    """An alert without either is watched."""
    assert (alert_event(alert({"xid": "79"})).cause, alert_event(alert({"xid": "79"})).action) == (
        "hardware",
        "reboot_node",
    )
    assert alert_event(alert({"xid": "79", "cause": "fabric"})).cause == "fabric"
    assert (alert_event(alert()).cause, alert_event(alert()).action) == ("unknown", "watch")
    assert alert_event(alert({"cause": "gremlins"})).cause == "unknown"


def test_labels_are_attributes_but_for_the_run() -> None:
    """Which would tie the alert to a training run."""
    attributes = alert_event(alert({"run": "llm", "rack": "r1"})).attributes
    assert attributes["rack"] == "r1"
    assert attributes["fingerprint"] == "74d5f021fc5cfa6f"
    assert (attributes["detector"], attributes["check"]) == ("alertmanager", "GpuHot")
    assert "run" not in attributes


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"summary": "a", "description": "b"}, "a"),
        ({"description": "b"}, "b"),
        ({}, "GpuHot"),
        (None, "GpuHot"),
        ({"summary": "x" * 5000}, "x" * 1000),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_message_is_the_summary_else_the_description_else_the_name(annotations: Any, message: str) -> None:
    """Cut where it is long."""
    assert alert_event(alert(annotations=annotations)).message == message


BAD = [
    17,
    None,
    {},
    alert() | {"labels": {}},
    alert() | {"labels": ["x"]},
    alert(startsAt=None),
    alert(startsAt="soon"),
    alert(fingerprint=1),
    alert(status="resolved", endsAt="later"),
    alert({str(number): "x" for number in range(MAX_LABELS)}),
]


@pytest.mark.parametrize("value", BAD, ids=lambda value: str(value)[:50])
def test_what_is_no_alert_is_refused_by_itself_and_passed_over_among_others(value: Any) -> None:
    """The route names it; a log's others are read."""
    with pytest.raises(RecordError):
        alert_event(value)
    assert [e.kind for e in decoded(value, alert())] == ["alert"]


def test_the_apis_list_is_read_too() -> None:
    """There, status is an object and endsAt lies ahead."""
    listed = [alert(status={"state": "active"}, endsAt="2025-03-01T05:00:00Z", updatedAt="2025-03-01T04:06:00Z")]
    (event,) = parse(AlertmanagerParser(Context()), json.dumps(listed, indent=2).split("\n"))
    assert (event.kind, event.time) == ("alert", datetime(2025, 3, 1, 4, 5, 6, 789000, tzinfo=UTC))


def test_a_payload_cut_short_gives_the_alerts_that_were_whole() -> None:
    """A line of a log is cut at 64 KiB; a payload of many alerts is longer."""
    alerts = [alert(fingerprint=f"{number:016x}") for number in range(500)]
    text = json.dumps({"version": "4", "alerts": alerts})[: 64 * 1024]
    errors: list[int] = []
    found = list(parse(AlertmanagerParser(Context()), [text], lambda line, _error: errors.append(line)))
    assert len(found) > 200
    assert errors == [1]
