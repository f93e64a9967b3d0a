"""Recording rules of Prometheus for Foreshock, by the table of metrics: the rules, and what their series mean.

    foreshock:gpu_temp_c:max{exporter="dcgm", node="gpu-017", gpu="3"}     the highest of the last five minutes

`rules_text()` is deploy/prometheus/foreshock-recording-rules.yaml. Metrics with a fixed name are recorded; those whose
name holds a link, a sensor or a code are left to the sidecar.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from collectors.telemetry.rollups import rounded
from store.catalog_rows import rows
from store.records.telemetry import ACCELERATORS, MAX_DEVICES, MAX_MEASURES, Rollup

STEP_S = 300
STATS: Mapping[str, str] = {
    "min": "min_over_time",
    "max": "max_over_time",
    "sum": "sum_over_time",
    "count": "count_over_time",
    "last": "last_over_time",
    "changes": "changes",
}
# How series of one device that differ in other labels (the pod that has the GPU) are made one.
_JOIN = {"min": "min", "max": "max", "sum": "sum", "count": "sum", "last": "max", "changes": "sum"}
_HEAD = """# What Foreshock reads from Prometheus, Mimir or Thanos: five minutes of each device and measure.
# Made from store/catalogs/telemetry.csv; a test holds the two together. Of the mean the sum and the count are kept.
# `node` is the host. Where your exporters name it otherwise (dcgm-exporter in Kubernetes writes its pod's name as
# Hostname, unless told), change the label_replace. Take out the groups of exporters that you do not have.
groups:
"""


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """Where an exporter's labels say the device is: its type, the labels of its name, and the host's label.

    `host` is the label that holds the host's name; `instance` has a port behind it; empty where it is `node` already.
    `whole` selects the device's own series, not its instances'.
    """

    type: str
    labels: tuple[str, ...]
    host: str
    whole: str = ""


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """One measure of one exporter, as it is recorded."""

    exporter: str
    measure: str
    metrics: tuple[str, ...]
    factor: float
    how: str
    place: DeviceLabels

    def device(self, labels: Mapping[str, str]) -> str | None:
        """The device of a series, as a sidecar would call it; None where a label is missing."""
        words = [labels.get(label, "") for label in self.place.labels]
        if not all(words):
            return None
        if not words:
            return self.place.type
        return f"{self.place.type}:{'mc' if self.place.type == 'dimm' else ''}{'/'.join(words)}"


_PLACES: Mapping[str, DeviceLabels] = {
    "dcgm": DeviceLabels("gpu", ("gpu",), "Hostname", '{GPU_I_ID=""}'),
    "npu": DeviceLabels("npu", ("id",), "instance", '{v_dev_id=""}'),
    "amd": DeviceLabels("gpu", ("gpu_id",), "hostname"),
    "cambricon": DeviceLabels("mlu", ("mlu",), "", '{vf=""}'),
}
_HOST_PLACES: Mapping[str, DeviceLabels] = {
    "node_infiniband_": DeviceLabels("nic", ("device", "port"), "instance"),
    "node_cpu_": DeviceLabels("cpu", ("package",), "instance"),
    "node_edac_": DeviceLabels("dimm", ("controller",), "instance"),
    "node_boot_time_": DeviceLabels("node", (), "instance"),
    "node_vmstat_": DeviceLabels("node", (), "instance"),
    "node_network_carrier_": DeviceLabels("node", (), "instance"),
}
# Parts of a memory controller count what the controller counts.
_LEFT_OUT = ("node_edac_csrow_", "node_edac_channel_", "DCGM_FI_DEV_NVSWITCH_")


@cache
def recorded() -> tuple[RecordingRule, ...]:
    """Every measure that is recorded, by exporter and name."""
    found = {(one.exporter, one.measure): one for one in _rows()}
    return tuple(found[key] for key in sorted(found))


def _rows() -> Iterator[RecordingRule]:
    for row in rows("telemetry"):
        metrics = tuple(filter(None, (row["metric"], row["also"])))
        place = _PLACES.get(row["exporter"]) or next(
            (place for prefix, place in _HOST_PLACES.items() if row["metric"].startswith(prefix)), None
        )
        fixed = row["name"] and "{" not in row["name"] and "*" not in row["metric"]
        if fixed and place and not row["metric"].startswith(_LEFT_OUT):
            yield RecordingRule(row["exporter"], row["name"], metrics, float(row["factor"] or 1), row["how"], place)


def record_name(measure: str, stat: str) -> str:
    """The name of a recorded series."""
    return f"foreshock:{measure}:{stat}"


def expression(one: RecordingRule, stat: str) -> str:
    """What a rule computes."""
    function, join = STATS[stat], _JOIN[stat]
    if one.how == "sum" and stat not in ("changes", "count"):
        join = "sum"
    # Each MIG instance has a last Xid of its own; what else an instance's series says is the whole GPU's.
    whole = "" if one.measure == "xid_last" else one.place.whole
    ranges = " or ".join(f"{function}({metric}{whole}[{STEP_S // 60}m])" for metric in one.metrics)
    if one.place.host:
        pattern = "([^:]+)(?::[0-9]+)?" if one.place.host == "instance" else "(.+)"
        ranges = f'label_replace({ranges}, "node", "$1", "{one.place.host}", "{pattern}")'
    factor = f" * {one.factor:g}" if one.factor != 1 and stat not in ("count", "changes") else ""
    return f"{join} by ({', '.join(('node', *one.place.labels))}) ({ranges}){factor}"


def rules_text(interval_s: int = STEP_S) -> str:
    """The rules as Prometheus reads them: a group an exporter."""
    lines = [_HEAD.rstrip("\n")]
    exporter = ""
    for one in recorded():
        if one.exporter != exporter:
            exporter = one.exporter
            lines += [f"  - name: foreshock-{exporter}", f"    interval: {interval_s}s", "    rules:"]
        for stat in STATS:
            lines.append(f"      - record: {record_name(one.measure, stat)}")
            lines.append(f"        expr: '{expression(one, stat)}'")
            lines.append(f"        labels: {{exporter: {exporter}}}")
    return "\n".join(lines) + "\n"


# Recorded five minutes to node-hour roll-ups: the question for an hour so far, and what its answers add up to.

_ORDER = ("min", "max", "avg", "last", "changes")


def hour_query(one: RecordingRule, node_label: str, nodes: Sequence[str], elapsed_s: int) -> str:
    """Every statistic of a measure over the last `elapsed_s` of some nodes, distinguished by the label `stat`.

    A mean is weighted by how many values went into each five minutes.
    """
    names = "|".join(map(re.escape, nodes)).replace("\\", "\\\\")
    where = f'{{exporter="{one.exporter}",{node_label}=~"{names}"}}'

    def of(stat: str) -> str:
        return record_name(one.measure, stat) + where

    window = f"{elapsed_s}s"
    parts = {
        "min": f"min_over_time({of('min')}[{window}])",
        "max": f"max_over_time({of('max')}[{window}])",
        "avg": f"sum_over_time({of('sum')}[{window}]) / sum_over_time({of('count')}[{window}])",
        "last": f"last_over_time({of('last')}[{window}])",
        "changes": f"sum_over_time({of('changes')}[{window}])",
        "count": f"sum_over_time({of('count')}[{window}])",
    }
    return " or ".join(f'label_replace({part}, "stat", "{stat}", "", "")' for stat, part in parts.items())


class Hour:
    """One hour of some nodes, being filled with statistics."""

    def __init__(self, start_s: int) -> None:
        self._start_s = start_s
        self._nodes: dict[str, dict[str, dict[str, dict[str, float]]]] = {}

    def add(self, node: str, of: tuple[str, str], stat: str, value: float) -> None:
        """One statistic of a device's measure."""
        device, measure = of
        if value == value and abs(value) != float("inf"):
            self._nodes.setdefault(node, {}).setdefault(device, {}).setdefault(measure, {})[stat] = value

    def rollups(self) -> list[Rollup]:
        """A roll-up a node."""
        return [self._rollup(node, devices) for node, devices in sorted(self._nodes.items())]

    def _rollup(self, node: str, devices: dict[str, dict[str, dict[str, float]]]) -> Rollup:
        kept: dict[str, dict[str, list[float | None]]] = {}
        room = MAX_MEASURES
        for device, measures in sorted(devices.items())[:MAX_DEVICES]:
            chosen = sorted(measures.items())[:room]
            room -= len(chosen)
            if chosen:
                kept[device] = {name: [_rounded(stats.get(stat)) for stat in _ORDER] for name, stats in chosen}
        gpus = {name: found for name, found in devices.items() if name.partition(":")[0] in ACCELERATORS}
        counts = [max(stats.get("count", 0.0) for stats in found.values()) for found in gpus.values()]
        means = _of(gpus, "gpu_temp_c", "avg")
        return Rollup(
            node=node,
            time=datetime.fromtimestamp(self._start_s, UTC),
            samples=int(sum(counts)),
            gpus_seen=len(gpus),
            gpu_temp_mean_c=_mean(gpus, "gpu_temp_c"),
            gpu_temp_max_c=max(_of(gpus, "gpu_temp_c", "max"), default=None),
            gpu_temp_spread_c=max(means) - min(means) if means else None,
            memory_temp_max_c=max(_of(gpus, "memory_temp_c", "max"), default=None),
            power_mean_w=_mean(gpus, "power_w"),
            power_max_w=max(_of(gpus, "power_w", "max"), default=None),
            gpu_util_mean=_mean(gpus, "gpu_util_ratio"),
            sm_clock_min_mhz=min(_of(gpus, "sm_clock_mhz", "min"), default=None),
            devices=kept,
        )


def _of(gpus: dict[str, dict[str, dict[str, float]]], measure: str, stat: str) -> list[float]:
    return [found[measure][stat] for found in gpus.values() if stat in found.get(measure, {})]


def _mean(gpus: dict[str, dict[str, dict[str, float]]], measure: str) -> float | None:
    """Over samples: a GPU that was seen for half of the hour counts half."""
    found = [stats[measure] for stats in gpus.values() if {"avg", "count"} <= stats.get(measure, {}).keys()]
    count = sum(stats["count"] for stats in found)
    return sum(stats["avg"] * stats["count"] for stats in found) / count if count else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)
