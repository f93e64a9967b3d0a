"""Filesystems of other machines that stand still: NFS, Lustre, GPFS, Ceph, SMB.

    nfs: server 10.0.0.5 not responding, still trying
    -> Event(kind="fs_stall", cause="storage", attributes={"fs": "nfs", "peer": "10.0.0.5", "state": "stalled"})

Forms: net/sunrpc/clnt.c, fs/nfs/nfs4state.c, fs/ceph, net/ceph of Linux 3.10 to 6.16; lustre/ptlrpc and lnet of
Lustre 2.10 to 2.16; the syslog codes of IBM Storage Scale (MMFS_*).
"""

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import Form, decoder, signs

_PEER = r"(?P<peer>[^\s,;]{1,120}?)"
# Lustre's own prefix of debug lines: pid, file, line and function.
_WHERE = r"(?P<pid>\d{1,10}):\d{1,6}:\((?P<where>[\w.-]{1,60}:\d{1,6}:\w{1,80})\(\)\) "

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

FORMS = (
    Form(
        ": server ",
        rf"(?P<fs>nfs|lockd): server {_PEER} (?P<state>not responding(?:, still trying|, timed out)?|OK) *$",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "state manager: ",
        r"(?P<fs>NFS)(?:v4)?: state manager: (?P<operation>[\w ,-]{1,60}?) (?P<state>failed) on NFSv4 "
        rf"server {_PEER} with error (?P<err>-?\d{{1,6}})",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "has not responded in",
        r"(?P<fs>CIFS): (?:VFS: )?\\{1,4}(?P<peer>\S{1,120}) has (?P<state>not responded) in (?P<duration_s>\d{1,9}) "
        r"seconds",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "was lost; in progress",
        rf"(?P<fs>Lustre): (?P<client>[^\s:]{{1,120}}): Connection to (?P<target>[^\s:]{{1,120}}) \(at {_PEER}\) was "
        r"(?P<state>lost); in progress operations",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "onnection restored to",
        r"(?P<fs>Lustre): (?P<client>[^\s:]{1,120}): Connection (?P<state>restored) to (?P<target>[^\s]{1,120})"
        r"(?: \(at (?P<peer>[^\s()]{1,120})\))?",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "evicted by",
        r"(?P<fs>Lustre)Error: (?:167-0: )?(?P<client>[^\s:]{1,120}): This client was evicted by "
        r"(?P<target>[^\s;]{1,120})",
        "fs_evicted",
    ),
    Form(
        "@@@ Request sent has",
        rf"(?P<fs>Lustre): {_WHERE}@@@ Request sent has (?P<error>timed out[\w ]{{0,40}}|failed due to network error)",
        "lustre_timeout",
    ),
    Form(
        "Timed out tx",
        rf"(?P<fs>LNet)(?:Error)?: {_WHERE}Timed out tx(?: for (?P<peer>[^\s:,]{{1,120}}))?",
        "lustre_timeout",
    ),
    Form("LustreError: ", rf"(?P<fs>Lustre)Error: {_WHERE}(?:LBUG|ASSERTION\()", "lustre_error", variant="lbug"),
    Form("LustreError: ", r"LustreError: .{0,200}?Skipped \d{1,9} previous similar message", ""),
    Form(
        "LustreError: ",
        r"(?P<fs>Lustre)Error: \d{1,4}-\d{1,4}: (?P<client>[^\s:]{1,120}): operation (?P<operation>\w{1,40}) "
        rf"to node {_PEER} failed: rc = (?P<err>-?\d{{1,6}})",
        "lustre_error",
    ),
    Form(
        "LustreError: ",
        rf"(?P<fs>Lustre)Error: (?:{_WHERE}|\d{{1,4}}-\d{{1,4}}: )(?P<error>.{{1,200}})",
        "lustre_error",
    ),
    Form("LNetError: ", r"LNetError: .{0,200}?Skipped \d{1,9} previous similar message", ""),
    Form("LNetError: ", rf"(?P<fs>LNet)Error: (?:{_WHERE}|\d{{1,4}}-\d{{1,4}}: )(?P<error>.{{1,200}})", "lustre_error"),
    Form(
        "ceph: mds",
        r"(?P<fs>ceph): mds(?P<peer>\d{1,4}) (?P<state>hung|came back|caps stale|caps renewed)",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "session lost, hunting",
        r"libceph: mon(?P<peer>\d{1,4}) .{0,120}?(?P<state>session lost), hunting for new mon",
        "fs_stall",
        by="state",
        words=_STATES,
    ),
    Form(
        "Error=MMFS_",
        r"(?:mmfs: )?Error=(?P<error>MMFS_(?:ABNORMAL_SHUTDOWN|DISKFAIL|SYSTEM_UNMOUNT|FSSTRUCT))\b",
        "gpfs_error",
        variant="lost",
    ),
    Form("Error=MMFS_", r"(?:mmfs: )?Error=(?P<error>MMFS_(?!QUOTA|GENERIC)[A-Z_]{2,40})\b", "gpfs_error"),
)

FAMILY = Family("network_filesystem", signs(FORMS), decoder(FORMS), tags=frozenset({"mmfs"}))
