"""Which columns of an archive's telemetry are measures beyond the store's own columns, and what they are called there.

smart_5                          -> smart_5, as it is
DCGM_FI_DEV_ECC_SBE_AGG_TOTAL    -> ecc_sbe_lifetime, as a sidecar calls it (`catalogs/telemetry.csv`)
DCGM_FI_DEV_GPU_TEMP             -> none of these: the store has columns, or events, of it
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import pyarrow as pa

from store.records.catalog_rows import rows
from store.records.telemetry import COUNTERS, GAUGES, MAX_DEVICE_NAME

# What each exporter calls a metric, and what Foreshock calls it: the table `catalogs/telemetry.csv`.
#
#     find("npu", "npu_chip_info_hccs_statistic_info_crc_err_cnt_3").named({}) -> "link_crc_l3"
#
# Every accelerator's values bear the same words: gpu_temp_c, power_w, gpu_util_ratio, ecc_sbe, ecc_dbe, pcie_replay ...
# A counter of one link keeps its link in its name (`link_crc_l3`): it tells which link fails, and a sum of links would
# fall, and so look like a driver that was loaded again, when one link is gone from the page.

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


_OWN = {field: name for field, (name, _) in GAUGES.items()} | dict(COUNTERS)
_KEYS = ("time", "node", "gpu")
# What pandas writes of an index that has no name: a number of the row.
_INDEX = re.compile(r"__index_level_\d+__")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def other_columns(schema: pa.Schema) -> tuple[dict[str, tuple[str, float]], tuple[str, ...]]:
    """Of each measure its column and the factor to its unit, and a sentence of each column of numbers left out."""
    counts = Counter(schema.names)
    taken = {name: field for field, name in _OWN.items() if field in counts}
    measures: dict[str, tuple[str, float]] = {}
    left_out = []
    for field in dict.fromkeys(schema.names):
        if field in _KEYS or field in _OWN or _INDEX.fullmatch(field):
            continue
        if counts[field] == 1 and not _is_number(schema.field(field).type):
            continue
        named = measure_of(field)
        if named is None:
            continue
        name, factor = named
        if counts[field] > 1:
            left_out.append(f"column {field!r}: there are {counts[field]} of that name")
        elif not name or _CONTROL.search(name):
            left_out.append(f"column {field!r}: give it a name that can be printed")
        elif name in taken:
            left_out.append(f"column {field!r}: {taken[name]!r} has the same name, {name!r}")
        else:
            taken[name], measures[name] = field, (field, factor)
    return measures, tuple(left_out)


def measure_of(field: str) -> tuple[str, float] | None:
    """A column's name in the store and the factor to its unit; None for one that the catalogue leaves out."""
    known = find_metric("dcgm", field)
    if known is None:
        return field[:MAX_DEVICE_NAME], 1.0
    if not known.template:
        return None
    return known.named({}) or field[:MAX_DEVICE_NAME], known.factor


def _is_number(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
