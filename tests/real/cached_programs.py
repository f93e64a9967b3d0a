"""Programs of a Python package registry that tests start and the project does not need: made once by pip, and kept.

    python = cached_environment("s3", ["moto[s3]==5.2.5", "flask", "flask-cors"]) / "bin" / "python"

Each lies in an environment of its own in ${XDG_CACHE_HOME:-~/.cache}/foreshock. Where pip cannot have it the test is
skipped and says so; two that want it at a time wait for one.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock"
_MINUTES = 8


def cached_environment(name: str, packages: Sequence[str]) -> Path:
    """The folder of an environment that has the packages; others of the name are left as they are.

    Args:
        packages: requirements as pip reads them, versions pinned.
    """
    key = hashlib.sha256("\n".join([*packages, sys.version]).encode()).hexdigest()[:12]
    folder = CACHE / name / key
    with locked(CACHE / name):
        if not (folder / "whole").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            add_packages(folder / "bin" / "python", packages)
            (folder / "whole").touch()
    return folder


def add_packages(python: Path, packages: Sequence[str]) -> None:
    """Have pip install wheels into the environment of a python; the test is skipped where it cannot."""
    command = [str(python), "-m", "pip", "install", "-q", "--only-binary=:all:", *packages]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 * _MINUTES)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"pip needs too long for {', '.join(packages)}: {error}")
    if done.returncode:
        pytest.skip(f"pip cannot have {', '.join(packages)}: {done.stderr.strip()[-300:]}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
