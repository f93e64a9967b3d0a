"""The ledger of a simulated cluster's logs equals the truth that the simulator wrote beside them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import foreshock

SEEDS = (2, 4, 7)


def command(*arguments: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(foreshock, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module", params=SEEDS)
def accounts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], list[Any]]:
    """The truth and our ledgers of 64 nodes over 20 days."""
    folder = tmp_path_factory.mktemp("cluster")
    url = f"sqlite:///{folder / 'foreshock.db'}"
    command("simulate", str(folder), "--nodes", "64", "--days", "20", "--seed", str(request.param))
    shutil.rmtree(folder / "archive" / "telemetry")  # says nothing of runs, and is most of the archive
    command("ingest", str(folder / "archive"), "--db", url)
    truth = json.loads(Path(folder / "truth" / "goodput.json").read_text(encoding="utf-8"))
    ours = json.loads(command("goodput", "--db", url, "--json"))
    return sorted(truth, key=lambda one: one["run"]), sorted(ours, key=lambda one: one["run"])


def test_every_run_has_its_size_and_span(accounts: tuple[list[Any], list[Any]]) -> None:
    """Names, nodes, GPUs, start, end and wall time."""
    keys = ("run", "nodes", "gpus", "start", "end", "wall_s")
    truth, ours = ([{key: one[key] for key in keys} for one in side] for side in accounts)
    assert ours == truth
    assert truth


def test_every_bucket_equals_the_truth_and_they_sum_to_wall_time(accounts: tuple[list[Any], list[Any]]) -> None:
    """To the millisecond, not only to the second."""
    for truth, ours in zip(*accounts, strict=True):
        assert ours["buckets"] == pytest.approx(truth["buckets"], abs=1e-6)
        assert sum(round(1000 * value) for value in ours["buckets"].values()) == round(1000 * ours["wall_s"])
        assert ours["goodput"] == pytest.approx(truth["goodput"], abs=1e-9)


def test_every_interruption_has_its_time_cause_and_cost(accounts: tuple[list[Any], list[Any]]) -> None:
    """None is missed, none invented."""
    for truth, ours in zip(*accounts, strict=True):
        told = [(one["time"], one["cause"], round(1000 * one["lost_s"])) for one in ours["interruptions"]]
        assert told == [(one["time"], one["cause"], round(1000 * one["lost_s"])) for one in truth["interruptions"]]


def test_every_interruption_is_blamed_on_the_node_or_switch_that_failed(
    accounts: tuple[list[Any], list[Any]],
) -> None:
    """The node or leaf, and the GPU where the log names one; of the program's own errors no node."""
    for truth, ours in zip(*accounts, strict=True):
        for told, true in zip(ours["interruptions"], truth["interruptions"], strict=True):
            if true["class"] == "software":
                assert told["culprit"] is None, (told, true)
                continue
            assert told["culprit"]["node"] == true["culprit"]["node"], (told, true)
            if told["culprit"]["pci"] is not None:
                assert told["culprit"]["pci"] == true["culprit"]["pci"]
