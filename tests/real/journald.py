"""A real systemd-journald that reads this machine's /dev/kmsg into a folder, in a mount namespace of its own.

with journald(tmp_path) as journal:
    journal.rotate(); journal.vacuum()
    JournalCollector(str(journal.folder), settings)

It needs root. Nothing outside the namespace is touched: journald's /run is a file system of its own, and its files are
bound to the folder.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from real.patience import patience
from real.programs import bound, missing, need, stop, wait_for

_PROGRAM = Path("/lib/systemd/systemd-journald")
_SETTINGS = "[Journal]\nStorage=volatile\nReadKMsg=yes\nRateLimitIntervalSec=0\nForwardToSyslog=no\nAudit=no\n"
# The shell becomes journald, so that the process that was started is the one to be stopped.
_START = """
mount -t tmpfs none /run || exit 1
mkdir -p /run/systemd/journal /run/log/journal /run/systemd/units
mount --bind "$1/journal" /run/log/journal || exit 1
mount --bind "$1/journald.conf" /etc/systemd/journald.conf || exit 1
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id || exit 1
exec /lib/systemd/systemd-journald
"""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Journal:
    """A running journald and its files."""

    folder: Path
    process: subprocess.Popen[bytes]

    def files(self) -> list[Path]:
        """Its journal files; the one that is written to is `system.journal`."""
        return sorted(self.folder.glob("*/*.journal"))

    def wait_for(self, text: str) -> None:
        """Wait until an entry holds a text."""
        command = [need("journalctl", "systemd"), "--directory", str(self.folder), "--output", "cat", "--quiet"]
        wait_for(
            f"{text!r} in the journal",
            lambda: (
                text
                in subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60)).stdout
            ),
        )

    def rotate(self) -> None:
        """Close the present file and begin another."""
        before = len(self.files())
        self.process.send_signal(signal.SIGUSR2)
        wait_for("journald has rotated", lambda: len(self.files()) > before)

    def vacuum(self) -> None:
        """Delete every file that is not written to any more."""
        command = [need("journalctl", "systemd"), "--directory", str(self.folder), "--vacuum-size=1"]
        subprocess.run(command, check=True, capture_output=True, timeout=patience(60))


@contextmanager
def journald(folder: Path, boot: str | None = None) -> Iterator[Journal]:
    """A journald whose files are under the folder.

    Args:
        boot: the id of the boot that it is to believe in; this one's by default.
    """
    if os.geteuid() != 0 or not _PROGRAM.exists() or shutil.which("unshare") is None:
        missing("systemd-journald needs root, and apt-get install systemd")
    files = folder / "journal"
    files.mkdir(exist_ok=True)
    (folder / "boot_id").write_text(f"{boot}\n" if boot else _BOOT_ID.read_text())
    (folder / "journald.conf").write_text(_SETTINGS)
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _START, "journald", str(folder)]
    with (folder / "journald.err").open("wb") as errors:
        process = subprocess.Popen(bound(words), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
    journal = Journal(files, process)
    try:
        wait_for("journald writes", lambda: bool(journal.files()) or process.poll() is not None)
        if process.poll() is not None:
            missing(f"systemd-journald does not run here: {(folder / 'journald.err').read_text()[-300:]}")
        yield journal
    finally:
        stop(process, signal.SIGTERM)
