"""Several sources of one node, one hour."""

import threading
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from store.database.connections import writing
from store.records.telemetry import Rollup
from store.tables import schema
from store.telemetry.hours import append_rollups

HOUR = datetime(2025, 3, 1, 4, tzinfo=UTC)
GPU = {"gpu:0": {"gpu_temp_c": [50, 61, 55.5, 61, 9]}, "gpu:1": {"gpu_temp_c": [50, 60, 55, 58, 7]}}
NIC = {"nic:mlx5_0/1": {"symbol_error": [0, 3, 1.5, 3, 1]}}
DCGM = Rollup("n1", HOUR, 480, 2, gpu_temp_mean_c=55.25, gpu_temp_max_c=61.0, devices=GPU)
INFINIBAND = Rollup("n1", HOUR, 0, 0, devices=NIC)


def write(engine: sa.Engine, *rollups: Rollup) -> None:
    """One request."""
    with writing(engine).begin() as connection:
        append_rollups(connection, rollups)


def read(engine: sa.Engine) -> dict[str, Any]:
    """The one row."""
    with engine.connect() as connection:
        return dict(connection.execute(sa.select(schema.telemetry)).mappings().one())


def test_sources_of_one_node_share_its_hour_in_either_order(any_engine: sa.Engine) -> None:
    """Devices of both; the counts and columns are those of the source that sees GPUs."""
    for rollups in ((DCGM, INFINIBAND), (INFINIBAND, DCGM)):
        with any_engine.begin() as connection:
            connection.execute(sa.delete(schema.telemetry))
        for rollup in rollups:
            write(any_engine, rollup)
        row = read(any_engine)
        assert row["devices"] == GPU | NIC
        assert (row["samples"], row["gpus_seen"], row["gpu_temp_max_c"]) == (480, 2, 61.0)


def test_a_later_roll_up_replaces_the_measures_that_it_tells(any_engine: sa.Engine) -> None:
    """Other measures of the same device stay: two sources may look at one GPU."""
    write(any_engine, DCGM, INFINIBAND)
    write(any_engine, Rollup("n1", HOUR, 2, 1, gpu_temp_max_c=70.0, devices={"gpu:0": {"power_w": [1, 2, 1.5, 2, 1]}}))
    write(any_engine, Rollup("n1", HOUR, 3, 1, devices={"gpu:0": {"gpu_temp_c": [70, 70, 70, 70, None]}}))
    row = read(any_engine)
    assert row["devices"] == {
        "gpu:0": {"gpu_temp_c": [70, 70, 70, 70, None], "power_w": [1, 2, 1.5, 2, 1]},
        "gpu:1": GPU["gpu:1"],
        **NIC,
    }
    assert (row["samples"], row["gpus_seen"], row["gpu_temp_max_c"], row["gpu_temp_mean_c"]) == (3, 1, 70.0, 55.25)


def test_the_same_roll_up_twice_changes_nothing(any_engine: sa.Engine) -> None:
    """A sidecar sends again what was not acknowledged; also within one request."""
    write(any_engine, DCGM, INFINIBAND, DCGM)
    before = read(any_engine)
    write(any_engine, INFINIBAND, DCGM)
    assert read(any_engine) == before
    assert before["devices"] == GPU | NIC


def test_a_roll_up_without_devices_leaves_those_that_are_known(any_engine: sa.Engine) -> None:
    """And one without any is NULL, not the JSON word null."""
    write(any_engine, Rollup("n1", HOUR, 1, 1))
    with any_engine.connect() as connection:
        assert connection.scalar(sa.select(schema.telemetry.c.devices.is_(sa.null())))
    write(any_engine, DCGM)
    write(any_engine, Rollup("n1", HOUR, 1, 1, power_max_w=9.0))
    row = read(any_engine)
    assert (row["devices"], row["power_max_w"], row["gpu_temp_max_c"]) == (GPU, 9.0, 61.0)


def test_exact_counters_survive_the_joining(any_engine: sa.Engine) -> None:
    """Nanoseconds of throttling have more digits than a float of single precision."""
    devices = {"gpu:0": {"thermal_violation": [987654321012345, 987654321012345, 987654321012345, 987654321012345, 0]}}
    write(any_engine, DCGM)
    write(any_engine, Rollup("n1", HOUR, 1, 1, devices=devices))
    assert read(any_engine)["devices"]["gpu:0"]["thermal_violation"] == devices["gpu:0"]["thermal_violation"]


def test_writers_at_once_lose_no_device(any_engine: sa.Engine) -> None:
    """Each of eight sources sends its own device of the same nodes, in whatever order."""
    nodes = [f"n{number}" for number in range(6)]

    def source(number: int) -> None:
        own = {f"gpu:{number}": {"power_w": [1, 1, 1, 1, 0]}}
        turned = nodes if number % 2 else nodes[::-1]
        for _ in range(3):
            write(any_engine, *(Rollup(node, HOUR, number, 1, devices=own) for node in turned))

    threads = [threading.Thread(target=source, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with any_engine.connect() as connection:
        found = list(connection.execute(sa.select(schema.telemetry.c.devices)).scalars())
    assert [sorted(devices) for devices in found] == [[f"gpu:{number}" for number in range(8)]] * len(nodes)
