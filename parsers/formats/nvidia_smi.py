"""What `nvidia-smi nvlink -e` and `nvidia-smi -q` say of a GPU's NVLinks, and any of its commands of a GPU it misses.

    2026-09-05T12:00:00Z
    GPU 0: NVIDIA GB200 (UUID: GPU-d1b93026-6d5b-03bd-3a71-f85b47a61bde)
             Link 14: Total link recovery events: 505
    -> {"kind": "nvlink_counters", "device": {"type": "gpu", "index": 0, "uuid": "GPU-d1b9..."},
        "attributes": {"links": 18, "nvlink_recovery_event_l14": 505}, ...}

One event a GPU and sweep: how many links were read, and every counter above zero. A line with a date and time of its
own dates what follows it (`date -Is; nvidia-smi nvlink -e`); without one the events have no time. Lines may bear the
name of their node as `pdsh` writes it. Of the Fabric section the cluster and the clique name the NVLink domain, as the
Kubernetes label `nvidia.com/gpu.clique` does. The counters of corrected symbols (FEC) and raw bit errors are above zero
on every healthy link: they are left out.

    Unable to determine the device handle for GPU0000:07:00.0: Unknown Error        -> gpu_unhealthy of 0000:07:00.0
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite

from parsers.reports.tool_reading import MOMENT, moment_of
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

# The words of drivers up to 595, and Foreshock's names of the same (`store/catalogs/telemetry.csv`).
COUNTERS = {
    "Replay Errors": "nvlink_replay",
    "Recovery Errors": "nvlink_recovery",
    "CRC Errors": "nvlink_crc",
    "CRC FLIT Errors": "nvlink_crc",
    "CRC Data Errors": "nvlink_crc_data",
    "Malformed packet Errors": "nvlink_malformed_packet",
    "Buffer overrun Errors": "nvlink_buffer_overrun",
    "Rx Errors": "nvlink_rx_error",
    "Rx remote Errors": "nvlink_rx_remote_error",
    "Rx General Errors": "nvlink_rx_general_error",
    "Local link integrity Errors": "nvlink_integrity_error",
    "Tx discards": "nvlink_tx_discard",
    "Link recovery successful events": "nvlink_recovery_successful",
    "Link recovery failed events": "nvlink_recovery_failed",
    "Total link recovery events": "nvlink_recovery_event",
    "Effective Errors": "nvlink_effective_error",
    "Effective BER": "nvlink_effective_ber_ratio",
    "Symbol Errors": "nvlink_symbol_error",
    "Symbol BER": "nvlink_symbol_ber_ratio",
}
# 15e-255, which the driver prints of a link without errors, is no rate.
_LEAST_RATE = 1e-18
_MOST_LINKS = 64
# No record holds a greater whole number.
_MOST_COUNT = 2.0**63
_MOST_ATTRIBUTES = 256

_NODE = re.compile(
    r"(?P<node>[A-Za-z0-9][\w.-]{0,252}): +(?=GPU \S|Link \d|Fabric|State|Status|CliqueId|ClusterUUID)", re.ASCII
)
# Older releases put a space before the address. A host's name holds a digit; a program's error bears its own before it.
_UNREACHABLE = re.compile(
    r"(?:(?P<node>(?=[\w.-]{0,252}\d)[A-Za-z][\w.-]{0,252}): +)?Unable to determine the device handle for GPU ?"
    r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]): (?P<state>[A-Z][\w ]{2,60})",
    re.ASCII,
)
_GPU = re.compile(
    r"GPU (?:(?P<index>\d{1,3}): .{0,120}?(?:\(UUID: (?P<uuid>GPU-[0-9A-Fa-f-]{8,40})\))?"
    r"|(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]))\s*$",
    re.ASCII,
)
_LINK = re.compile(
    r"\s*Link (?P<link>\d{1,3}): (?P<name>[A-Z][A-Za-z ]{2,40}): (?P<value>[0-9][0-9.eE+-]{0,30})\s*$", re.ASCII
)
_FABRIC = re.compile(
    r"\s*(?P<name>Fabric|State|Status|CliqueId|ClusterUUID)\s*(?::\s*(?P<value>[\w -]{1,64}?))?\s*$", re.ASCII
)
_NO_CLUSTER = re.compile(r"[0-]+")


@dataclass(slots=True)
class _GpuReading:
    """What was read of one GPU so far."""

    device: Device
    line: int
    links: set[int] = field(default_factory=set)
    counters: dict[str, Attribute] = field(default_factory=dict)
    fabric: dict[str, str] | None = None


class NvidiaSmiParser:
    """Decodes sweeps of one node or several. Holds the GPU that each node's present lines speak of."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._time: datetime | None = None
        self._said: dict[str | None, _GpuReading] = {}

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of the GPU before, where another one begins."""
        node = self._context.node
        if prefix := _NODE.match(text):
            node, text = prefix["node"], text[prefix.end() :]
        if lost := _UNREACHABLE.match(text):
            node, state = lost["node"] or node, {"state": lost["state"].strip()}
            missed = _GpuReading(Device("gpu", pci=_pci(lost["pci"])), line)
            return [*self._told(node), self._event(node, missed, "gpu_unhealthy", text.strip()[:500], state)]
        if gpu := _GPU.match(text):
            found = list(self._told(node))
            index = None if gpu["index"] is None else int(gpu["index"])
            self._said[node] = _GpuReading(Device("gpu", pci=_pci(gpu["pci"]), index=index, uuid=gpu["uuid"]), line)
            return found
        if _LINK.match(text):  # a line that is pasted alone has no GPU before it
            _take_counter(self._said.setdefault(node, _GpuReading(Device("gpu"), line)), text)
            return []
        said = self._said.get(node)
        if said is not None and (match := _FABRIC.match(text)):
            _take_fabric(said, match["name"], match["value"])
            return []
        if said is not None and said.fabric is not None and text[:8].strip():
            said.fabric.setdefault("over", "")
        if moment := moment_of(MOMENT.search(text), self._context):
            found = list(self.flush())
            self._time = moment
            return found
        return []

    def flush(self) -> Iterable[Event]:
        """The events of the GPUs that were read last."""
        found = [event for node in list(self._said) for event in self._told(node)]
        self._said.clear()
        return found

    def _told(self, node: str | None) -> Iterator[Event]:
        said = self._said.pop(node, None)
        if said is None:
            return
        if said.links:
            named = ", ".join(f"{name} {value}" for name, value in list(said.counters.items())[:3])
            words = f"{len(said.links)} NVLinks read: {named or 'no errors'}"
            yield self._event(node, said, "nvlink_counters", words, {"links": len(said.links), **said.counters})
        if said.fabric and said.fabric.get("ClusterUUID"):
            yield from self._fabric(node, said, said.fabric)

    def _fabric(self, node: str | None, said: _GpuReading, fabric: dict[str, str]) -> Iterator[Event]:
        cluster, clique = fabric["ClusterUUID"], fabric.get("CliqueId", "")
        state, status = fabric.get("State", ""), fabric.get("Status", "")
        if cluster == "N/A" or not state or state == "N/A":
            return
        attributes: dict[str, Attribute] = {"state": state, "status": status, "clique": clique, "cluster": cluster}
        if not _NO_CLUSTER.fullmatch(cluster) and clique.isdecimal():
            attributes["domain"] = f"{cluster.lower()}.{clique}"
        words = ", ".join(filter(None, (state, status)))
        yield self._event(node, said, "nvlink_fabric", f"NVLink fabric: {words}", attributes)

    def _event(
        self, node: str | None, said: _GpuReading, kind: str, message: str, attributes: Mapping[str, Attribute]
    ) -> Event:
        where = {"device": said.device, "message": message, "attributes": attributes, "line": said.line}
        return with_kind_meaning(Event(self._time, node, "nvidia_smi", kind, **where))  # type: ignore[arg-type]


def _take_counter(said: _GpuReading, text: str) -> None:
    match = _LINK.match(text)
    if match is None or int(match["link"]) >= _MOST_LINKS:
        return
    link, name = int(match["link"]), COUNTERS.get(match["name"])
    said.links.add(link)
    try:
        value = float(match["value"])
    except ValueError:
        return
    if name is None or not isfinite(value) or value >= _MOST_COUNT or len(said.counters) >= _MOST_ATTRIBUTES:
        return
    if value > (_LEAST_RATE if name.endswith("_ratio") else 0):
        said.counters[f"{name}_l{link}"] = int(value) if value == int(value) else value


def _take_fabric(said: _GpuReading, name: str, value: str | None) -> None:
    if name == "Fabric" and value is None:
        said.fabric = {}
    elif said.fabric is not None and value is not None and "over" not in said.fabric:
        said.fabric.setdefault(name, value)


def _pci(text: str | None) -> str | None:
    """`00000008:06:00.0` as records write it."""
    return None if text is None else text.lower()[-len("0000:00:00.0") :]


FORMAT = Format(
    name="nvidia_smi",
    description="NVLink counters of each link, and the NVLink fabric (nvidia-smi nvlink -e, nvidia-smi -q)",
    sample="         Link 14: Total link recovery events: 505",
    make=NvidiaSmiParser,
    testimony="machine",
    recognises=re.compile(
        r"^(?:[\w.-]+: +)?\s*(?:Link \d{1,3}: (?:[A-Z][A-Za-z ]+ (?:Errors|events|BER)|Tx discards): [0-9]"
        r"|GPU \d{1,3}: NVIDIA .{1,80}\(UUID: GPU-|CliqueId +: |ClusterUUID +: )"
        r"|^(?:[A-Za-z][\w.-]{0,60}?\d[\w.-]{0,200}: +)?Unable to determine the device handle for GPU ?[0-9A-Fa-f]{4}",
        re.ASCII,
    ),
)
