"""Filesystems: errors, shutdowns, read-only."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.kernel_messages.families.filesystem import FILESYSTEM


@pytest.mark.parametrize(
    ("message", "kind", "severity", "fs", "name"),
    [
        ("EXT3-fs (dm-6): Remounting filesystem read-only", "fs_read_only", "fatal", "ext3", "dm-6"),
        ("EXT4-fs (md0): Remounting filesystem read-only", "fs_read_only", "fatal", "ext4", "md0"),
        ("XFS (sda1): Remounting filesystem read-only", "fs_read_only", "fatal", "xfs", "sda1"),
        ("BTRFS: Remounting filesystem read-only", "fs_read_only", "fatal", "btrfs", None),
        ("Remounting filesystem read-only", "fs_read_only", "fatal", None, None),
        ("BTRFS info (device sda1 state E): forced readonly", "fs_read_only", "fatal", "btrfs", "sda1"),
        ("FAT-fs (sda1): Filesystem has been set read-only", "fs_read_only", "fatal", "fat", "sda1"),
        ("EXT4-fs (dm-0): I/O error while writing superblock", "fs_error", "error", "ext4", "dm-0"),
        ("EXT4-fs (dm-0): previous I/O error to superblock detected", "fs_error", "error", "ext4", "dm-0"),
        ("XFS (sda1): I/O error while writing superblock", "fs_error", "error", "xfs", "sda1"),
        ("I/O error while writing superblock", "fs_error", "error", None, None),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0", "fs_error", "error", "ext4", "sda1"),
        ("EXT4-fs error (device dm-1) in ext4_do_update_inode:5135: IO failure", "fs_error", "error", "ext4", "dm-1"),
        ("EXT2-fs error (device sda1): ext2_lookup: deleted inode referenced: 12", "fs_error", "error", "ext2", "sda1"),
        ("EXT4-fs warning (device sda1): ext4_end_bio:344: I/O error 10 writing to inode 262148 starting block 9999)", "fs_error", "error", "ext4", "sda1"),
        ("EXT4-fs (nvme0n1p2): error count since last fsck: 5", "fs_error", "warning", "ext4", "nvme0n1p2"),
        ("EXT4-fs (sdb1): This should not happen!! Data will be lost", "fs_error", "error", "ext4", "sdb1"),
        ("Aborting journal on device dm-0-8.", "fs_error", "error", None, "dm-0"),
        ("JBD2: Error -5 detected when updating journal superblock for dm-0-8.", "fs_error", "error", None, "dm-0"),
        ("XFS (md127): log I/O error -5", "fs_error", "error", "xfs", "md127"),
        ('XFS (dm-3): metadata I/O error in "xfs_buf_ioend" at daddr 0x40 len 8 error 5', "fs_error", "error", "xfs", "dm-3"),
        ("XFS (dm-3): metadata I/O error: block 0x40 (\"xfs_trans_read_buf_map\") error 5 numblks 8", "fs_error", "error", "xfs", "dm-3"),
        ("XFS (sdb1): Metadata corruption detected at xfs_agf_verify+0x10/0x20 [xfs], xfs_agf block 0x1", "fs_error", "error", "xfs", "sdb1"),
        ("XFS (sdb1): Corruption detected. Unmount and run xfs_repair", "fs_error", "error", "xfs", "sdb1"),
        ("XFS (sdb1): xfs_log_force: error -5 returned.", "fs_error", "error", "xfs", "sdb1"),
        ("XFS (sdb1): Internal error XFS_WANT_CORRUPTED_GOTO at line 3505 of file fs/xfs/libxfs/xfs_btree.c", "fs_error", "error", "xfs", "sdb1"),
        ("XFS (sdb1): writeback error on inode 131, offset 0, sector 96", "fs_error", "error", "xfs", "sdb1"),
        ("XFS (md127): Log I/O Error (0x2) detected at xlog_ioend_work+0x7c/0x90 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem.", "fs_error", "fatal", "xfs", "md127"),
        ("XFS (sdb1): xfs_do_force_shutdown(0x8) called from line 446 of file fs/xfs/libxfs/xfs_defer.c. Return address = 0", "fs_error", "fatal", "xfs", "sdb1"),
        ("XFS (dm-0): Filesystem has been shut down due to log error (0x2).", "fs_error", "fatal", "xfs", "dm-0"),
        ("BTRFS error (device sda1): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0", "fs_error", "error", "btrfs", "sda1"),
        ("BTRFS: error (device sda1: state A) in btrfs_commit_transaction:2327: errno=-5 IO failure", None, None, None, None),
        ("BTRFS: error (device sda1 state A) in btrfs_commit_transaction:2327: errno=-5 IO failure", "fs_error", "error", "btrfs", "sda1"),
        ("BTRFS critical (device sda1): corrupt leaf: root=2 block=1 slot=0", "fs_error", "error", "btrfs", "sda1"),
        ("BTRFS warning (device sda1): csum failed root 5 ino 257 off 0 csum 0x1 expected csum 0x2 mirror 1", "fs_error", "error", "btrfs", "sda1"),
        ("WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.", "fs_error", "fatal", None, "tank"),
        ("systemd-journald[889]: Failed to open system journal: No space left on device", "fs_full", "warning", None, None),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode", None, None, None, None),
        ("EXT4-fs: Remounting filesystem read-write", None, None, None, None),
        ("EXT4-fs (dm-0): I/O error while reading superblock", None, None, None, None),
        ("EXT4-fs (sda1): INFO: recovery required on readonly filesystem", None, None, None, None),
        ("EXT4-fs warning (device sda1): ext4_dirblock_csum_verify:377: inode #2: comm ls: No space for directory leaf checksum", None, None, None, None),
        ("XFS (nvme0n1): Ending clean mount", None, None, None, None),
        ("XFS (nvme0n1): User initiated shutdown received. Shutting down filesystem", None, None, None, None),
        ("XFS (nvme0n1): User initiated shutdown (0x1) detected at xfs_fs_goingdown+0x5e/0x90 [xfs].  Shutting down filesystem.", None, None, None, None),
        ("BTRFS info (device sda2): using crc32c (crc32c-intel) checksum algorithm", None, None, None, None),
        ("JBD2: no valid journal superblock found", None, None, None, None),
    ],
)  # fmt: skip
def test_a_filesystem_and_its_device(
    message: str, kind: str | None, severity: str | None, fs: str | None, name: str | None
) -> None:
    """What fails, on what; a mount, an operator's own shutdown and a warning without a fault are none."""
    event = FILESYSTEM.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)
    assert ((event and event.attributes.get("fs")), (event and event.attributes.get("name"))) == (fs, name)


def test_an_error_names_the_inode_and_the_process() -> None:
    """Where ext4 says them."""
    event = FILESYSTEM.decode(
        "EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm python3: iget: checksum invalid"
    )
    assert event is not None
    assert (event.attributes["inode"], event.attributes["process"]) == ("2", "python3")
    assert event.attributes["function"] == "ext4_lookup"
