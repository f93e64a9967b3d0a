"""What each exporter calls a metric, and what Foreshock calls it: the table `catalogs/telemetry.csv`.

    find_metric("npu", "npu_chip_info_hccs_statistic_info_crc_err_cnt_3").named({})     # link_crc_l3
    measure_of("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL")     # ("ecc_sbe_lifetime", 1.0), as a sidecar calls it
    measure_of("smart_5")                           # ("smart_5", 1.0): a column that no table knows keeps its name

The values of every accelerator have the same names: gpu_temp_c, power_w, gpu_util_ratio, ecc_sbe, ecc_dbe ...
A counter of one link keeps its link in its name (`link_crc_l3`): the name shows which link fails. A sum of links would
fall when one link is gone from the page, and so look like a driver that was loaded again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from store.catalog_rows import rows
from store.records.telemetry import MAX_DEVICE_NAME

# What may stand in a name: anything else in a label is somebody's free text.
_WORD = re.compile(r"[A-Za-z0-9_]{1,32}", re.ASCII)
_SLOT = re.compile(r"\{(\w+)\}")
# Metric names remembered; a page may hold any.
_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one exporter.

    Attributes:
        template: Foreshock's name of it; `{link}` stands for a label's value, `{0}` for what the table's `*` matched.
            Empty for a metric that is read and left out on purpose.
        factor: what a value is multiplied by to be in the name's unit.
        how: `max` or `sum` where several series of one device are one value; empty where there is one series.
        of_instance: a MIG instance's or a partition's value is its own, not the whole device's.
        wild: what the table's `*` matched.
    """

    template: str
    factor: float
    how: str
    of_instance: bool
    wild: str = ""

    def named(self, labels: Mapping[str, str]) -> str | None:
        """Foreshock's name for a series of this metric; None where a label that it needs is missing or no word."""
        if "{" not in self.template:
            return self.template or None
        words = {slot: self.wild if slot == "0" else labels.get(slot, "") for slot in _SLOT.findall(self.template)}
        if not all(_WORD.fullmatch(word) for word in words.values()):
            return None
        return _SLOT.sub(lambda match: words[match[1]].lower(), self.template)


@lru_cache(maxsize=_REMEMBERED)
def find_metric(exporter: str, metric: str) -> Metric | None:
    """What the table says of a metric's name; None where it does not know it."""
    exact, patterns = _table(exporter)
    if known := exact.get(metric):
        return known
    for pattern, known in patterns:
        if match := pattern.fullmatch(metric):
            return Metric(known.template, known.factor, known.how, known.of_instance, match[1])
    return None


@cache
def _table(exporter: str) -> tuple[dict[str, Metric], list[tuple[re.Pattern[str], Metric]]]:
    exact: dict[str, Metric] = {}
    patterns: list[tuple[re.Pattern[str], Metric]] = []
    for row in rows("telemetry"):
        if row["exporter"] != exporter:
            continue
        metric = Metric(row["name"], float(row["factor"] or 1), row["how"], row["per"] == "instance")
        for name in filter(None, (row["metric"], row["also"])):
            if "*" in name:
                patterns.append((re.compile(re.escape(name).replace(r"\*", "([A-Za-z0-9_]*)"), re.ASCII), metric))
            else:
                exact[name] = metric
    return exact, patterns


def measure_of(field: str) -> tuple[str, float] | None:
    """A column's name in the store and the factor to its unit; None for one that the catalogue leaves out."""
    known = find_metric("dcgm", field)
    if known is None:
        return field[:MAX_DEVICE_NAME], 1.0
    if not known.template:
        return None
    return known.named({}) or field[:MAX_DEVICE_NAME], known.factor


@dataclass(frozen=True, slots=True)
class NodeMeasure:
    """A column of a node's rows: whose it is, and what the store calls it.

    Attributes:
        type: of the device that it is of, where no label tells: `node`, `hca`, `dimm`, `bmc`.
        device: that device's name; None for a node or its BMC, of which there is one.
        known: the catalogue has a name for it.
    """

    name: str
    factor: float
    source: str
    type: str = "node"
    device: str | None = None
    known: bool = False


# Exporters whose columns a node's row may bear, beside what is of no exporter that the table knows.
_NODE_EXPORTERS = ("node_exporter", "ipmi", "dcgm", "prometheus")
# What a column is of, by how it begins; several series of one name are one column there.
_PLACES = (
    ("node_infiniband_", "hca", "infiniband"),
    ("node_edac_channel_", "dimm", "mc/csrow/ch"),
    ("node_edac_csrow_", "dimm", "mc/csrow"),
    ("node_edac_", "dimm", "mc"),
    ("ipmi_", "bmc", None),
)


@lru_cache(maxsize=_REMEMBERED)
def node_measure(field: str) -> NodeMeasure:
    """What a column of a node's rows is; one that the catalogue does not name, or leaves out, keeps its own name."""
    kind, device = next(((kind, name) for begins, kind, name in _PLACES if field.startswith(begins)), ("node", None))
    source = {"bmc": "ipmi", "node": "node_exporter" if field.startswith("node_") else "telemetry"}.get(
        kind, "node_exporter"
    )
    for exporter in _NODE_EXPORTERS:
        known = find_metric(exporter, field)
        name = known.named({}) if known is not None else None
        if known is not None and name is not None:
            return NodeMeasure(name, known.factor, exporter, kind, device, known=True)
    return NodeMeasure(field[:MAX_DEVICE_NAME], 1.0, source, kind, device)
