"""What Prometheus records for Foreshock, by the table of metrics: the rules, and what their series mean.

    foreshock:gpu_temp_c:max{exporter="dcgm", node="gpu-017", gpu="3"}     the highest of the last five minutes

`rules_text()` is deploy/prometheus/foreshock-recording-rules.yaml. Metrics with a fixed name are recorded; those whose
name holds a link, a sensor or a code are left to the sidecar.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from store.catalog import rows

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
class Place:
    """Where an exporter's labels say the device is: its type, the labels of its name, and the host's label.

    `host` is the label that holds the host's name; `instance` has a port behind it; empty where it is `node` already.
    `whole` selects the device's own series, not its instances'.
    """

    type: str
    labels: tuple[str, ...]
    host: str
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One measure of one exporter, as it is recorded."""

    exporter: str
    measure: str
    metrics: tuple[str, ...]
    factor: float
    how: str
    place: Place

    def device(self, labels: Mapping[str, str]) -> str | None:
        """The device of a series, as a sidecar would call it; None where a label is missing."""
        words = [labels.get(label, "") for label in self.place.labels]
        if not all(words):
            return None
        return f"{self.place.type}:{'mc' if self.place.type == 'dimm' else ''}{'/'.join(words)}"


_PLACES: Mapping[str, Place] = {
    "dcgm": Place("gpu", ("gpu",), "Hostname", '{GPU_I_ID=""}'),
    "npu": Place("npu", ("id",), "instance", '{v_dev_id=""}'),
    "amd": Place("gpu", ("gpu_id",), "hostname"),
    "cambricon": Place("mlu", ("mlu",), "", '{vf=""}'),
}
_HOST_PLACES: Mapping[str, Place] = {
    "node_infiniband_": Place("nic", ("device", "port"), "instance"),
    "node_cpu_": Place("cpu", ("package",), "instance"),
    "node_edac_": Place("dimm", ("controller",), "instance"),
}
# Parts of a memory controller count what the controller counts.
_LEFT_OUT = ("node_edac_csrow_", "node_edac_channel_", "DCGM_FI_DEV_NVSWITCH_")


@cache
def recorded() -> tuple[Recorded, ...]:
    """Every measure that is recorded, by exporter and name."""
    found = {(one.exporter, one.measure): one for one in _rows()}
    return tuple(found[key] for key in sorted(found))


def _rows() -> Iterator[Recorded]:
    for row in rows("telemetry"):
        metrics = tuple(filter(None, (row["metric"], row["also"])))
        place = _PLACES.get(row["exporter"]) or next(
            (place for prefix, place in _HOST_PLACES.items() if row["metric"].startswith(prefix)), None
        )
        fixed = row["name"] and "{" not in row["name"] and "*" not in row["metric"]
        if fixed and place and not row["metric"].startswith(_LEFT_OUT):
            yield Recorded(row["exporter"], row["name"], metrics, float(row["factor"] or 1), row["how"], place)


def record_name(measure: str, stat: str) -> str:
    """The name of a recorded series."""
    return f"foreshock:{measure}:{stat}"


def expression(one: Recorded, stat: str) -> str:
    """What a rule computes."""
    function, join = STATS[stat], _JOIN[stat]
    if one.how == "sum" and stat not in ("changes", "count"):
        join = "sum"
    ranges = " or ".join(f"{function}({metric}{one.place.whole}[{STEP_S // 60}m])" for metric in one.metrics)
    if one.place.host:
        pattern = "([^:]+)(?::[0-9]+)?" if one.place.host == "instance" else "(.+)"
        ranges = f'label_replace({ranges}, "node", "$1", "{one.place.host}", "{pattern}")'
    factor = f" * {one.factor:g}" if one.factor != 1 and stat not in ("count", "changes") else ""
    return f"{join} by (node, {', '.join(one.place.labels)}) ({ranges}){factor}"


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
