"""Whose word each source is, by what its registration says: the kind of source, the path, the format, the operator.

    trust_of("kmsg")                                    kernel
    trust_of("file:/var/log/train/run.log:training")    user
    trust_of("file:/var/log/syslog:kernel")             user: `logger -t kernel` writes there, too
    trust_of("file:/var/log/syslog:kernel", "system")   as the operator says

What an operator says holds. Without a word of his a file is trusted only where its name or its format tells that root
alone writes it, and where its owner and mode do not tell otherwise.
"""

import glob
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from collectors.collector import SourceError
from parsers.registry import PARSERS
from store.records.event_sources import TRUSTS, Trust, may_tell

# Where local programs log to. Linked to journald's own socket, nobody but the kernel can log as the kernel: journald
# corrects the facility. A syslog daemon that listens there itself (rsyslog's imuxsock) takes whatever facility it is
# told, and kern.log is then anybody's.
SYSLOG_SOCKET = Path("/dev/log")
_JOURNALD = "/systemd/journal/"

# A file's name without what a rotation adds to it: kern.log of kern.log.1, kern.log-20261101.gz.
_ROTATED = re.compile(r"(?:[.-]\d{1,14})*(?:\.gz|\.zst)?$", re.ASCII)
_KERNEL_LOGS = frozenset({"kern.log", "kernel.log", "kern", "dmesg", "dmesg.log"})
_ROOTS_LOGS = frozenset({"opensm.log", "fabricmanager.log", "nhc.log", "jobs.csv", "outages.csv"})
# Any program can write here through the syslog socket, or print here.
_SHARED_LOGS = frozenset(
    {
        *("syslog", "messages", "user.log", "daemon.log", "debug", "auth.log", "secure", "all.log", "everything.log"),
        *("system.log", "syslog.log", "messages.log"),
    }
)
_SHARED_ENDINGS = (".out", ".err", ".stdout", ".stderr")
_SHARED_FOLDERS = ("/log/containers/", "/log/pods/", "/docker/containers/")
# Users begin here (login.defs: UID_MIN).
FIRST_USER = 1000
_SOURCES: dict[str, tuple[Trust, str]] = {
    "kmsg": ("kernel", "the kernel's own ring: only root can write to it"),
    "journal": ("kernel", "the journal's records of the kernel, and of root's daemons: checked one by one"),
    "infiniband": ("system", "the kernel's counters"),
    "subnet": ("system", "the subnet manager's own list"),
    "scrape": ("system", "an exporter of the operator's"),
    "nvml": ("system", "the driver's library"),
    "rings": ("system", "the driver's library, and the kernel's counters"),
    "syslog": ("system", "syslog daemons of the site's"),
    "prometheus": ("system", "a server of the operator's"),
    "redfish": ("system", "the nodes' management controllers: each speaks of its own node"),
    "nvrx": ("user", "a job's launcher writes the files"),
    "checkpoints": ("user", "a job writes the files"),
    "flight": ("user", "a job writes the files"),
    "ranks": ("user", "a job writes the files"),
    "ncclras": ("user", "a job's processes answer"),
}


@dataclass(frozen=True, slots=True)
class SourceTrust:
    """A source's trust, and why."""

    trust: Trust
    why: str


def checked_trust(place: str, word: str) -> Trust:
    """A word of a configuration as a trust.

    Raises:
        SourceError: it is none.
    """
    for trust in TRUSTS:
        if word == trust:
            return trust
    raise SourceError(f"{place}: trust is {word!r}: use one of {', '.join(TRUSTS)}")


def check_has_trust(spec: str) -> None:
    """Refuse a trust for a source whose kind tells it.

    Raises:
        SourceError: it is no file and no program.
    """
    if spec.partition(":")[0] in _SOURCES:
        raise SourceError(f"{spec}: its trust is known: `trust` is for file: and exec: sources, take it out")


def trust_of(spec: str, given: Trust | None = None, format_name: str | None = None) -> SourceTrust:
    """The trust of a SPEC: what the operator says (`given`), else what the kind of source tells."""
    scheme, _colon, rest = spec.partition(":")
    if scheme in _SOURCES:
        return SourceTrust(*_SOURCES[scheme])
    if given is not None:
        return SourceTrust(given, "the configuration says so")
    if scheme == "exec":
        name = rest.partition(":")[0]
        if may_tell("user", name):
            return SourceTrust("user", f"{name} is what a job's user writes")
        return SourceTrust("system", "the sidecar runs the program itself")
    rest, format_name = _path_and_format(rest, format_name)
    if glob.has_magic(rest) and not Path(rest).exists():
        found = [trust_of_file(Path(each), format_name) for each in sorted(glob.glob(rest))]  # noqa: PTH207 - of any root
        known = next((each for each in found if each.trust == "user"), found[0] if found else None)
        return known or trust_of_file(Path(rest), format_name)
    return trust_of_file(Path(rest), format_name)


def gives_nothing(spec: str, trust: Trust, format_name: str | None = None) -> str | None:
    """The format that a SPEC names and its trust may not tell; None where it may."""
    scheme, _colon, rest = spec.partition(":")
    if scheme == "exec":
        name: str | None = rest.partition(":")[0]
    else:
        name = _path_and_format(rest, format_name)[1] if scheme == "file" else None
    return None if name is None or may_tell(trust, name) else name


def _path_and_format(rest: str, format_name: str | None) -> tuple[str, str | None]:
    path, _colon, name = rest.rpartition(":")
    if path and (name in PARSERS or name == "auto"):
        return path, format_name if name == "auto" else name
    return rest, format_name


def trust_of_file(path: Path, format_name: str | None, given: Trust | None = None) -> SourceTrust:
    """The trust of one file, by what is known now: its name, its format (None: nobody named it), its owner and mode."""
    if given is not None:
        return SourceTrust(given, "the configuration says so")
    by_name = _by_name(path, format_name)
    if by_name.trust == "user":
        return by_name
    writer = other_writer(path)
    return by_name if writer is None else SourceTrust("user", writer)


def _by_name(path: Path, format_name: str | None) -> SourceTrust:
    name = _ROTATED.sub("", path.name)
    if format_name is not None and may_tell("user", format_name):
        return SourceTrust("user", f"{format_name} is what a job's user writes")
    if name in _SHARED_LOGS or name.endswith(_SHARED_ENDINGS) or any(part in str(path) for part in _SHARED_FOLDERS):
        return SourceTrust("user", "any user's program can write there (`logger`): say `trust: system` where none can")
    if format_name == "kernel" or (format_name is None and name in _KERNEL_LOGS):
        if _is_forgeable_syslog():
            return SourceTrust("user", f"a syslog daemon listens on {SYSLOG_SOCKET} itself: any user can log as kernel")
        named = "its format is named: kernel" if format_name else "its name is a kernel log's"
        return SourceTrust("kernel", named)
    if format_name is not None:
        return SourceTrust("system", f"its format is named: {format_name}")
    if name in _ROOTS_LOGS:
        return SourceTrust("system", "its name is that of a daemon's log")
    return SourceTrust("user", "nobody says who writes it: name its format, or say `trust:`")


def _is_forgeable_syslog() -> bool:
    """Whether a daemon other than journald takes what programs log."""
    try:
        target = str(SYSLOG_SOCKET.readlink())
    except OSError:
        return SYSLOG_SOCKET.is_socket()
    return _JOURNALD not in target


def other_writer(path: Path) -> str | None:
    """Who can write a file besides root and this sidecar; None where nobody can, or where there is none yet."""
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_uid >= FIRST_USER and status.st_uid != os.geteuid():
        return f"user {status.st_uid} owns it"
    if status.st_mode & stat.S_IWOTH:
        return "every user may write it"
    if status.st_mode & stat.S_IWGRP and status.st_gid >= FIRST_USER and status.st_gid != os.getegid():
        return f"group {status.st_gid} may write it"
    return None
