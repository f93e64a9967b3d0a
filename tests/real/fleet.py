"""Programs that a test kills and starts again, as a service manager would: PostgreSQL, the server, the sidecar.

with fleet(tmp_path) as programs, programs.postgres() as database:
    server = programs.server(database.url("foreshock"))
    agent = programs.sidecar([server.url], "gpu-017", f"file:{log}:kernel")
    server.kill()
    programs.revive()
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from real.foreshock import Running, free_port
from real.patience import patience
from real.preloaded import FORESHOCK, Started, start
from real.programs import bound, need, stop, wait_for


@dataclass(slots=True)
class Program:
    """One program: its command, where it is spoken to, its log, and the process of the present start."""

    name: str
    command: Sequence[str]
    log: Path
    url: str = ""
    user: str | None = None
    environment: Mapping[str, str] | None = None
    end_signal: int = signal.SIGTERM
    starts: int = 0
    process: Started | None = None
    frozen: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of the present start, or the last one."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    @property
    def running(self) -> Running:
        """Its HTTP side."""
        return Running(self.url, self.pid)

    def alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, once more where it ran before; the log goes on."""
        self.starts += 1
        with self.log.open("ab") as file:
            file.write(f"--- start {self.starts}\n".encode())
            file.flush()
            if self.command[0] == FORESHOCK and self.user is None:
                self.process = start(self.command[1:], self.log, self.environment, self.log.parent)
                return
            self.process = subprocess.Popen(
                bound(self.command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=None if self.environment is None else dict(self.environment),
                user=self.user,
                cwd=self.log.parent,
            )

    def kill(self) -> None:
        """SIGKILL: it ends between two instructions."""
        if self.process is not None and self.alive():
            self.process.kill()
            self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP it and its children: connections stay open and nobody answers."""
        if self.alive():
            self.frozen = [self.pid, *children(self.pid)]
            self._signal_frozen(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_frozen(signal.SIGCONT)
        self.frozen = []

    def end(self) -> None:
        """Stop it for good."""
        self.thaw()
        if self.process is not None:
            stop(self.process, self.end_signal)

    def _signal_frozen(self, number: int) -> None:
        for pid in self.frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def children(pid: int) -> list[int]:
    """The processes that one started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Fleet:
    """The programs of one test, in the order of their start; logs and spools are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self._clean = {name: text for name, text in os.environ.items() if not name.startswith("FORESHOCK_")}

    def add(self, program: Program) -> Program:
        """Start a program and answer for its end."""
        self.programs.append(program)
        program.start()
        return program

    def server(self, database: str, name: str = "api", *words: str, **extra: str) -> Program:
        """`foreshock serve` on a port that it keeps over restarts; `extra` is added to its environment."""
        port = free_port()
        command = [FORESHOCK, "serve", "--db", database, "--port", str(port), *words]
        program = Program(
            name, command, self.folder / f"{name}.log", f"http://127.0.0.1:{port}", None, self._clean | extra
        )
        self.add(program)
        wait_for(f"{name} answers", lambda: answers(f"{program.url}/readyz") or not program.alive())
        if not program.alive():
            raise RuntimeError(f"{name} ended: {program.log.read_text()[-500:]}")
        return program

    def sidecar(self, servers: Sequence[str], node: str, *words: str, **extra: str) -> Program:
        """`foreshock sidecar` over its own spool; a word without dashes before it is a source."""
        port = free_port()
        command = [FORESHOCK, "sidecar", "--node", node, "--spool", str(self.folder / f"spool-{node}")]
        command += [word for server in servers for word in ("--server", server)]
        command += ["--port", str(port), *words]
        program = Program(
            node, command, self.folder / f"{node}.log", f"http://127.0.0.1:{port}", None, self._clean | extra
        )
        self.add(program)
        wait_for(f"{node} answers", lambda: answers(f"{program.url}/metrics") or not program.alive())
        if not program.alive():
            raise RuntimeError(f"{node} ended: {program.log.read_text()[-500:]}")
        return program

    def nats(self) -> Program:
        """A nats-server with JetStream; its folder and port stay over restarts."""
        port = free_port()
        command = [need("nats-server", "nats-server"), "-js", "-a", "127.0.0.1", "-p", str(port)]
        command += ["-sd", str(self.folder / "jetstream")]
        program = Program("nats", command, self.folder / "nats.log", f"nats://127.0.0.1:{port}")
        return self.add(program)

    def consumer(self, database: str, queue: Program) -> Program:
        """`foreshock consume` from a queue into a database."""
        command = [FORESHOCK, "consume", "--nats", queue.url, "--db", database, "--ack-wait-s", "5"]
        program = Program("consumer", command, self.folder / "consumer.log", "", None, self._clean)
        return self.add(program)

    def revive(self) -> list[Program]:
        """Start again whatever has ended; returns it."""
        ended = [program for program in self.programs if not program.alive()]
        for program in ended:
            program.start()
        return ended

    def end(self) -> None:
        """Stop every program, the last started first."""
        for program in reversed(self.programs):
            program.end()

    def tail(self, characters: int = 1500) -> str:
        """The ends of the logs, for a failure's message."""
        return "\n".join(f"== {p.name}, {p.starts} starts: {_end(p.log, characters)}" for p in self.programs)


def answers(url: str) -> bool:
    """Whether a page is there."""
    try:
        with urlopen(url, timeout=patience(5)):
            return True
    except (URLError, OSError):
        return False


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MB of 2^20 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far, with those of the children that it has buried."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """An empty fleet; at the end every program is stopped, whatever happened: SIGTERM too leaves none behind."""
    programs = Fleet(folder)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield programs
    finally:
        programs.end()
        signal.signal(signal.SIGTERM, before)


def _end(path: Path, characters: int) -> str:
    return path.read_text(errors="replace")[-characters:] if path.exists() else "(no log)"
