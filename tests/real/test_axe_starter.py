"""The script that fetches axe-core, and what is said where it cannot be had."""

import os
import subprocess
from pathlib import Path

import pytest
from real import axe as starter
from real.patience import patience

SCRIPT = Path(__file__).parents[2] / ".ci/axe"


def fetch(folder: Path, npm: str) -> str:
    """What the script prints where npm is a program of ours; it never fails."""
    (folder / "bin").mkdir()
    (folder / "bin/npm").write_text(f"#!/bin/sh\n{npm}\n")
    (folder / "bin/npm").chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=patience(30)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    """And nothing is said of it."""
    version = SCRIPT.read_text().partition("VERSION=")[2].split()[0]
    (tmp_path / "foreshock/axe" / version).mkdir(parents=True)
    (tmp_path / "foreshock/axe" / version / "axe.min.js").write_text("kept")
    assert fetch(tmp_path, "exit 1") == ""
    assert (tmp_path / "foreshock/axe" / version / "axe.min.js").read_text() == "kept"


def test_where_it_does_not_come_the_tests_are_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CI, too; where nobody has tried, they fail there."""
    assert fetch(tmp_path, "exit 1").startswith("axe: not to be had: npm did not bring axe-core")
    monkeypatch.setattr(starter, "_CACHE", tmp_path / "foreshock/axe")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="is its registry reachable"):
        starter.axe_script()
    (tmp_path / "foreshock/axe/why-not").unlink()
    with pytest.raises(pytest.fail.Exception, match=r"\.ci/axe fetches it"):
        starter.axe_script()


def test_another_file_under_its_name_is_not_taken(tmp_path: Path) -> None:
    """It would run in every page that is looked at."""
    made = "mkdir package && echo 'alert(1)' > package/axe.min.js && tar -czf"
    name = "$(echo $* | sed 's/.*axe-core@/axe-core-/').tgz"
    assert "the package is not as it was" in fetch(tmp_path, f"{made} {name} package")
    assert not list((tmp_path / "foreshock/axe").glob("[0-9]*"))
