"""Child processes of the demo: started with their own log, watched, and stopped by process id."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cli.console.errors import Failure

_STOP_S = 8.0
_TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec nothing may be imported.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Children:
    """The processes that one command keeps. Leaving the context stops them, the last started first."""

    def __init__(self, directory: Path) -> None:
        """`directory` receives each process's output as NAME.log."""
        self.directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Children":
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop every process that still runs."""
        self.stop()

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start `foreshock ARGUMENTS` under a name.

        It gets a process group of its own: Ctrl-C reaches this process alone, which then stops them in order.
        """
        with (self.directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603  # our own program, our own arguments
                [sys.executable, "-P", "-m", "foreshock", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                process_group=0,
                preexec_fn=end_with_parent,
            )

    def runs(self, name: str) -> bool:
        """Whether one of that name was started and is not stopped."""
        return name in self._running

    def check(self) -> None:
        """Say so if one has ended by itself.

        Raises:
            Failure: one has; the message holds the end of its log.
        """
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                log = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-_TAIL_LINES:]
                raise Failure("\n".join([f"the {name} stopped by itself (exit {code}); its last lines:", *log]))

    def wait_for(self, url: str, patience_s: float) -> None:
        """Wait until a URL answers with 200.

        Raises:
            Failure: a process ended, or the URL did not answer in time.
        """
        import httpx2

        deadline = time.monotonic() + patience_s
        with httpx2.Client(timeout=2.0) as client:  # one: each reads the machine's authorities anew
            while time.monotonic() < deadline:
                self.check()
                with suppress(httpx2.HTTPError):
                    if client.get(url).status_code == httpx2.codes.OK:
                        return
                time.sleep(0.1)
        raise Failure(f"{url} did not answer within {patience_s:g} s: see the logs in {self.directory}")

    def stop(self, *names: str) -> None:
        """Ask each of those names, or all, to end, the last started first; kill what has not ended after a while."""
        chosen = [name for name in reversed(self._running) if name in names or not names]
        ending = [self._running.pop(name) for name in chosen]
        for process in ending:
            process.send_signal(signal.SIGTERM)
        for process in ending:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def end_with_parent() -> None:
    """Have the kernel end this child when its parent dies, even by kill -9; Linux alone knows how."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


# Free ports to listen on.


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """A port of an address that is free: the wanted one if it is, else any (0 asks for any).

    Raises:
        Failure: the address has none, or is not this machine's.
    """
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Failure(f"no free port on {host}: stop what holds them, or name an address of this machine")
