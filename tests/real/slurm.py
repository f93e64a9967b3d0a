"""A real Slurm controller: what its commands print, what they can be told, and nodes that run jobs.

with slurm("gpu[001-004]") as cluster:
    cluster.run("scontrol", "update", "nodename=gpu001", "state=drain", "reason=fan")
    text = cluster.run("sinfo", "-R")

with slurm("gpu[001-004]", served=4) as cluster:  # a slurmd each, with eight stand-in GPUs; root alone can
    cluster.job("gpu002", "sleep 60")

munged and slurmctld run as whoever runs the tests, in a folder of their own.
"""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from real.foreshock import free_port
from real.patience import patience
from real.programs import bound, missing, need, stop, wait_for

from store.records.hostlist import expand

_CONFIGURATION = """\
ClusterName=sim
SlurmctldHost={host}
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdTimeout={timeout}
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
{served}{settings}
NodeName={nodes} {ports}NodeAddr=127.0.0.1 CPUs=64 RealMemory=512000 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=debug Nodes=ALL MaxTime=60 State=UP
"""
_SERVED = """\
SlurmdParameters=config_overrides
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ReturnToService=1
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
KillWait=2
MailProg=/bin/true
"""
_GPUS = 8
_FIRST_WITHOUT_CGROUPS, _WITHOUT_CGROUPS = 23, "CgroupPlugin=disabled\n"  # older ones know no such line


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running controller."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        """What one of Slurm's commands prints.

        Raises:
            CalledProcessError: it fails.
        """
        return subprocess.run(
            [need(command[0], "slurm-client"), *command[1:]],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=patience(60),
        ).stdout

    def environment(self) -> Mapping[str, str]:
        """What its programs are told."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "TZ": "UTC", "LC_ALL": "C.UTF-8"}

    def job(self, nodes: str, script: str, *options: str) -> str:
        """Submit a shell script to these nodes (any, where empty) and return its job's number."""
        wanted = [f"--nodelist={nodes}", f"--nodes={len(expand(nodes))}"] if nodes else []
        out = f"--output={self.folder}/job.%j"
        return self.run("sbatch", "--parsable", out, *wanted, *options, f"--wrap={script}").strip()

    def job_state(self, job: str) -> str:
        """Such as RUNNING."""
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def word(self, node: str, key: str) -> str:
        """What `scontrol show node` says behind `key=`, to the end of its line; empty where it says nothing."""
        lines = [line.strip() for line in self.run("scontrol", "show", "node", node).splitlines()]
        found = [line.split(f"{key}=", 1)[1] for line in lines if line.startswith(f"{key}=") or f" {key}=" in line]
        return found[0] if found else ""

    def state(self, node: str) -> str:
        """Such as IDLE+DRAIN."""
        return self.word(node, "State").split(" ")[0]

    def start_controller(self) -> None:
        """Start slurmctld on the state that the last one saved."""
        options = ["-D", "-i", "-f", str(self.folder / "slurm.conf")]
        self.start("slurmctld", [need("slurmctld", "slurmctld"), *options])
        wait_for("slurmctld answers", lambda: _answers(self))

    def stop_controller(self, how: int = signal.SIGTERM) -> None:
        """End slurmctld; SIGKILL leaves it no time to save."""
        stop(self.processes.pop("slurmctld"), how)

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a daemon that ends with the test."""
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                bound(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self.environment(), "SLURMD_NODENAME": name},
                cwd=self.folder,
                start_new_session=True,
            )


@contextmanager
def slurm(nodes: str, served: int = 0, settings: str = "") -> Iterator[Slurm]:
    """A controller of these nodes, on the loopback where the host's own name is there.

    Args:
        served: how many of the nodes, from the first on, have a slurmd.
        settings: more lines of slurm.conf; {folder} is the cluster's.
    """
    munged, slurmctld = need("munged", "munge"), need("slurmctld", "slurmctld")
    host = socket.gethostname().partition(".")[0]
    try:
        socket.gethostbyname(host)
    except OSError:
        missing(f"the host's name {host} has no address: slurmctld needs one")
    if served and os.geteuid() != 0:
        missing("slurmd runs as root alone")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a socket's path must be short
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (folder / "slurm.conf").write_text(_configuration(folder, host, nodes, served, settings))
        (folder / "cgroup.conf").write_text("" if _version(slurmctld) < _FIRST_WITHOUT_CGROUPS else _WITHOUT_CGROUPS)
        cluster = Slurm(folder)
        stack.callback(_stop_all, cluster)
        cluster.start("munged", [munged, "--foreground", *_munge_options(folder)])
        wait_for("munged listens", (folder / "munge.sock").is_socket)
        cluster.start("slurmctld", [slurmctld, "-D", "-i", "-c", "-f", str(folder / "slurm.conf")])
        wait_for("slurmctld answers", lambda: _answers(cluster))
        if served:
            _serve(cluster, expand(nodes)[:served])
        yield cluster


def _version(slurmctld: str) -> int:
    """Such as 22, of `slurm-wlm 22.05.8`."""
    said = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, check=True, timeout=patience(60)).stdout
    return int(said.split()[-1].split(".")[0])


def _configuration(folder: Path, host: str, nodes: str, served: int, settings: str) -> str:
    first = _free_ports(len(expand(nodes))) if served else 0
    return _CONFIGURATION.format(
        host=host,
        port=free_port(),
        user=getpass.getuser(),
        folder=folder,
        nodes=nodes,
        served=_SERVED.format(folder=folder) if served else "",
        settings=settings.format(folder=folder),
        timeout=10 if served else 0,
        ports=f"NodeHostname=localhost Port=[{first}-{first + len(expand(nodes)) - 1}] " if served else "",
    )


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = 10_000 + secrets.randbelow(20_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def _serve(cluster: Slurm, nodes: Sequence[str]) -> None:
    slurmd = need("slurmd", "slurmd")
    (cluster.folder / "dev").mkdir()
    for gpu in range(_GPUS):
        os.mknod(cluster.folder / "dev" / f"nvidia{gpu}", 0o20666, os.makedev(1, 3))
    files = f"Name=gpu Type=h100 File={cluster.folder}/dev/nvidia[0-{_GPUS - 1}]"
    (cluster.folder / "gres.conf").write_text(f"AutoDetect=off\n{files}\n")
    for node in nodes:
        (cluster.folder / "spool" / node).mkdir(parents=True)
        cluster.start(node, [slurmd, "-D", "-N", node])
    wait_for("every slurmd is there", lambda: _idle(cluster) >= len(nodes))


def _idle(cluster: Slurm) -> int:
    return len(set(cluster.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()))


def _stop_all(cluster: Slurm) -> None:
    for process in reversed(cluster.processes.values()):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in reversed(cluster.processes.values()):
        stop(process, signal.SIGTERM)


def _munge_options(folder: Path) -> Sequence[str]:
    names = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    return [f"--{option}={folder / name}" for option, name in {**names, "log-file": "munge.log"}.items()]


def _answers(cluster: Slurm) -> bool:
    try:
        return "is UP" in cluster.run("scontrol", "ping")
    except subprocess.CalledProcessError:
        return False
