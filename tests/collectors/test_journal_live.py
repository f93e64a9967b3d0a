"""Following the files of a real systemd-journald that reads this machine's kernel log."""

import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from real.journald import journald
from real.patience import patience
from real.programs import need

from collectors.collector import SourceSettings
from collectors.sources.journal import JournalCollector
from store.records.event import Event

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kmsg")]
SETTINGS = SourceSettings(node="gpu-017")


@pytest.fixture(autouse=True)
def writable() -> None:
    """Kernel records can be written."""
    need("journalctl", "systemd")
    if not os.access("/dev/kmsg", os.W_OK):
        pytest.skip("/dev/kmsg may not be written here")


def write(marker: str, pid: int) -> None:
    """One kernel record that is one event."""
    descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    try:
        text = f"<3>NVRM: Xid (PCI:0000:0f:00): 79, pid={pid}, name={marker}, GPU has fallen off the bus.\n"
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class Follower:
    """Follows a journal as the runner does."""

    def __init__(self, folder: Path, marker: str) -> None:
        self.marker = marker
        self.collector = JournalCollector(str(folder), SETTINGS)
        self.position: Any = None
        self.gaps = 0

    def until(self, count: int) -> list[Event]:
        """The marked events of some turns, until there are so many, and a few turns more."""
        found: list[Event] = []
        deadline, more = time.monotonic() + patience(20), 3
        while time.monotonic() < deadline and (len(found) < count or more):
            collected = self.collector.collect(0.1)
            self.position = collected.position or self.position
            self.gaps += sum(event.kind == "collector_gap" for event in collected.events)
            found += [event for event in collected.events if event.attributes.get("process") == self.marker]
            more -= len(found) >= count
        return found


def pids(events: list[Event]) -> list[Any]:
    """Which records they are."""
    return [event.attributes["pid"] for event in events]


def test_restarts_rotation_and_vacuum_of_a_real_journal(tmp_path: Path) -> None:
    """Nothing is lost or told twice over rotation and restart; entries vacuumed away unread are one gap."""
    marker = f"t{uuid.uuid4().hex[:10]}"
    with journald(tmp_path) as journal:
        write(marker, 1)
        journal.wait_for(f"pid=1, name={marker}")
        follower = Follower(journal.folder, marker)
        follower.collector.open(None)
        write(marker, 2)
        assert pids(follower.until(2)) == [1, 2]
        journal.rotate()
        write(marker, 3)
        assert pids(follower.until(1)) == [3], "it follows into the next file"
        follower.collector.close()
        write(marker, 4)
        journal.rotate()
        write(marker, 5)
        follower.collector.open(follower.position)
        assert pids(follower.until(2)) == [4, 5]
        follower.collector.close()
        write(marker, 6)
        journal.wait_for(f"pid=6, name={marker}")
        journal.rotate()
        write(marker, 7)
        journal.vacuum()
        assert follower.gaps == 0
        follower.collector.open(follower.position)
        assert pids(follower.until(1)) == [7]
        follower.collector.close()
        assert follower.gaps == 1, "6 was vacuumed unread"


def test_what_the_last_boot_still_wrote_is_read_after_a_reboot(tmp_path: Path) -> None:
    """The lines of a crash: in the journal on disk, and behind the position."""
    marker = f"t{uuid.uuid4().hex[:10]}"
    with journald(tmp_path, boot="11111111-2222-4333-8444-555555555555") as journal:
        write(marker, 1)
        journal.wait_for(f"pid=1, name={marker}")
        follower = Follower(journal.folder, marker)
        follower.collector.open(None)
        assert pids(follower.until(1)) == [1]
        follower.collector.close()
        write(marker, 2)
        journal.wait_for(f"pid=2, name={marker}")
    with journald(tmp_path, boot="99999999-2222-4333-8444-555555555555") as journal:
        write(marker, 3)
        journal.wait_for(f"pid=3, name={marker}")
        follower.collector.open(follower.position)
        found = pids(follower.until(2))
        follower.collector.close()
    # The second boot's journald imports the whole ring of this machine: its 1 and 2 are of that boot.
    assert found[0] == 2, "the last boot's own, before anything of the new one"
    assert 3 in found
    assert follower.gaps == 0
