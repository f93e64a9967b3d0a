"""What `nvidia-smi` says of GPUs: NVLinks (`nvlink -e`, `-q`), the tables of `--query-gpu`, GPUs and drivers it misses.

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
    Failed to initialize NVML: Driver/library version mismatch                      -> nvrm_mismatch
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite

from parsers.reports.nvml_failures import nvml_failure
from parsers.reports.reported_states import ReportedStates
from parsers.reports.tool_reading import MOMENT, ToolReading, moment_of
from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event, canonical_pci
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
_FAILED = re.compile(
    r"(?:(?P<node>(?=[\w.-]{0,252}\d)[A-Za-z][\w.-]{0,252}): +)?"
    r"(?P<text>Failed to initialize NVML: |NVIDIA-SMI has failed )",
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


# What `nvidia-smi --query-gpu=... --format=csv` (also --query-remapped-rows) has of a GPU.
#
#     timestamp, index, pci.bus_id, temperature.gpu, power.draw [W], ecc.errors.uncorrected.volatile.total
#     2025/03/01 04:05:06.123, 1, 00000000:0F:00.0, 91, 251.20 W, 3
#
# Rows without a head say nothing. Of a GPU that is sampled each second a reading a minute is told, and a state once.
_HEAD = re.compile(
    r"[a-z][a-zA-Z0-9_., \[\]/%]{0,600}?(?<![\w.])(?:ecc\.errors\.\w|temperature\.gpu|power\.draw|utilization\.gpu"
    r"|remapped_rows\.\w|gpu_bus_id|pci\.bus_id|clocks_(?:throttle|event)_reasons\.)[a-zA-Z0-9_., \[\]/%]{0,2000}",
    re.ASCII,
)
_MEASURES = {
    "temperature.gpu": "gpu_temp_c",
    "temperature.memory": "memory_temp_c",
    "power.draw": "power_w",
    "ecc.errors.corrected.volatile.total": "ecc_sbe",
    "ecc.errors.uncorrected.volatile.total": "ecc_dbe",
    "ecc.errors.uncorrected.aggregate.total": "ecc_dbe_lifetime",
}
# States: a column, the words of one that is there, its kind and variant.
_STATES = (
    ("remapped_rows.failure", "row_remap_failure"),
    ("remapped_rows.pending", "row_remap"),
    ("clocks_throttle_reasons.hw_slowdown", "gpu_throttled"),
    ("clocks_event_reasons.hw_slowdown", "gpu_throttled"),
)
_THERE = frozenset(("Yes", "1", "Active"))
_OF_CELLS = {"[GPU is lost]": "gpu_missing", "[GPU requires reset]": "gpu_unhealthy"}
_UNIT = re.compile(r" \[[^\]]{1,8}\]$", re.ASCII)
_DAY = re.compile(r"(\d{4})/(\d{2})/(\d{2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)", re.ASCII)
_READING_S = 60.0
_MOST_COLUMNS = 200


class GpuQuery:
    """Reads the rows of such tables. Remembers each GPU's last reading and its states."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._columns: list[str] = []
        self._states = ReportedStates()
        self._read: dict[tuple[str | None, ...], datetime] = {}

    def heads(self, text: str) -> bool:
        """Whether a line is the head of such a table, whose rows follow."""
        if ", " not in text or not _HEAD.fullmatch(text[:3000]):
            return False
        self._columns = [_UNIT.sub("", name.strip()) for name in text.split(", ")[:_MOST_COLUMNS]]
        return True

    def events(self, text: str, node: str | None, line: int) -> Iterator[Event]:
        """The events of a row: nothing of a line that is none."""
        cells = [cell.strip() for cell in text.split(", ", _MOST_COLUMNS)]
        if len(cells) < 2 or len(cells) != len(self._columns):
            return
        row = dict(zip(self._columns, cells, strict=True))
        device = _device(row)
        if device is None:
            return
        day = _DAY.fullmatch(row.get("timestamp", ""))
        time = moment_of(MOMENT.match("{}-{}-{} {}".format(*day.groups())), self._context) if day else None
        said = ToolReading(device, line)
        for name, known in _MEASURES.items():
            if name in row:
                said.take(known, row[name])
        key = (node, device.pci, device.uuid, str(device.index))
        before = self._read.get(key)
        if before is None or time is None or (time - before).total_seconds() >= _READING_S:
            if time is not None and len(self._read) < _MOST_GPUS:
                self._read[key] = time
            yield from said.events("nvidia_smi", node, time)
        for kind, words in _conditions(row):
            if self._states.changed((str(node), *map(str, key), kind), (words,)):
                found = Event(time, node, "nvidia_smi", kind, device=device, message=words, line=line)
                yield with_kind_meaning(found)


_MOST_GPUS = 100_000


def _device(row: Mapping[str, str]) -> Device | None:
    """The GPU that a row names; None where it names none."""
    pci = _pci(row.get("pci.bus_id") or row.get("gpu_bus_id"))
    uuid = row.get("uuid") or row.get("gpu_uuid")
    index = row.get("index", "")
    device = Device(
        "gpu",
        pci=canonical_pci(pci) if pci else None,
        index=int(index) if index.isdecimal() and len(index) < 4 else None,
        uuid=uuid if uuid and uuid.startswith("GPU-") and len(uuid) <= 40 else None,
    )
    return None if device == Device("gpu") else device


def _conditions(row: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Kind and words of each state that a row shows."""
    for name, kind in _STATES:
        if row.get(name) in _THERE:
            yield kind, f"{name}: {row[name]}"
    lost = next((cell for cell in row.values() if cell in _OF_CELLS), None)
    if lost is not None:
        yield _OF_CELLS[lost], lost.strip("[]")


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
        self._query = GpuQuery(context)

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of the GPU before, where another one begins."""
        node = self._context.node
        if prefix := _NODE.match(text):
            node, text = prefix["node"], text[prefix.end() :]
        if lost := _UNREACHABLE.match(text):
            node, state = lost["node"] or node, {"state": lost["state"].strip()}
            missed = _GpuReading(Device("gpu", pci=_pci(lost["pci"])), line)
            return [*self._told(node), self._event(node, missed, "gpu_unhealthy", text.strip()[:500], state)]
        if failed := _FAILED.match(text):
            failure = nvml_failure(text)
            if failure is None:
                return []
            named = replace(failure.event("nvidia_smi", text[failed.start("text") :]), time=self._time, line=line)
            return [*self._told(node), replace(named, node=failed["node"] or node)]
        if self._query.heads(text):
            return list(self.flush())
        if ", " in text and (rows := list(self._query.events(text, node, line))):
            return rows
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
    description="NVLinks and their fabric (nvidia-smi nvlink -e, -q), the CSV of nvidia-smi --query-gpu",
    sample="         Link 14: Total link recovery events: 505",
    make=NvidiaSmiParser,
    testimony="machine",
    recognises=re.compile(
        r"^(?:[\w.-]+: +)?\s*(?:Link \d{1,3}: (?:[A-Z][A-Za-z ]+ (?:Errors|events|BER)|Tx discards): [0-9]"
        r"|GPU \d{1,3}: NVIDIA .{1,80}\(UUID: GPU-|CliqueId +: |ClusterUUID +: )"
        r"|^(?:[A-Za-z][\w.-]{0,60}?\d[\w.-]{0,200}: +)?"
        r"(?:Unable to determine the device handle for GPU ?[0-9A-Fa-f]{4}"
        r"|Failed to initialize NVML: |NVIDIA-SMI has failed )"
        r"|^[a-z][a-zA-Z0-9_., \[\]/%]{0,300}?, (?:ecc\.errors\.\w|temperature\.gpu|power\.draw|utilization\.gpu"
        r"|remapped_rows\.\w|gpu_bus_id|pci\.bus_id|clocks_(?:throttle|event)_reasons\.)[a-zA-Z0-9_., \[\]/%]*$",
        re.ASCII,
    ),
)
