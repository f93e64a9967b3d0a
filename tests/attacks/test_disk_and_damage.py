"""A disk that somebody fills, a file that is damaged: the server says so, and takes no more than it can keep."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from real.foreshock import free_port, serve
from real.patience import patience
from real.programs import stop, wait_for

from cli.console.errors import Failure
from cli.console.store import open_store
from store.database.connections import migrate, open_database
from store.database.integrity import LEAST_FREE_BYTES, DiskWatch, damage

FORESHOCK = str(Path(sys.executable).parent / "foreshock")
_MB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own: 32 MB more than the least that must be free."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={LEAST_FREE_BYTES // _MB + 32}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def ready(url: str) -> tuple[int, dict[str, Any]]:
    """How /readyz answers."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=patience(10)) as answer:
            return answer.status, json.loads(answer.read())["checks"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["checks"]


def fill(file: Path, left: int) -> None:
    """Take a disk's room but for so many bytes; what a program takes in between is counted anew."""
    with file.open("wb") as filling:
        for last in (False, False, True):
            free = os.statvfs(file.parent)
            try:
                os.posix_fallocate(filling.fileno(), 0, free.f_bavail * free.f_frsize - left)
            except OSError as error:
                if last or error.errno != errno.ENOSPC:
                    raise
            else:
                return


def test_a_server_on_a_full_disk_is_not_ready_and_is_again_when_there_is_room(disk: Path, tmp_path: Path) -> None:
    """Load balancers and people are told where, how much and what to do; the process lives."""
    with serve(f"sqlite:///{disk / 'x.db'}", tmp_path) as server:
        assert ready(server.url)[0] == 200
        fill(disk / "filling", left=_MB)
        status, checks = ready(server.url)
        assert status == 503
        assert str(disk / "x.db") in checks["disk"]
        assert "make room" in checks["disk"]
        assert checks["database"] == "ok"
        (disk / "filling").unlink()
        assert ready(server.url)[0] == 200


def test_a_write_that_found_no_room_counts_where_nobody_can_look(tmp_path: Path) -> None:
    """A quota, or PostgreSQL's own disk: what the database said holds for half a minute."""
    engine, now = open_database(f"sqlite:///{tmp_path / 'x.db'}"), [0.0]
    migrate(engine)
    watch = DiskWatch(engine, lambda: now[0])
    assert watch.problem() is None
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sa.exc.OperationalError, match="full"):
            for number in range(10_000):
                connection.exec_driver_sql("INSERT INTO keys VALUES (?, ?)", (f"k{number}", b"x" * 1000))
    assert "full" in (watch.problem() or "")
    now[0] = 31.0
    assert watch.problem() is None
    engine.dispose()


def test_a_sidecar_whose_spool_has_no_room_is_not_ready(disk: Path, tmp_path: Path) -> None:
    """503 while a source waits, with its name; 200 when there is room again, and nothing was lost."""
    log, port = tmp_path / "kern.log", free_port()
    log.write_text("")
    url, spool = f"http://127.0.0.1:{port}", disk / "spool"
    command = [FORESHOCK, "sidecar", "--server", "http://127.0.0.1:1", "--node", "n1", "--spool", spool]
    with (tmp_path / "said").open("wb") as out:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--source", f"file:{log}:kernel"], stdout=out, stderr=out
        )
    try:
        wait_for("it answers", lambda: is_up(url) or process.poll() is not None, 60)
        assert ready(url)[0] == 200
        fill(disk / "filling", left=0)
        line = "2025-03-01T04:{:02d}:{:02d}.789+00:00 n1 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU {}\n"
        with log.open("a") as lines:
            lines.writelines(line.format(i // 60 % 60, i % 60, "x" * 900) for i in range(3000))
        wait_for("it waits", lambda: ready(url)[0] == 503, 60)
        assert str(log) in ready(url)[1]["spool"]
        (disk / "filling").unlink()
        wait_for("it goes on", lambda: ready(url)[0] == 200, 60)
        assert process.poll() is None
    finally:
        stop(process, signal.SIGTERM)


def is_up(url: str) -> bool:
    """Whether anything answers there."""
    try:
        ready(url)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("harm", ["pages", "text", "cut"])
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["db", "status"], ["goodput"], ["diagnose"]])
def test_a_damaged_file_is_a_sentence_with_the_remedy(tmp_path: Path, harm: str, command: list[str]) -> None:
    """Exit 2, no traceback, and nothing more is written to it."""
    file = tmp_path / "x.db"
    engine = open_database(f"sqlite:///{file}")
    migrate(engine)
    engine.dispose()
    whole = file.read_bytes()
    file.write_bytes(harmed(whole, harm))
    before = file.read_bytes()
    done = subprocess.run(
        [FORESHOCK, *command, "--db", f"sqlite:///{file}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert file.read_bytes() == before
    if command[0] == "serve":
        assert "damaged" in done.stderr
        assert ".recover" in done.stderr


def harmed(whole: bytes, how: str) -> bytes:
    """A database's file after an accident."""
    if how == "text":
        return b"this is no database\n" * 500
    if how == "cut":
        return whole[: len(whole) // 3]
    pages, chance = bytearray(whole), random.Random(7)
    for place in range(4096, len(pages), 4096):
        pages[place : place + 200] = chance.randbytes(200)
    return bytes(pages)


def test_the_check_is_cut_off_in_time_and_a_whole_file_passes(tmp_path: Path) -> None:
    """A limit of nothing finds nothing; a good file is opened."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    engine = open_store(url, create=True)
    assert damage(engine, 60.0) is None
    assert damage(engine, -1.0) is None
    engine.dispose()
    (tmp_path / "x.db").write_bytes(b"no database" * 1000)
    with pytest.raises(Failure, match="damaged"):
        open_store(url, create=True)
