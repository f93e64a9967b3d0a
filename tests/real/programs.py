"""The real programs that tests start: looked for, and a clear word where one is missing.

Without CI a missing program skips its test. With CI=true it fails it, so that an environment that lost a package
cannot pass for a whole one.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from real.patience import patience

# Debian keeps some daemons where a user's PATH does not look.
_PLACES = os.pathsep.join(["/usr/sbin", "/sbin", "/usr/local/sbin"])


class Process(Protocol):
    """A process that was started here: `subprocess.Popen`, or `real.preloaded.Preloaded`."""

    def poll(self) -> int | None: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def need(program: str, package: str) -> str:
    """The path of a program, or the end of the test that asks for it.

    Args:
        package: the Debian package that has it, as `.ci/packages` installs it.
    """
    found = shutil.which(program) or shutil.which(program, path=_PLACES)
    if found is None:
        missing(f"{program} is not installed: apt-get install {package}")
    return found


def need_file(pattern: str, package: str) -> Path:
    """The newest file under the root that a pattern names, or the end of the test that asks for it."""
    found = sorted(Path("/").glob(pattern), key=lambda path: [int(d) for d in path.parts if d.isdigit()])
    if not found:
        missing(f"/{pattern} is not there: apt-get install {package}")
    return found[-1]


def missing(reason: str) -> None:
    """Skip the test; fail it where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def bound(command: Sequence[str | Path]) -> list[str]:
    """A server's command, such that it ends at once with the process that starts it, however that one ends.

    A test run that is killed leaves no server behind. The process keeps its id: setpriv becomes the program.
    """
    return [need("setpriv", "util-linux"), "--pdeathsig", "KILL", "--", *map(str, command)]


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until something holds.

    Args:
        timeout_s: the longest that it takes on a quiet machine.

    Raises:
        TimeoutError: it does not, even with patience.
    """
    within_s = patience(timeout_s)
    until = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.05)


def stop(process: Process, signal: int, timeout_s: float = 20.0) -> None:
    """End a process that was started here, by its id."""
    if process.poll() is None:
        process.send_signal(signal)
        try:
            process.wait(patience(timeout_s))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
