"""On a real Ray cluster of two workers: the same report and the same scores as here, to the last digit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fleet_store import fill
from real.patience import patience
from real.ray_cluster import WORKERS, ray_cluster

from predictor.dataset import executor as executors
from predictor.dataset.executor import ExecutorError, RayExecutor, executor

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("ray")]

# In a process of its own: a program that is connected to a Ray cluster ends when that does.
_MAPPED = """
import operator, sys
from functools import partial
from predictor.dataset.executor import executor
with executor(ray=sys.argv[1]) as run:
    assert run.workers == int(sys.argv[2])
    assert run.map(partial(pow, 2), range(9)) == [2**number for number in range(9)]
    told = []
    assert run.map(abs, [-3, 2, -1], lambda *done: told.append(done)) == [3, 2, 1]
    assert told == [(1, 3), (2, 3), (3, 3)]
    try:
        run.map(partial(operator.truediv, 1), [1, 0, 2])
    except ZeroDivisionError:
        sys.exit(7)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster for all tests of this file."""
    with ray_cluster() as address:
        yield address


def ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A program of ours in another process; one that hangs is an error."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(400), check=False)


def test_results_come_in_order_and_errors_as_they_are(address: str) -> None:
    """Progress is told; what a worker raises is raised here."""
    found = ran("-c", _MAPPED, address, str(WORKERS))
    assert found.returncode == 7, found.stderr


def test_a_backtest_on_a_cluster_reports_the_same(address: str, engine: sa.Engine, tmp_path: Path) -> None:
    """Features in parts and every fold: each figure of the report, each score."""
    fill(engine, nodes=32, days=40)

    def backtest(name: str, *where: str) -> tuple[dict[str, Any], str]:
        scores = tmp_path / f"{name}.csv"
        asked = ("-m", "foreshock", "backtest", "--db", str(engine.url), "--json", "--scores", str(scores), *where)
        found = ran(*asked)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout), scores.read_text()

    report, scores = backtest("there", "--ray", address)
    assert (report, scores) == backtest("here", "--processes", "1")
    assert scores.count("\n") > 200


def test_a_cluster_that_is_not_there_is_told() -> None:
    """With what to do."""
    with pytest.raises(ExecutorError, match="ray start"), executor(ray="not an address"):
        pass


class Silent:
    """A cluster whose workers never answer, as Ray shows it: nothing becomes ready."""

    def put(self, value: object) -> object:
        """A handle."""
        return value

    def remote(self, **_options: object) -> "Callable[[object], Handles]":
        """What makes a function one that is called from afar."""
        return lambda _function: Handles()

    def wait(self, pending: list[object], **_options: object) -> tuple[list[object], list[object]]:
        """Time is up."""
        return [], pending


def test_workers_that_never_answer_are_given_up() -> None:
    """Nobody waits for ever."""
    with pytest.raises(ExecutorError, match="ray status"):
        RayExecutor(Silent(), 2).map(abs, [1, 2, 3])
    assert executors.PATIENCE_S >= 600


class Handles:
    """What a remote function gives: a handle for each call."""

    def remote(self, _function: object, item: object) -> object:
        """The handle of one call."""
        return ("handle", item)
