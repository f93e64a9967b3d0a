"""A real subnet manager: opensm on a fabric that ibsim simulates. No root, no network: abstract unix sockets alone.

with fabric(tmp_path) as sim:
    sim.unlink("host01"); sim.relink("host01")
    sim.stop_opensm()
    text = sim.log.read_text()
"""

import os
import queue
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real.programs import need, need_file, stop, wait_for

PACKAGES = "ibsim-utils opensm infiniband-diags"
_PROMPT = b"sim> "


def topology(leaves: int = 2, hosts_each: int = 2) -> str:
    """A fabric in ibnetdiscover's form: hosts on leaves, leaves on one spine (its port is the leaf's number)."""
    text = []
    for leaf in range(1, leaves + 1):
        text += [
            f"switchguid=0x{0x1000 + leaf:x}",
            f'Switch\t8 "S-{0x1000 + leaf:016x}"\t\t# "leaf{leaf:02d}" port 0 lid 0 lmc 0',
        ]
        for port in range(1, hosts_each + 1):
            host = (leaf - 1) * hosts_each + port
            text.append(f'[{port}]\t"H-{_guid(host):016x}"[1]\t\t# "{_name(host)} mlx5_0" lid 0 4xHDR')
        text += [f'[8]\t"S-{0x2000:016x}"[{leaf}]\t\t# "spine01" lid 0 4xHDR', ""]
    text += [f"switchguid=0x{0x2000:x}", f'Switch\t8 "S-{0x2000:016x}"\t\t# "spine01" port 0 lid 0 lmc 0']
    text += [
        f'[{leaf}]\t"S-{0x1000 + leaf:016x}"[8]\t\t# "leaf{leaf:02d}" lid 0 4xHDR' for leaf in range(1, leaves + 1)
    ]
    for host in range(1, leaves * hosts_each + 1):
        leaf, port = (host - 1) // hosts_each + 1, (host - 1) % hosts_each + 1
        text += ["", f"caguid=0x{_guid(host):x}", f'Ca\t1 "H-{_guid(host):016x}"\t\t# "{_name(host)} mlx5_0"']
        text.append(
            f'[1]({_guid(host) + 1:x})\t"S-{0x1000 + leaf:016x}"[{port}]\t\t# lid 0 lmc 0 "leaf{leaf:02d}" lid 0 4xHDR'
        )
    return "\n".join(text) + "\n"


def _guid(host: int) -> int:
    return 0x100000 + host * 0x10


def _name(host: int) -> str:
    return f"host{host:02d}"


@dataclass(slots=True)
class Fabric:
    """A running fabric with its subnet manager."""

    folder: Path
    ibsim: subprocess.Popen[bytes]
    opensm: subprocess.Popen[bytes]
    replies: "queue.Queue[bytes | None]"
    environment: dict[str, str]

    @property
    def log(self) -> Path:
        """The log that opensm writes. Its INFO lines are flushed when it ends."""
        return self.folder / "opensm.log"

    def unlink(self, host: str) -> None:
        """Pull a host's cable."""
        self._say(f'Unlink "{self._id(host)}"[1]')

    def relink(self, host: str) -> None:
        """Put it back."""
        self._say(f'ReLink "{self._id(host)}"[1]')

    def discover(self) -> str:
        """What ibnetdiscover prints of the fabric now."""
        command = [need("ibnetdiscover", PACKAGES)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def stop_opensm(self) -> None:
        """End the subnet manager, so that its log is whole."""
        stop(self.opensm, signal.SIGTERM)

    def wait_for_log(self, text: str, times: int = 1) -> None:
        """Wait until the log holds a text so many times."""
        wait_for(f"{text!r} in opensm.log", lambda: self.log.read_text(errors="replace").count(text) >= times)

    def _id(self, host: str) -> str:
        return f"H-{_guid(int(host.removeprefix('host'))):016x}"

    def _say(self, command: str) -> str:
        assert self.ibsim.stdin is not None
        self.ibsim.stdin.write(command.encode() + b"\n")
        self.ibsim.stdin.flush()
        return (self.replies.get(timeout=30) or b"").decode()


@contextmanager
def fabric(folder: Path) -> Iterator[Fabric]:
    """A fabric of four hosts on two leaves, its subnet manager up."""
    programs = {name: need(name, PACKAGES) for name in ("ibsim", "opensm")}
    library = need_file("usr/lib/*/umad2sim/libumad2sim.so", PACKAGES)
    (folder / "cache").mkdir()
    (folder / "net.topo").write_text(topology())
    # opensm keeps INFO lines back until it ends, unless it is told to flush them.
    (folder / "opensm.conf").write_text(f"force_log_flush TRUE\ndump_files_dir {folder}/cache\n")
    # HOME and the paths keep opensm's files here; the socket's name is of this run alone.
    base = {
        **{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
        "IBSIM_SOCKNAME": f"foreshock-{secrets.token_hex(5)}",
        "TZ": "UTC",
        "OSM_CACHE_DIR": f"{folder}/cache/",
        "OSM_TMP_DIR": f"{folder}/cache/",
    }
    client = {**base, "LD_PRELOAD": str(library), "SIM_HOST": f"H-{_guid(1):016x}"}
    with (
        _ibsim(programs["ibsim"], folder, base) as (ibsim, replies),
        _opensm(programs["opensm"], folder, client) as opensm,
    ):
        yield Fabric(folder, ibsim, opensm, replies, client)


@contextmanager
def _ibsim(
    program: str, folder: Path, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], "queue.Queue[bytes | None]"]]:
    with (folder / "ibsim.err").open("wb") as errors:
        process = subprocess.Popen(
            [program, "-s", str(folder / "net.topo")],
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
        if replies.get(timeout=30) is None:
            raise RuntimeError(f"ibsim ended: {(folder / 'ibsim.err').read_text()[-500:]}")
        yield process, replies
    finally:
        stop(process, signal.SIGTERM)
        reader.join(10)
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


@contextmanager
def _opensm(program: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        program,
        "-F",
        str(folder / "opensm.conf"),
        "-f",
        str(folder / "opensm.log"),
        "-g",
        f"0x{_guid(1) + 1:x}",
    ]
    out, log = folder / "opensm.out", folder / "opensm.log"
    with out.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=folder
        )
    try:
        wait_for("opensm is up", lambda: _holds(log, "SUBNET UP") or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"opensm ended: {out.read_text()[-500:]}")
        yield process
    finally:
        stop(process, signal.SIGTERM)


def _holds(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text(errors="replace")
