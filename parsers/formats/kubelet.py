"""The log of Kubernetes' kubelet, and of the device plugins that give it GPUs: nodes that are not ready, GPUs gone.

    Jan 12 06:11:11 gpu-7 kubelet[1400]: I0112 06:11:11.500000    1400 setters.go:602] "Node became not ready"
      node="gpu-7" condition={"type":"Ready","status":"False",...,"message":"container runtime is down"}
    -> {"kind": "node_not_ready", "node": "gpu-7", "attributes": {"check": "KubeletNotReady"}, ...}
    I0607 17:18:01.223322       1 health.go:176] XidCriticalError: Xid=79 on Device=GPU-b3f3...; marking device as
      unhealthy.
    -> {"kind": "gpu_unhealthy", "device": {"type": "gpu", "uuid": "GPU-b3f3..."}, "attributes": {"caused_by": 79}, ...}

Lines of the system log or bare ones of klog, structured or not, and its JSON. What the kubelet says every few seconds
is told once, until its node is ready again or words of the same are as long away as `REPEAT`. Of pods whose containers
fail it says much: that is theirs.
Sources: pkg/kubelet (kubelet.go, setters.go, eviction, cm/devicemanager, kuberuntime) of Kubernetes 1.6 to 1.34,
nodelease; internal/rm/health.go and plugin/server.go of NVIDIA's device plugin; public logs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import orjson

from parsers.reports.nvml_failures import nvml_failure
from parsers.text.json_fields import MAX_MESSAGE, attributes, moment_of, text_of
from parsers.text.parser import Context, Format, ParseError
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

# The programs that hold a kubelet: K3s, RKE2, MicroK8s, OpenShift.
_TAGS = frozenset(("kubelet", "k3s", "rke2", "microk8s.daemon-kubelite", "kubenswrapper", "hyperkube"))
_KLOG = re.compile(
    r"[IWEF](?P<month>\d{2})(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{6}) {1,7}\d{1,10} "
    r"(?P<file>[\w.-]{1,80}\.go):\d{1,6}\] ",
    re.ASCII,
)
# The first device plugins logged as Go's own logger does.
_PLUGIN = re.compile(
    r"(?P<time>\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}) (?=XidCriticalError: |'[\w./-]{1,80}' device marked"
    r"|Could not register device plugin: )",
    re.ASCII,
)
_TALOS = re.compile(r"(?P<node>[\w.:-]{1,253}): (?=\{)", re.ASCII)
# Words of the same are news again after it.
REPEAT = timedelta(minutes=10)
_MOST = 10_000

_NOT_READY = re.compile(r"\"?Node became not ready\"?", re.ASCII)
_REASON = re.compile(
    r"\"?[Rr]eason\"?: ?\"?(?P<reason>\w{1,80})\"?[, ]{1,2}\"?[Mm]essage\"?: ?(?P<message>.{1,500})", re.ASCII
)
_NODE = re.compile(r"\bnode=\"(?P<node>[\w.-]{1,253})\"", re.ASCII)
_RECORDED = re.compile(
    r"\"?Recording (?P<old>Node\w{3,40}) event message for node"
    r"|\"?Recording event message for node\" node=\"[^\"]{1,253}\" event=\"(?P<new>Node\w{3,40})\"",
    re.ASCII,
)
_PRESSURE = re.compile(r"NodeHas(?P<name>Disk|Memory|InsufficientMemory|PID|InsufficientPID)(?:Pressure)?", re.ASCII)
_RELIEF = re.compile(r"NodeHas(?:No(?P<disk>Disk)Pressure|Sufficient(?P<name>Memory|PID))", re.ASCII)
_SKIPPING = re.compile(r"\"?[Ss]kipping pod synchronization\"? (?:- |err=)\"?(?P<why>.{1,400})", re.ASCII)
_DOWN = re.compile(r"last seen active|runtime is down", re.ASCII)
_STARTS = re.compile(r"has yet to be successful|may not have completed yet", re.ASCII)
_CAUSES = re.compile(
    r"PLEG is not healthy|container runtime is down|[Rr]untime ?(?:Network|network) not ready", re.ASCII
)
_EVICTS = re.compile(
    r"\"?[Ee]viction manager: must evict pod\(s\) to reclaim(?: (?P<old>[\w-]{1,40})"
    r"|\" resourceName=\"(?P<new>[\w-]{1,40})\")",
    re.ASCII,
)
_EVICTED = re.compile(
    r"\"?[Ee]viction manager: pod(?: (?P<old>\S{1,300}))? is evicted successfully"
    r"(?:\" pods?=\"?(?P<new>[^\"]{1,300}))?",
    re.ASCII,
)
_NOT_ADMITTED = re.compile(
    r"\"?Failed to admit pod (?:\S{1,300} - node has conditions: "
    r"|to node\" pod=\"[^\"]{1,300}\" nodeConditions?=)\[\"?(?P<name>Disk|Memory|PID)Pressure\b",
    re.ASCII,
)
_PLUGIN_ENDED = re.compile(
    r"\"?[Ll]istAndWatch ended unexpectedly for device plugin(?: (?P<old>\S{1,120}) with error"
    r"|\".{0,400}?\bresource(?:Name)?=\"(?P<new>[^\"]{1,120})\")",
    re.ASCII,
)
_RUNTIME = re.compile(
    r"\"?(?:RunPodSandbox|ListPodSandbox|Version|Status) from runtime service failed.{0,300}?"
    r"(?:no runtime for \\*\"?(?P<name>[\w-]{1,40})\\*\"? is configured"
    r"|(?P<sock>containerd|crio|docker|cri-dockerd)\.sock: connect: (?:connection refused|no such file))",
    re.ASCII,
)
# What a device plugin says of the library, from the line's start: what a pod is called or runs stands further behind.
_OF_NVML = re.compile(
    r"\"?(?:[Ff]ailed to initialize NVML|Unable to retrieve list of available devices|[Ee]rror creating "
    r"nvml\.Device|[Ee]rror starting plugins)",
    re.ASCII,
)
_UNREGISTERED = re.compile(r"\"?(?:Could not|[Ff]ailed to) register device plugin: ", re.ASCII)
_LEASE = re.compile(r"\"?[Ff]ailed to update (?:node )?lease\b", re.ASCII)
_XID = re.compile(r"XidCriticalError: Xid=(?P<xid>\d{1,4}) on Device=(?P<uuid>(?:GPU|MIG)-[\w/-]{3,80})", re.ASCII)
_MARKED = re.compile(
    r"'(?P<resource>[\w./-]{1,80})' device marked unhealthy: (?P<uuid>(?:GPU|MIG)-[\w/-]{3,80})", re.ASCII
)


class KubeletParser:
    """Decodes lines of one node's kubelet, or of several. Remembers what was told of each."""

    def __init__(self, context: Context) -> None:
        self._stamps = Stamps(context)
        self._prefix = PrefixReader(self._stamps)
        self._context = context
        self._told: dict[tuple[str | None, ...], datetime | None] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line: none for nearly all.

        Raises:
            ParseError: a line of klog's JSON is cut short.
        """
        found = self._line(text)
        if found is None:
            return []
        time, node, said = found
        event = next(_events(said), None)
        if event is None:
            return []
        named = _NODE.search(said) if event.kind == "node_ready" or _NOT_READY.match(said) else None
        event = replace(
            event, time=time, node=(named["node"] if named else node), message=said[:MAX_MESSAGE], line=line
        )
        return [event] if self._is_news(event) else []

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []

    def _is_news(self, event: Event) -> bool:
        """Whether it was not told of its node; what ends a state is news only after one."""
        said = event.attributes
        key = (event.node, event.kind, str(said.get("check")), str(said.get("name")), event.device.uuid)
        if event.kind == "node_ready":
            open_ones = [
                one for one in self._told if one[0] == event.node and one[1] in ("node_not_ready", "node_service")
            ]
            for one in open_ones:
                del self._told[one]
            return bool(open_ones)
        if event.kind == "node_pressure" and event.severity == "info":
            return self._told.pop(key, self) is not self
        if event.kind == "pod_evicted":
            return True
        before, known = self._told.get(key), key in self._told
        self._told[key] = event.time
        if len(self._told) > _MOST:
            del self._told[next(iter(self._told))]
        return not known or (event.time is not None and before is not None and event.time - before > REPEAT)

    def _line(self, text: str) -> tuple[datetime | None, str | None, str] | None:
        """When, where and what a line says; None for a line of another program."""
        if head := _KLOG.match(text):
            return self._time(head), self._context.node, text[head.end() :]
        if head := _PLUGIN.match(text):
            return self._stamps.iso(head["time"].replace("/", "-")), self._context.node, text[head.end() :]
        if talos := _TALOS.match(text):
            return self._json(text[talos.end() :], talos["node"])
        if text.startswith('{"ts":'):
            return self._json(text, self._context.node)
        if "kube" not in text and "k3s" not in text and "rke2" not in text:
            return None
        record = self._prefix.read(text)
        if record.tag not in _TAGS or not (head := _KLOG.match(record.message)):
            return None
        return record.time, record.node or self._context.node, record.message[head.end() :]

    def _time(self, head: re.Match[str]) -> datetime | None:
        return self._stamps.glog(int(head["month"]), head["day"], head["clock"])

    def _json(self, text: str, node: str | None) -> tuple[datetime | None, str | None, str] | None:
        """A line of klog's JSON as its text form has it.

        Raises:
            ParseError: it is cut short or no JSON.
        """
        try:
            fields = orjson.loads(text.encode("utf-8", errors="replace"))
        except orjson.JSONDecodeError as error:
            raise ParseError(f"no whole JSON object ({error.msg}): the line may be cut short") from error
        if not isinstance(fields, dict) or not isinstance(message := fields.get("msg"), str) or "ts" not in fields:
            return None
        ts = fields["ts"]
        time = moment_of(fields, "ts")
        if isinstance(ts, int | float) and not isinstance(ts, bool):
            time = self._stamps.since_epoch(ts / 1000)
        return time, node, f'"{message}" {_pairs(fields)}'


def _pairs(fields: Mapping[str, object]) -> str:
    """The values of a structured line as klog's text has them."""
    shown = ((name, text_of(fields, name)) for name in ("err", "node", "event", "resourceName", "resource", "pod"))
    return " ".join(f'{name}="{value}"' for name, value in shown if value is not None)


def _events(said: str) -> Iterator[Event]:
    """What a line says, without time, node and line."""
    if "ode" in said:
        yield from _of_node(said)
    if match := _SKIPPING.match(said):
        is_start = _STARTS.search(match["why"]) and not _DOWN.search(match["why"])
        cause = _CAUSES.search(match["why"])
        yield _event("node_service", "start" if is_start else "", check="PodSync", name=cause and cause[0])
    elif match := _EVICTS.match(said):
        yield _event("node_pressure", "", check="Eviction", name=match["old"] or match["new"])
    elif match := _EVICTED.match(said):
        yield _event("pod_evicted", "", check="Evicted", name=match["old"] or match["new"])
    elif match := _PLUGIN_ENDED.match(said):
        yield _event("node_service", "", check="DevicePlugin", name=match["old"] or match["new"])
    elif _UNREGISTERED.match(said):
        yield _event("node_service", "", check="DevicePlugin", name="registration")
    elif _LEASE.match(said):
        yield _event("node_service", "", check="Lease")
    elif match := _XID.match(said):
        device = Device("gpu", uuid=match["uuid"])
        yield _event("gpu_unhealthy", "", device, check="XidCriticalError", caused_by=int(match["xid"]))
    elif match := _MARKED.match(said):
        yield _event("gpu_unhealthy", "", Device("gpu", uuid=match["uuid"]), check="XidCriticalError")
    elif _OF_NVML.match(said) and (failure := nvml_failure(said)):
        yield _event(failure.kind, failure.variant, failure.device, check="Nvml")
    elif match := _RUNTIME.match(said):
        yield _event("node_service", "", check="ContainerRuntime", name=match["name"] or match["sock"])


def _of_node(said: str) -> Iterator[Event]:
    """What is said of the node itself: it is ready or not, it runs out of something or no longer."""
    if _NOT_READY.match(said):
        why = _REASON.search(said)
        if why and _STARTS.search(why["message"]) and not _DOWN.search(why["message"]):
            yield _event("node_service", "start", check="PodSync", name="PLEG is not healthy")
        else:
            yield _event("node_not_ready", "", check=why["reason"] if why else None)
    elif match := _NOT_ADMITTED.match(said):
        yield _event("node_pressure", "", check="Node", name=match["name"])
    elif match := _RECORDED.match(said):
        name = match["old"] or match["new"]
        if name == "NodeReady":
            yield _event("node_ready", "", check=name)
        elif pressure := _PRESSURE.fullmatch(name):
            yield _event("node_pressure", "", check="Node", name=pressure["name"].removeprefix("Insufficient"))
        elif relief := _RELIEF.fullmatch(name):
            yield _event("node_pressure", "ended", check="Node", name=relief["disk"] or relief["name"])


def _event(kind: str, variant: str, device: Device | None = None, **said: Attribute) -> Event:
    event = Event(None, None, "kubelet", kind, device=device or Device(), attributes=attributes(**said))
    return with_kind_meaning(event, variant)


FORMAT = Format(
    name="kubelet",
    description="Kubernetes' kubelet in the system log or as klog prints it, and NVIDIA's device plugin",
    sample='Apr 13 10:53:52 gpu-017 kubelet[3263]: E0413 10:53:52.844381    3263 kubelet.go:2055] "Skipping pod '
    'synchronization" err="PLEG is not healthy: pleg was last seen active 3m7.629592089s ago; threshold is 3m0s"',
    make=KubeletParser,
    testimony="detector",
    recognises=re.compile(
        r" (?:kubelet|kubenswrapper|hyperkube|k3s|rke2|microk8s\.daemon-kubelite)(?:\[\d{1,10}\])?: "
        r"[IWEF]\d{4} \d\d:\d\d:"
        r"|^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} {1,7}\d{1,10} (?:kubelet\w*|setters|eviction_manager|pod_workers|endpoint"
        r"|remote_runtime|kuberuntime_\w+|device_plugin\w*|health|server|manager)\.go:\d+\] "
        r"|^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:XidCriticalError: |Could not register device plugin: "
        r"|'[\w./-]+' device marked unhealthy: )",
        re.ASCII,
    ),
)
