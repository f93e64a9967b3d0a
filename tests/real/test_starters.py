"""The starters themselves: a missing program is told of, a server that is stopped is gone."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

import pytest
from real.patience import patience
from real.postgres import postgres
from real.programs import need, need_file, stop, wait_for
from real.prometheus import check_metrics, node_exporter


def test_without_ci_a_missing_program_skips_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the package to install."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install nothing-has-it"):
        need("no-such-program", "nothing-has-it")
    with pytest.raises(pytest.skip.Exception, match="apt-get install nothing-has-it"):
        need_file("no/such/*/file", "nothing-has-it")


def test_in_ci_a_missing_program_fails_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a lost package cannot hide."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install nothing-has-it"):
        need("no-such-program", "nothing-has-it")


def test_of_several_files_the_newest_version_is_taken() -> None:
    """And a program that is there is found."""
    assert need("sh", "dash").endswith("/sh")
    assert need_file("proc/self/status", "linux") == Path("/proc/self/status")


def test_waiting_ends() -> None:
    """With what was waited for."""
    with pytest.raises(TimeoutError, match="the moon: not within 0 s"):
        wait_for("the moon", lambda: False, timeout_s=0.01)


def test_a_process_that_will_not_end_is_killed() -> None:
    """By its id."""
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stop(process, 15, timeout_s=0.2)
        assert process.poll() == -9
        stop(process, 15)


STARTER = """
import time
from pathlib import Path
from real.postgres import postgres

with postgres(folder=Path({folder!r})) as server:
    print((server.folder / "data/postmaster.pid").read_text().split()[0], flush=True)
    time.sleep(600)
"""


@pytest.mark.integration
def test_a_server_ends_with_a_test_run_that_is_killed() -> None:
    """Even where nothing can be done in order: the process that started it is gone between two instructions."""
    folder = tempfile.mkdtemp(prefix="fs-pg-")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", STARTER.format(folder=folder)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as starter:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            os.kill(pid, 0)
            starter.kill()
        wait_for("the server is gone", lambda: not Path(f"/proc/{pid}/exe").exists())
    finally:
        shutil.rmtree(folder)


SERVING = """
import os, time
from pathlib import Path
os.environ["PYTEST_VERSION"] = "as within a run"
from real.foreshock import serve

if __name__ == "__main__":
    with serve("sqlite:///{folder}/x.db", Path({folder!r})) as server:
        print(server.pid, flush=True)
        time.sleep(600)
"""


def test_a_preloaded_server_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    """It forks from a process between it and the run, which ends as well."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    script = tmp_path / "starter.py"
    script.write_text(SERVING.format(folder=str(tmp_path)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        between = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert between != starter.pid
        starter.kill()
    for one in (pid, between):
        wait_for("it is gone", lambda one=one: not Path(f"/proc/{one}/exe").exists())  # type: ignore[misc]


@pytest.mark.integration
def test_a_stopped_postgresql_leaves_nothing_behind() -> None:
    """Neither its folder nor its process; and while it runs it listens on no network."""
    with postgres() as server:
        pid = int((server.folder / "data/postmaster.pid").read_text().split()[0])
        assert (server.folder / ".s.PGSQL.5432").is_socket()
        os.kill(pid, 0)
        folder = server.folder
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.integration
def test_promtool_objects_to_a_broken_page_and_to_bad_names() -> None:
    """And not to a good one."""
    assert check_metrics("# HELP a_total things\n# TYPE a_total counter\na_total 1\n") == ""
    assert "no help text" in check_metrics("# TYPE a_total counter\na_total 1\n")
    assert check_metrics("{{{\n") != ""


@pytest.mark.integration
def test_a_node_exporter_answers_while_it_runs(tmp_path: Path) -> None:
    """On the loopback."""
    with node_exporter(tmp_path) as exporter:
        with urlopen(exporter.url, timeout=patience(20)) as reply:
            assert b"process_resident_memory_bytes" in reply.read()
        port = int(exporter.url.split(":")[2].split("/")[0])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
