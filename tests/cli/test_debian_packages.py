"""The Debian packages: built from the tree, clean by lintian, installed, used, and purged without a trace."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.foreshock import free_port
from real.overlay import Machine, overlay_machine
from real.patience import patience
from real.programs import bound, need, stop, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.xdist_group("debian")]
ROOT = Path(__file__).parents[2]
UNITS = "lib/systemd/system"
# Stands for systemd, which is not the first process here: what it is asked, and which unit was enabled and runs.
SYSTEMCTL = """#!/bin/sh
echo "$@" >> /root/asked
case "$*" in
    *is-enabled*|*is-active*) grep -qsF "${*##* }" /root/running && echo enabled ;;
esac
"""
XID = "kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=test, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The built files by their packages' names, as `make deb` builds them from a clean tree."""
    need("dh", "debhelper")
    folder = tmp_path_factory.mktemp("debian")
    tree = folder / "foreshock"
    kept = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "tests", "benchmarks", "*.db")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=kept)
    command = ["make", "--silent", "--file", tree / "Makefile", "deb", f"UV={ROOT / '.venv/bin/uv'}"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=patience(600))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    yield {path.name.split("_")[0]: path for path in (tree / "build").glob("*.deb")}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def machine(packages: dict[str, Path]) -> Iterator[Machine]:
    """A copy of this machine with both packages, and what they need, installed."""
    with overlay_machine() as copy:
        script = f"printf %s {shlex.quote(SYSTEMCTL)} > /usr/bin/systemctl"
        copy.run("sh", "-c", f"mkdir -p /run/systemd/system; rm -f /usr/sbin/policy-rc.d; {script}")
        # It would make its index of all pages of the machine anew, three times.
        copy.run("rm", "-f", "/var/lib/man-db/auto-update")
        assert install(copy, packages) == []
        yield copy


def install(machine: Machine, packages: dict[str, Path], *options: str) -> list[str]:
    """What systemd is asked to start, stop or start again meanwhile."""
    files = [str(path) for path in packages.values()]
    machine.run("apt-get", "install", "--yes", "--no-install-recommends", *options, *files)
    return asked(machine)


def asked(machine: Machine) -> list[str]:
    """What systemd was asked to start, stop or start again since the last time."""
    said = machine.run("sh", "-c", "cat /root/asked; rm /root/asked").splitlines()
    return [line.removeprefix("--quiet --system ") for line in said if re.search(r"\b(re)?(start|stop)\b", line)]


def listed(package: Path) -> list[str]:
    """The files of a package."""
    said = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    return [line.split()[5].removeprefix(".") for line in said.splitlines() if not line.startswith("d")]


def test_a_node_gets_no_library_of_the_server(packages: dict[str, Path]) -> None:
    """The node's package is small, and each unit lies in one package."""
    node, server = listed(packages["foreshock"]), listed(packages["foreshock-server"])
    assert not set(node) & set(server)
    assert [path for path in node if re.search(r"/(pandas|sklearn|streamlit|sqlalchemy|pyarrow)/", path)] == []
    units = {name: [Path(path).name for path in paths if path.startswith(f"/{UNITS}/")] for name, paths in
             (("node", node), ("server", server))}  # fmt: skip
    assert {name: sorted(found) for name, found in units.items()} == {
        "node": ["foreshock-sidecar-journal.service", "foreshock-sidecar.service"],
        "server": ["foreshock-consumer.service", "foreshock-dashboard.service", "foreshock-server.service"],
    }
    assert packages["foreshock"].stat().st_size * 5 < packages["foreshock-server"].stat().st_size


def test_lintian_finds_nothing(packages: dict[str, Path]) -> None:
    """Errors and warnings; what is overridden says why in debian/*.lintian-overrides.

    The server's libraries take it a minute and more: with FORESHOCK_LINTIAN=all.
    """
    checked = list(packages) if os.environ.get("FORESHOCK_LINTIAN") == "all" else ["foreshock"]
    files = [packages[name] for name in checked]
    command = [need("lintian", "lintian"), "--fail-on", "error,warning", "--allow-root", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(600))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:3000] + done.stderr[:1000]


def test_the_installed_program_reads_a_fault(machine: Machine) -> None:
    """With its own libraries and none of Debian's; units name it where it is."""
    assert machine.run("foreshock", "--version").startswith("foreshock, version ")
    machine.run("sh", "-c", f"echo 'Mar  1 12:00:00 gpu-017 {XID}' > /root/kern.log")
    event = json.loads(machine.run("foreshock", "parse", "kernel", "/root/kern.log").splitlines()[0])
    assert (event["kind"], event["node"], event["code"]) == ("xid", "gpu-017", 79)
    machine.run("systemd-analyze", "verify", *(f"/{UNITS}/foreshock-{name}.service" for name in ("sidecar", "server")))


def test_the_installed_server_answers(machine: Machine) -> None:
    """It migrates a database and serves it."""
    database, port = "sqlite:////root/foreshock.db", str(free_port())
    machine.run("foreshock", "db", "migrate", "--db", database)
    command = machine.command("foreshock", "serve", "--db", database, "--port", port)
    process = subprocess.Popen(bound(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ready = ["curl", "--silent", "--fail", f"http://127.0.0.1:{port}/readyz"]
        wait_for("the server is ready", lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0)
    finally:
        stop(process, 15)


def test_an_upgrade_starts_what_was_running_again(machine: Machine, packages: dict[str, Path]) -> None:
    """And nothing else: a unit starts when somebody enables it."""
    assert machine.run("sh", "-c", "ls /etc/systemd/system/*.wants | grep foreshock || true") == ""
    machine.run("sh", "-c", "echo foreshock-sidecar.service > /root/running")
    assert install(machine, {"foreshock": packages["foreshock"]}, "--reinstall") == [
        "restart foreshock-sidecar.service"
    ]


def test_a_purge_leaves_what_people_wrote(machine: Machine) -> None:
    """Units are stopped first. After it: no library, no bytecode, no spool, no unit."""
    machine.run("sh", "-c", "echo 'server: http://x' > /etc/foreshock/sidecar.yaml")
    machine.run("sh", "-c", "mkdir -p /var/lib/private/foreshock && echo x > /var/lib/private/foreshock/spool")
    machine.run("apt-get", "purge", "--yes", "foreshock", "foreshock-server")
    stopped = {unit for line in asked(machine) if "stop" in line for unit in line.split() if unit.endswith(".service")}
    assert stopped == {
        f"foreshock-{name}.service" for name in ("sidecar", "sidecar-journal", "server", "consumer", "dashboard")
    }
    left = machine.run("sh", "-c", f"ls -d /usr/lib/foreshock /var/lib/*/foreshock* /{UNITS}/foreshock* 2>&1 || true")
    assert [line for line in left.splitlines() if "No such file" not in line] == []
    assert machine.run("ls", "/etc/foreshock") == "sidecar.yaml\n"
