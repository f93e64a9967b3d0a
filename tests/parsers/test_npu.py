"""npu-exporter's pages."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.formats.npu import FORMAT
from parsers.pages import devices_of
from parsers.text.exposition import metric_name
from parsers.text.parser import Context, ParseError, parse
from store.records.telemetry import Sample
from store.telemetry.measures import find_metric

VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
LABELS = 'id="3",model_name="910B4",pcie_bus_info="0000:3E:00.0",vdie_id="D-3"'
MS = 1740801906000
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
HERE = Context(node="npu-7")


def metric(name: str, value: str = "46", labels: str = LABELS, after_ms: int = 0) -> str:
    """One line of a page."""
    return f"npu_chip_{name}{{{labels}}} {value} {MS + after_ms}"


def test_a_sample_gathers_the_metrics_of_one_npu() -> None:
    """By the words that GPUs have, with the exporter's own time."""
    lines = [metric("info_temperature"), metric("info_utilization", "87"), metric("info_power", "93.1")]
    lines += [metric("info_hbm_ecc_double_bit_error_cnt", "1"), metric("info_hbm_used_memory", "62000")]
    values = {"gpu_temp_c": 46.0, "gpu_util_ratio": 0.87, "power_w": 93.1, "ecc_dbe": 1.0}
    expected = Sample(NOW, "npu-7", 3, values, uuid="D-3", pci="0000:3e:00.0", type="npu", source="npu")
    assert devices_of("\n".join(lines), HERE) == [expected]


def test_groups_of_metrics_with_times_of_their_own_are_one_scrape() -> None:
    """Each collector stamps its own; a minute later is the next."""
    lines = [metric("info_temperature"), metric("info_power", "90", after_ms=4100)]
    (sample,) = devices_of("\n".join(lines), HERE)
    assert (sample.time, len(sample.values)) == (NOW, 2)
    assert len(devices_of("\n".join([lines[0], metric("info_power", "90", after_ms=61_000)]), HERE)) == 2


@pytest.mark.parametrize("failed", ["-1", "4294967295", "4.294967295e+09", "1.8446744073709552e+19", "NaN"])
def test_a_query_that_failed_is_missing(failed: str) -> None:
    """Never a temperature of -1."""
    (sample,) = devices_of("\n".join([metric("info_power", "90"), metric("info_temperature", failed)]), HERE)
    assert sample.values == {"power_w": 90.0}


def test_an_optical_power_may_be_minus_one() -> None:
    """In dBm it is a good one."""
    (sample,) = devices_of(metric("optical_rx_power_2", "-1"), HERE)
    assert sample.values == {"optical_rx_power_mw_l2": -1.0}


def test_each_link_keeps_its_counter() -> None:
    """HCCS 1 to 7; the message counts beside them say nothing."""
    lines = [metric(f"info_hccs_statistic_info_crc_err_cnt_{link}", str(link)) for link in (1, 2)]
    (sample,) = devices_of("\n".join([*lines, metric("info_hccs_statistic_info_tx_cnt_1", "9")]), HERE)
    assert sample.values == {"link_crc_l1": 1.0, "link_crc_l2": 2.0}


def test_a_virtual_npus_utilization_is_not_the_chips() -> None:
    """Its temperature is."""
    virtual = LABELS + ',v_dev_id="100",is_virtual="true"'
    lines = [metric("info_utilization", "9", virtual), metric("info_temperature", "46", virtual)]
    (sample,) = devices_of("\n".join(lines), HERE)
    assert sample.values == {"gpu_temp_c": 46.0}


@pytest.mark.parametrize("labels", ['vdie_id="D-3"', 'id="",vdie_id="D-3"', 'id="x"', 'id="12345678901"'])
def test_a_series_of_no_npu_is_passed_by(labels: str) -> None:
    """Without an index there is none."""
    assert devices_of(metric("info_temperature", labels=labels), HERE) == []


def test_the_host_comes_from_the_context() -> None:
    """The page does not name it."""
    with pytest.raises(ParseError, match="NPU 3 bears no host"):
        devices_of(metric("info_temperature"), Context())
    (event,) = parse(FORMAT.make(Context()), [metric("info_temperature")])
    assert event.node is None


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
def test_every_metric_of_the_vendors_sample_is_known() -> None:
    """Used, or left out on purpose."""
    lines = (VENDORS / "ascend_npu_exporter.prom").read_text().splitlines()
    names = {name for line in lines if (name := metric_name(line))}
    assert len(names) == 4
    assert [name for name in names if find_metric("npu", name) is None] == []


def test_the_labels_of_other_releases_name_the_same_device() -> None:
    """The same NPU, whatever its index, model and address are called."""
    labels = 'npuID="3",modelName="910B4",uuid="D-3",pcie="0000:3E:00.0",podName=""'
    (other,) = devices_of(metric("info_temperature", labels=labels), HERE)
    assert [other] == devices_of(metric("info_temperature"), HERE)
