"""The systemd units, before systemd's own judges; and the sidecar as a user that may do nothing."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from real.patience import patience
from real.programs import need

from cli.main import foreshock

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
ALL = sorted(DEPLOY.glob("*.service"))
UNITS = [path for path in ALL if "sidecar" in path.name]
# `systemd-analyze security`: 10 is everything, 0 nothing. The kernel's ring needs a device and a capability.
MOST_EXPOSED = {"foreshock-sidecar": 2.1, "foreshock-sidecar-journal": 1.6}
XID = "2025-03-01T04:05:06+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=7, lost.\n"


@pytest.fixture(params=ALL, ids=lambda path: path.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose program is there."""
    text = request.param.read_text().replace("/opt/foreshock/.venv/bin/foreshock", "/bin/true")
    path = tmp_path / request.param.name
    path.write_text(text)
    return path


def test_systemd_understands_every_line(unit: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    done = subprocess.run([need("systemd-analyze", "systemd"), "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_little_is_exposed(unit: Path) -> None:
    """Less than of most services that systemd knows; the journal's sidecar least."""
    command = [need("systemd-analyze", "systemd"), "security", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED.get(unit.stem, 2.0)


def test_the_journal_s_unit_asks_for_no_capability_and_no_device() -> None:
    """That is what it is for; both reload and notify."""
    ring, journal = (path.read_text() for path in UNITS[::-1])
    if "CAP_SYSLOG" in journal:
        ring, journal = journal, ring
    assert "CAP_" not in journal and "DeviceAllow" not in journal
    assert "SupplementaryGroups=systemd-journal" in journal and "DynamicUser=yes" in journal
    for text in (ring, journal):
        assert "Type=notify" in text and "ExecReload=/bin/kill -HUP $MAINPID" in text


def test_the_server_s_unit_reloads() -> None:
    """SIGHUP reads foreshock.yaml anew."""
    assert "ExecReload=/bin/kill -HUP $MAINPID" in (DEPLOY / "foreshock-server.service").read_text()


@pytest.mark.parametrize("name", ["server", "consumer"])
def test_a_unit_keeps_the_database_s_address_to_itself(name: str) -> None:
    """No argument and no variable holds it."""
    text = (DEPLOY / f"foreshock-{name}.service").read_text()
    assert "FORESHOCK_DB_FILE=%d/database" in text
    assert not re.search(r"^(Exec|Environment)\S*=.*(--db|postgresql:|sqlite:)", text, re.MULTILINE)


def test_the_options_of_every_unit_are_the_program_s_own() -> None:
    """What a unit starts is understood; an option that went would be noticed here and not at a site."""
    for path in ALL:
        line = next(line for line in path.read_text().splitlines() if line.startswith("ExecStart="))
        _program, command, *rest = shlex.split(line)
        found = foreshock.get_command(click.Context(foreshock), command)
        assert isinstance(found, click.Command), path.name
        known = {option for each in found.params for option in each.opts}
        assert {word for word in rest if word.startswith("--")} <= known, path.name
    serve = foreshock.get_command(click.Context(foreshock), "serve")
    port = next(each.default for each in serve.params if each.name == "port") if serve else None
    assert f"--server http://127.0.0.1:{port} " in (DEPLOY / "foreshock-dashboard.service").read_text()


def test_nothing_shipped_puts_a_database_s_address_into_an_argument() -> None:
    """Of deploy/ and the README: the process list is everybody's."""
    wrong = re.compile(r"--db[= ,]+(postgres|\$\()|--server[= ]http://(?!127\.0\.0\.1|localhost)")
    found = [
        f"{path.name}: {line.strip()}"
        for path in [*DEPLOY.rglob("*"), DEPLOY.parent / "README.md"]
        if path.is_file() and path.suffix != ".pyc"
        for line in path.read_text().splitlines()
        if wrong.search(line) or re.search(r"--server[= ]http://(?!127\.0\.0\.1|localhost)", line)
    ]
    assert found == []


def without_rights(command: list[str]) -> list[str]:
    """The command as the user nobody; where that one may not read this Python, as one without any capability."""
    setpriv = need("setpriv", "util-linux")
    for rights in (["--reuid=65534", "--regid=65534", "--clear-groups"], ["--bounding-set=-all", "--inh-caps=-all"]):
        tried = subprocess.run([setpriv, *rights, sys.executable, "-c", "import re2"], capture_output=True)
        if tried.returncode == 0:
            return [setpriv, *rights, *command]
    pytest.skip("only root may start a program with fewer rights")


def test_it_works_without_any_right(recorder: Any, until: Callable[[Callable[[], Any]], Any]) -> None:
    """Only its spool's folder is its own; the log may be read by all; the kernel's ring is denied, with a remedy."""
    with tempfile.TemporaryDirectory(prefix="foreshock") as name:  # pytest's own folders let no other user in
        folder = Path(name)
        folder.chmod(0o755)
        log, spool, errors = folder / "kern.log", folder / "spool", folder / "stderr"
        log.write_text(XID)
        spool.mkdir()
        arguments = ["--server", recorder.url, "--spool", str(spool), "--port", "0", "--source", f"file:{log}:kernel"]
        command = without_rights([sys.executable, "-m", "foreshock", "sidecar", *arguments, "--source", "kmsg"])
        if "--reuid=65534" in command:
            os.chown(spool, 65534, 65534)
        with errors.open("wb") as file:
            process = subprocess.Popen(command, stderr=file)
        try:
            assert until(lambda: recorder.events)
            assert until(lambda: b"source kmsg failed" in errors.read_bytes())
        finally:
            process.terminate()
            assert process.wait(patience(20)) == 0
        assert recorder.events[0]["attributes"]["pid"] == 7
        assert "CAP_SYSLOG" in errors.read_text() or "no /dev/kmsg" in errors.read_text()
