"""`foreshock simulate`."""

import json
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cli.main import foreshock


def simulate(folder: Path, *options: str) -> Result:
    """Run the command on a small cluster."""
    return CliRunner().invoke(foreshock, ["simulate", str(folder), "--nodes", "8", "--days", "10", *options])


def test_it_writes_archive_and_truth_and_prints_the_oracle(tmp_path: Path) -> None:
    """A table for people."""
    result = simulate(tmp_path, "--rate", "50")
    assert result.exit_code == 0, result.output
    assert "8 nodes, 10 days" in result.output
    assert "ROC AUC" in result.output
    assert "24 h" in result.output
    assert (tmp_path / "archive" / "jobs.csv").is_file()
    assert (tmp_path / "truth" / "oracle.json").is_file()


def test_json_is_what_the_truth_says(tmp_path: Path) -> None:
    """For programs."""
    result = simulate(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.output)
    assert printed["oracle"] == json.loads((tmp_path / "truth" / "oracle.json").read_text(encoding="utf-8"))
    assert printed["archive"] == str(tmp_path / "archive")


def test_start_is_the_first_day(tmp_path: Path) -> None:
    """Telemetry begins there."""
    assert simulate(tmp_path, "--start", "2024-02-28").exit_code == 0
    days = sorted(path.stem for path in (tmp_path / "archive" / "telemetry").iterdir())
    assert days[:3] == ["2024-02-28", "2024-02-29", "2024-03-01"]


def test_an_archive_is_not_written_over(tmp_path: Path) -> None:
    """Files of two clusters must not mix."""
    assert simulate(tmp_path).exit_code == 0
    again = simulate(tmp_path)
    assert again.exit_code == 2
    assert "is not empty" in again.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "3"], "choose 8 to 10000"),
        (["--days", "0"], "choose 2 to 1000"),
        (["--rate", "-1"], "out of range"),
        (["--start", "yesterday"], "--start"),
        (["--start", "2025-01-01T05:00:00Z"], "midnight"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_sentence(tmp_path: Path, options: list[str], words: str) -> None:
    """Exit 2, and nothing is written."""
    result = simulate(tmp_path / "new", *options)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "file").write_text("x", encoding="utf-8")
    result = simulate(tmp_path / "file" / "below")
    assert result.exit_code == 2
    assert "cannot write to" in result.output


@pytest.mark.parametrize(
    ("options", "rate", "interval_s"),
    [((), 3.8, 3600), (("--calibration", "real"), 4.195, 600), (("--calibration", "real", "--rate", "3.8"), 3.8, 600)],
)
def test_a_calibration_brings_its_rate_unless_one_is_given(
    tmp_path: Path, options: tuple[str, ...], rate: float, interval_s: int
) -> None:
    """And its interval of telemetry; the truth says whose figures it used, with their records' number."""
    assert simulate(tmp_path, *options).exit_code == 0
    said = json.loads((tmp_path / "truth" / "parameters.json").read_text(encoding="utf-8"))
    assert said["settings"]["rate_per_1000_node_days"] == rate
    assert said["settings"]["calibration"] == ("real" if interval_s == 600 else "published")
    assert ("n = 9" in said["parameters"]["loss_lag_h"]["source"]) == (interval_s == 600)
    first = pq.read_table(next((tmp_path / "archive" / "telemetry").iterdir()), columns=["time"])["time"]
    moments = sorted(set(first.to_pylist()))
    assert min(b - a for a, b in pairwise(moments)).total_seconds() == interval_s
