"""Series to rows of devices: whose a series is, several of one measure, two nodes of one name, labels with any text."""

from collections.abc import Mapping
from itertools import chain, pairwise

import numpy as np
import pytest

from cli.history.frames import DeviceIdentities, HistoryNames, samples_of_table, table_of_window
from cli.history.series import is_known, place_of
from cli.history.server import SeriesSamples
from store.records.hostlist import check_node_name
from store.records.telemetry import Sample
from store.telemetry.archive_table import TelemetryTable
from store.telemetry.telemetry_file import summarise

NAMES = HistoryNames(check_node_name)
NOON_MS = 1_740_830_400_000


def series(metric: str, values: list[float], labels: Mapping[str, str], first: int = 0) -> SeriesSamples:
    """One sample a minute from a minute on."""
    times = NOON_MS + 60_000 * np.arange(first, first + len(values), dtype=np.int64)
    return SeriesSamples({"__name__": metric, **labels}, times, np.array(values, dtype=np.float64))


def gpu(**labels: str) -> dict[str, str]:
    """The labels of GPU 3, as dcgm-exporter writes them."""
    target = {"instance": "10.0.0.7:9400", "job": "dcgm"}
    return {**target, "gpu": "3", "UUID": "GPU-1", "Hostname": "gpu-017", "device": "nvidia3", **labels}


Measured = dict[tuple[str, str], dict[str, list[float | None]]]


def measured(*found: SeriesSamples, names: HistoryNames = NAMES) -> Measured:
    """Of each node and device its measures, all of them, by minute."""
    table, _ = table_of_window(found, names)
    result: Measured = {}
    everything = TelemetryTable(table.nodes, tuple(_all_known(one) for one in table.samples))
    for sample in chain.from_iterable(samples_of_table(everything, {})):
        values = result.setdefault((sample.node, sample.device_name()), {})
        for name, value in sample.values.items():
            minute = round(sample.time.timestamp() / 60 - NOON_MS / 60_000)
            column = values.setdefault(name, [])
            column += [None] * (minute - len(column)) + [value]
    return result


def _all_known(samples: object) -> object:
    from dataclasses import replace

    return replace(samples, known=frozenset(samples.measures))  # type: ignore[attr-defined,type-var]


def left_out(*found: SeriesSamples, names: HistoryNames = NAMES) -> tuple[int, tuple[str, ...]]:
    """What has no place."""
    table, _ = table_of_window(found, names)
    return table.skipped, table.left_out


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"instance": "gpu-017:9100"}, "gpu-017"),
        ({"instance": "gpu-017.example.org"}, "gpu-017.example.org"),
        ({"instance": "[fd00::7]:9100"}, "fd00::7"),
        ({"instance": "10.0.0.7:9100", "node": "gpu-017"}, "gpu-017"),
        ({"instance": "10.0.0.7:9400", "Hostname": "gpu-017"}, "gpu-017"),
        ({"instance": "gateway:9091", "exported_instance": "gpu-017:9100"}, "gpu-017"),
        ({"instance": "10.0.0.7:9400", "Hostname": "pod-x", "node": "gpu-017"}, "gpu-017"),
    ],
)
def test_the_node_is_who_the_labels_name(labels: dict[str, str], node: str) -> None:
    """The label that the site put there comes first, the scraped address last."""
    place = place_of({"__name__": "node_load1", **labels})
    assert not isinstance(place, str)
    assert place.node == node


def test_a_site_names_its_own_label() -> None:
    """What does not bear it has no place, and the sentence says so."""
    place = place_of({"__name__": "node_load1", "instance": "a:1", "kubernetes_node": "gpu-017:x"}, "kubernetes_node")
    assert place == "node_load1: no label kubernetes_node names its host: name another label with --node-label"
    place = place_of({"__name__": "node_load1", "instance": "a:1", "kubernetes_node": "gpu-017"}, "kubernetes_node")
    assert not isinstance(place, str)
    assert place.node == "gpu-017"


def test_devices_are_those_of_a_scrape() -> None:
    """A GPU, a port, a memory controller, a sensor, the BMC, the node; a metric that no table knows keeps its name."""
    host = {"instance": "gpu-017:9100", "job": "node"}
    found = measured(
        series("DCGM_FI_DEV_GPU_TEMP", [61], gpu()),
        series("DCGM_FI_DEV_GPU_UTIL", [50], gpu()),
        series("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL", [7], gpu(nvlink="4")),
        series("node_infiniband_link_downed_total", [3], {**host, "device": "mlx5_0", "port": "1"}),
        series("node_edac_correctable_errors_total", [2], {**host, "controller": "0"}),
        series("node_boot_time_seconds", [1.7e9], host),
        series("ipmi_up", [1], {"instance": "gpu-017:9290", "job": "ipmi", "collector": "ipmi"}),
        series("ipmi_temperature_celsius", [24], {"instance": "gpu-017:9290", "id": "7", "name": "Inlet Temp"}),
        series("site_pump_bar", [3.4], {**host, "loop": "2", "rack": "r7"}),
        series("node_load1", [4], host),
    )
    devices = {device: values for (node, device), values in found.items() if node == "gpu-017"}
    assert devices["gpu:3"] == {"gpu_temp_c": [61.0], "gpu_util_ratio": [0.5], "nvlink_crc_l4": [7.0]}
    assert devices["nic:mlx5_0/1"] == {"link_downed": [3.0]}
    assert devices["dimm:mc0"] == {"ecc_sbe": [2.0]}
    assert devices["node"]["boot_time_s"] == [1.7e9]
    assert devices["node"]["node_load1"] == [4.0]
    assert devices["bmc"] == {"bmc_up": [1.0]}
    assert devices["sensor:Inlet Temp"] == {"temp_c": [24.0]}
    assert devices["series:2,r7"] == {"site_pump_bar": [3.4]}


def test_a_mig_instance_s_value_is_not_the_whole_gpu_s() -> None:
    """What is of the GPU (its temperature) is taken of an instance where the GPU has no row; an Xid of any of them."""
    mig = [gpu(GPU_I_ID=number, GPU_I_PROFILE="1g.10gb") for number in ("1", "2")]
    found = measured(
        *(series("DCGM_FI_DEV_GPU_TEMP", [61, 62], labels) for labels in mig),
        *(series("DCGM_FI_DEV_GPU_UTIL", [80, 90], labels) for labels in mig),
        series("DCGM_FI_DEV_XID_ERRORS", [0, 0], mig[0]),
        series("DCGM_FI_DEV_XID_ERRORS", [0, 79], mig[1]),
    )
    values = found["gpu-017", "gpu:3"]
    assert values["gpu_temp_c"] == [61.0, 62.0]
    assert values["xid_last"] == [0.0, 79.0]


def test_the_pod_that_has_the_gpu_changes_and_the_gpu_is_one() -> None:
    """Each job's series ends where the next one's begins."""
    found = measured(
        series("DCGM_FI_DEV_GPU_TEMP", [61, 62], gpu(pod="train-1")),
        series("DCGM_FI_DEV_GPU_TEMP", [40, 41], gpu(pod="train-2"), first=3),
    )
    assert found["gpu-017", "gpu:3"]["gpu_temp_c"] == [61.0, 62.0, None, 40.0, 41.0]


def test_two_nodes_under_one_name_are_told_apart_by_their_targets() -> None:
    """The first target's samples are kept, the other's counted; one that follows it is the same node, moved."""
    there = series("DCGM_FI_DEV_GPU_TEMP", [61, 62, 63], gpu(instance="10.0.0.7:9400", Hostname="localhost"))
    other = series("DCGM_FI_DEV_GPU_TEMP", [30, 31, 32, 33], gpu(instance="10.0.0.8:9400", Hostname="localhost"))
    skipped, sentences = left_out(there, other)
    assert skipped == 3
    assert sentences == (
        "3 samples: node localhost is told of by 'dcgm 10.0.0.7:9400' and 'dcgm 10.0.0.8:9400' at once, so that two "
        "nodes bear one name: those of the second are left out; name a label that tells them apart with --node-label",
    )
    assert measured(there, other)["localhost", "gpu:3"]["gpu_temp_c"] == [61.0, 62.0, 63.0, 33.0]
    assert measured(other, there) == measured(there, other)


def test_labels_may_hold_any_text() -> None:
    """A host that no node can be called is left out and counted; a device's name is printed without what is hidden."""
    bad = series("node_load1", [1, 2], {"instance": "a b\x00c"})
    skipped, sentences = left_out(bad, series("node_load1", [1], {"instance": "gpu-017:9100"}))
    assert skipped == 2
    assert any("--node-label" in sentence for sentence in sentences)
    nowhere = series("node_load1", [1, 2], {})
    assert left_out(nowhere)[0] == 2
    hidden = series("site_pump", [1], {"instance": "gpu-017:9100", "loop": "\x1b[31m\u202e" + "x" * 500})
    [device] = [device for _, device in measured(hidden)]
    assert "\x1b" not in device
    assert len(device) <= len("series:") + 64


def test_a_number_that_says_nothing_is_no_measurement() -> None:
    """DCGM's blanks, infinities and NaN; the ratio that once was per cent."""
    found = measured(
        series("DCGM_FI_DEV_GPU_TEMP", [2147483632.0, 61, float("inf"), 62], gpu()),
        series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", [9223372036854775794.0, 4, float("nan"), 5], gpu()),
        series("DCGM_FI_DEV_GPU_UTIL_RATIO", [0.5, 0.25, 0, 1], gpu()),
    )["gpu-017", "gpu:3"]
    assert found["gpu_temp_c"] == [None, 61.0, None, 62.0]
    assert found["ecc_sbe"] == [None, 4.0, None, 5.0]
    assert found["gpu_util_ratio"] == [0.5, 0.25, 0.0, 1.0]
    percent = series("DCGM_FI_DEV_GPU_UTIL_RATIO", [50, 25, 0, 1], gpu())
    assert measured(percent)["gpu-017", "gpu:3"]["gpu_util_ratio"] == [0.5, 0.25, 0.0, 0.01]


def test_a_sample_bears_who_its_device_is() -> None:
    """Another GPU in the same place has another UUID from its first sample on."""
    found = [
        series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", [9, 9], gpu(UUID="GPU-old", pci_bus_id="00000000:0F:00.0")),
        series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", [0, 0], gpu(UUID="GPU-new", pci_bus_id="00000000:0F:00.0"), first=2),
    ]
    table, identities = table_of_window(found, NAMES)
    samples: list[Sample] = list(chain.from_iterable(samples_of_table(table, identities)))
    assert [sample.uuid for sample in samples] == ["GPU-old", "GPU-old", "GPU-new", "GPU-new"]
    assert {sample.pci for sample in samples} == {"0000:0f:00.0"}
    nobody: DeviceIdentities = {}
    assert {sample.uuid for sample in chain.from_iterable(samples_of_table(table, nobody))} == {None}


def test_samples_come_in_parts_in_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What shares a moment is in one part, whichever device it is of."""
    monkeypatch.setattr("cli.history.frames.ROWS_AT_ONCE", 3)
    host = {"instance": "gpu-017:9100"}
    found = [series("DCGM_FI_DEV_GPU_TEMP", [60] * 7, gpu(gpu=str(one))) for one in range(2)]
    table, _ = table_of_window([*found, series("node_boot_time_seconds", [1.7e9] * 7, host)], NAMES)
    parts = list(samples_of_table(table, {}))
    assert sum(map(len, parts)) == 21
    moments = [{sample.time for sample in part} for part in parts]
    assert all(max(before) < min(after) for before, after in pairwise(moments))
    assert len(parts) == 7


def test_known_are_the_metrics_of_our_tables_by_each_of_their_names() -> None:
    """DCGM's former and present names, other makers', the host's; not what a table leaves out on purpose."""
    assert all(map(is_known, ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_XID_ERRORS")))
    assert all(map(is_known, ("npu_chip_info_temperature", "node_infiniband_link_downed_total", "ipmi_up")))
    assert all(map(is_known, ("node_boot_time_seconds", "node_load1", "ipmi_fan_speed_rpm")))
    assert not any(map(is_known, ("go_goroutines", "node_cpu_seconds_total", "http_requests_total")))


def test_other_makers_devices_are_told_by_their_own_exporters() -> None:
    """An NPU's, with the number that its exporter writes for none."""
    labels = {"instance": "npu-1:8082", "id": "2", "vdie_id": "V-2"}
    found = [
        series("npu_chip_info_temperature", [45, 55], labels),
        series("npu_chip_info_temperature", [65, 65], {**labels, "id": "3", "vdie_id": "V-3"}),
        series("npu_chip_info_power", [200, 100], labels),
    ]
    assert measured(*found)["npu-1", "npu:2"] == {"gpu_temp_c": [45.0, 55.0], "power_w": [200.0, 100.0]}
    rollups = summarise(table_of_window(found, NAMES)[0]).rollups
    assert (rollups.samples.tolist(), rollups.gpus_seen.tolist()) == ([4], [2])
    assert rollups.values["gpu_temp_max_c"].tolist() == [65.0]
    assert rollups.values["power_mean_w"].tolist() == [150.0]
