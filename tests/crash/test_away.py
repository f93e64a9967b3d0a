"""A server that is away, a disk that is full, a log that is rotated while nobody looks: what was written waits."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from crash.feeds import KernelLog, TrainingLog
from crash.scene import LONG, NODE, settle, sources_of
from real.fleet import Program, fleet
from real.fleet_postgres import fleet_postgres
from real.programs import wait_for

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("crash")]

_LINES = 15_000


def figure(agent: Program, pattern: str) -> float:
    """The sum of the sidecar's own figures whose line a pattern begins."""
    found = re.findall(rf"^{pattern}[^\n]* ([0-9.e+]+)$", agent.running.text("/metrics"), re.MULTILINE)
    return sum(map(float, found))


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of a few megabytes under the spool."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / f"spool-{NODE}"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "none", folder], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("small_disk", ["3m", pytest.param("5m", marks=LONG)], indirect=True)
def test_a_full_disk_stops_the_sources_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    """The spool's disk fills while the server is away; the sidecar is killed and started on the full disk."""
    log, training = KernelLog(tmp_path / "kern.log", "filefeed"), TrainingLog(tmp_path / "run-full.log")
    with closing(log), fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        server = programs.server(database.url)
        agent = programs.sidecar([server.url], NODE, *sources_of([log, training]))
        log.write(10)
        server.kill()
        log.write(_LINES)
        training.write(1000)
        wait_for("a source waits", lambda: figure(agent, "foreshock_sidecar_source_blocked") > 0, 180)
        agent.kill()
        agent.start()
        wait_for("it is up again", lambda: "watching" in agent.log.read_text().rpartition("--- start")[2])
        log.write(500)
        programs.revive()
        settle(programs, [log, training], database.rows, "the spool's disk is full, kill -9 on it", 1)
        assert any(small_disk.iterdir())


@LONG
@pytest.mark.parametrize("limit", ["268435456", "1000000"], ids=["room for all", "a spool of 1 MB"])
def test_a_server_that_was_away_gets_everything_once(tmp_path: Path, limit: str) -> None:
    """Some ten megabytes of events wait, or their lines where the spool has no room; the sidecar is killed too."""
    log = KernelLog(tmp_path / "kern.log", "filefeed")
    with closing(log), fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        server = programs.server(database.url)
        agent = programs.sidecar([server.url], NODE, *sources_of([log]), FORESHOCK_SPOOL_MAX_BYTES=limit)
        server.kill()
        log.write(_LINES)
        waiting = "foreshock_sidecar_spool_events_bytes"
        enough = 5_000_000 if int(limit) > 5_000_000 else 500_000
        wait_for("events wait", lambda: figure(agent, waiting) > enough, 180)
        agent.kill()
        agent.start()
        log.write(500)
        server.start()
        settle(programs, [log], database.rows, "the server is away, kill -9 of the sidecar", 1)


def test_a_log_that_is_rotated_while_the_sidecar_is_away_is_read_whole(tmp_path: Path) -> None:
    """Three times by renaming; then once by copying and truncating."""
    log = KernelLog(tmp_path / "kern.log", "filefeed")
    with closing(log), fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        server = programs.server(database.url)
        agent = programs.sidecar([server.url], NODE, *sources_of([log]))
        log.write(300)
        wait_for("the first lines are stored", lambda: database.rows("SELECT count(*) FROM events") == [(300,)])
        agent.kill()
        for _ in range(3):
            log.write(200)
            log.rotate()
            log.write(200)
        agent.start()
        settle(programs, [log], database.rows, "logs are renamed while the sidecar is away", 3)
        agent.kill()
        log.write(200)
        log.copytruncate()
        log.write(200)
        agent.start()
        settle(programs, [log], database.rows, "a log is copied and cut while it is away", 1)
