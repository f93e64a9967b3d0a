"""`foreshock simulate`: what stands in its way is told in one sentence, and nothing is spoilt by it."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import foreshock


def simulate(folder: Path, *options: str) -> Result:
    """Run the command on the smallest cluster."""
    return CliRunner().invoke(foreshock, ["simulate", str(folder), "--nodes", "8", "--days", "2", *options])


def sentence(result: Result) -> str:
    """The one line that a refused command prints."""
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.output.strip().splitlines()
    assert lines[-1].startswith("Error: ")
    return lines[-1]


def test_a_file_in_the_archives_place_is_left_alone(tmp_path: Path) -> None:
    """It is no directory: the sentence names it."""
    (tmp_path / "archive").write_text("mine", encoding="utf-8")
    assert f"cannot write to {tmp_path}: {tmp_path / 'archive'}" in sentence(simulate(tmp_path))
    assert (tmp_path / "archive").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "truth").exists()


def test_a_file_in_the_directorys_place_is_left_alone(tmp_path: Path) -> None:
    """DIRECTORY must be one."""
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert "is a file" in sentence(simulate(tmp_path / "file"))


def test_a_file_in_the_truths_place_is_named(tmp_path: Path) -> None:
    """The archive is written by then, the truth cannot be."""
    (tmp_path / "truth").write_text("mine", encoding="utf-8")
    assert f"cannot write to {tmp_path}" in sentence(simulate(tmp_path))


def test_a_place_where_nobody_may_write_is_named() -> None:
    """/proc takes no directories, not even from root."""
    assert "cannot write to /proc/foreshock-simulated" in sentence(simulate(Path("/proc/foreshock-simulated")))


def test_an_empty_archive_directory_is_written_into(tmp_path: Path) -> None:
    """One that an operator made beforehand."""
    (tmp_path / "archive").mkdir()
    assert simulate(tmp_path).exit_code == 0
    assert (tmp_path / "archive" / "nodes.csv").is_file()


def test_a_directory_that_is_not_empty_is_left_as_it_is(tmp_path: Path) -> None:
    """Even by a single hidden file."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / ".keep").touch()
    assert "is not empty: name another directory" in sentence(simulate(tmp_path))
    assert [path.name for path in tmp_path.rglob("*")] == ["archive", ".keep"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--start", "0001-01-01T00:00:00Z"], "choose 1980 to 2999"),
        (["--start", "9999-12-31T00:00:00Z"], "choose 1980 to 2999"),
        (["--start", "2025-02-30T00:00:00Z"], "--start"),
        (["--start", "2025-01-01T00:00:00+02:00"], "midnight"),
        (["--start", ""], "--start"),
        (["--nodes", "10001"], "choose 8 to 10000"),
        (["--nodes", "eight"], "eight"),
        (["--days", "1001"], "choose 2 to 1000"),
        (["--rate", "0"], "out of range"),
        (["--rate", "nan"], "out of range"),
        (["--rate", "inf"], "out of range"),
        (["--seed", "1.5"], "1.5"),
    ],
)
def test_a_figure_out_of_range_is_refused_before_anything_is_written(
    tmp_path: Path, options: list[str], says: str
) -> None:
    """The sentence says what may be chosen."""
    assert says in sentence(simulate(tmp_path / "new", *options))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("start", ["1980-01-01T00:00:00Z", "2999-12-31T00:00:00Z"])
def test_the_first_and_the_last_year_are_simulated(tmp_path: Path, start: str) -> None:
    """Telemetry, logs and the truth of both."""
    result = simulate(tmp_path, "--start", start)
    assert result.exit_code == 0, result.output
    assert start[:10] in {path.stem for path in (tmp_path / "archive" / "telemetry").iterdir()}


def test_a_cluster_without_an_outage_has_a_table_of_dashes(tmp_path: Path) -> None:
    """No figure is made up."""
    result = simulate(tmp_path, "--rate", "0.001")
    assert result.exit_code == 0, result.output
    assert "0 unplanned outages, 0 of them with a precursor." in result.output
    rows = [line.split() for line in result.output.splitlines() if line.startswith(("24 h", "168 h"))]
    assert [row[4:] for row in rows] == [["-"] * 6] * 2
