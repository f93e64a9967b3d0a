"""Filesystems on this node's disks: errors, shutdowns, and those that the kernel made read-only.

    EXT4-fs (dm-0): Remounting filesystem read-only
    -> Event(kind="fs_read_only", device=Device("disk"), attributes={"fs": "ext4", "name": "dm-0"})

Forms: fs/ext4/super.c, fs/jbd2, fs/xfs/xfs_{log,fsops,error,buf}.c, fs/btrfs/messages.c,
fs/fat of Linux 2.6.32 to 6.16; OpenZFS.
"""

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import Form, decoder, signs

_DEVICE = r"(?P<name>[^\s():]{1,80})"
_EXT = r"(?P<fs>EXT[234])-fs"
_ANY = rf"(?:(?P<fs>EXT[234]|XFS|BTRFS|F2FS)(?:-fs)?(?: \({_DEVICE}\))?: )?"
_XFS = rf"(?P<fs>XFS) \({_DEVICE}\): "

FORMS = (
    Form("Remounting filesystem read-only", rf"{_ANY}Remounting filesystem read-only", "fs_read_only", device="disk"),
    Form(
        "set read-only",
        rf"(?P<fs>FAT)-fs \({_DEVICE}\): Filesystem has been set read-only",
        "fs_read_only",
        device="disk",
    ),
    Form(
        "forced readonly",
        rf"(?P<fs>BTRFS) info \(device {_DEVICE}(?: state \w{{1,8}})?\): forced readonly",
        "fs_read_only",
        device="disk",
    ),
    Form(
        "(device ",
        rf"(?P<fs>EXT[234]|F2FS|GFS2|NILFS)-fs (?:error|panic) \(device {_DEVICE}\)(?:: "
        r"(?P<function>\w{1,64}):\d{1,6}(?:: inode #(?P<inode>\d{1,12}))?(?:.{0,24}?: comm "
        r"(?P<process>[^:]{1,16}))?| in (?P<where>[\w:]{1,64}))?",
        "fs_error",
        device="disk",
    ),
    Form(
        "(device ",
        rf"{_EXT} warning \(device {_DEVICE}\): (?P<function>\w{{1,64}}):\d{{1,6}}: I/O error",
        "fs_error",
        device="disk",
    ),
    Form(
        "I/O error",
        rf"{_ANY}(?:previous I/O error to|I/O error while writing) superblock",
        "fs_error",
        device="disk",
    ),
    Form(
        "error count since last fsck",
        rf"{_EXT} \({_DEVICE}\): error count since last fsck: (?P<count>\d{{1,9}})",
        "fs_error",
        device="disk",
        variant="before",
    ),
    Form(
        "Data will be lost",
        rf"{_EXT} \({_DEVICE}\): This should not happen!! Data will be lost",
        "fs_error",
        device="disk",
    ),
    Form(
        "Aborting journal on device",
        r"Aborting journal on device (?P<name>[^\s]{1,80}?)(?:-\d{1,9})?\.?$",
        "fs_error",
        device="disk",
    ),
    Form(
        "JBD2: ",
        r"JBD2: (?:Error (?P<err>-\d{1,6}) detected when updating journal superblock for |Detected IO errors while "
        r"flushing file data on |I/O error when updating journal superblock for )(?P<name>[^\s]{1,80}?)"
        r"(?:-\d{1,9})?\.?$",
        "fs_error",
        device="disk",
    ),
    Form(
        "I/O error",
        rf"{_XFS}(?:log|metadata) I/O error:? ?(?P<err>-\d{{1,6}})?",
        "fs_error",
        device="disk",
    ),
    Form("hutting down filesystem", r"XFS \([^()]{1,80}\): User initiated shutdown", ""),
    Form(
        "hutting down filesystem",
        rf"{_XFS}.{{0,300}}?Shutting down filesystem",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
    Form(
        "xfs_do_force_shutdown",
        rf"{_XFS}xfs_do_force_shutdown\((?P<reason>0x[0-9a-f]{{1,4}})\) called",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
    Form(
        "orruption ",
        rf"{_XFS}(?:Metadata corruption detected|Corruption (?:detected|warning))",
        "fs_error",
        device="disk",
    ),
    Form("has been shut down", rf"{_XFS}Filesystem has been shut down", "fs_error", device="disk", variant="shutdown"),
    Form(
        "No space left on device",
        r"(?:systemd-journald|auditd|rsyslogd)\[\d{1,10}\]: .{0,200}?No space left on device",
        "fs_full",
        device="disk",
    ),
    Form(
        "xfs_log_force: error", rf"{_XFS}xfs_log_force: error (?P<err>-?\d{{1,6}}) returned", "fs_error", device="disk"
    ),
    Form("nternal error", rf"{_XFS}Internal error", "fs_error", device="disk"),
    Form("writeback error on", rf"{_XFS}writeback error on (?:inode|sector)", "fs_error", device="disk"),
    Form(
        "(device ",
        rf"(?P<fs>BTRFS):? (?:error|critical) \(device {_DEVICE}(?: state \w{{1,8}})?\)",
        "fs_error",
        device="disk",
    ),
    Form(
        "(device ",
        rf"(?P<fs>BTRFS) warning \(device {_DEVICE}(?: state \w{{1,8}})?\): (?:csum failed|checksum error|lost page "
        r"write)",
        "fs_error",
        device="disk",
    ),
    Form(
        "encountered an uncorrectable I/O failure",
        r"WARNING: Pool '(?P<name>[^']{1,80})' has encountered an uncorrectable I/O failure",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
)

FAMILY = Family("filesystem", signs(FORMS), decoder(FORMS))
