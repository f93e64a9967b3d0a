"""`--processes` and `--ray` as a user gives them."""

import json
import sys

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from fleet_store import fill

from cli.main import foreshock
from cli.processes.workers import workers
from predictor.dataset import executor


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A store with forty days of a fleet."""
    fill(engine, nodes=32, days=40)
    return str(engine.url)


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(foreshock, list(arguments))


def test_a_backtest_by_processes_reports_the_same(url: str) -> None:
    """Whatever did the work."""
    here, there = (run("backtest", "--db", url, "--json", "--processes", count) for count in ("1", "2"))
    assert here.exit_code == there.exit_code == 0, here.output + there.output
    assert json.loads(here.stdout) == json.loads(there.stdout)


def test_training_without_ray_names_the_extra(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and nothing is learned."""
    monkeypatch.setitem(sys.modules, "ray", None)
    for command in ("train", "backtest"):
        result = run(command, "--db", url, "--ray", "local")
        assert result.exit_code == 2
        assert "foreshock[ray]" in result.stderr


def test_a_large_fleet_is_done_by_all_cores(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one by this process, unless it is told otherwise."""
    fill(engine, nodes=4, days=2)
    monkeypatch.setattr(executor.os, "sched_getaffinity", lambda _: {0, 1, 2})
    for large, asked, expected in ((5, None, 1), (4, None, 3), (5, 2, 2), (4, 1, 1)):
        monkeypatch.setattr(executor, "LARGE_FLEET", large)
        with workers(engine, asked, None) as run:
            assert run.workers == expected
