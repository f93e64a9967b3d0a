"""mlu-exporter's pages."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.formats.cambricon import FORMAT
from parsers.pages import devices_of
from parsers.text.parser import Context, parse
from store.records.telemetry import Sample
from store.telemetry.measures import find_metric

VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
LABELS = 'mlu="1",model="MLU590-M9",node="mlu-7",sn="S1",uuid="U-1"'
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
CONTEXT = Context(until=NOW)


def metric(name: str, value: str, labels: str = LABELS) -> str:
    """One line of a page."""
    return f"mlu_{name}{{{labels}}} {value}"


def one(*lines: str) -> Sample:
    """The one sample of some lines."""
    (sample,) = devices_of("\n".join(lines), CONTEXT)
    return sample


def test_a_sample_gathers_the_metrics_of_one_mlu() -> None:
    """By the words that GPUs have."""
    lines = [metric("chip_temperature", "61"), metric("utilization", "99.5"), metric("dram_ecc_dbe_count", "1")]
    lines += [metric("remapped_correct_rows", "2"), metric("power_usage", "212"), metric("memory_used", "1")]
    values = {
        "gpu_temp_c": 61.0,
        "gpu_util_ratio": pytest.approx(0.995),
        "ecc_dbe": 1.0,
        "row_remap_correctable": 2.0,
        "power_w": 212.0,
    }
    assert one(*lines) == Sample(NOW, "mlu-7", 1, values, uuid="U-1", type="mlu", source="cambricon", serial="S1")


def test_the_event_names_model_and_serial_number() -> None:
    """What a technician looks for."""
    (event,) = parse(FORMAT.make(CONTEXT), [metric("power_usage", "212")])
    assert event.attributes == {"model": "MLU590-M9", "serial": "S1", "power_w": 212.0}
    assert (event.source, event.kind, event.device.type, event.device.index) == ("cambricon", "telemetry", "mlu", 1)


def test_each_link_keeps_its_counter() -> None:
    """One without its link is no value."""
    lines = [metric("mlulink_err_crc32_total", str(link), f'{LABELS},link="{link}"') for link in (0, 5)]
    assert one(*lines, metric("mlulink_err_crc32_total", "9")).values == {"link_crc32_l0": 0.0, "link_crc32_l5": 5.0}


@pytest.mark.parametrize(
    ("name", "value"), [("cluster_temperature", "0"), ("chip_temperature", "0"), ("pcie_replay_count", "-1")]
)
def test_what_is_not_there_is_missing(name: str, value: str) -> None:
    """MLU370 has no cluster temperature and writes 0."""
    assert one(metric("power_usage", "212"), metric(name, value)).values == {"power_w": 212.0}


def test_the_hottest_cluster_counts() -> None:
    """Of four."""
    lines = [metric("cluster_temperature", str(55 + n), f'{LABELS},cluster="{n}"') for n in range(4)]
    assert one(*lines).values == {"cluster_temp_c": 58.0}


def test_a_new_last_xid_is_the_fault_that_cambricon_means_by_it() -> None:
    """NVIDIA's Xid 14 is a fault injected on purpose; an MLU's is one that has left the bus."""
    lines = [metric("last_xid_error", code) for code in ("0", "14", "14", "99")]
    events = [event for event in parse(FORMAT.make(CONTEXT), lines) if event.kind != "telemetry"]
    assert [(event.source, event.kind, event.code, event.severity, event.action) for event in events] == [
        ("cambricon", "mlu_xid", 14, "fatal", "reboot_node"),
        ("cambricon", "mlu_xid", 99, "warning", "run_diagnostics"),
    ]
    assert events[0].message == "MLU Xid 14: The MLU has left the PCIe bus"
    assert (events[0].device.type, events[0].device.index) == ("mlu", 1)


def test_the_last_xid_that_a_page_shows_first_may_be_old() -> None:
    """It stays for good."""
    assert [event.kind for event in parse(FORMAT.make(CONTEXT), [metric("last_xid_error", "14")])] == ["telemetry"]


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
def test_every_metric_of_the_vendor_is_known() -> None:
    """Used, or left out on purpose."""
    rows = csv.DictReader((VENDORS / "cambricon_metrics.tsv").read_text().splitlines(), delimiter="\t")
    known = {row["metric"]: find_metric("cambricon", f"mlu_{row['metric']}") for row in rows}
    assert [name for name, metric_ in known.items() if metric_ is None] == []
    used = sum(1 for metric_ in known.values() if metric_ and metric_.template)
    assert (len(known), used) == (169, 65)
