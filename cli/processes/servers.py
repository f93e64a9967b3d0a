"""Several server processes on one port: one socket that all of them accept from, and a parent that minds them.

    minded = Minded(listener, 4, ["--host", "::"], {"FORESHOCK_DB": url})
    minded.run(ready)            # until SIGTERM or Ctrl-C

A process that ends by itself is started again. The parent serves nothing: it waits for SIGTERM, then has every process
end in order. Should the parent be killed, the kernel asks the others to end. SIGHUP it passes on.
"""

import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from cli.console.errors import Failure
from cli.console.output import print_text
from cli.processes.children import end_with_parent

MOST_PROCESSES = 64
MEMBER = "FORESHOCK_MEMBER"
# A process ends its requests within 5 s, its loops within 10, and gives its lease back.
_STOP_S = 25.0
# Between two starts of a process: longer, each time that it did not come up.
_FIRST_WAIT_S, _MOST_WAIT_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Member:
    """What a process is told of its place: it accepts on `listener`, and says on `ready` that it answers."""

    number: int
    count: int
    listener: int  # file descriptors, both
    ready: int
    parent: int  # process id
    folder: Path  # of this server alone

    def text(self) -> str:
        """As the environment hands it on, under MEMBER."""
        return f"{self.number}/{self.count}/{self.listener}/{self.ready}/{self.parent}:{self.folder}"

    @classmethod
    def read(cls, text: str) -> "Member":
        """What `text` wrote.

        Raises:
            ValueError: something else did.
        """
        numbers, _, folder = text.partition(":")
        number, count, listener, ready, parent = map(int, numbers.split("/"))
        return cls(number, count, listener, ready, parent, Path(folder))

    def take(self) -> socket.socket:
        """The listening socket, for this process and none that it starts; it ends here if the parent has already."""
        for descriptor in (self.listener, self.ready):
            os.set_inheritable(descriptor, False)
        if os.getppid() != self.parent:
            sys.exit(1)
        return socket.socket(fileno=self.listener)

    def say_ready(self) -> None:
        """Tell the parent that requests are answered from now on. The end of this process tells it the rest."""
        os.write(self.ready, b"\n")


@dataclass(slots=True)
class _ProcessSlot:
    """One of the processes: the present one of a number, or when the next one is due."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    is_ready: bool = False
    wait_s: float = _FIRST_WAIT_S
    due: float = 0.0  # monotonic


@dataclass(slots=True)
class Minded:
    """The processes of one server.

    Args:
        arguments: of `foreshock serve` for each of them, besides its place.
        environment: what they find in theirs, besides what is in this one's.
    """

    listener: socket.socket
    count: int
    arguments: Sequence[str]
    environment: Mapping[str, str]
    _places: list[_ProcessSlot] = field(init=False)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        self._places = [_ProcessSlot(number) for number in range(self.count)]

    def run(self, ready: Callable[[], None]) -> None:
        """Start them, call `ready` once all answer, and start again what ends, until SIGTERM or Ctrl-C.

        Raises:
            Failure: one did not come up at the start; its own words are on standard error.
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGHUP, self._pass_on)
        said = False
        with tempfile.TemporaryDirectory(prefix="foreshock-serve-") as folder:
            try:
                while True:
                    self._start_due(Path(folder))
                    for key, _ in self._selector.select(self._until_due_s()):
                        self._hear(key, said)
                    if not said and all(place.is_ready for place in self._places):
                        said = True
                        ready()
            except KeyboardInterrupt:
                pass
            finally:
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # once is enough
                self._stop()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """A signal that is every process's: each reads its configuration again."""
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(number)

    def _start_due(self, folder: Path) -> None:
        for place in self._places:
            if place.process is None and place.due <= time.monotonic():
                self._start(place, folder)

    def _start(self, place: _ProcessSlot, folder: Path) -> None:
        heard, ready = os.pipe()
        member = Member(place.number, self.count, self.listener.fileno(), ready, os.getpid(), folder)
        place.is_ready = False
        place.process = subprocess.Popen(  # noqa: S603  # our own program, our own arguments
            [sys.executable, "-P", "-m", "foreshock", "serve", *self.arguments],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment, MEMBER: member.text()},
            pass_fds=(self.listener.fileno(), ready),
            process_group=0,  # Ctrl-C reaches the parent alone, which then stops them
            preexec_fn=_begin,
        )
        os.close(ready)
        self._selector.register(heard, selectors.EVENT_READ, place)

    def _until_due_s(self) -> float | None:
        """How long until a process is to be started; None while all run."""
        dues = [place.due for place in self._places if place.process is None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _hear(self, key: selectors.SelectorKey, begun: bool) -> None:
        """A process answers from now on, or has ended."""
        place: _ProcessSlot = key.data
        descriptor = key.fd
        if os.read(descriptor, 1):
            place.is_ready, place.wait_s = True, _FIRST_WAIT_S
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        ended = _ended(place.process)
        place.process = None
        if not begun:
            raise Failure(f"process {place.number} of {self.count} did not start ({ended}): the line above says why")
        print_text(f"process {place.number} ended ({ended}) and is started again in {place.wait_s:g} s", err=True)
        place.due, place.wait_s = time.monotonic() + place.wait_s, min(_MOST_WAIT_S, 2 * place.wait_s)

    def _stop(self) -> None:
        """Have every process end in order; kill those that do not."""
        self.listener.close()
        running = [place.process for place in self._places if place.process is not None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()


def _begin() -> None:
    """Between fork and exec. A SIGHUP that comes before the process has its own answer to it shall not end it."""
    end_with_parent()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _ended(process: subprocess.Popen[bytes] | None) -> str:
    """How a process ended that has closed its end of the pipe."""
    if process is None:
        return "it was not there"
    try:
        code = process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return f"signal {-code}" if code < 0 else f"exit {code}"


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens on an address; port 0 takes a free one.

    Raises:
        Failure: the address is not this machine's, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=backlog)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "another program listens there: choose another --port" if taken else error.strerror
        raise Failure(f"cannot serve on {host}, port {port}: {why}") from error


def shown(listener: socket.socket, secure: bool = False) -> str:
    """The URL of what listens there, `secure` with TLS."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
