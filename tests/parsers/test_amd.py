"""device-metrics-exporter's pages."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.pages import devices_of
from parsers.text.parser import Context
from store.records.telemetry import Sample
from store.telemetry.measures import find_metric

VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
LABELS = 'gpu_id="0",gpu_uuid="U-0",gpu_partition_id="0",hostname="mi300-4",serial_number="S"'
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
CONTEXT = Context(until=NOW)


def metric(name: str, value: str = "61", labels: str = LABELS) -> str:
    """One line of a page."""
    return f"{name}{{{labels}}} {value}"


def one(*lines: str, context: Context = CONTEXT) -> Sample:
    """The one sample of some lines."""
    (sample,) = devices_of("\n".join(lines), context)
    return sample


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_a_sample_gathers_the_metrics_of_one_gpu(prefix: str) -> None:
    """Of older and newer versions of the exporter."""
    lines = [("gpu_junction_temperature", "61"), ("gpu_gfx_activity", "97"), ("gpu_ecc_correct_total", "2")]
    lines += [("pcie_replay_count", "3"), ("gpu_used_vram", "283"), ("gpu_ecc_uncorrect_umc", "1")]
    values = {"gpu_temp_c": 61.0, "gpu_util_ratio": 0.97, "ecc_sbe": 2.0, "pcie_replay": 3.0, "ecc_dbe_umc": 1.0}
    sample = one(*(metric(prefix + name, value) for name, value in lines))
    assert sample == Sample(NOW, "mi300-4", 0, values, uuid="U-0", type="gpu", source="amd", serial="S")


@pytest.mark.parametrize("value", ["65535", "4294967295", "4.294967295e+09", "1.8446744073709552e+19", "2147483647"])
def test_a_field_of_ones_only_is_missing(value: str) -> None:
    """Of every width that the driver's fields have."""
    assert one(metric("gpu_power_usage", "255"), metric("gpu_junction_temperature", value)).values == {"power_w": 255.0}


def test_a_count_may_well_be_65535() -> None:
    """Only a measurement may not; 1,048,560 corrected errors are the driver's bogus count."""
    sample = one(metric("pcie_replay_count", "65535"), metric("gpu_ecc_correct_total", "1.04856e+06"))
    assert sample.values == {"pcie_replay": 65535.0}


def test_of_several_sensors_or_clocks_the_highest_counts() -> None:
    """One value per kind of clock."""
    clocks = [("system", "0", 132), ("system", "1", 900), ("memory", "8", 1300)]
    lines = [
        metric("gpu_clock", str(mhz), f'{LABELS},clock_index="{index}",clock_type="{kind}"')
        for kind, index, mhz in clocks
    ]
    assert one(*lines).values == {"clock_system_mhz": 900.0, "clock_memory_mhz": 1300.0}


def test_a_label_of_free_text_makes_no_name() -> None:
    """Nor an attribute."""
    free = metric("gpu_clock", "1", LABELS + ',clock_type="a b\\"c"')
    assert one(metric("gpu_power_usage"), free).values == {"power_w": 61.0}


def test_a_containers_id_is_no_hosts_name() -> None:
    """Where the context knows better; else it is all that there is."""
    line = metric("gpu_power_usage", labels='gpu_id="0",hostname="cb76105c40d0"')
    assert one(line, context=Context(node="mi300-4", until=NOW)).node == "mi300-4"
    assert one(line).node == "cb76105c40d0"
    named = metric("gpu_power_usage", labels='gpu_id="0",hostname="cb76105c40"')
    assert one(named, context=Context(node="mi300-4", until=NOW)).node == "cb76105c40"


def test_a_partitions_activity_is_not_the_gpus() -> None:
    """Its errors are the GPU's."""
    partition = 'gpu_id="0",gpu_partition_id="3",hostname="a"'
    lines = [metric("gpu_gfx_activity", "9", partition), metric("gpu_ecc_correct_total", "2", partition)]
    assert one(*lines).values == {"ecc_sbe": 2.0}


def test_a_line_with_an_open_quote_is_passed_by() -> None:
    """As the exporter's own documentation shows one."""
    broken = 'gpu_edge_temperature{card_model="0x1002,cluster_name="genoa",gpu_id="0"} 30'
    assert one(broken, metric("gpu_power_usage")).values == {"power_w": 61.0}


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
def test_every_metric_of_the_vendor_is_known() -> None:
    """Used, or left out on purpose."""
    names = [row["metric"] for row in csv.DictReader((VENDORS / "amd_metrics.csv").read_text().splitlines())]
    known = {name: find_metric("amd", name) for name in names}
    assert [name for name, metric_ in known.items() if metric_ is None] == []
    used = sum(1 for metric_ in known.values() if metric_ and metric_.template)
    assert (len(names), used) == (142, 89)
