"""A real subnet manager: opensm on a fabric that ibsim simulates. No root, no network: abstract unix sockets alone.

with fabric(tmp_path) as sim:
    sim.unlink("host01"); sim.relink("host01")
    sim.stop_opensm()
    text = sim.log.read_text()
"""

import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real.fabric_plan import FabricPlan, small_plan
from real.patience import patience
from real.programs import bound, need, need_file, stop, wait_for

PACKAGES = "ibsim-utils opensm infiniband-diags"
_PROMPT = b"sim> "


def node_guid(name: str) -> str:
    """The node GUID of `leaf01`, `spine01` or `host01` of the small fabric, as logs print it."""
    return f"0x{small_plan(spines=2).guids[name]:016x}"


@dataclass(frozen=True, slots=True)
class Manager:
    """A further subnet manager."""

    log: Path
    process: subprocess.Popen[bytes]

    def sweep(self) -> None:
        """Ask it for a heavy sweep."""
        self.process.send_signal(signal.SIGHUP)


@dataclass(slots=True)
class Fabric:
    """A running fabric with its subnet manager."""

    folder: Path
    plan: FabricPlan
    ibsim: subprocess.Popen[bytes]
    opensm: subprocess.Popen[bytes]
    replies: "queue.Queue[bytes | None]"
    environment: dict[str, str]

    @property
    def log(self) -> Path:
        """The log that opensm writes. Its INFO lines are flushed when it ends."""
        return self.folder / "opensm.log"

    @property
    def links(self) -> Path:
        """The list of links that opensm writes at each heavy sweep."""
        return self.folder / "opensm.cache/opensm-subnet.lst"

    def unlink(self, name: str, port: int | None = None) -> None:
        """Pull a host's cable, one of a switch's cables, or with no port all of a switch's."""
        self._act("Unlink", name, port)

    def relink(self, name: str, port: int | None = None) -> None:
        """Put it back."""
        self._act("ReLink", name, port)

    def reboot(self, host: str) -> None:
        """A host's port loses its link and its LID, until the manager has seen it."""
        sweeps = self.sweeps()
        self.reset(host)
        self.settle(sweeps + 1)
        self._act("ReLink", host, None)

    def sweeps(self) -> int:
        """How often the subnet manager has swept."""
        return self.log.read_text().count("SUBNET UP")

    def settle(self, sweeps: int) -> None:
        """Wait until the subnet manager has swept so often, and has nothing left to do."""
        self.wait_for_log("SUBNET UP", times=sweeps)
        self.rest()

    def rest(self) -> None:
        """Wait until nothing is on its way."""
        wait_for("the fabric is at rest", lambda: _are_at_rest(self.ibsim.pid, self.opensm.pid))

    def count(self, name: str, port: int, **counters: int) -> None:
        """Set error counters of a port."""
        for counter, value in counters.items():
            self._say(f'PerformanceSet "{self.plan.identity(name)}"[{port}] PortCounters.{counter}={value}')

    def impersonate(self, adapter: str, other: str) -> None:
        """Give an adapter's node and port the GUIDs of another's, or its own again."""
        self._say(f'Guid "{self.plan.identity(adapter)}" 0x{self.plan.guids[other]:x}')
        self._say(f'Guid "{self.plan.identity(adapter)}"[1] 0x{self.plan.guids[other] + 1:x}')

    def reset(self, name: str) -> None:
        """An adapter, or each of a host's, loses its link and its LID, as where the host goes down."""
        self._act("Clear", name, None)

    def sweep(self) -> None:
        """Ask the subnet manager for a heavy sweep."""
        self.opensm.send_signal(signal.SIGHUP)

    def trap(self, switch: str, number: int, port: int) -> None:
        """A switch sends the manager a trap about one of its ports."""
        own, manager = self._lid(switch), self._lid(self.plan.adapters()[0])
        command = [sys.executable, str(Path(__file__).with_name("send_trap.py")), str(number), str(manager), str(own)]
        environment = {**self.environment, "SIM_HOST": self.plan.identity(switch)}
        done = subprocess.run(
            [*command, str(port)], env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
        )
        assert done.returncode == 0, done.stderr

    def discover(self) -> str:
        """What ibnetdiscover prints of the fabric now."""
        return self.diagnose("ibnetdiscover")

    def diagnose(self, tool: str, *arguments: str) -> str:
        """What a tool of infiniband-diags prints of the fabric now, whatever it ends with."""
        command = [need(tool, PACKAGES), *arguments]
        environment = {**self.environment, "SIM_HOST": self.plan.identity(self.plan.adapters()[-1])}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
        ).stdout

    def stop_opensm(self) -> None:
        """End the subnet manager, so that its log is whole."""
        stop(self.opensm, signal.SIGTERM)

    def kill_opensm(self, standby: Manager) -> None:
        """The subnet manager dies while a standby polls it; ibsim has to be told.

        It dies between two polls: in ibsim nothing times out, and a standby waits for ever for the answer to a poll
        that died with the master.
        """
        standby.process.send_signal(signal.SIGSTOP)
        wait_for("no poll is on its way", lambda: _are_at_rest(self.ibsim.pid, self.opensm.pid))
        stop(self.opensm, signal.SIGKILL)
        for line in self._say("Attached").splitlines():
            if f"pid {self.opensm.pid} " in line:
                self._say(f"X {line.split()[1].rstrip(':')}")
        standby.process.send_signal(signal.SIGCONT)

    def wait_for_log(self, text: str, times: int = 1, log: Path | None = None) -> None:
        """Wait until a log, the first manager's if none is named, holds a text so many times."""
        path = log or self.log
        wait_for(f"{text!r} in {path.name}", lambda: path.read_text(errors="replace").count(text) >= times)

    @contextmanager
    def manager(self, host: str, name: str, arguments: Sequence[str] = (), settings: str = "") -> Iterator[Manager]:
        """A further subnet manager on a host."""
        environment = {**self.environment, "SIM_HOST": self.plan.identity(host)}
        start = _Start(self.folder, name, self.plan.guids[host] + 1, environment)
        with _opensm(start, arguments, settings) as process:
            yield Manager(self.folder / f"{name}.log", process)

    def _act(self, verb: str, name: str, port: int | None) -> None:
        for each in [name] if name in self.plan.guids else self.plan.adapters(name):
            own = 1 if port is None and not self.plan.is_switch(each) else port
            self._say(f'{verb} "{self.plan.identity(each)}"' + ("" if own is None else f"[{own}]"))

    def _lid(self, name: str) -> int:
        found = re.search(r"lid (\d+) lmc", self._say(f'Dump "{self.plan.identity(name)}"'))
        assert found, f"ibsim knows no LID of {name}"
        return int(found[1])

    def _say(self, command: str) -> str:
        assert self.ibsim.stdin is not None
        self.ibsim.stdin.write(command.encode() + b"\n")
        self.ibsim.stdin.flush()
        return (self.replies.get(timeout=patience(30)) or b"").decode()


@contextmanager
def fabric(
    folder: Path,
    spines: int = 1,
    arguments: Sequence[str] = (),
    settings: str = "",
    plan: FabricPlan | None = None,
) -> Iterator[Fabric]:
    """A fabric of four hosts on two leaves, or of a plan; its subnet manager, on the first adapter, is up.

    Args:
        arguments: further ones of opensm.
        settings: further lines of its configuration.
    """
    need("opensm", PACKAGES)
    program = need("ibsim", PACKAGES)
    library = need_file("usr/lib/*/umad2sim/libumad2sim.so", PACKAGES)
    plan = plan or small_plan(spines=spines)
    (folder / "net.topo").write_text(plan.text())
    # HOME and the paths keep opensm's files here; the socket's name is of this run alone.
    base = {
        **{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        "IBSIM_SOCKNAME": f"foreshock-{secrets.token_hex(5)}",
        "TZ": "UTC",
    }
    client = {**base, "LD_PRELOAD": str(library), "SIM_HOST": plan.identity(plan.adapters()[0])}
    start = _Start(folder, "opensm", plan.guids[plan.adapters()[0]] + 1, client)
    with (
        _ibsim(program, folder, base) as (ibsim, replies),
        _opensm(start, arguments, settings) as opensm,
    ):
        yield Fabric(folder, plan, ibsim, opensm, replies, client)


@contextmanager
def _ibsim(
    program: str, folder: Path, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], "queue.Queue[bytes | None]"]]:
    with (folder / "ibsim.err").open("wb") as errors:
        process = subprocess.Popen(
            bound([program, "-s", str(folder / "net.topo")]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=folder,
        )
    replies: queue.Queue[bytes | None] = queue.Queue()
    reader = threading.Thread(target=_read_replies, args=(process, replies), daemon=True)
    reader.start()
    try:
        if replies.get(timeout=patience(30)) is None:
            raise RuntimeError(f"ibsim ended: {(folder / 'ibsim.err').read_text()[-500:]}")
        yield process, replies
    finally:
        stop(process, signal.SIGTERM)
        reader.join(patience(10))
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _read_replies(process: subprocess.Popen[bytes], replies: "queue.Queue[bytes | None]") -> None:
    """Split what ibsim says at its prompts; None at its end."""
    assert process.stdout is not None
    held = b""
    while chunk := os.read(process.stdout.fileno(), 65536):
        *whole, held = (held + chunk).split(_PROMPT)
        for reply in whole:
            replies.put(reply)
    replies.put(None)


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a subnet manager runs, what its files are called, and its port's GUID."""

    folder: Path
    name: str
    guid: int
    environment: dict[str, str]


@contextmanager
def _opensm(start: _Start, arguments: Sequence[str], settings: str) -> Iterator[subprocess.Popen[bytes]]:
    folder, name = start.folder, start.name
    cache, out, log = folder / f"{name}.cache", folder / f"{name}.out", folder / f"{name}.log"
    cache.mkdir(exist_ok=True)
    # opensm keeps INFO lines back until it ends, unless it is told to flush them.
    (folder / f"{name}.conf").write_text(f"force_log_flush TRUE\ndump_files_dir {cache}\n{settings}")
    command = [need("opensm", PACKAGES), "-F", str(folder / f"{name}.conf"), "-f", str(log)]
    environment = {**start.environment, "OSM_CACHE_DIR": f"{cache}/", "OSM_TMP_DIR": f"{cache}/"}
    with out.open("wb") as file:
        process = subprocess.Popen(
            bound([*command, "-g", f"0x{start.guid:x}", *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            cwd=folder,
        )
    try:
        wait_for(f"{name} is up", lambda: _is_up(log) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"opensm ended: {out.read_text()[-500:]}")
        yield process
    finally:
        stop(process, signal.SIGTERM)


def _is_up(log: Path) -> bool:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "SUBNET UP" in text or "Entering STANDBY" in text


def _are_at_rest(*pids: int) -> bool:
    """Whether every thread of some processes sleeps and none has run between two looks: nothing is on its way."""
    first, second = ([_threads(pid) for pid in pids] for _ in range(2))
    return first == second and all(text.startswith("S") for threads in first for text in threads)


def _threads(pid: int) -> list[str]:
    """The state of each thread, and how often it has run."""
    return [
        " ".join(re.findall(r"^(?:State|\w*voluntary_ctxt_switches):\s*(\w+)", path.read_text(), re.MULTILINE))
        for path in sorted(Path(f"/proc/{pid}/task").glob("*/status"))
    ]
