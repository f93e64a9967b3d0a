"""What a Kubernetes node's record tells: conditions that are not as they should be, taints, GPUs that are not offered.

    {"kind": "Node", "metadata": {"name": "gpu-017"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown",
     "reason": "NodeStatusUnknown", "lastTransitionTime": "2025-03-01T04:05:06Z", ...
    -> {"kind": "node_not_ready", "node": "gpu-017", "time": "2025-03-01T04:05:06Z", ...}

Each state is told once, at the moment of its transition, however often a watch prints the node; a good one only after
another. Conditions named for what is good (`Ready`, `KernelReady`) are good when True, all others when False.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from parsers.detectors import States, Told, event_of
from parsers.json_fields import attributes, moment_of, record_of, records_of, text_of, whole_of
from parsers.kubernetes_reports import SOURCE, TABLES, reports
from store.event import Device, Event

# Conditions of these names are good when True.
_GOOD = ("Ready", "Healthy")
# Taints that say what a condition says already, and those that nodes bear all their life.
_MIRRORS = ("node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_CORDON = "node.kubernetes.io/unschedulable"
_ACCELERATORS = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "habana.ai/gaudi",
    "gpu.intel.com/i915",
    "cambricon.com/mlu",
    "huawei.com/Ascend910",
    "aws.amazon.com/neuron",
)


class NodeReader:
    """Reads nodes. Remembers their states."""

    def __init__(self) -> None:
        self._states = States()

    def read(self, record: Mapping[str, Any], line: int) -> list[Event]:
        """The events of a node's record: what is news since the record before."""
        name = text_of(record_of(record, "metadata"), "name")
        if name is None:
            return []
        status, spec = record_of(record, "status"), record_of(record, "spec")
        found: list[Event] = []
        for condition in records_of(status, "conditions"):
            found += self._condition(name, condition, line)
        found += self._cordon(name, spec, line)
        found += self._taints(name, spec, line)
        found += self._accelerators(name, status, line)
        return found

    def _condition(self, node: str, condition: Mapping[str, Any], line: int) -> Iterable[Event]:
        kind, status = text_of(condition, "type"), text_of(condition, "status")
        if kind is None or status not in ("True", "False", "Unknown"):
            return []
        since = text_of(condition, "lastTransitionTime") or ""
        reason = text_of(condition, "reason") or kind
        message = text_of(condition, "message") or ""
        good = status == ("True" if kind.endswith(_GOOD) else "False")
        if status == "Unknown" and kind != "Ready":
            return []  # the kubelet is silent, which Ready tells
        if not self._states.changed((node, kind), None if good else (status, reason, since, message)):
            return []
        ready = kind.endswith(_GOOD)
        told = reports("", reason if ready else kind, message, "error" if ready else "warning", line)
        time = moment_of(condition, "lastTransitionTime", "lastHeartbeatTime")
        extra = attributes(condition=kind, status=status, reason=reason)
        names = () if good else (kind,)  # whatever the reason
        return [
            event_of(
                replace(
                    one,
                    names=(*one.names, *names),
                    healthy=good,
                    time=time,
                    node=node,
                    attributes={**extra, **one.attributes},
                ),
                tables=TABLES,
            )
            for one in told
        ]

    def _cordon(self, node: str, spec: Mapping[str, Any], line: int) -> Iterator[Event]:
        """Whether the node is closed to new pods."""
        taint = next((t for t in records_of(spec, "taints") if t.get("key") == _CORDON), {})
        cordoned = spec.get("unschedulable") is True or bool(taint)
        if self._states.changed((node, _CORDON), ("cordoned",) if cordoned else None):
            check = "NodeNotSchedulable" if cordoned else "NodeSchedulable"
            told = Told(SOURCE, SOURCE, check, "info", line, f"{node} is {'cordoned' if cordoned else 'open again'}")
            yield event_of(replace(told, node=node, time=moment_of(taint, "timeAdded")))

    def _taints(self, node: str, spec: Mapping[str, Any], line: int) -> Iterator[Event]:
        """Taints put on at a known moment; one without is the node's nature."""
        for taint in records_of(spec, "taints"):
            key, time = text_of(taint, "key"), moment_of(taint, "timeAdded")
            if key is None or time is None or key.startswith(_MIRRORS):
                continue
            if self._states.changed((node, "taint", key), (str(taint.get("value")), time.isoformat())):
                told = Told(SOURCE, SOURCE, "NodeTainted", "info", line, f"{node} is tainted {key}", node=node)
                yield event_of(
                    replace(
                        told,
                        time=time,
                        attributes=attributes(taint=key, value=taint.get("value"), effect=taint.get("effect")),
                    )
                )

    def _accelerators(self, node: str, status: Mapping[str, Any], line: int) -> Iterator[Event]:
        """Devices that the plugin holds for unhealthy: there, but not offered to pods."""
        capacity, offered = record_of(status, "capacity"), record_of(status, "allocatable")
        for resource in _ACCELERATORS:
            there, usable = whole_of(capacity.get(resource)), whole_of(offered.get(resource))
            if there is None or usable is None:
                continue
            bad = usable < there
            if self._states.changed((node, resource), (str(there), str(usable)) if bad else None):
                told = Told(
                    source=SOURCE,
                    detector=resource.partition("/")[0],
                    check="DevicePluginUnhealthy",
                    severity="error",
                    line=line,
                    message=f"{usable} of {there} {resource} can be used",
                    healthy=not bad,
                    node=node,
                    device=Device("gpu"),
                    attributes=attributes(name=resource, count=there - usable),
                )
                yield event_of(told, tables=TABLES)
