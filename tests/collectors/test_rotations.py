"""Logs through every way of rotating them, by hand and by the real logrotate: no line lost, none twice."""

import errno
import gzip
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from real.patience import patience
from real.programs import need

from collectors.collector import Position, SourceError, SourceSettings
from collectors.files.follow import FileCollector
from collectors.files.rotation import rotations
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017", poll_interval_s=0.01, rotation_grace_s=0.05)
# Under both, inodes are given out in their own way: ext4 gives a freed one out again at once.
PLACES = [
    pytest.param("/var/tmp", id="disk"),  # noqa: S108 - a folder of its own is made there
    pytest.param("/dev/shm", id="tmpfs"),  # noqa: S108 - as well
]


def xid(number: int) -> str:
    """A kernel line that is one event; its pid tells it apart."""
    return (
        f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, "
        "name=python, GPU has fallen off the bus.\n"
    )


class Log:
    """A log, what is written to it, and a reader that is stopped and started as a sidecar is."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kern.log"
        self.written: list[int] = []
        self.events: list[Event] = []
        self.gaps: list[Event] = []
        self.position: Position | None = None
        self.reader: FileCollector | None = None

    def write(self, count: int = 3) -> None:
        """So many new events."""
        numbers = range(len(self.written), len(self.written) + count)
        with self.path.open("a") as file:
            file.write("".join(map(xid, numbers)))
        self.written += numbers

    def start(self) -> None:
        """Open the reader where it was."""
        self.reader = FileCollector(f"{self.path}:kernel", SETTINGS)
        self.reader.open(self.position)

    def stop(self) -> None:
        """As a crash does: what is saved is all that stays."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def read(self, turns: int = 4) -> None:
        """Some turns."""
        assert self.reader is not None
        for _ in range(turns):
            collected = self.reader.collect(0.02)
            for event in collected.events:
                (self.gaps if event.kind == "collector_gap" else self.events).append(event)
            self.position = collected.position or self.position

    def settle(self) -> None:
        """Turns until nothing comes any more; then every line must have come once."""
        quiet = 0
        while quiet < 6:
            before = len(self.events)
            self.read(1)
            quiet = quiet + 1 if len(self.events) == before else 0
        assert sorted(int(event.attributes["pid"] or 0) for event in self.events) == self.written
        assert len({event.id for event in self.events}) == len(self.events)


@pytest.fixture(params=PLACES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """A log on a disk, and one in memory."""
    folder = Path(request.param) / f"foreshock-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(exist_ok=True)
    log = Log(folder)
    yield log
    log.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Log]:
    """A log on a disk."""
    log = Log(tmp_path)
    yield log
    log.stop()


def rename(path: Path) -> None:
    """As logrotate's `create` without compression: .1 to .2 and so on."""
    for number in range(8, 0, -1):
        for suffix in ("", ".gz", ".zst"):
            old = path.with_name(f"{path.name}.{number}{suffix}")
            if old.exists():
                old.rename(path.with_name(f"{path.name}.{number + 1}{suffix}"))
    path.rename(path.with_name(f"{path.name}.1"))
    path.touch()


def pack(old: Path, suffix: str = ".gz") -> None:
    """Compress a rotated file as logrotate does: its time stays, its inode does not."""
    status = old.stat()
    packed = old.with_name(old.name + suffix)
    content = old.read_bytes()
    packed.write_bytes(gzip.compress(content) if suffix == ".gz" else zstandard.compress(content))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    old.unlink()


def rename_and_pack(path: Path) -> None:
    """`compress`: the newest old file too."""
    rename(path)
    pack(path.with_name(f"{path.name}.1"))


def rename_and_zstd(path: Path) -> None:
    """`compresscmd zstd`."""
    rename(path)
    pack(path.with_name(f"{path.name}.1"), ".zst")


def rename_and_pack_later(path: Path) -> None:
    """`delaycompress`: the one before."""
    rename(path)
    before = path.with_name(f"{path.name}.2")
    if before.exists():
        pack(before)


def dated(path: Path) -> None:
    """`dateext`, with a new date each time."""
    day = len(list(path.parent.iterdir()))
    path.rename(path.with_name(f"{path.name}-202503{day:02d}"))
    path.touch()


def dated_within(path: Path) -> None:
    """`dateext` and `extension .log`, compressed."""
    day = len(list(path.parent.iterdir()))
    old = path.rename(path.with_name(f"{path.stem}-202503{day:02d}{path.suffix}"))
    path.touch()
    pack(old)


def copy_and_truncate(path: Path) -> None:
    """`copytruncate`: the file stays, what was in it is in a copy."""
    for number in range(8, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copy2(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


WAYS = [
    *(rename, rename_and_pack, rename_and_zstd, rename_and_pack_later),
    *(dated, dated_within, copy_and_truncate),
]


@pytest.mark.parametrize("rotate", WAYS)
def test_a_rotation_while_it_is_followed_loses_nothing(plain: Log, rotate: Callable[[Path], None]) -> None:
    """With lines that were written and not yet read when it came."""
    log = plain
    log.write()
    log.start()
    log.read()
    for _ in range(3):
        log.write()
        rotate(log.path)
        log.write()
        log.read()
    log.settle()
    assert log.gaps == []


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("rotate", WAYS)
def test_rotations_while_nobody_read_lose_nothing(log: Log, rotate: Callable[[Path], None], times: int) -> None:
    """The rest of the file that was read, every file between, and the present one; and again after the next stop."""
    log.write()
    log.start()
    log.read()
    for _ in range(2):
        log.stop()
        log.write()
        for _ in range(times):
            rotate(log.path)
            log.write()
        log.start()
        log.read(1)
        log.stop()  # in the middle of the old files
        log.start()
        log.settle()
    assert log.gaps == []


@pytest.mark.parametrize("rotate", [rename, rename_and_pack])
def test_rotated_twice_between_two_looks(plain: Log, rotate: Callable[[Path], None]) -> None:
    """As when the spool was full for a day: the sidecar runs, and has not looked."""
    log = plain
    log.write()
    log.start()
    log.read()
    log.write()
    for _ in range(3):
        rotate(log.path)
        log.write()
    log.settle()
    assert log.gaps == []


def test_old_files_from_before_the_first_start_are_not_read(log: Log) -> None:
    """A sidecar begins with the log as it is, and a rotation later does not bring old weeks back."""
    for number in (3, 2, 1):
        log.path.with_name(f"kern.log.{number}").write_text(xid(9000 + number))
        os.utime(log.path.with_name(f"kern.log.{number}"), (1e9 - number, 1e9 - number))
    log.write()
    log.start()
    log.read()
    rename(log.path)
    log.write()
    log.settle()
    log.stop()
    rename(log.path)
    log.write()
    log.start()
    log.settle()


def test_a_new_file_with_the_old_ones_inode_is_another_file(log: Log) -> None:
    """Deleted and made anew: the disk may give the same inode, and equal lines are other events."""
    log.write(5)
    log.start()
    log.read()
    log.stop()
    inode = log.path.stat().st_ino
    log.path.unlink()
    log.path.write_text(xid(0) + xid(1))
    same = log.path.stat().st_ino == inode
    log.start()
    log.read(10)
    assert [event.attributes["pid"] for event in log.events] == [0, 1, 2, 3, 4, 0, 1]
    assert len({event.id for event in log.events}) == 7, f"same inode: {same}"
    assert len(log.gaps) == 1, "whether the old file had more is not known"


def test_a_file_that_vanishes_and_comes_back_is_not_read_twice(log: Log) -> None:
    """Moved away and back, or its file system not mounted for a while."""
    log.write()
    log.start()
    log.read()
    away = log.path.with_name("elsewhere")
    log.path.rename(away)
    log.read(10)
    away.rename(log.path)
    log.write()
    log.settle()


def test_a_link_that_points_elsewhere_is_a_rotation(plain: Log, tmp_path: Path) -> None:
    """`current.log -> run7.log`, then run8.log; the rest of run7 is read, also after a restart, under its own run."""
    log = plain
    first, second, third = (tmp_path / f"run{number}.log" for number in (7, 8, 9))
    first.touch()
    log.path.symlink_to(first)
    log.write()
    log.start()
    log.read()
    log.write()
    second.touch()
    log.path.unlink()
    log.path.symlink_to(second)
    log.write()
    log.settle()
    log.stop()
    log.write()
    third.touch()
    log.path.unlink()
    log.path.symlink_to(third)
    log.write()
    log.start()
    log.settle()
    log.stop()
    assert log.gaps == []


def test_a_damaged_archive_is_a_gap_and_stops_nothing(plain: Log) -> None:
    """Cut short by a full disk: what is whole of it is read, the loss is said once, the present file goes on."""
    log = plain
    log.write(300)
    log.start()
    log.read()
    log.stop()
    with log.path.open("a") as file:
        file.writelines(f"noise {os.urandom(200).hex()}\n" for _ in range(5000))
    rename_and_pack(log.path)
    archive = log.path.with_name("kern.log.1.gz")
    os.truncate(archive, archive.stat().st_size // 2)
    log.write()
    log.start()
    log.read(40)  # through the noise
    log.settle()
    log.stop()
    assert len(log.gaps) == 1
    assert "could not be read to its end" in log.gaps[0].message
    assert (log.gaps[0].source, log.gaps[0].attributes["path"]) == ("sidecar", str(log.path))


def test_a_hole_before_a_line_is_left_out(plain: Log) -> None:
    """A writer that was not opened for appending goes on at its old offset after a truncation: NULs, then its line."""
    log = plain
    with log.path.open("w") as file:
        file.write(xid(0) * 2000)
        file.flush()
        os.truncate(log.path, 0)
        file.write(xid(1))
        file.flush()
        log.start()
        log.read(10)
        log.stop()
    assert [event.attributes["pid"] for event in log.events] == [1]


def test_what_is_no_file_is_refused_with_a_remedy(plain: Log) -> None:
    """A pipe cannot be read again after a restart, and opening one would wait for its writer."""
    log = plain
    os.mkfifo(log.path)
    log.start()
    with pytest.raises(SourceError, match="no regular file"):
        log.read()
    log.stop()
    log.path.unlink()
    log.path.symlink_to("/proc/mounts")
    log.start()
    with pytest.raises(SourceError, match=r"does not grow: read it with exec:FORMAT:cat .*the kernel's log with kmsg"):
        log.read()
    log.stop()
    log.path.unlink()
    log.path.mkdir()
    log.start()
    with pytest.raises(SourceError, match="no regular file"):
        log.read()
    log.stop()


def test_a_file_server_that_forgot_the_file_is_waited_for(plain: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """ESTALE: no NFS runs here, so the error is made. When it is there again nothing is read twice."""
    log = plain
    log.write()
    log.start()
    log.read()
    real = Path.stat

    def stale(path: Path, **options: bool) -> os.stat_result:
        if path == log.path:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stale)
        log.read(10)
    log.write()
    log.settle()
    log.stop()


def test_rights_that_are_lost_and_come_back_lose_nothing(plain: Log, tmp_path: Path) -> None:
    """As a user that may be refused: the runner opens it again until it may be read."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user that is refused")
    log = plain
    log.write()
    for folder in (tmp_path, *(parent for parent in tmp_path.parents if "pytest-" in str(parent))):
        folder.chmod(0o755)
    os.seteuid(65534)
    try:
        log.start()
        log.read()
        log.stop()
        os.seteuid(0)
        log.path.chmod(0o600)
        log.write()
        os.seteuid(65534)
        with pytest.raises(SourceError, match=r"may not read .* \(a group, or an ACL\)"):
            log.start()
            log.read()
        log.stop()
        os.seteuid(0)
        log.path.chmod(0o644)
        os.seteuid(65534)
        log.start()
        log.settle()
    finally:
        log.stop()
        os.seteuid(0)


def test_names_of_rotations(tmp_path: Path) -> None:
    """What logrotate and other programs give, and what only looks like it."""
    old = ["kern.log.1", "kern.log.2.gz", "kern.log-20250301", "kern.log-20250301-14.zst", "kern-20250301.log"]
    old += ["kern.3.log", "kern.log.2025-03-01_04-05-06", "kern.log-1740801906", "kern-2025-03-01.log.gz"]
    for name in [*old, "kern.log", "kern.log.old", "kern-1.log", "kernel.log.1", "kern.log.lock", "kern.log.1.tmp"]:
        (tmp_path / name).touch()
    assert {file.path.name for file in rotations(tmp_path / "kern.log")} == set(old)


CONFIGURATIONS = {
    "create": "create",
    "delaycompress": "compress\ndelaycompress\ncreate",
    "copytruncate and compress": "copytruncate\ncompress",
    "dateext, extension, compress": "dateext\ndateformat -%Y%m%d-%s\nextension .log\ncompress\ncreate",
}


@pytest.mark.integration
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_real_logrotate_loses_nothing(plain: Log, tmp_path: Path, name: str) -> None:
    """Rotated while it is followed, while nobody reads, and twice in a row."""
    program = need("logrotate", "logrotate")
    log = plain
    log.path = tmp_path / "logs" / "kern.log"
    log.path.parent.mkdir(mode=0o755)
    configuration = tmp_path / "rotate.conf"
    configuration.write_text(f"{log.path} {{\nrotate 9\n{CONFIGURATIONS[name]}\n}}\n")
    configuration.chmod(0o644)
    command = [program, "-f", "-s", str(tmp_path / "state"), str(configuration)]

    def rotate() -> None:
        before = len(rotations(log.path))
        while len(rotations(log.path)) == before:  # a date that is taken already is left alone: once a second
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60))
            assert done.returncode == 0 or "already exists" in done.stderr, done.stderr

    log.write()
    log.start()
    log.read()
    log.write()
    rotate()
    log.write()
    log.read()
    log.stop()
    for _ in range(2):
        log.write()
        rotate()
    log.write()
    log.start()
    log.settle()
    assert log.gaps == []
