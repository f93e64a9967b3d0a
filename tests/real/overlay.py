"""A copy of this machine that forgets: what is installed or removed in it never reaches the machine itself.

    with overlay_machine() as machine:
        machine.run("apt-get", "install", "--yes", "./foreshock.deb")

All of the machine's files lie below; what is written lies in memory, and is gone at the end. Network and processes are
those of the machine.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from real.patience import patience
from real.programs import bound, need, stop

# Its mounts are its own: they end with the process that holds them.
_MOUNTS = """
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changes /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changes,workdir=/mnt/work /mnt/root
mount --rbind /dev /mnt/root/dev
mount --rbind /proc /mnt/root/proc
echo ready
exec sleep infinity
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The copy, by the process that holds its mounts."""

    holder: int

    def command(self, *command: str) -> list[str]:
        """What runs a command in it, in its root folder, with a system's own environment."""
        chroot = need("chroot", "coreutils")  # a user's PATH may lack /usr/sbin
        inside = ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", "--", chroot, "/mnt/root"]
        return [*inside, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", *command]

    def run(self, *command: str) -> str:
        """What a command prints.

        Raises:
            AssertionError: it fails; the message holds what it said.
        """
        done = subprocess.run(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=patience(300),
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
        return done.stdout


@contextmanager
def overlay_machine() -> Iterator[Machine]:
    """The copy; the test is skipped where this user, or the kernel, makes none."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a copy of the machine by overlay mounts")
    command = [need("unshare", "util-linux"), "--mount", "--propagation", "private", "sh", "-c", _MOUNTS]
    process = subprocess.Popen(bound(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if said != b"ready\n":
            pytest.skip(f"no overlay mounts here: {said.decode(errors='replace').strip()}")
        yield Machine(process.pid)
    finally:
        stop(process, signal.SIGTERM)
        process.stdout.close()
