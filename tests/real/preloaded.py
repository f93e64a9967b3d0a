"""Foreshock's programs out of a process that holds them imported: a start takes a sixth of the two seconds of imports.

    process = start(["serve", "--db", url], log)
    stop(process, signal.SIGTERM)

What runs is the command itself, with its own arguments, environment, working folder, streams and signals, in a process
that forks from one that imported modules and did nothing else. Benchmarks get a process that begins as a user's, and so
do tests of the very start (tests/cli, tests/test_front_door.py).
"""

import ctypes
import gc
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

from real.programs import bound

FORESHOCK = str(Path(sys.executable).with_name("foreshock"))
_SET_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_MODULES = [
    *("cli.main", "cli.commands.serve", "cli.config.server", "cli.config.settings_file", "cli.processes.http_server"),
    *("api.app", "uvicorn.loops.asyncio", "uvicorn.protocols.http.httptools_impl", "uvicorn.lifespan.on"),
    *("cli.commands.sidecar", "cli.config.sidecar", "collectors.agent.sidecar", "collectors.agent.metrics_server"),
    *("collectors.sources.file", "parsers.formats.kernel"),
]


class Preloaded:
    """A command of Foreshock that runs, with as much of `subprocess.Popen` as its tests need."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> None:
        given = (list(arguments), str(log), dict(environment), str(folder))
        self._process = _context().Process(target=_run, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL: it ends between two instructions."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode


Started = subprocess.Popen[bytes] | Preloaded


def start(
    arguments: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Started:
    """Start `foreshock ARGUMENTS`; it ends at once with the process that starts it, however that one ends.

    Args:
        log: gets what it prints, after what is there.
        environment: this process's own by default.
        folder: where it works; here by default.
    """
    environment = os.environ if environment is None else environment
    folder = folder or Path.cwd()
    with log.open("ab") as file:
        if "PYTEST_VERSION" in os.environ:
            return Preloaded([str(word) for word in arguments], log.absolute(), environment, folder)
        command = bound([FORESHOCK, *arguments])
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment), cwd=folder
        )


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_MODULES)
    return context


def _run(arguments: list[str], log: str, environment: dict[str, str], folder: str) -> None:
    """What the new process does: it takes its own place, then it is the command."""
    gc.freeze()  # the modules are no garbage: else every search for some, in every server, begins with all of them
    ctypes.CDLL(None).prctl(_SET_END_WITH_PARENT, signal.SIGKILL)
    # The end of the pipe by which the holder of the modules sees that its starter is gone: it would stay for our sake.
    os.close(multiprocessing.forkserver._forkserver._forkserver_alive_fd)
    with Path(os.devnull).open("rb") as nothing, Path(log).open("ab") as written:
        os.dup2(nothing.fileno(), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["foreshock", *arguments]
    from foreshock.__main__ import main

    main()
