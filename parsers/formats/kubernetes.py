"""Kubernetes events, nodes, jobs and pods as `kubectl get ... -o json` prints them, once or with `--watch`.

    {"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Node", "name": "gpu-017"}, "count": 3, "reason":
     "NodeNotReady", "lastTimestamp": "2025-03-01T04:05:06Z", "source": {"component": "node-controller"}, ...
    -> {"kind": "node_not_ready", "node": "gpu-017", "attributes": {"check": "NodeNotReady", "repeats": 3, ...}, ...}

Events are of core/v1 or events.k8s.io/v1. A detector's report in one is read as that detector means it. Of a
pod's events only those about its node count. `parsers/reports/kubernetes_jobs.py` reads jobs and their pods,
`parsers/reports/device_taints.py` what drivers say of single devices (ResourceSlice, DeviceTaintRule),
`parsers/reports/mind_cluster.py` what MindCluster's ConfigMaps say of Ascend NPUs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from parsers.reports.detector_report import (
    NVSENTINEL_ACTIONS,
    DetectorReport,
    event_of,
    family_of,
    fault_named,
    kernel_fault,
    place_of,
    xid_in,
)
from parsers.reports.device_taints import KINDS as TAINT_KINDS
from parsers.reports.device_taints import DeviceTaintReader
from parsers.reports.kubernetes_jobs import KINDS as JOB_KINDS
from parsers.reports.kubernetes_jobs import JobReader
from parsers.reports.mind_cluster import KIND as CONFIG_MAP
from parsers.reports.mind_cluster import MindClusterReader
from parsers.reports.nvml_failures import NvmlFailure, nvml_failure
from parsers.reports.reported_states import ReportedStates
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, record_of, records_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event, Severity, format_time
from store.records.fault_catalog import with_kind_meaning

# What a reason and a message of Kubernetes tell, whoever reported them: an event of a node, or a condition of it.
#
# ("XIDError", "NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.") -> the quoted Xid
# ("NvidiaXID79Error", "...")                                                 -> Xid 79 of EKS's monitoring agent
# ("SysLogsXIDErrorIsNotHealthy", "ErrorCode:79 PCI:0000:0f:00 ... Recommended Action=RESTART_BM;") -> of NVSentinel

SOURCE = "kubernetes"
# The tables of names that an event or condition may use, whoever reports it.
TABLES = ("kubernetes", "node-problem-detector", "eks-node-monitoring-agent")
_REPORTERS: Mapping[str, str] = {
    "eks-node-monitoring-agent": "eks-node-monitoring-agent",
    "kernel-monitor": "node-problem-detector",
    "docker-monitor": "node-problem-detector",
    "systemd-monitor": "node-problem-detector",
    "readonly-monitor": "node-problem-detector",
    "abrt-notification": "node-problem-detector",
    "health-checker": "node-problem-detector",
}
# An NVSentinel condition holds what several entities tell, parted by semicolons.
MAX_REPORTS = 64

_RECOMMENDED = " Recommended Action="
_ENTITY = re.compile(r"(?P<type>[A-Za-z][A-Za-z_]{1,30}):(?P<value>\S{1,100})(?: |$)", re.ASCII)
_EKS = re.compile(r"(?P<reason>[A-Z][A-Za-z0-9]{3,60}): (?P<message>.*)", re.ASCII | re.DOTALL)
_VICTIM = re.compile(r"victim process: (?P<process>.{1,60}?), pid: (?P<pid>\d{1,10})", re.ASCII)
_KILLED = re.compile(r"Kill(?:ed)? process (?P<pid>\d{1,10}),? \((?P<process>[^)]{1,60})\)", re.ASCII)
_TASK = re.compile(r"\btask (?P<process>[\w./:-]{1,60}):(?P<pid>\d{1,10}) blocked for more than", re.ASCII)


def reports(component: str, reason: str, message: str, severity: Severity, line: int) -> list[DetectorReport]:
    """What was reported; none for what reports neither a fault nor the end of one."""
    if _RECOMMENDED in message:
        return list(_of_nvsentinel(reason, message, severity, line))
    detector = next((name for part, name in _REPORTERS.items() if part in component), component or SOURCE)
    check = reason
    if detector == "eks-node-monitoring-agent" and (match := _EKS.match(message)):
        check, message = match["reason"], match["message"].strip()
    report = DetectorReport(
        source=SOURCE,
        detector=detector,
        check=check,
        severity=severity,
        line=line,
        message=message,
        names=() if check == reason else (check,),
        codes=(str(xid_in(check) or ""),),
        family="xid" if "xid" in check.lower() and (xid_in(check) or xid_in(message)) else None,
        quoted=message,
        attributes=_named(message),
    )
    if severity == "info" and report.family is None and not _means_something(report):
        return []
    return [report]


def _means_something(report: DetectorReport) -> bool:
    names = (*report.names, report.check)
    return (
        any(fault_named(table, *names) for table in (report.detector, *TABLES))
        or kernel_fault(report.message) is not None
    )


def _named(message: str) -> dict[str, Attribute]:
    """The process that a message names."""
    match = _VICTIM.search(message) or _KILLED.search(message) or _TASK.search(message)
    return attributes(pid=int(match["pid"]), process=match["process"]) if match else {}


def _of_nvsentinel(reason: str, message: str, severity: Severity, line: int) -> Iterable[DetectorReport]:
    """The reports of NVSentinel (process_node_events.go): `ErrorCode:C TYPE:VALUE ... TEXT Recommended Action=A;`."""
    check = reason.removesuffix("IsNotHealthy").removesuffix("IsHealthy")
    for part in message.split(";")[:MAX_REPORTS]:
        text, found, action = part.strip().rpartition(_RECOMMENDED)
        if not found:
            continue
        codes, entities, at = [], dict[str, str](), 0
        while match := _ENTITY.match(text, at):
            at = match.end()
            if match["type"] == "ErrorCode":
                codes.append(match["value"])
            else:
                entities.setdefault(match["type"].upper(), match["value"])
        device, more = place_of(entities, None)
        yield DetectorReport(
            source=SOURCE,
            detector="nvsentinel",
            check=check,
            severity=severity,
            line=line,
            message=text[at:].strip(),
            names=tuple(codes),
            codes=tuple(codes),
            family=family_of(check),
            action=NVSENTINEL_ACTIONS.get(action.strip()) if action.strip() != "NONE" else None,
            device=device,
            attributes={**attributes(error_code=codes), **more},
        )


# What a Kubernetes node's record tells: conditions that are not as they should be, taints, GPUs that are not offered.
#
#     {"kind": "Node", "metadata": {"name": "gpu-017"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown",
#      "reason": "NodeStatusUnknown", "lastTransitionTime": "2025-03-01T04:05:06Z", ...
#     -> {"kind": "node_not_ready", "node": "gpu-017", "time": "2025-03-01T04:05:06Z", ...}
#
# Each state is told once, at the moment of its transition, however often a watch prints the node; a good one only after
# another. Conditions named for what is good (`Ready`, `KernelReady`) are good when True, all others when False.

# Conditions of these names are good when True.
_GOOD = ("Ready", "Healthy")
# Taints that say what a condition says already, and those that nodes bear all their life.
_MIRRORS = ("node.kubernetes.io/", "node-role.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_CORDON = "node.kubernetes.io/unschedulable"
CLIQUE = "nvidia.com/gpu.clique"
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
        self._states = ReportedStates()

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
        found += self._domain(name, record_of(record, "metadata"), line)
        return found

    def _domain(self, node: str, metadata: Mapping[str, Any], line: int) -> Iterable[Event]:
        """The NVLink domain that NVIDIA's device plugin and feature discovery label the node with."""
        domain = text_of(record_of(metadata, "labels"), CLIQUE)
        if domain is None or not self._states.changed((node, CLIQUE), (domain,)):
            return []
        named = {"attributes": {"domain": domain[:128]}, "message": f"NVLink domain {domain[:128]}", "line": line}
        return [with_kind_meaning(Event(None, node, "kubernetes", "nvlink_fabric", **named))]  # type: ignore[arg-type]

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
        report = reports("", reason if ready else kind, message, "error" if ready else "warning", line)
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
            for one in report
        ]

    def _cordon(self, node: str, spec: Mapping[str, Any], line: int) -> Iterator[Event]:
        """Whether the node is closed to new pods."""
        taint = next((t for t in records_of(spec, "taints") if t.get("key") == _CORDON), {})
        cordoned = spec.get("unschedulable") is True or bool(taint)
        if self._states.changed((node, _CORDON), ("cordoned",) if cordoned else None):
            check = "NodeNotSchedulable" if cordoned else "NodeSchedulable"
            report = DetectorReport(
                SOURCE, SOURCE, check, "info", line, f"{node} is {'cordoned' if cordoned else 'open again'}"
            )
            yield event_of(replace(report, node=node, time=moment_of(taint, "timeAdded")))

    def _taints(self, node: str, spec: Mapping[str, Any], line: int) -> Iterator[Event]:
        """Taints put on at a known moment; one without is the node's nature."""
        for taint in records_of(spec, "taints"):
            key, time = text_of(taint, "key"), moment_of(taint, "timeAdded")
            if key is None or time is None or key.startswith(_MIRRORS):
                continue
            if self._states.changed((node, "taint", key), (str(taint.get("value")), time.isoformat())):
                report = DetectorReport(
                    SOURCE, SOURCE, "NodeTainted", "info", line, f"{node} is tainted {key}", node=node
                )
                yield event_of(
                    replace(
                        report,
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
                report = DetectorReport(
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
                yield event_of(report, tables=TABLES)


_SEVERITY: Mapping[str, Severity] = {"Normal": "info"}
# What a watch, an exporter or CloudEvents put around an object.
_WRAPPERS = ("object", "data", "event")
# Reasons of pods that report their node; the last only where it is about accelerators.
_OF_PODS = frozenset({"Evicted", "TaintManagerEviction", "UnexpectedAdmissionError", "FailedCreatePodSandBox"})
# The device plugin's own words; what a pod is called or runs stands nowhere in them.
_ALLOCATE = re.compile(r"(?:Pod )?Allocate failed due to ")
_NO_RUNTIME = re.compile(r"no runtime for .{1,60} is configured|(?:containerd|crio)\.sock: connect: connection refused")
_RESOURCE = re.compile(r"\b(?:nvidia\.com|amd\.com|habana\.ai|huawei\.com|cambricon\.com)/[\w.-]{1,40}", re.ASCII)


class KubernetesParser(DocumentParser):
    """Decodes events and nodes. Remembers the states of nodes and which events were reported."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._read, lists=("items",))
        self._node = context.node
        self._reported = ReportedStates()
        self._nodes = NodeReader()
        self._jobs = JobReader()
        self._taints = DeviceTaintReader()
        self._maps = MindClusterReader()

    def flush(self) -> Iterator[Event]:
        """What stood in a document that was cut short, and the jobs that are news.

        Raises:
            ParseError: the last document is cut short.
        """
        yield from self._jobs.flush()
        yield from super().flush()

    def _read(self, document: Document) -> Iterable[Event]:
        record: Mapping[str, Any] = document.value
        deleted = False
        while (
            not record.keys() & {"involvedObject", "regarding", "status"}
            and text_of(record, "kind") != CONFIG_MAP
            and (inner := record_of(record, *_WRAPPERS))
        ):
            deleted = text_of(record, "type") == "DELETED"
            if deleted and text_of(inner, "kind") not in JOB_KINDS:
                return []  # an event's hour is over; a node's end has an event of its own
            record = inner
        kind = text_of(record, "kind") or (text_of(document.header, "kind") or "").removesuffix("List")
        if kind in JOB_KINDS:
            self._jobs.read(kind, record, document.line, deleted=deleted)
            return []
        if kind == CONFIG_MAP:
            return self._maps.read(record, document.line)
        if kind == "Node":
            return self._nodes.read(record, document.line)
        if kind in TAINT_KINDS:
            return self._taints.read(kind, record, document.line)
        about, reason = record_of(record, "involvedObject", "regarding"), text_of(record, "reason")
        if not about or reason is None:
            return []
        return self._event(record, about, reason, document.line)

    def _event(self, record: Mapping[str, Any], about: Mapping[str, Any], reason: str, line: int) -> list[Event]:
        message = text_of(record, "message", "note") or ""
        of_node = text_of(about, "kind") == "Node"
        if not of_node and not _of_its_node(reason, message):
            return []
        source = record_of(record, "source", "deprecatedSource")
        component = text_of(record, "reportingComponent", "reportingController") or text_of(source, "component") or ""
        severity = _SEVERITY.get(text_of(record, "type") or "", "warning")
        report = reports(component, reason, message, severity, line)
        if not report or not self._is_new(record, about, reason, message):
            return []
        repeats = _repeats(record)
        first = moment_of(record, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
        extra = attributes(
            repeats=repeats if repeats > 1 else None,
            since=format_time(first) if first and repeats > 1 else None,
            pod=None if of_node else about.get("name"),
            namespace=None if of_node else about.get("namespace"),
        )
        node = text_of(about, "name") if of_node else text_of(source, "host") or text_of(record, "reportingInstance")
        time = _last(record)
        if failure := _nvml(reason, message):
            found = failure.event(SOURCE, message).with_attributes({**extra, "detector": SOURCE, "check": reason})
            return [replace(found, time=time, node=node or self._node, line=line)]
        return [
            event_of(
                replace(one, time=time, node=node or self._node, attributes={**extra, **one.attributes}), tables=TABLES
            )
            for one in report
        ]

    def _is_new(self, record: Mapping[str, Any], about: Mapping[str, Any], reason: str, message: str) -> bool:
        """Whether this happening was not reported: a watch prints an event again for every change of its record."""
        metadata = record_of(record, "metadata")
        identity = text_of(metadata, "uid", "name") or f"{about.get('name')} {reason} {message}"
        last = _last(record)
        return self._reported.changed((identity,), (last.isoformat() if last else "", str(_repeats(record))))


def _of_its_node(reason: str, message: str) -> bool:
    """Whether an event of a pod reports the node that it is on."""
    if reason == "UnexpectedAdmissionError":
        return _RESOURCE.search(message) is not None or _nvml(reason, message) is not None
    return reason in _OF_PODS and (reason != "FailedCreatePodSandBox" or _NO_RUNTIME.search(message) is not None)


def _nvml(reason: str, message: str) -> NvmlFailure | None:
    """What the device plugin says of NVIDIA's library where it could give a pod no GPU."""
    if reason != "UnexpectedAdmissionError" or not _ALLOCATE.match(message):
        return None
    return nvml_failure(message)


def _repeats(record: Mapping[str, Any]) -> int:
    """How often it has happened."""
    series = record_of(record, "series")
    return (
        whole_of(series.get("count")) or whole_of(record.get("count")) or whole_of(record.get("deprecatedCount")) or 1
    )


def _last(record: Mapping[str, Any]) -> datetime | None:
    """When it happened last; not when the record of it was written, unless nothing else is known."""
    return (
        moment_of(record_of(record, "series"), "lastObservedTime")
        or moment_of(record, "lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
        or moment_of(record, "deprecatedFirstTimestamp")
        or moment_of(record_of(record, "metadata"), "creationTimestamp")
    )


FORMAT = Format(
    name="kubernetes",
    description="Kubernetes events, nodes, jobs, pods, taints of devices: kubectl get ... -o json, also with --watch",
    sample='{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "gpu-017.17c2d3e4f5a6b7c8"}, "involvedObject": '
    '{"kind": "Node", "name": "gpu-017"}, "reason": "NodeNotReady", "message": "Node gpu-017 status is now: '
    'NodeNotReady", "source": {"component": "node-controller"}, "firstTimestamp": "2025-03-01T04:01:06Z", '
    '"lastTimestamp": "2025-03-01T04:05:06Z", "count": 3, "type": "Normal"}',
    make=KubernetesParser,
    testimony="detector",
    recognises=re.compile(
        r'"kind" ?: ?"(?:Event|Node|Pod|Job|JobSet|[A-Z][A-Za-z]{1,20}Job|Workload|ResourceSlice|DeviceTaintRule)'
        r'(?:List)?"'
        r'|"(?:involvedObject|regarding)" ?: ?\{|"name" ?: ?"mindx-dl-(?:device|node|switch)info-'
        r'|"(?:last(?:Transition|Heartbeat)Time|reporting(?:Component|Controller|Instance))" ?:'
    ),
    shape="document",
)
