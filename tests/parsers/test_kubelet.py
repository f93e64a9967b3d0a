"""The kubelet's log: what it says of its node and its GPUs, each once, and nothing of pods that fail by themselves."""

from datetime import UTC, datetime

import pytest

from parsers.formats.kubelet import KubeletParser
from parsers.registry import detect
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

AT = "Apr 13 10:53:52 gpu-017 kubelet[3263]: E0413 10:53:52.844381    3263 "
UUID = "GPU-455e672a-1111-2222-3333-444455556666"


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(KubeletParser(Context(year=2026)), lines))


def told(*lines: str) -> list[tuple[str, str, object]]:
    """Kind, severity and check of each event."""
    return [(event.kind, event.severity, event.attributes.get("check")) for event in decode(*lines)]


@pytest.mark.parametrize(
    ("said", "kind", "severity", "name"),
    [
        (
            'kubelet.go:1] "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active 3m7s"',
            "node_service",
            "warning",
            "PLEG is not healthy",
        ),
        (
            "kubelet.go:1] skipping pod synchronization - [container runtime is down]",
            "node_service",
            "warning",
            "container runtime is down",
        ),
        (
            'kubelet.go:1] "Skipping pod synchronization" err="[PLEG is not healthy: pleg has yet to be successful]"',
            "node_service",
            "info",
            "PLEG is not healthy",
        ),
        (
            "eviction_manager.go:159] Failed to admit pod a_b(d228) - node has conditions: [DiskPressure]",
            "node_pressure",
            "warning",
            "Disk",
        ),
        (
            'eviction_manager.go:1] "Failed to admit pod to node" pod="a/b" nodeCondition=["MemoryPressure"]',
            "node_pressure",
            "warning",
            "Memory",
        ),
        (
            "eviction_manager.go:1] eviction manager: must evict pod(s) to reclaim memory",
            "node_pressure",
            "warning",
            "memory",
        ),
        (
            'eviction_manager.go:1] "Eviction manager: must evict pod(s) to reclaim" resourceName="memory"',
            "node_pressure",
            "warning",
            "memory",
        ),
        (
            "eviction_manager.go:1] eviction manager: pod a_b(6f6c) is evicted successfully",
            "pod_evicted",
            "warning",
            "a_b(6f6c)",
        ),
        (
            'client.go:88] "ListAndWatch ended unexpectedly for device plugin" err="EOF" resource="nvidia.com/gpu"',
            "node_service",
            "warning",
            "nvidia.com/gpu",
        ),
        (
            "endpoint.go:1] listAndWatch ended unexpectedly for device plugin nvidia.com/gpu with error rpc error",
            "node_service",
            "warning",
            "nvidia.com/gpu",
        ),
        (
            'controller.go:187] "Failed to update lease" err="Put https://10.0.0.1: context deadline exceeded"',
            "node_service",
            "warning",
            None,
        ),
        (
            'remote_runtime.go:2] "RunPodSandbox from runtime service failed" '
            'err="no runtime for \\"nvidia\\" is configured"',
            "node_service",
            "warning",
            "nvidia",
        ),
        (
            'kubelet_node_status.go:1] "Recording event message for node" node="g" event="NodeHasDiskPressure"',
            "node_pressure",
            "warning",
            "Disk",
        ),
        ("factory.go:1] Failed to initialize NVML: ERROR_LIB_RM_VERSION_MISMATCH", "nvrm_mismatch", "warning", None),
    ],
)
def test_a_line_tells_a_fault(said: str, kind: str, severity: str, name: str | None) -> None:
    """As the kubelet writes it now, and as it did before its lines had a structure."""
    [event] = decode(AT + said)
    assert (event.kind, event.severity, event.attributes.get("name")) == (kind, severity, name)
    assert (event.node, event.time) == ("gpu-017", datetime(2026, 4, 13, 10, 53, 52, tzinfo=UTC))
    assert detect([AT + said]) == "kubelet"


def test_a_node_that_is_not_ready_is_the_one_that_the_line_names() -> None:
    """With its reason, from both forms; a node that is ready again ends what was told of it."""
    new = 'setters.go:602] "Node became not ready" node="gpu-9" condition={"reason":"KubeletNotReady","message":"x"}'
    old = "setters.go:2] Node became not ready: {Type:Ready Status:False Reason:KubeletNotReady Message:x}"
    assert [(event.node, event.kind, event.attributes["check"]) for event in decode(AT + new, AT + old)] == [
        ("gpu-9", "node_not_ready", "KubeletNotReady"),
        ("gpu-017", "node_not_ready", "KubeletNotReady"),
    ]
    ready = 'kubelet_node_status.go:1] "Recording event message for node" node="gpu-9" event="NodeReady"'
    kinds = [kind for kind, _, _ in told(AT + new, AT + ready, AT + new)]
    assert kinds == ["node_not_ready", "node_ready", "node_not_ready"]
    assert told(AT + ready) == []


def test_a_node_is_not_called_unready_for_a_kubelet_that_starts() -> None:
    """At each start it has not looked yet; a runtime that does not answer is another matter."""
    why = 'condition={{"reason":"KubeletNotReady","message":"{}"}}'
    line = AT + 'setters.go:602] "Node became not ready" node="gpu-9" ' + why
    starts = "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be x]"
    [started] = decode(line.format(starts))
    assert (started.kind, started.severity, started.node) == ("node_service", "info", "gpu-9")
    [down] = decode(line.format("[container runtime is down, PLEG is not healthy: pleg has yet to be successful]"))
    assert (down.kind, down.severity) == ("node_not_ready", "error")


def test_pods_that_a_node_refuses_are_one_pressure_and_its_end_is_told() -> None:
    """The same that the node itself records."""
    refused = "eviction_manager.go:1] Failed to admit pod {}(d2) - node has conditions: [DiskPressure]"
    record = 'kubelet_node_status.go:1] "Recording event message for node" node="gpu-017" event="{}"'
    lines = (refused.format("a_b"), refused.format("c_d"), record.format("NodeHasDiskPressure"))
    found = decode(*(AT + line for line in (*lines, record.format("NodeHasNoDiskPressure"))))
    assert [(event.kind, event.severity) for event in found] == [
        ("node_pressure", "warning"),
        ("node_pressure", "info"),
    ]


def test_what_is_said_every_five_seconds_is_told_once_and_again_after_ten_minutes() -> None:
    """Of each node and each cause."""
    line = 'gpu-017 kubelet[3263]: E0413 10:53:52.844381    3263 kubelet.go:2] "Skipping pod synchronization" err="{}"'
    down, pleg = line.format("container runtime is down"), line.format("PLEG is not healthy: last seen active")
    times = ("10:53:52", "10:53:57", "11:20:00")
    lines = [f"Apr 13 {time} {said}" for time in times for said in (down, pleg)]
    assert [event.line for event in decode(*lines)] == [1, 2, 5, 6]


def test_a_gpu_that_the_device_plugin_takes_away_is_told_once_with_its_xid() -> None:
    """Both of its lines speak of one fault; the first releases wrote them otherwise."""
    lines = (
        f"I0810 15:36:05.551834       1 health.go:169] XidCriticalError: Xid=48 on Device={UUID}; marking it.",
        f"I0810 15:36:05.552532       1 server.go:278] 'nvidia.com/gpu' device marked unhealthy: {UUID}",
    )
    [event] = decode(*lines)
    assert (event.kind, event.device.uuid, event.attributes["caused_by"]) == ("gpu_unhealthy", UUID, 48)
    [old] = decode(f"2020/08/10 19:09:42 XidCriticalError: Xid=69 on Device={UUID}, the device will go unhealthy.")
    assert (old.kind, old.time) == ("gpu_unhealthy", datetime(2020, 8, 10, 19, 9, 42, tzinfo=UTC))


def test_a_device_plugin_that_the_kubelet_does_not_answer_is_told() -> None:
    """As the first releases of NVIDIA's plugin wrote it, and as the present ones do."""
    old = "2017/11/24 09:06:29 Could not register device plugin: context deadline exceeded"
    new = "I0810 15:36:05.551834       1 server.go:278] Could not register device plugin: context deadline exceeded"
    [first], [second] = decode(old), decode(new)
    assert (first.kind, second.kind) == ("node_service", "node_service")
    assert first.time == datetime(2017, 11, 24, 9, 6, 29, tzinfo=UTC)
    assert detect([old]) == "kubelet"


def test_json_of_klog_is_read_and_what_is_cut_says_so() -> None:
    """As Talos prints it, behind the node's address, and bare."""
    line = '{"ts":1753121400920.5,"msg":"Skipping pod synchronization","err":"PLEG is not healthy"}'
    [bare], [talos] = decode(line), decode(f"10.0.0.3: {line}")
    assert (bare.node, talos.node, talos.kind) == (None, "10.0.0.3", "node_service")
    assert talos.time == datetime(2025, 7, 21, 18, 10, 0, 920500, tzinfo=UTC)
    with pytest.raises(ParseError, match="cut short"):
        list(KubeletParser(Context()).feed(line[:60], 1))


@pytest.mark.parametrize(
    "said",
    [
        'pod_workers.go:1] "Error syncing pod, skipping" err="CrashLoopBackOff" pod="a/b"',
        'kuberuntime_manager.go:1] "container start failed" err="exec: \\"GPU is lost\\": executable file not found"',
        "pod_workers.go:1] XidOf: XidCriticalError: Xid=79 on Device=GPU-455e672a-1111",
        'kubelet.go:1277] "Image garbage collection failed once" err="no data"',
        'eviction_manager.go:185] "Eviction manager: starting control loop"',
        'kubelet_node_status.go:1] "Recording event message for node" node="g" event="NodeHasSufficientMemory"',
    ],
)
def test_what_is_a_pods_or_no_fault_tells_nothing(said: str) -> None:
    """Nor do words that a pod's author chose, wherever they stand behind the kubelet's own."""
    assert decode(AT + said) == []


def test_lines_of_other_programs_are_not_the_kubelets() -> None:
    """Even where they quote it."""
    assert decode('Apr 13 10:53:52 n app[1]: kubelet E0413 10:53:52.844381 1 kubelet.go:1] "Skipping pod"') == []
