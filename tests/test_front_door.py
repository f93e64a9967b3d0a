"""The `foreshock` command starts whatever folders lie about: in PYTHONPATH, in the working folder."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from foreshock.__main__ import own_entries

ROOT = Path(__file__).parents[1]
ROOMS = ("api", "cli", "collectors", "dashboard", "parsers", "schedulers", "store")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of a site's own, with packages of our rooms' names that break whoever imports them."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise ImportError('the wrong package')\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("way", ["module", "script"])
def test_folders_of_the_same_names_are_not_imported(site: Path, way: str) -> None:
    """In PYTHONPATH and in the working folder at once; the command decodes a line."""
    script = Path(sysconfig.get_path("scripts")) / "foreshock"
    program = [sys.executable, "-m", "foreshock"] if way == "module" else [str(script)]
    line = "2025-03-01T04:05:06+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [*program, "parse", "kernel"],
        input=line,
        cwd=site,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"code":79' in done.stdout.replace(" ", "")


def test_the_checkout_stays_where_it_is_the_working_folder() -> None:
    """Nobody need install it to run it; an empty entry means the working folder too."""
    assert own_entries(["", str(ROOT), "/x"], {}, str(ROOT)) == ["", str(ROOT), "/x"]


def test_python_s_own_folders_stay(tmp_path: Path) -> None:
    """Also where somebody works in site-packages, or names them in PYTHONPATH."""
    library = sysconfig.get_path("purelib")
    path = ["", library, str(tmp_path)]
    assert own_entries(path, {"PYTHONPATH": f"{library}{os.pathsep}{tmp_path}"}, library) == ["", library]


def test_entries_are_compared_by_the_folder_that_they_mean(tmp_path: Path) -> None:
    """A link, a trailing slash and empty entries of PYTHONPATH are no way around."""
    (real := tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(real)
    environment = {"PYTHONPATH": f"{tmp_path}/link/{os.pathsep}{os.pathsep}"}
    assert own_entries([str(real), "", "/x"], environment, str(tmp_path)) == ["/x"]
