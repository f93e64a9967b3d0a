"""On a real Ray cluster of two workers: the same bits as here."""

import math
import operator
import os
from collections.abc import Iterator
from functools import partial

import pytest
import sqlalchemy as sa
from fleet_store import fill
from part_fleet import put_fleet, same_bits, some_rows
from real.ray_cluster import WORKERS, ray_cluster

from predictor.backtest import run_backtest
from predictor.dataset import dataset, read_population
from predictor.executor import Executor, ExecutorError, executor
from predictor.folds import BacktestSettings
from predictor.parts import values_in_parts

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("ray")]


@pytest.fixture(scope="module")
def run() -> Iterator[Executor]:
    """One connection for all tests of this file: each makes the workers load everything anew."""
    with ray_cluster() as address, executor(ray=address) as run:
        yield run


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_gives_the_same_bits(run: Executor, engine: sa.Engine) -> None:
    """Features in parts, the scores of every fold and so the report; in order, with errors told as they are here."""
    put_fleet(engine)
    rows = some_rows()
    with engine.connect() as connection:
        assert run.workers == WORKERS
        assert str(os.getpid()) not in run.map(os.readlink, ["/proc/self", "/proc/self"])
        assert run.map(partial(pow, 2), range(9)) == [2**number for number in range(9)]
        with pytest.raises(ZeroDivisionError):
            run.map(partial(operator.truediv, 1), [1, 0, 2])
        whole = dataset(connection, read_population(connection, 0), rows)
        told: list[tuple[int, int]] = []
        features, values = values_in_parts(connection, rows, run, lambda *done: told.append(done), most=20)
        assert features == whole.features
        assert same_bits(whole.values, values)
        assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_backtest_on_a_cluster_reports_the_same(run: Executor, engine: sa.Engine) -> None:
    """Every score of every fold, to the last bit."""
    fill(engine, nodes=32, days=40)
    settings = BacktestSettings(fold_days=10)
    here = run_backtest(engine, settings)
    there = run_backtest(engine, settings, run=run)
    assert here.judged.scores.tobytes() == there.judged.scores.tobytes()
    assert here.report == there.report
    assert math.isfinite(here.report["roc_auc"])


def test_a_cluster_that_is_not_there_is_told() -> None:
    """With what to do."""
    with pytest.raises(ExecutorError, match="ray start"), executor(ray="not an address"):
        pass
