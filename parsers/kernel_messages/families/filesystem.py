"""Filesystems of disks and of the network: errors, shutdowns, servers that do not answer.

    EXT4-fs (dm-0): Remounting filesystem read-only
    -> Event(kind="fs_read_only", device=Device("disk"), attributes={"fs": "ext4", "name": "dm-0"})

Forms: fs/ext4/super.c, fs/jbd2, fs/xfs/xfs_{log,fsops,error,buf}.c, fs/btrfs/messages.c,
fs/fat of Linux 2.6.32 to 6.16; OpenZFS.
"""

from parsers.kernel_messages.family import MessageFamily, MessageForm, decoder, signs

_DEVICE = r"(?P<name>[^\s():]{1,80})"
_EXT = r"(?P<fs>EXT[234])-fs"
_ANY = rf"(?:(?P<fs>EXT[234]|XFS|BTRFS|F2FS)(?:-fs)?(?: \({_DEVICE}\))?: )?"
_XFS = rf"(?P<fs>XFS) \({_DEVICE}\): "

FILESYSTEM_FORMS = (
    MessageForm(
        "Remounting filesystem read-only", rf"{_ANY}Remounting filesystem read-only", "fs_read_only", device="disk"
    ),
    MessageForm(
        "set read-only",
        rf"(?P<fs>FAT)-fs \({_DEVICE}\): Filesystem has been set read-only",
        "fs_read_only",
        device="disk",
    ),
    MessageForm(
        "forced readonly",
        rf"(?P<fs>BTRFS) info \(device {_DEVICE}(?: state \w{{1,8}})?\): forced readonly",
        "fs_read_only",
        device="disk",
    ),
    MessageForm(
        "(device ",
        rf"(?P<fs>EXT[234]|F2FS|GFS2|NILFS)-fs (?:error|panic) \(device {_DEVICE}\)(?:: "
        r"(?P<function>\w{1,64}):\d{1,6}(?:: inode #(?P<inode>\d{1,12}))?(?:.{0,24}?: comm "
        r"(?P<process>[^:]{1,16}))?| in (?P<where>[\w:]{1,64}))?",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "(device ",
        rf"{_EXT} warning \(device {_DEVICE}\): (?P<function>\w{{1,64}}):\d{{1,6}}: I/O error",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "I/O error",
        rf"{_ANY}(?:previous I/O error to|I/O error while writing) superblock",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "error count since last fsck",
        rf"{_EXT} \({_DEVICE}\): error count since last fsck: (?P<count>\d{{1,9}})",
        "fs_error",
        device="disk",
        variant="before",
    ),
    MessageForm(
        "Data will be lost",
        rf"{_EXT} \({_DEVICE}\): This should not happen!! Data will be lost",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "Aborting journal on device",
        r"Aborting journal on device (?P<name>[^\s]{1,80}?)(?:-\d{1,9})?\.?$",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "JBD2: ",
        r"JBD2: (?:Error (?P<err>-\d{1,6}) detected when updating journal superblock for |Detected IO errors while "
        r"flushing file data on |I/O error when updating journal superblock for )(?P<name>[^\s]{1,80}?)"
        r"(?:-\d{1,9})?\.?$",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "I/O error",
        rf"{_XFS}(?:log|metadata) I/O error:? ?(?P<err>-\d{{1,6}})?",
        "fs_error",
        device="disk",
    ),
    MessageForm("hutting down filesystem", r"XFS \([^()]{1,80}\): User initiated shutdown", ""),
    MessageForm(
        "hutting down filesystem",
        rf"{_XFS}.{{0,300}}?Shutting down filesystem",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
    MessageForm(
        "xfs_do_force_shutdown",
        rf"{_XFS}xfs_do_force_shutdown\((?P<reason>0x[0-9a-f]{{1,4}})\) called",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
    MessageForm(
        "orruption ",
        rf"{_XFS}(?:Metadata corruption detected|Corruption (?:detected|warning))",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "has been shut down", rf"{_XFS}Filesystem has been shut down", "fs_error", device="disk", variant="shutdown"
    ),
    MessageForm(
        "No space left on device",
        r"(?:systemd-journald|auditd|rsyslogd)\[\d{1,10}\]: .{0,200}?No space left on device",
        "fs_full",
        device="disk",
    ),
    MessageForm(
        "xfs_log_force: error", rf"{_XFS}xfs_log_force: error (?P<err>-?\d{{1,6}}) returned", "fs_error", device="disk"
    ),
    MessageForm("nternal error", rf"{_XFS}Internal error", "fs_error", device="disk"),
    MessageForm("writeback error on", rf"{_XFS}writeback error on (?:inode|sector)", "fs_error", device="disk"),
    MessageForm(
        "(device ",
        rf"(?P<fs>BTRFS):? (?:error|critical) \(device {_DEVICE}(?: state \w{{1,8}})?\)",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "(device ",
        rf"(?P<fs>BTRFS) warning \(device {_DEVICE}(?: state \w{{1,8}})?\): (?:csum failed|checksum error|lost page "
        r"write)",
        "fs_error",
        device="disk",
    ),
    MessageForm(
        "encountered an uncorrectable I/O failure",
        r"WARNING: Pool '(?P<name>[^']{1,80})' has encountered an uncorrectable I/O failure",
        "fs_error",
        device="disk",
        variant="shutdown",
    ),
)

FILESYSTEM = MessageFamily("filesystem", signs(FILESYSTEM_FORMS), decoder(FILESYSTEM_FORMS))


# Filesystems of other machines that stand still: NFS, Lustre, GPFS, Ceph, SMB.
#
#     nfs: server 10.0.0.5 not responding, still trying
#     -> Event(kind="fs_stall", cause="storage", attributes={"fs": "nfs", "peer": "10.0.0.5", "state": "stalled"})
#
# Forms: net/sunrpc/clnt.c, fs/nfs/nfs4state.c, fs/ceph, net/ceph of Linux 3.10 to 6.16; lustre/ptlrpc and lnet of
# Lustre 2.10 to 2.16; the syslog codes of IBM Storage Scale (MMFS_*).

_PEER = r"(?P<peer>[^\s,;]{1,120}?)"
# Lustre's own prefix of debug lines: pid (newest releases print none), file, line and function.
_WHERE = r"(?:(?P<pid>\d{1,10}):\d{1,6}:)?\((?P<where>[\w.-]{1,60}:\d{1,6}:\w{1,80})\(\)\) "

# How a stall's states are called in a record.
_STATES = {
    "not responding": "stalled",
    "not responding, still trying": "stalled",
    "not responding, timed out": "timed_out",
    "ok": "recovered",
    "failed": "timed_out",
    "not responded": "stalled",
    "lost": "stalled",
    "session lost": "stalled",
    "restored": "recovered",
    "hung": "stalled",
    "caps stale": "stalled",
    "came back": "recovered",
    "caps renewed": "recovered",
}

NETWORK_FILESYSTEM_FORMS = (
    MessageForm(
        ": server ",
        rf"(?P<fs>nfs|lockd): server {_PEER} (?P<state>not responding(?:, still trying|, timed out)?|OK) *$",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "state manager: ",
        r"(?P<fs>NFS)(?:v4)?: state manager: (?P<operation>[\w ,-]{1,60}?) (?P<state>failed) on NFSv4 "
        rf"server {_PEER} with error (?P<err>-?\d{{1,6}})",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "has not responded in",
        r"(?P<fs>CIFS): (?:VFS: )?\\{1,4}(?P<peer>\S{1,120}) has (?P<state>not responded) in (?P<duration_s>\d{1,9}) "
        r"seconds",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "was lost; in progress",
        rf"(?P<fs>Lustre)(?:Error: \d{{1,4}}-[0-9a-f]{{1,4}})?: (?P<client>[^\s:]{{1,120}}): Connection to "
        rf"(?P<target>[^\s:]{{1,120}}) \(at {_PEER}\) was "
        r"(?P<state>lost); in progress operations",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "onnection restored to",
        r"(?P<fs>Lustre): (?P<client>[^\s:]{1,120}): Connection (?P<state>restored) to (?P<target>[^\s]{1,120})"
        r"(?: \(at (?P<peer>[^\s()]{1,120})\))?",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "evicted by",
        r"(?P<fs>Lustre)Error: (?:167-0: )?(?P<client>[^\s:]{1,120}): This client was evicted by "
        r"(?P<target>[^\s;]{1,120})",
        "fs_evicted",
    ),
    MessageForm(
        "@@@ Request sent has",
        rf"(?P<fs>Lustre): {_WHERE}@@@ Request sent has (?P<error>timed out[\w ]{{0,40}}|failed due to network error)",
        "lustre_timeout",
    ),
    MessageForm(
        "Timed out tx",
        rf"(?P<fs>LNet)(?:Error)?: {_WHERE}Timed out tx(?: for (?P<peer>[^\s:,]{{1,120}}))?",
        "lustre_timeout",
    ),
    MessageForm("LustreError: ", rf"(?P<fs>Lustre)Error: {_WHERE}(?:LBUG|ASSERTION\()", "lustre_error", variant="lbug"),
    MessageForm("LustreError: ", r"LustreError: .{0,200}?Skipped \d{1,9} previous similar message", ""),
    MessageForm(
        "LustreError: ",
        r"(?P<fs>Lustre)Error: \d{1,4}-[0-9a-f]{1,4}: (?P<client>[^\s:]{1,120}): operation (?P<operation>\w{1,40}) "
        rf"to node {_PEER} failed: rc = (?P<err>-?\d{{1,6}})",
        "lustre_error",
    ),
    MessageForm(
        "LustreError: ",
        rf"(?P<fs>Lustre)Error: (?:{_WHERE}|\d{{1,4}}-[0-9a-f]{{1,4}}: )(?P<error>.{{1,200}})",
        "lustre_error",
    ),
    MessageForm("LNetError: ", r"LNetError: .{0,200}?Skipped \d{1,9} previous similar message", ""),
    MessageForm(
        "LNetError: ", rf"(?P<fs>LNet)Error: (?:{_WHERE}|\d{{1,4}}-\d{{1,4}}: )(?P<error>.{{1,200}})", "lustre_error"
    ),
    MessageForm(
        "ceph: mds",
        r"(?P<fs>ceph): mds(?P<peer>\d{1,4}) (?P<state>hung|came back|caps stale|caps renewed)",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    # What was not written yet is lost, and the mount stays dead.
    MessageForm(
        "ceph: mds",
        r"(?P<fs>ceph): mds(?P<peer>\d{1,4}) (?:session bl(?:ock|ack)listed|reconnect denied|rejected session)",
        "fs_evicted",
    ),
    MessageForm(
        "session lost, hunting",
        r"libceph: mon(?P<peer>\d{1,4}) .{0,120}?(?P<state>session lost), hunting for new mon",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    MessageForm(
        "Error=MMFS_",
        r"(?:mmfs: )?Error=(?P<error>MMFS_(?:ABNORMAL_SHUTDOWN|DISKFAIL|SYSTEM_UNMOUNT|FSSTRUCT))\b",
        "gpfs_error",
        variant="lost",
    ),
    MessageForm("Error=MMFS_", r"(?:mmfs: )?Error=(?P<error>MMFS_(?!QUOTA|GENERIC)[A-Z_]{2,40})\b", "gpfs_error"),
    MessageForm(
        "is being expelled",
        r"\[[EN]\] Node (?P<peer>\S{1,120}) \((?P<name>[^\s()]{1,120})\) is being expelled"
        r"(?: due to (?P<error>[\w ]{1,60}))?",
        "gpfs_error",
    ),
    MessageForm(
        "CCR: failed to connect to node",
        r"\[E\] CCR: (?P<error>failed to connect) to node (?P<peer>[\d.a-fA-F:]{3,60}?)(?::\d{1,5})? \(",
        "gpfs_error",
    ),
)

NETWORK_FILESYSTEM = MessageFamily(
    "network_filesystem", signs(NETWORK_FILESYSTEM_FORMS), decoder(NETWORK_FILESYSTEM_FORMS), tags=frozenset({"mmfs"})
)
