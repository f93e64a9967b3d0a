"""Drift: loud on what was planted, quiet on chance alone."""

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put
from numpy.typing import NDArray

from predictor.dataset.matrix import FIXED, features_of, matrix
from predictor.history.arrays import every
from predictor.history.store_reader import read_history
from predictor.live.drift import (
    MAINTENANCE,
    SHIFT,
    calibration,
    compare,
    profile,
    psi,
    spread,
    total_spread,
)

NAMES = [f"f{i}" for i in range(40)]
Matrix = NDArray[np.float32]


def fleet(nodes: int, moments: int, seed: int, age: float = 0.0) -> Matrix:
    """Rows as the predictor's are: nodes keep their own level, most counts are 0, some values are unknown, one ages."""
    random = np.random.default_rng(seed)
    level = np.random.default_rng(nodes).normal(size=(nodes, len(NAMES)))
    rows = np.tile(level, (moments, 1)) + 0.3 * random.normal(size=(nodes * moments, len(NAMES)))
    rows[:, 10:30] = random.poisson(0.05, size=(len(rows), 20))
    rows[:, 30:35][random.random((len(rows), 5)) < 0.4] = np.nan
    rows[:, 39] = age + np.repeat(np.arange(moments), nodes)
    rows[:, 38] = np.repeat(random.normal(size=moments), nodes)  # a load that all nodes share at a moment
    return rows.astype(np.float32)


def trained(nodes: int = 200) -> tuple[dict[str, Any], int]:
    """The profile of sixty moments, and of how many nodes."""
    rows = fleet(nodes, 60, 1)
    return profile(rows, NAMES, np.ones(len(rows)), np.arange(len(rows)) // (14 * nodes)), nodes


def found(then: dict[str, Any], rows: Matrix, nodes: tuple[int, int], names: list[str] = NAMES) -> dict[str, Any]:
    """What two moments' rows tell."""
    return compare(then, total_spread([spread(then, half, names) for half in np.array_split(rows, 2)]), nodes)


@pytest.mark.parametrize("nodes", [16, 64, 200])
@pytest.mark.parametrize("seed", range(5))
def test_no_drift_is_no_alarm(nodes: int, seed: int) -> None:
    """Other days of the same fleet, small or large; the age, which moves all the time, is no news."""
    then, count = trained(nodes)
    assert found(then, fleet(nodes, 14, 100 + seed, age=60.0), (count, nodes))["state"] == "ok"


@pytest.mark.parametrize("nodes", [16, 64])
def test_other_nodes_of_the_same_kind_are_no_drift(nodes: int) -> None:
    """Half of a small fleet, whose levels differ by chance."""
    then, count = trained(nodes)
    half = fleet(nodes, 14, 5, age=60.0).reshape(14, nodes, -1)[:, : nodes // 2].reshape(-1, len(NAMES))
    assert found(then, half, (count, nodes // 2))["state"] == "ok"


def test_a_planted_shift_is_named() -> None:
    """A sensor that reads two degrees more after a firmware change; a count that was rare and is common."""
    then, count = trained()
    rows = fleet(200, 14, 7, age=60.0)
    rows[:, 3] += 2.0
    rows[:, 12] += np.random.default_rng(3).poisson(2.0, len(rows))
    told = found(then, rows, (count, 200))
    assert (told["state"], told["alarms"], told["shifted"]) == ("drifted", ["shifted"], 2)
    assert {item["feature"] for item in told["features"]} == {"f3", "f12"}
    assert all(item["psi"] > item["limit"] >= SHIFT for item in told["features"])


def test_a_measure_that_vanished_or_appeared_is_named() -> None:
    """Unknown on all nodes, gone from the columns, or new among them."""
    then, count = trained()
    rows = fleet(200, 14, 8, age=60.0)
    rows[:, 5] = np.nan
    kept = [name for name in NAMES if name != "f31"]
    rows = np.column_stack([np.delete(rows, 31, axis=1), rows[:, 0], np.full(len(rows), np.nan)]).astype(np.float32)
    told = found(then, rows, (count, 200), [*kept, "new", "empty"])
    assert told["alarms"] == ["vanished", "appeared"]
    assert (told["vanished"], told["appeared"], told["shifted"]) == (["f31", "f5"], ["new"], 0)


def test_a_measure_that_nobody_had_and_that_comes_appeared() -> None:
    """It was a column already."""
    rows = fleet(50, 20, 1)
    rows[:, 0] = np.nan
    then = profile(rows, NAMES, np.ones(len(rows)), np.arange(len(rows)) // 250)
    assert found(then, fleet(50, 14, 2, age=20.0), (50, 50))["appeared"] == ["f0"]


def seen(engine: sa.Engine, days: range) -> Matrix:
    """The features of ten nodes on several days."""
    moments = [day(at) for at in days]
    with engine.connect() as connection:
        history = read_history(connection, moments[0], moments[-1])
        assert len(features_of(history)) == len(FIXED)
        return matrix(history, every(len(history.fleet.names), moments))


@pytest.mark.parametrize(("planned", "state"), [(True, "ok"), (False, "drifted")])
def test_maintenance_of_the_whole_fleet_is_no_alarm(engine: sa.Engine, planned: bool, state: str) -> None:
    """Forty nodes are taken out in turn for half a day within a week: told if planned, and an alarm if they broke."""
    names = [f"n{i:02}" for i in range(40)]
    put(engine, [node(name) for name in names])
    put(engine, outages=[outage(name, 30 + i / 6, 12, planned=planned, cause="driver") for i, name in enumerate(names)])
    columns = [feature.name for feature in FIXED]
    before = seen(engine, range(2, 30))
    then = profile(before, columns, np.ones(len(before)), np.arange(len(before)) // (7 * 40))
    told = found(then, seen(engine, range(38, 45)), (40, 40), columns)
    assert told["state"] == state
    if planned:
        assert set(told["maintenance"]) == MAINTENANCE
    else:
        assert "outages_28d" in {item["feature"] for item in told["features"]}


def test_drawn_rows_stand_for_those_that_were_not() -> None:
    """Positives are over-represented among the rows to learn from; weights take it back."""
    random = np.random.default_rng(1)
    sick = random.normal(3, 1, (500, 1))
    well = random.normal(0, 1, (500, 1))
    weights = np.concatenate([np.ones(500), np.full(500, 99.0)])
    then = profile(np.concatenate([sick, well]).astype(np.float32), ["x"], weights, np.arange(1000) % 2)
    now = np.concatenate([random.normal(3, 1, (10, 1)), random.normal(0, 1, (990, 1))]).astype(np.float32)
    assert found(then, now, (1000, 1000), ["x"])["state"] == "ok"
    unweighted = profile(np.concatenate([sick, well]).astype(np.float32), ["x"], np.ones(1000), np.arange(1000) % 2)
    unweighted["x"]["own"] = 0.0
    assert found(unweighted, now, (1000, 1000), ["x"])["state"] == "drifted"


def test_the_index_of_equal_shares_is_nothing() -> None:
    """By hand: (0.6 - 0.5) ln(0.6/0.5) + (0.4 - 0.5) ln(0.4/0.5)."""
    assert psi(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == 0.0
    assert psi(np.array([0.5, 0.5]), np.array([0.6, 0.4])) == pytest.approx(0.1 * np.log(1.2) + 0.1 * np.log(1.25))


@pytest.mark.parametrize(("rate", "state"), [(1.0, "ok"), (1.2, "ok"), (4.0, "drifted"), (0.1, "drifted")])
def test_scores_that_no_longer_come_true_are_drift(rate: float, state: str) -> None:
    """Four times as many outages as were said, or a tenth."""
    random = np.random.default_rng(2)
    node = np.tile(np.arange(500), 60)
    score = np.full(len(node), 0.01)
    told = calibration(node, score, random.random(len(node)) < rate * score)
    assert (told["expected"], told["state"]) == (300.0, state)


def test_one_lemon_is_no_drift_and_few_outages_say_nothing() -> None:
    """Rows of one node stand and fall together."""
    node = np.tile(np.arange(100), 60)
    score = np.full(len(node), 0.005)
    lemon = (node == 7) | ((node == 8) & (np.arange(len(node)) < 3000))
    assert calibration(node, score, lemon)["state"] == "ok"
    assert calibration(node[:100], score[:100], np.zeros(100, dtype=np.bool_))["state"] == "unknown"
