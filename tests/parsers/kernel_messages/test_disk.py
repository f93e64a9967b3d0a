"""Disks: NVMe, SCSI, ATA, md, multipath."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.kernel_messages.families.disk import DISK


@pytest.mark.parametrize(
    ("message", "kind", "severity", "name"),
    [
        ("nvme nvme0: I/O 24 QID 5 timeout, aborting", "nvme_timeout", "warning", "nvme0"),
        ("nvme nvme0: I/O 24 (I/O Cmd) QID 5 timeout, aborting", "nvme_timeout", "warning", "nvme0"),
        ("nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller", "nvme_timeout", "warning", "nvme4"),
        ("nvme nvme10: I/O tag 99 (5678) opcode 0x1 (Read) QID 1 timeout, completion polled", "nvme_timeout", "warning", "nvme10"),
        ("nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "nvme_reset", "error", "nvme0"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)", "nvme_reset", "error", "nvme0"),
        ("nvme nvme0: frozen state error detected, reset controller", "nvme_reset", "error", "nvme0"),
        ("nvme nvme0: Device not ready; aborting initialisation, CSTS=0x0", "nvme_not_ready", "error", "nvme0"),
        ("nvme nvme0: Removing after probe failure status: -19", "nvme_lost", "error", "nvme0"),
        ("nvme nvme4: Disabling device after reset failure: -19", "nvme_lost", "error", "nvme4"),
        ("nvme0n1: Read(0x2) @ LBA 7814037160, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "disk_error", "error", "nvme0n1"),
        ("block nvme0n1: no available path - failing I/O", "nvme_path", "error", "nvme0n1"),
        ("nvme nvme4: starting error recovery", "nvme_path", "warning", "nvme4"),
        ("nvme nvme4: Failed reconnect attempt 3", "nvme_path", "warning", "nvme4"),
        ("blk_update_request: I/O error, dev nvme0n1, sector 262656 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0", "disk_error", "error", "nvme0n1"),
        ("print_req_error: I/O error, dev sda, sector 0", "disk_error", "error", "sda"),
        ("end_request: critical medium error, dev sdb, sector 1234", "disk_error", "error", "sdb"),
        ("I/O error, dev nvme1n1, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2", "disk_error", "error", "nvme1n1"),
        ("recoverable transport error, dev nvme0c0n1, sector 8 op 0x0:(READ) flags 0x0", "disk_error", "error", "nvme0c0n1"),
        ("kworker/u203:1: attempt to access beyond end of device", "disk_error", "error", None),
        ("attempt to access beyond end of device", "disk_error", "error", None),
        ("Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write", "buffer_io_error", "error", "dm-0"),
        ("Buffer I/O error on device sdb1, logical block 0", "buffer_io_error", "error", "sdb1"),
        ("Buffer I/O error on dev nvme0n1p1, logical block 789012, lost sync page read", "buffer_io_error", "error", "nvme0n1p1"),
        ("lost page write due to I/O error on dm-0", "buffer_io_error", "error", "dm-0"),
        ("sd 0:0:0:0: [sda] tag#3 Sense Key : Medium Error [current] ", "disk_error", "error", "sda"),
        ("sd 2:0:1:0: rejecting I/O to offline device", "disk_lost", "error", None),
        ("sd 2:0:1:0: Device offlined - not ready after error recovery", "disk_lost", "error", None),
        ("sd 2:0:1:0: [sdb] Medium access timeout failure. Offlining disk!", "disk_lost", "error", "sdb"),
        ("ata3.00: exception Emask 0x0 SAct 0x7fff SErr 0x0 action 0x6 frozen", "disk_error", "warning", "ata3.00"),
        ("ata3: COMRESET failed (errno=-16)", "disk_error", "warning", "ata3"),
        ("ata3: reset failed, giving up", "disk_lost", "error", "ata3"),
        ("md/raid1:md0: Disk failure on nvme1n1p2, disabling device.", "raid_degraded", "error", "md0"),
        ("md/raid:md5: Disk failure on sdb3, disabling device.", "raid_degraded", "error", "md5"),
        ("md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.", "raid_failed", "fatal", "md0"),
        ("md/raid10:md2: Disk failure on nvme2n1p1 detected, failing array", "raid_failed", "fatal", "md2"),
        ("md: kicking non-fresh sdb1 from array!", "raid_degraded", "error", None),
        ("md/raid1:md0: active with 1 out of 2 mirrors", "raid_degraded", "error", "md0"),
        ("md/raid:md1: raid level 5 active with 2 out of 3 devices, algorithm 2", "raid_degraded", "error", "md1"),
        ("device-mapper: multipath: 253:0: Failing path 8:16.", "multipath_path", "warning", "8:16"),
        ("device-mapper: multipath: 253:0: Reinstating path 8:16.", "multipath_path", "info", "8:16"),
    ],
)  # fmt: skip
def test_a_fault_names_its_disk(message: str, kind: str, severity: str, name: str | None) -> None:
    """In every form that the kernels of a decade print."""
    event = DISK.decode(message)
    assert event is not None
    assert (event.kind, event.severity, event.attributes.get("name")) == (kind, severity, name)
    assert event.device.type == "disk"


def test_a_bad_sector_asks_for_another_disk() -> None:
    """A medium error is the disk's own, another error may be the path's."""
    medium = DISK.decode("critical medium error, dev sda, sector 488394752 op 0x0:(READ) flags 0x80700 phys_seg 32")
    other = DISK.decode("I/O error, dev sda, sector 488394752 op 0x0:(READ) flags 0x80700 phys_seg 32")
    assert medium is not None
    assert other is not None
    assert (medium.cause, medium.action, medium.attributes["sector"]) == ("hardware", "replace_part", 488394752)
    assert (other.cause, other.action) == ("storage", "run_diagnostics")


@pytest.mark.parametrize(
    "message",
    [
        "block nvme0n1: no available path",
        "nvme nvme0: pci function 0000:01:00.0",
        "nvme nvme0: I/O timeout",
        "nvme nvme0: Disabling device",
        "nvme nvme0: 16/0/0 default/read/poll queues",
        "nvme0n1: Admin Cmd(0x6), Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
        "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        "blk_update_request: I/O error, dev sr0, sector 8 op 0x0:(READ)",
        "blk_update_request: operation not supported error, dev nvme0n1, sector 0 op 0x9:(WRITE_ZEROES)",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
        "Buffer I/O error on dev dm-0",
        "General I/O error detected",
        "sd 0:0:0:0: [sda] tag#0 Sense Key : Illegal Request [current] ",
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "md/raid1:md0: active with 2 out of 2 mirrors",
        "md/raid:md1: raid level 5 active with 3 out of 3 devices, algorithm 2",
        "md/raid0: Disk failure detected",
        "md: raid1 personality registered for level 1",
        "device-mapper: multipath service-time: version 0.3.0 loaded",
        "attempt to access device",
    ],
)
def test_what_is_no_fault_of_a_disk(message: str) -> None:
    """An empty drive, a command that a disk does not know, a whole array."""
    assert DISK.decode(message) is None


@pytest.mark.parametrize(("level", "kind"), [("FATAL", "disk_controller"), ("WARN", None), ("info", None)])
def test_a_controller_s_own_fatal_event_is_told(level: str, kind: str | None) -> None:
    """Cached writes that no volume takes; its warnings and notes are passed over."""
    event = DISK.decode(
        f"megaraid_sas 0000:18:00.0: 12567 (749175033s/0x0001/{level}) - Controller cache pinned for missing or offline VD 00/0"
    )
    assert (event and event.kind) == kind
    if event:
        assert (event.severity, event.device.pci) == ("error", "0000:18:00.0")
        assert event.attributes["error"] == "Controller cache pinned for missing or offline VD 00/0"
