"""Kubernetes events and nodes: whose word counts, when it happened, what is told once."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from parsers.formats.kubernetes import KubernetesParser
from parsers.reports import device_taints
from parsers.text.parser import Context, parse
from store.records.event import Device, Event

GOOD = {"DiskPressure": "False", "MemoryPressure": "False", "PIDPressure": "False", "Ready": "True"}


def decoded(*records: Mapping[str, Any], node: str | None = None) -> list[Event]:
    """The events of objects, one a line."""
    return list(parse(KubernetesParser(Context(node=node)), [json.dumps(record) for record in records]))


def event(reason: str = "NodeNotReady", message: str = "", **changes: Any) -> dict[str, Any]:
    """A core/v1 event of a node."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "gpu-017.1", "uid": changes.pop("uid", "u1")},
        "involvedObject": {"kind": "Node", "name": "gpu-017"},
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": "gpu-017"},
        "firstTimestamp": "2025-03-01T04:00:00Z",
        "lastTimestamp": "2025-03-01T04:05:06Z",
        "count": 1,
        "type": "Warning",
    } | changes


def node(name: str = "gpu-017", since: str = "2025-03-01T04:05:06Z", **changes: Any) -> dict[str, Any]:
    """A node whose conditions are good but for those named; `status` and `spec` are merged."""
    conditions = {**GOOD, **changes.pop("conditions", {})}
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "spec": changes.pop("spec", {}),
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": f"{kind}Is{status}", "lastTransitionTime": since}
                for kind, status in conditions.items()
            ],
            **changes,
        },
    }


def test_an_event_happened_last_when_it_says_and_as_often() -> None:
    """Not when its record was written; how often and since when are attributes."""
    (found,) = decoded(event(count=7, metadata={"name": "x", "creationTimestamp": "2025-03-01T05:00:00Z"}))
    assert found.time == datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
    assert found.attributes["repeats"] == 7
    assert found.attributes["since"] == "2025-03-01T04:00:00.000000Z"
    (once,) = decoded(event())
    assert "repeats" not in once.attributes
    assert "since" not in once.attributes


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"lastTimestamp": None, "firstTimestamp": None, "eventTime": "2025-03-01T01:00:00.5Z"}, (1, 0)),
        ({"lastTimestamp": None}, (4, 0)),
        ({"series": {"count": 3, "lastObservedTime": "2025-03-01T02:30:00.000000Z"}}, (2, 30)),
        (
            {
                "lastTimestamp": None,
                "firstTimestamp": None,
                "metadata": {"name": "y", "creationTimestamp": "2025-03-01T03:00:00Z"},
            },
            (3, 0),
        ),
    ],
    ids=["event_time", "first", "series", "creation"],
)
def test_the_time_is_the_best_that_is_known(times: dict[str, Any], expected: tuple[int, int]) -> None:
    """A series' last, else the event's, else its record's."""
    (found,) = decoded(event(**times))
    assert found.time is not None
    assert (found.time.hour, found.time.minute) == expected


def test_both_forms_of_the_api_are_read() -> None:
    """events.k8s.io/v1 says regarding, note and reportingController."""
    (found,) = decoded(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "x"},
            "regarding": {"kind": "Node", "name": "gpu-030"},
            "reason": "NodeHasDiskPressure",
            "note": "no space",
            "reportingController": "kubelet",
            "deprecatedCount": 4,
            "deprecatedFirstTimestamp": "2025-03-01T04:00:00Z",
            "deprecatedLastTimestamp": "2025-03-01T04:05:06Z",
            "type": "Normal",
        }
    )
    assert (found.kind, found.node, found.message) == ("node_pressure", "gpu-030", "no space")
    assert (found.attributes["repeats"], found.attributes["detector"]) == (4, "kubelet")


@pytest.mark.parametrize("wrapper", ["object", "data", "event"])
def test_what_a_watch_or_exporter_put_around_is_taken_off(wrapper: str) -> None:
    """Watch events, CloudEvents."""
    assert [found.kind for found in decoded({"type": "ADDED", wrapper: event()})] == ["node_not_ready"]


def test_a_deleted_event_is_no_event() -> None:
    """Its hour is over."""
    assert decoded({"type": "DELETED", "object": event()}) == []


def test_a_raw_list_says_the_kind_of_its_items_once() -> None:
    """As the API serves it: items without a kind."""
    bare = {key: value for key, value in event().items() if key not in ("kind", "apiVersion")}
    cluster = [{key: value for key, value in node(conditions={"Ready": "False"}).items() if key != "kind"}]
    assert [e.kind for e in decoded({"kind": "EventList", "items": [bare]})] == ["node_not_ready"]
    assert [e.kind for e in decoded({"kind": "NodeList", "items": cluster})] == ["node_not_ready"]


def test_an_event_is_told_again_only_when_it_happens_again() -> None:
    """A watch prints its record at every change."""
    again = event(count=2, lastTimestamp="2025-03-01T04:06:06Z")
    other = event(uid="u2")
    assert len(decoded(event(), event(metadata={"uid": "u1", "resourceVersion": "9"}), again, again, other)) == 3


@pytest.mark.parametrize(
    ("reason", "message", "kind", "severity"),
    [
        ("NodeReady", "", "node_ready", "info"),
        ("NodeHasSufficientMemory", "", "node_pressure", "info"),
        ("Rebooted", "boot id: x", "node_reboot", "warning"),
        ("NodeNotSchedulable", "", "node_cordoned", "info"),
        ("SystemOOM", "System OOM encountered, victim process: python3, pid: 4711", "oom_kill", "error"),
        ("Ext4Error", "EXT4-fs error (device md0): x", "fs_error", "error"),
        ("FrequentKubeletRestart", "x", "node_service", "warning"),
        ("SomethingNew", "x", "health_event", "warning"),
        ("InvalidDiskCapacity", "invalid capacity 0 on image filesystem", "node_service", "info"),
        ("CgroupV1", "Cgroup v1 support is in maintenance mode, please migrate to Cgroup v2.", "node_service", "info"),
    ],
)
def test_reasons_of_nodes_are_our_kinds(reason: str, message: str, kind: str, severity: str) -> None:
    """By the table of names; a warning of a name that it lacks is a health event."""
    (found,) = decoded(event(reason, message))
    assert (found.kind, found.severity, found.node) == (kind, severity, "gpu-017")
    assert found.attributes["check"] == reason


@pytest.mark.parametrize("reason", ["Starting", "RegisteredNode", "NodeAllocatableEnforced", "SomethingNew"])
def test_what_is_normal_and_has_no_name_with_us_is_no_event(reason: str) -> None:
    """A kubelet says much on its way up."""
    assert decoded(event(reason, type="Normal")) == []


def test_a_kernel_message_in_an_event_is_that_kernel_message() -> None:
    """node-problem-detector quotes it."""
    message = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
    (found,) = decoded(event("XIDError", message, source={"component": "kernel-monitor", "host": "gpu-017"}))
    assert (found.kind, found.code, found.severity, found.source) == ("xid", 79, "fatal", "kubernetes")
    assert found.device == Device("gpu", pci="0000:0f:00.0")
    assert (found.attributes["detector"], found.attributes["pid"]) == ("node-problem-detector", 1234)


def test_a_process_that_a_message_names_is_an_attribute() -> None:
    """In the kubelet's words and in the kernel's."""
    kubelet, hung = decoded(
        event("SystemOOM", "System OOM encountered, victim process: my prog, pid: 4711"),
        event("TaskHung", "task cache_mgr:4712 blocked for more than 120 seconds.", uid="u2"),
    )
    assert (kubelet.attributes["process"], kubelet.attributes["pid"]) == ("my prog", 4711)
    assert (hung.attributes["process"], hung.attributes["pid"]) == ("cache_mgr", 4712)


def test_eks_writes_its_reason_into_the_message() -> None:
    """Its event's own reason is the condition."""
    (found,) = decoded(
        event(
            "AcceleratedHardwareReady",
            "NvidiaXID31Warning: GPU 2 reported XID 31",
            reportingComponent="eks-node-monitoring-agent",
        )
    )
    assert (found.kind, found.code, found.attributes["check"]) == ("xid", 31, "NvidiaXID31Warning")
    assert found.message == "GPU 2 reported XID 31"


def test_what_nvsentinel_writes_into_an_event_is_its_report() -> None:
    """Codes and entities stand before the text."""
    message = (
        "ErrorCode:48 PCI:0000:3B:00 GPU_UUID:GPU-1 double bit: bad Recommended Action=COMPONENT_RESET;"
        "ErrorCode:999 GPU:2 unheard of Recommended Action=RUN_FIELDDIAG;broken"
    )
    known, unknown = decoded(event("SysLogsXIDErrorIsNotHealthy", message, type="SysLogsXIDError"))
    assert (known.kind, known.code, known.message) == ("xid", 48, "double bit: bad")
    assert known.device == Device("gpu", pci="0000:3b:00.0", uuid="GPU-1")
    assert (unknown.code, unknown.action, unknown.device.index) == (999, "run_diagnostics", 2)
    assert {found.attributes["detector"] for found in (known, unknown)} == {"nvsentinel"}


def pod(reason: str, message: str = "") -> dict[str, Any]:
    """An event of a pod."""
    return event(reason, message, involvedObject={"kind": "Pod", "name": "train-7", "namespace": "ml"})


def test_of_pods_only_what_tells_of_the_node_counts() -> None:
    """Evictions, and devices that the node could not give."""
    broken = (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7"
    )
    (evicted,) = decoded(pod("Evicted", "The node was low on resource: memory."))
    assert (evicted.kind, evicted.node) == ("pod_evicted", "gpu-017")
    assert (evicted.attributes["pod"], evicted.attributes["namespace"]) == ("train-7", "ml")
    assert [found.kind for found in decoded(pod("UnexpectedAdmissionError", broken))] == ["gpu_unhealthy"]
    assert decoded(pod("UnexpectedAdmissionError", "NodeAffinity")) == []
    lost = "Allocate failed due to device plugin GetPreferredAllocation rpc failed: nvml.Device 5: nvml: GPU is lost"
    (gone,) = decoded(pod("UnexpectedAdmissionError", lost))
    assert (gone.kind, gone.device.index, gone.node) == ("gpu_missing", 5, "gpu-017")
    assert decoded(pod("UnexpectedAdmissionError", "Pod x: nvml.Device 5: nvml: GPU is lost")) == []
    assert decoded(pod("BackOff"), pod("FailedScheduling"), pod("OOMKilling")) == []


def test_a_pod_without_a_sandbox_tells_of_the_runtime_alone() -> None:
    """Not of a network that is not ready, nor of an image."""
    none = 'Failed to create pod sandbox: failed to get sandbox runtime: no runtime for "nvidia" is configured'
    assert [found.kind for found in decoded(pod("FailedCreatePodSandBox", none))] == ["node_service"]
    assert decoded(pod("FailedCreatePodSandBox", "plugin type=calico failed: connection is unauthorized")) == []


def test_the_readers_node_stands_in_for_one_that_is_not_named() -> None:
    """A pod's event without a source."""
    bare = pod("Evicted") | {"source": {}}
    assert [found.node for found in decoded(bare, node="gpu-020")] == ["gpu-020"]


def test_a_node_that_is_well_tells_nothing() -> None:
    """However often."""
    assert decoded(node(), node(), node("gpu-018")) == []


def test_conditions_are_told_once_at_their_transition_and_when_they_are_over() -> None:
    """A watch prints a node at every heartbeat."""
    bad = node(conditions={"DiskPressure": "True"})
    found = decoded(node(), bad, bad, node(since="2025-03-01T05:00:00Z"), node())
    assert [(e.kind, e.severity, e.line) for e in found] == [
        ("node_pressure", "warning", 2),
        ("health_event", "info", 4),
    ]
    assert [e.time for e in found] == [
        datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC),
        datetime(2025, 3, 1, 5, tzinfo=UTC),
    ]
    assert found[0].attributes["condition"] == "DiskPressure"


def test_a_silent_kubelet_is_told_once_not_for_each_condition() -> None:
    """All are unknown then; Ready tells it."""
    silent = node(conditions=dict.fromkeys(GOOD, "Unknown"))
    silent["status"]["conditions"][-1]["reason"] = "NodeStatusUnknown"
    assert [e.kind for e in decoded(silent)] == ["node_not_ready"]


@pytest.mark.parametrize(
    ("condition", "status", "expected"),
    [
        ("KernelReady", "False", 1),
        ("KernelReady", "True", 0),
        ("GpuHealthy", "False", 1),
        ("KernelDeadlock", "True", 1),
        ("KernelDeadlock", "False", 0),
        ("KernelDeadlock", "maybe", 0),
    ],
)
def test_a_condition_named_for_what_is_good_is_good_when_true(condition: str, status: str, expected: int) -> None:
    """All others when false."""
    assert len(decoded(node(conditions={condition: status}))) == expected


def test_a_cordon_and_its_end_are_told() -> None:
    """At the moment that the taint bears, if any."""
    key = "node.kubernetes.io/unschedulable"
    taint = {"key": key, "effect": "NoSchedule", "timeAdded": "2025-03-01T03:00:00Z"}
    closed = node(spec={"unschedulable": True, "taints": [taint]})
    found = decoded(closed, closed, node(), node(spec={"unschedulable": True}))
    assert [e.kind for e in found] == ["node_cordoned", "node_uncordoned", "node_cordoned"]
    assert found[0].time == datetime(2025, 3, 1, 3, tzinfo=UTC)
    assert found[1].time is None


def test_taints_count_that_were_put_on_at_a_moment() -> None:
    """Not those that a node bears all its life, nor those that repeat a condition."""
    spec = {
        "taints": [
            {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2025-03-01T03:00:00Z"},
            {"key": "site/broken", "value": "psu", "effect": "NoExecute", "timeAdded": "2025-03-01T03:00:00Z"},
        ]
    }
    (found,) = decoded(node(spec=spec), node(spec=spec))
    assert (found.kind, found.severity) == ("node_tainted", "info")
    assert (found.attributes["taint"], found.attributes["value"]) == ("site/broken", "psu")


def test_gpus_that_are_there_but_not_offered_are_unhealthy() -> None:
    """The device plugin took them back; told until they are offered again."""
    all_eight = {"nvidia.com/gpu": "8", "cpu": "192"}
    seven = {"nvidia.com/gpu": "7", "cpu": "190"}
    bad, good = node(capacity=all_eight, allocatable=seven), node(capacity=all_eight, allocatable=all_eight)
    found = decoded(good, bad, bad, good)
    assert [(e.kind, e.severity) for e in found] == [("gpu_unhealthy", "error"), ("health_event", "info")]
    assert found[0].message == "7 of 8 nvidia.com/gpu can be used"
    assert (found[0].attributes["count"], found[0].device.type) == (1, "gpu")


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "Event"},
        {"kind": "Event", "involvedObject": {"kind": "Node"}, "reason": 3},
        {"kind": "Node"},
        {"kind": "Node", "metadata": {"name": "x"}, "status": {"conditions": [1, {}, {"type": "Ready"}]}},
        {"kind": "Node", "metadata": {"name": "x"}, "spec": {"taints": [None, {}]}, "status": {"capacity": []}},
        {"kind": "Pod", "metadata": {"name": "x"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"object": {"object": {"object": {}}}},
    ],
    ids=lambda record: json.dumps(record)[:60],
)
def test_other_objects_and_strange_ones_tell_nothing(record: dict[str, Any]) -> None:
    """Without an error: they are JSON."""
    assert decoded(record) == []


def test_the_label_of_a_clique_names_the_nodes_nvlink_domain_once() -> None:
    """Cluster and clique, as NVIDIA's device plugin writes them; a watch prints the node again and again."""
    clique = "50000000-0000-0000-0000-000000000005.1"
    labelled = node() | {"metadata": {"name": "gpu-017", "labels": {"nvidia.com/gpu.clique": clique}}}
    found = [one for one in decoded(labelled, labelled) if one.kind == "nvlink_fabric"]
    assert [(one.node, one.attributes["domain"], one.severity) for one in found] == [("gpu-017", clique, "info")]
    assert [one for one in decoded(node()) if one.kind == "nvlink_fabric"] == []


def slices(driver: str, *taints: Mapping[str, str]) -> dict[str, Any]:
    """What a driver publishes of its one device on gpu-017."""
    device = {"name": "gpu-0", "taints": list(taints)}
    spec = {"driver": driver, "pool": {"name": "n"}, "nodeName": "gpu-017", "devices": [device]}
    return {"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "spec": spec}


def test_each_slice_speaks_of_its_own_devices() -> None:
    """NVIDIA's driver publishes two of a node: the one without taints ends nothing. An adapter is no GPU."""
    lost, held = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}
    both = [slices("gpu.nvidia.com", lost), slices("compute-domain.nvidia.com")]
    told = decoded(*both, *both, slices("nic.example.com", held))
    assert [(one.kind, one.device.type) for one in told] == [("gpu_lost", "gpu"), ("node_tainted", "node")]


def test_a_taint_that_comes_again_is_told_again() -> None:
    """After its device was listed without it."""
    held = {"key": "site/broken", "effect": "NoSchedule", "value": "1"}
    assert len(decoded(*(slices("gpu.nvidia.com", *taints) for taints in ((held,), (held,), (), (held,))))) == 2


def test_devices_that_are_named_anew_for_ever_fill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr(device_taints, "MAX_STATES", 4)
    held, reader = {"key": "x", "effect": "NoSchedule"}, device_taints.DeviceTaintReader()
    for turn in range(9):
        spec = {**slices("d", held)["spec"], "nodeName": f"n{turn}"}
        assert len(reader.read("ResourceSlice", {"spec": spec}, 1)) == 1
    assert [place[0] for place in reader._keys] == ["n5", "n6", "n7", "n8"]
