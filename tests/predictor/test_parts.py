"""A fleet in parts: the same bits as one reading of the whole, whatever crosses the parts."""

import numpy as np
import pytest
import sqlalchemy as sa
from part_fleet import NODES, put_fleet, same_bits, some_rows

from predictor.dataset.dataset import can_share, dataset, parts_of, values_in_parts
from predictor.dataset.executor import InProcess, executor
from predictor.dataset.matrix import features_of, matrix
from predictor.features import device_measures
from predictor.history import device_telemetry
from predictor.history.arrays import FAR_PAST_MS, FleetArrays, from_ms
from predictor.history.store_reader import read_history, read_population


def fleet_of(leaf: list[int]) -> FleetArrays:
    """A fleet of which nothing but the leaves is known."""
    size, unknown = len(leaf), np.full(len(leaf), -1, dtype=np.int64)
    past = np.full(size, FAR_PAST_MS, dtype=np.int64)
    return FleetArrays(
        tuple(map(str, range(size))), np.array(leaf, dtype=np.int64), unknown, np.zeros(size), past, past, unknown
    )


def compared(engine: sa.Engine, most: int = 10) -> tuple[int, list[str]]:
    """Hold parts against the whole. Returns how many figures are known, and the features' names."""
    rows = some_rows()
    with engine.connect() as connection:
        history = read_history(connection, from_ms(int(rows.time_ms.min())), from_ms(int(rows.time_ms.max())))
        whole, features = matrix(history, rows), features_of(history)
        of_parts, values = values_in_parts(connection, rows, InProcess(), most=most)
    assert of_parts == features
    worse = [one.name for i, one in enumerate(features) if not same_bits(whole[:, i], values[:, i])]
    assert worse == []
    return int(np.isfinite(whole).sum()), [one.name for one in features]


@pytest.mark.parametrize("most", [1, 15])
def test_parts_give_the_same_bits_as_the_whole(any_engine: sa.Engine, most: int) -> None:
    """Leaves in parts of their own or several in one; racks and jobs that cross them; a leaf that was dark."""
    put_fleet(any_engine)
    known, names = compared(any_engine, most)
    assert known > 20_000
    assert {"gpu_temp_above_job_c", "wear.last", "leaf.last", "rare.up_7d"} <= set(names)
    assert "same.last" not in names


def test_nodes_of_no_leaf_are_apart_where_no_peers_are_compared(engine: sa.Engine) -> None:
    """A fleet of disks has no leaves, and is divided all the same."""
    put_fleet(engine, temperatures=False)
    assert compared(engine)[0] > 20_000


def test_what_is_chosen_of_the_whole_is_chosen_in_parts(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many measures those that the whole tells most of; of too many hours the same ones in each part."""
    put_fleet(engine)
    monkeypatch.setattr(device_measures, "MAX_MEASURES", 2)
    monkeypatch.setattr(device_telemetry, "MAX_ROLLUPS", 900)
    assert {name.split(".")[0] for name in compared(engine)[1] if "." in name} == {"leaf", "wear"}
    monkeypatch.setattr(device_measures, "MAX_MEASURES", 1)
    assert {name.split(".")[0] for name in compared(engine)[1] if "." in name} == {"leaf"}


def test_local_processes_give_the_same_bits(engine: sa.Engine) -> None:
    """Workers read over connections of their own; some nodes alone can be asked for; progress is told."""
    put_fleet(engine)
    rows = some_rows()
    rows = rows.only(rows.node % 3 == 1)
    told: list[tuple[int, int]] = []
    with engine.connect() as connection, executor(2) as run:
        population = read_population(connection, 0)
        whole = dataset(connection, population, rows)
        values = values_in_parts(connection, rows, run, lambda done, of: told.append((done, of)), most=20)[1]
        at_once = dataset(connection, population, rows, run=InProcess())
    assert same_bits(whole.values, values)
    assert same_bits(whole.values, at_once.values)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_store_without_telemetry_events_and_jobs_is_divided_too(engine: sa.Engine) -> None:
    """Nothing is known of any node but that it is there."""
    with engine.begin() as connection:
        for number in range(NODES):
            connection.execute(sa.text("INSERT INTO nodes (node) VALUES (:name)"), {"name": f"n{number:02d}"})
    compared(engine)


def test_parts_are_whole_leaves() -> None:
    """Each node is in one; those of a leaf are together, and so are those of none, unless they may be apart."""
    leaf = [number // 7 if number % 6 else -1 for number in range(100)]
    for apart in (False, True):
        parts = parts_of(fleet_of(leaf), 2, apart, most=25)
        assert sorted(np.concatenate(parts).tolist()) == list(range(100))
        homes = [{leaf[node] for node in part} - {-1} for part in parts]
        assert len(set().union(*homes)) == sum(map(len, homes))
        assert sum(any(leaf[node] < 0 for node in part) for part in parts) == (len(parts) if apart else 1)


@pytest.mark.parametrize(
    ("nodes", "workers", "parts"),
    [(400, 2, 1), (1250, 2, 2), (1250, 8, 3), (12_500, 2, 13), (12_500, 64, 25), (1, 4, 1)],
)
def test_a_part_has_some_hundreds_of_nodes(nodes: int, workers: int, parts: int) -> None:
    """As many as fit the workers, between 500 and 1,000 each, as far as leaves allow."""
    found = parts_of(fleet_of([number // 32 for number in range(nodes)]), workers)
    assert len(found) == parts
    assert max(map(len, found)) <= 1_000 + 32


def test_no_nodes_are_no_parts() -> None:
    """An empty fleet is not divided."""
    assert parts_of(fleet_of([]), 2) == []


def test_a_database_in_memory_is_not_shared(engine: sa.Engine) -> None:
    """Another process would find it empty."""
    with sa.create_engine("sqlite://").connect() as alone, engine.connect() as shared:
        assert not can_share(alone)
        assert can_share(shared)
