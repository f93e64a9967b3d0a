"""Foreshock's programs out of a process that holds them imported: a start takes a tenth of the two seconds of imports.

What runs is the command itself, with its own arguments, environment, working folder, streams and signals, in a process
that forks from one that imported modules and did nothing else. Programs whose very start is tested begin as a user's
(`real.fleet`, tests/test_front_door.py).
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

from real.patience import patience

_SET_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_MODULES = [
    *("cli.main", "cli.commands.serve", "cli.config.server", "cli.config.settings_file", "cli.processes.http_server"),
    *("api.app", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl", "uvicorn.lifespan.on"),
    *("cli.commands.sidecar", "cli.config.sidecar", "collectors.agent.sidecar", "collectors.agent.metrics_server"),
    *("collectors.sources.file", "parsers.formats.kernel"),
]


class Preloaded:
    """A command of Foreshock that runs; what `subprocess.Popen` would say of it."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        log.write_bytes(b"")
        given = (list(arguments), str(log.absolute()), dict(environment), str(Path.cwd()))
        self._process = _context().Process(target=_run, args=given)
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def end(self, timeout_s: float = 20.0) -> None:
        """End it as a service manager does: by SIGTERM, and by SIGKILL where that does not suffice."""
        self._process.terminate()
        self._process.join(patience(timeout_s))
        if self.poll() is None:
            self._process.kill()
            self._process.join()
        self._process.close()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_MODULES)
    return context


def _run(arguments: list[str], log: str, environment: dict[str, str], folder: str) -> None:
    """What the new process does: it takes its own place, then it is the command."""
    ctypes.CDLL(None).prctl(_SET_END_WITH_PARENT, signal.SIGKILL)
    with Path(os.devnull).open("rb") as nothing, Path(log).open("wb") as written:
        os.dup2(nothing.fileno(), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["foreshock", *arguments]
    from foreshock.__main__ import main

    main()
