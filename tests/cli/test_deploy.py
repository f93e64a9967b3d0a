"""`foreshock deploy`: what comes for other programs, as a user writes it; and that the wheel has it."""

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import foreshock

DEPLOY = Path(__file__).parents[2] / "deploy"


def ran(*words: object) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(foreshock, ["deploy", *map(str, words)])


def test_every_file_is_of_a_set_and_is_written_as_it_is(tmp_path: Path) -> None:
    """Units name the program where it is installed; scripts may be started."""
    shipped = {path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    names = [line for line in ran("list").output.splitlines() if not line.startswith(" ")]
    assert {"systemd", "kubernetes", "helm", "container", "prometheus", "slurm", "examples"} <= set(names)
    written = set()
    for name in names:
        assert ran("write", name, tmp_path / name, "--program", "/usr/bin/foreshock").exit_code == 0
        for path in (tmp_path / name).rglob("*"):
            if path.is_dir():
                continue
            inner = path.relative_to(tmp_path / name)
            source = inner if (DEPLOY / inner).is_file() and len(inner.parts) == 1 else Path(name) / inner
            text = (DEPLOY / source).read_text()
            if path.suffix == ".service":
                assert "ExecStart=/usr/bin/foreshock " in path.read_text()
                text = text.replace("/opt/foreshock/.venv/bin/foreshock", "/usr/bin/foreshock")
            assert path.read_text() == text
            assert os.access(path, os.X_OK) == text.startswith("#!")
            written.add(source)
    assert written == shipped - {Path("__init__.py")}


def test_a_file_that_somebody_changed_is_left_as_it_is(tmp_path: Path) -> None:
    """Until he says otherwise; the same again is no matter."""
    assert ran("write", "slurm", tmp_path).exit_code == 0
    assert ran("write", "slurm", tmp_path).exit_code == 0
    (tmp_path / "foreshock-health").write_text("#!/bin/sh\nexit 0\n")
    refused = ran("write", "slurm", tmp_path)
    assert refused.exit_code == 2
    assert "foreshock-health; --force replaces" in refused.output
    assert (tmp_path / "foreshock-health").read_text() == "#!/bin/sh\nexit 0\n"
    assert ran("write", "slurm", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "foreshock-health").read_text() == (DEPLOY / "slurm" / "foreshock-health").read_text()


@pytest.mark.parametrize("words", [("write", "nothing", "DIR"), ("write", "slurm", "/proc/1/x")])
def test_what_cannot_be_is_said(words: tuple[str, ...]) -> None:
    """With the remedy."""
    done = ran(*words)
    assert done.exit_code == 2
    assert "use " in done.output


def test_the_program_is_where_it_runs_unless_said(tmp_path: Path) -> None:
    """A unit that was written by an installation starts that one."""
    assert ran("write", "systemd", tmp_path).exit_code == 0
    text = (tmp_path / "foreshock-server.service").read_text()
    assert f"ExecStart={Path(sys.executable).with_name('foreshock')} serve" in text
