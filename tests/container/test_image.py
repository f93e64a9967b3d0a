"""The image of deploy/container: built, and each of its programs run as its user on a root that cannot be written.

Eight minutes on a busy machine and 4 GB of disk, so it is run by `make image-test` alone (FORESHOCK_IMAGE_TEST=1).
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from real.foreshock import free_port
from real.image import Image, built_image
from real.patience import patience
from real.programs import bound, need, stop, wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif("FORESHOCK_IMAGE_TEST" not in os.environ, reason="make image-test builds an image for minutes"),
    pytest.mark.xdist_group("image"),
]
XID = "Mar  1 12:00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=test, GPU has fallen off the bus.\n"
DATABASE = ["FORESHOCK_DB=sqlite:////mnt/foreshock.db"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The built image."""
    with built_image(tmp_path_factory.mktemp("image")) as found:
        yield found


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder that the image's user may write, as a volume is."""
    os.chown(tmp_path, 65532, 65532)
    tmp_path.chmod(0o700)
    return tmp_path


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[int]:
    """A program of the image, which ends well when it is told to; the process id on this machine."""
    with log.open("wb") as out:
        process = subprocess.Popen(bound(list(command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_for("the program starts", lambda: children.read_text().split() != [])
        first = int(children.read_text().split()[0])
        yield first
        os.kill(first, signal.SIGTERM)  # `unshare` itself passes none on
        assert process.wait(patience(30)) in (0, 128 + signal.SIGTERM), log.read_text()
    finally:
        stop(process, signal.SIGKILL)


def healthy(image: Image, first: int) -> bool:
    """What the image's health check says, inside of a container."""
    inside = [
        need("nsenter", "util-linux"),
        f"--target={first}",
        "--mount",
        "--pid",
        need("chroot", "coreutils"),
        str(image.root),
    ]
    told = ["env", "-i", *image.told()["Env"], "foreshock-alive"]
    return subprocess.run([*inside, *told], check=False, timeout=patience(30)).returncode == 0


def test_it_says_who_it_is(image: Image) -> None:
    """A user by number, a health check, an entrypoint; no compiler, and not more than it needs."""
    told = image.told()
    assert told["User"] == "65532:65532"
    assert told["Healthcheck"]["Test"] == ["CMD", "foreshock-alive"]
    assert told["Entrypoint"] == ["foreshock"]
    assert image.run("foreshock", "--version").startswith("foreshock, version ")
    assert not (image.root / "usr/bin/gcc").exists()
    assert not (image.root / "opt/uv").exists()
    print(f"bytes: {image.size()}")  # noqa: T201 - what docs/install-kubernetes.md tells
    assert image.size() < 1.3e9


def test_its_user_may_nothing(image: Image) -> None:
    """No root, no capability, no writable place but /tmp."""
    script = "id -u; grep CapEff /proc/self/status; touch /tmp/x && echo may; touch /opt/x 2>&1 || true"
    said = image.run("sh", "-c", script)
    assert said.splitlines()[0] == "65532"
    assert "CapEff:\t0000000000000000" in said
    assert "may\n" in said
    assert "Read-only file system" in said


def test_it_has_the_wheel_s_files_and_journalctl(image: Image) -> None:
    """What `foreshock deploy` lists, and what the sidecar starts."""
    said = image.run("foreshock", "deploy", "list")
    assert "foreshock/values.schema.json" in said
    assert "Containerfile" in said
    assert image.run("journalctl", "--version").startswith("systemd ")


def test_the_server_answers_and_is_healthy(image: Image, volume: Path) -> None:
    """It migrates a database on a volume, and serves it."""
    image.run("foreshock", "db", "migrate", mount=volume, environment=DATABASE)
    words = ("foreshock", "serve", "--port", str(free_port()))
    with running(image.command(*words, mount=volume, environment=DATABASE), volume / "log") as first:
        wait_for("the server is healthy", lambda: healthy(image, first))


def test_the_sidecar_reads_a_fault_and_is_healthy(image: Image, volume: Path) -> None:
    """It keeps it in its spool while the server is away."""
    (volume / "kern.log").write_text(XID)
    (volume / "kern.log").chmod(0o644)
    server, port = f"--server=http://127.0.0.1:{free_port()}", f"--port={free_port()}"
    words = ("foreshock", "sidecar", server, "--node=gpu-017", "--source=file:/mnt/kern.log:kernel")
    with running(image.command(*words, port, "--spool=/mnt/spool", mount=volume), volume / "log") as first:
        wait_for("the sidecar is healthy", lambda: healthy(image, first))
        spool = volume / "spool"
        wait_for(
            "the fault is in the spool",
            lambda: any(b"xid" in path.read_bytes() for path in spool.rglob("*") if path.is_file()),
        )


def test_the_dashboard_is_healthy(image: Image, volume: Path) -> None:
    """It draws; the server may be away."""
    server, port = f"--server=http://127.0.0.1:{free_port()}", str(free_port())
    with running(image.command("foreshock", "dashboard", server, "--port", port), volume / "log") as first:
        wait_for("the dashboard is healthy", lambda: healthy(image, first))


def test_a_program_that_does_not_answer_is_not_healthy(image: Image, volume: Path) -> None:
    """A consumer that has not come as far as its figures, say."""
    words = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done", "consume", f"--port={free_port()}")
    with running(image.command(*words), volume / "log") as first:
        wait_for("it runs", lambda: b"consume" in Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0"))
        assert not healthy(image, first)
