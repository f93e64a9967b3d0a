"""The first verdict on a simulated cluster, against what the simulator let fail."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import foreshock
from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from store.database.connections import open_database
from store.records.event import parse_time
from store.runs.jobs import read_jobs

ENOUGH = 0.9


def command(*arguments: str) -> None:
    """Run a command that must succeed."""
    result = CliRunner().invoke(foreshock, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("seed", [3, 5])
def test_nine_of_ten_first_verdicts_are_the_true_ones(seed: int, tmp_path: Path) -> None:
    """Of every interruption of every run, as of the end of its attempt."""
    url = f"sqlite:///{tmp_path / 'foreshock.db'}"
    command("simulate", str(tmp_path), "--nodes", "64", "--days", "20", "--seed", str(seed))
    shutil.rmtree(tmp_path / "archive" / "telemetry")  # is most of the archive
    command("ingest", str(tmp_path / "archive"), "--db", url)
    engine = open_database(url)
    right = []
    with engine.begin() as connection:
        for run in json.loads((tmp_path / "truth" / "goodput.json").read_text(encoding="utf-8")):
            jobs = read_jobs(connection, run["run"])
            for cut in run["interruptions"]:
                moment = parse_time(cut["time"])
                end = min(job.end for job in jobs if job.end is not None and job.end >= moment)
                scene = read_scene(connection, run["run"], end)
                assert scene is not None
                first, *_ = explain(scene)
                right.append(cut["culprit"]["node"] in (first.node, first.name, *first.names))
    engine.dispose()
    assert len(right) >= 5
    assert sum(right) / len(right) >= ENOUGH
