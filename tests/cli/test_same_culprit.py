"""`foreshock goodput` and `foreshock diagnose` name one culprit for one interruption, over simulated clusters."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import foreshock
from store.database.connections import open_database
from store.records.event import format_time, parse_time
from store.runs.jobs import read_jobs


def command(*arguments: str) -> str:
    """What a command prints."""
    result = CliRunner().invoke(foreshock, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("seed", [2, 4, 7])
def test_the_ledger_and_diagnose_name_the_same(seed: int, tmp_path: Path) -> None:
    """Of every interruption of every run; where diagnose says that it is not known, the ledger names no verdict."""
    url = f"sqlite:///{tmp_path / 'foreshock.db'}"
    command("simulate", str(tmp_path), "--nodes", "64", "--days", "20", "--seed", str(seed))
    shutil.rmtree(tmp_path / "archive" / "telemetry")  # is most of the archive
    command("ingest", str(tmp_path / "archive"), "--db", url)
    compared = 0
    for run in json.loads(command("goodput", "--db", url, "--json")):
        with open_database(url).connect() as connection:
            ends = sorted(job.end for job in read_jobs(connection, run["run"]) if job.end is not None)
        for cut in run["interruptions"]:
            end = next(end for end in ends if end >= parse_time(cut["time"]))
            first, *_ = json.loads(
                command("diagnose", "--db", url, "--run", run["run"], "--at", format_time(end), "--json")
            )
            compared += 1
            if first["class"] == "unknown" or first["probability"] < 0.5:
                assert cut["verdict"] is None, (cut, first)
                continue
            assert (cut["verdict"]["class"], cut["verdict"]["name"]) == (first["class"], first["name"])
            assert named(cut) == expected(first), (cut, first)
    assert compared >= 5


def named(cut: dict[str, Any]) -> str | None:
    """Whom the ledger names."""
    return None if cut["culprit"] is None else cut["culprit"]["node"]


def expected(first: dict[str, Any]) -> str | None:
    """Whom diagnose names: a node, or what nodes share; nobody for what the program did."""
    return None if first["class"] in ("application", "job", "planned") else first["node"] or first["name"]
