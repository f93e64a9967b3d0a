"""A real Slurm controller with nodes that nobody serves: what its commands print of them, and what they can be told.

with slurm("gpu[001-004]") as cluster:
    cluster.run("scontrol", "update", "nodename=gpu001", "state=drain", "reason=fan")
    text = cluster.run("sinfo", "-R")

munged and slurmctld run as whoever runs the tests, in a folder of their own; no slurmd, so no root and no jobs.
"""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from real.foreshock import free_port
from real.programs import missing, need, stop, wait_for

_CONFIGURATION = """\
ClusterName=sim
SlurmctldHost={host}
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdTimeout=0
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
NodeName={nodes} NodeAddr=127.0.0.1 CPUs=64 RealMemory=512000 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=debug Nodes=ALL MaxTime=60 State=UP
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running controller."""

    folder: Path

    def run(self, *command: str) -> str:
        """What one of Slurm's commands prints.

        Raises:
            CalledProcessError: it fails.
        """
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "TZ": "UTC", "LC_ALL": "C"}
        return subprocess.run(
            [need(command[0], "slurm-client"), *command[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout


@contextmanager
def slurm(nodes: str) -> Iterator[Slurm]:
    """A controller of these nodes, on the loopback where the host's own name is there."""
    munged, slurmctld = need("munged", "munge"), need("slurmctld", "slurmctld")
    host = socket.gethostname().partition(".")[0]
    try:
        socket.gethostbyname(host)
    except OSError:
        missing(f"the host's name {host} has no address: slurmctld needs one")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's path must be short
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (folder / "slurm.conf").write_text(
            _CONFIGURATION.format(host=host, port=free_port(), user=getpass.getuser(), folder=folder, nodes=nodes)
        )
        (folder / "cgroup.conf").write_text("")
        _start(stack, folder, [munged, "--foreground", *_munge_options(folder)])
        wait_for("munged listens", (folder / "munge.sock").is_socket)
        _start(stack, folder, [slurmctld, "-D", "-i", "-c", "-f", str(folder / "slurm.conf")])
        cluster = Slurm(folder)
        wait_for("slurmctld answers", lambda: _answers(cluster))
        yield cluster


def _munge_options(folder: Path) -> Sequence[str]:
    names = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    return [f"--{option}={folder / name}" for option, name in {**names, "log-file": "munge.log"}.items()]


def _start(stack: ExitStack, folder: Path, command: Sequence[str]) -> None:
    """A daemon that ends with the test."""
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "TZ": "UTC"}
    with (folder / f"{Path(command[0]).name}.out").open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    stack.callback(stop, process, signal.SIGTERM)


def _answers(cluster: Slurm) -> bool:
    try:
        return "is UP" in cluster.run("scontrol", "ping")
    except subprocess.CalledProcessError:
        return False
