"""Telemetry of nodes, ports and sensors: rows without a GPU, in files that hold anything besides."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from store.records.telemetry import MAX_DEVICES
from store.tables import schema
from store.telemetry.hours import insert_rollups
from store.telemetry.measures import node_measure
from store.telemetry.rollups import HOUR_US, DeviceHistory
from store.telemetry.telemetry_file import TelemetryFile, read_telemetry

START = datetime(2025, 3, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
TEMP = "DCGM_FI_DEV_GPU_TEMP"


def write(path: Path, hours: list[float], **columns: Any) -> TelemetryFile:
    """A file of one row an entry of `hours`, of the node `n` where no column says another; read back."""
    times = pa.array([START + timedelta(hours=hour) for hour in hours], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"time": times, "node": ["n"] * len(hours), **columns}), path)
    return read_telemetry(path)


def told(file: TelemetryFile) -> list[Any]:
    """What each roll-up tells of devices."""
    texts = DeviceHistory().follow(file.devices, file.nodes) or []
    return [None if text is None else json.loads(text) for text in texts]


def test_a_file_without_gpus_is_of_its_nodes(tmp_path: Path) -> None:
    """Any column of numbers, rolled up by the hour; no sample of a GPU is claimed."""
    file = write(tmp_path / "t", [0, 0.5, 1], ambient_mean=[20.0, 22.0, None], name=["a", "b", "c"])
    assert told(file) == [{"node": {"ambient_mean": [20, 22, 21, 22, 1]}}, None]
    assert (file.rollups.samples.tolist(), file.rollups.gpus_seen.tolist()) == ([0, 0], [0, 0])
    assert (file.skipped, file.left_out) == (0, ())


def test_a_day_s_row_is_the_roll_up_of_the_hour_that_it_ends_with(tmp_path: Path) -> None:
    """A row's time is the end of its interval: at midnight the day that ended is known."""
    file = write(tmp_path / "t", [24, 48, 72], boot_max=[1.7e9, 1.7e9, 1.8e9])
    assert file.rollups.time_us.tolist() == [START_US + (24 * day - 1) * HOUR_US for day in (1, 2, 3)]
    assert [devices["node"]["boot_max"][3] for devices in told(file)] == [1.7e9, 1.7e9, 1.8e9]


def test_columns_bear_the_names_that_live_sources_give_them_and_lie_with_their_parts(tmp_path: Path) -> None:
    """A port's, a memory's, a BMC's and the node's own; what no catalogue names keeps its name."""
    names = ("node_infiniband_link_downed_total", "node_edac_correctable_errors_total", "ipmi_up", "node_load1", "x")
    file = write(tmp_path / "t", [0], **{name: [1.5] for name in names})
    assert {device: sorted(measures) for device, measures in told(file)[0].items()} == {
        "nic:infiniband": ["link_downed"],
        "dimm:mc": ["ecc_sbe"],
        "bmc": ["bmc_up"],
        "node": ["node_load1", "x"],
    }
    assert not node_measure("x").known


def test_labels_tell_which_port_or_sensor_a_row_is_of(tmp_path: Path) -> None:
    """As text or numbers; a row without any is the node's own."""
    file = write(
        tmp_path / "t",
        [0, 0, 0, 0],
        device=["mlx5_0", "mlx5_0", None, None],
        port=pa.array([1, 2, None, None], pa.int64()),
        sensor=[None, None, "Inlet\n1", None],
        node_infiniband_link_downed_total=[3, 4, None, None],
        celsius=[None, None, 21.5, 7.0],
    )
    (devices,) = told(file)
    assert devices == {
        "nic:mlx5_0/1": {"link_downed": [3, 3, 3, 3, 0]},
        "nic:mlx5_0/2": {"link_downed": [4, 4, 4, 4, 0]},
        "sensor:Inlet?1": {"celsius": [21.5, 21.5, 21.5, 21.5, 0]},
        "node": {"celsius": [7, 7, 7, 7, 0]},
    }


def test_a_file_may_hold_gpus_and_their_node(tmp_path: Path) -> None:
    """Rows without a GPU are the node's; each kind has the columns that say something of it."""
    gpu = pa.array([0, 1, None], pa.int8())
    file = write(tmp_path / "t", [0, 0, 0], gpu=gpu, load=[None, None, 4.0], **{TEMP: [50.0, 60.0, None]})
    assert told(file) == [{"node": {"load": [4, 4, 4, 4, 0]}}]
    assert file.rollups.gpus_seen.tolist() == [2]
    assert file.rollups.values["gpu_temp_max_c"].tolist() == [60.0]


@pytest.mark.parametrize("first", [0, 1])
def test_files_of_one_hour_join_in_either_order(tmp_path: Path, any_engine: sa.Engine, first: int) -> None:
    """What one says of GPUs and the other of their node stands together, also when both come again."""
    gpus = write(tmp_path / "gpu", [0, 0], gpu=[0, 1], fan=[1, 2], **{TEMP: [50.0, 60.0]})
    node = write(tmp_path / "host", [0], load=[4.0])
    with any_engine.begin() as connection:
        for file in (gpus, node)[:: 1 - 2 * first] * 2:
            devices = DeviceHistory().follow(file.devices, file.nodes)
            insert_rollups(connection, file.nodes, file.rollups, devices)
        (row,) = connection.execute(sa.select(schema.telemetry)).mappings().all()
    assert (row["samples"], row["gpus_seen"], row["gpu_temp_max_c"]) == (2, 2, 60.0)
    assert sorted(row["devices"]) == ["gpu:0", "gpu:1", "node"]


def test_a_moment_told_twice_counts_once_and_two_values_of_it_are_told_of(tmp_path: Path) -> None:
    """Two tapes of one node overlap; or two nodes have one name."""
    same = write(tmp_path / "t", [0, 0, 0.5], x=[1, 1, 3], y=[None, 5, 5])
    assert told(same) == [{"node": {"x": [1, 3, 2, 3, 1], "y": [5, 5, 5, 5, 0]}}]
    assert same.skipped == 0
    other = write(tmp_path / "u", [0, 0, 0.5], x=[1, 9, 3])
    assert told(other)[0]["node"]["x"][:2] == [3, 9]
    assert other.skipped == 1
    assert "two nodes of one name" in other.left_out[0]


def test_sensors_beyond_what_a_roll_up_holds_are_named(tmp_path: Path) -> None:
    """The first ones of each node are kept."""
    count = MAX_DEVICES + 2
    file = write(tmp_path / "t", [0] * count, sensor=[f"s{number:03}" for number in range(count)], c=[1.0] * count)
    assert len(told(file)[0]) == MAX_DEVICES
    assert len(file.left_out) == 2


def test_a_broken_row_group_costs_its_own_rows_alone(tmp_path: Path) -> None:
    """It is counted and named; the rest of the file is read."""
    times = pa.array([START + timedelta(minutes=minute) for minute in range(4000)], pa.timestamp("us", tz="UTC"))
    table = pa.table({"time": times, "node": ["n"] * 4000, "x": [float(number) for number in range(4000)]})
    pq.write_table(table, tmp_path / "t", row_group_size=1000, compression="zstd", use_dictionary=False)
    column = pq.ParquetFile(tmp_path / "t").metadata.row_group(2).column(2)
    content = bytearray((tmp_path / "t").read_bytes())
    begin, size = column.data_page_offset, column.total_compressed_size
    content[begin + 40 : begin + size] = b"\xff" * (size - 40)
    (tmp_path / "t").write_bytes(bytes(content))
    file = read_telemetry(tmp_path / "t")
    assert (file.rows, file.skipped) == (3000, 1000)
    assert file.left_out[0].startswith("row group 2 cannot be read")
