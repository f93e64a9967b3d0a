"""A container image built with buildah, without a daemon, and its programs run on a root that cannot be written.

with built_image(folder) as image:
    image.run("foreshock", "--version")

The base is made of Debian's packages (mmdebstrap), since no registry of images is at hand. buildah builds with
`--isolation=chroot` and the storage driver `vfs`: that needs root, and no nested containers. A program runs in
namespaces of its own, as the image's user, without a capability; the network is the machine's.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience
from real.programs import bound, need

ROOT = Path(__file__).parents[2]
_BASE, _IMAGE = "localhost/base", "localhost/foreshock:test"
_MIRROR = "http://deb.debian.org/debian"
# The machine's own authorities, for a way to PyPI that leads through a site's proxy.
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_INSIDE = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
[ -z "$2" ] || mount --bind "$2" "$1/mnt"
root=$1
shift 2
exec chroot "$root" setpriv --reuid=65532 --regid=65532 --clear-groups --no-new-privs --bounding-set=-all \\
    --inh-caps=-all "$@"
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image, unpacked."""

    folder: Path
    root: Path

    def told(self) -> dict[str, Any]:
        """Its configuration: user, environment, entrypoint, health check."""
        text = buildah(self.folder, "inspect", "--type", "image", "--format", "{{.Config}}", _IMAGE)
        config: dict[str, Any] = json.loads(text)["config"]
        return config

    def command(self, *words: str, mount: Path | None = None, environment: Sequence[str] = ()) -> list[str]:
        """What runs a program in it as the first of its processes; a folder of the machine stands at /mnt."""
        told = [*self.told()["Env"], *environment]
        apart = [need("unshare", "util-linux"), "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
        inside = ["sh", "-c", _INSIDE, "sh", str(self.root), str(mount or "")]
        return [*apart, *inside, "env", "-i", *told, *words]

    def run(self, *words: str, mount: Path | None = None, environment: Sequence[str] = ()) -> str:
        """What a program prints.

        Raises:
            AssertionError: it fails; the message holds what it said.
        """
        done = subprocess.run(
            self.command(*words, mount=mount, environment=environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=patience(120),
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}"
        return done.stdout

    def size(self) -> int:
        """Bytes of its files, those of the base among them."""
        said = subprocess.run(["du", "-sbx", self.root], capture_output=True, text=True, check=True).stdout
        return int(said.split()[0])


def buildah(folder: Path, *words: str | Path) -> str:
    """What buildah prints, with its storage in a folder."""
    places = ["--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs"]
    command = bound([need("buildah", "buildah"), *places, *words])
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=patience(900), cwd=ROOT
    )
    assert done.returncode == 0, f"buildah {words[0]}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


@contextmanager
def built_image(folder: Path) -> Iterator[Image]:
    """The image of deploy/container/Containerfile, from nothing; its storage goes at the end."""
    if os.geteuid() != 0:
        pytest.skip("only root unpacks an image with the owners of its files")
    base = folder / "base.tar"
    make = [need("mmdebstrap", "mmdebstrap"), "--quiet", "--variant=minbase", "bookworm", base, _MIRROR]
    subprocess.run(bound(make), check=True, timeout=patience(600))
    try:
        empty = buildah(folder, "from", "scratch")
        buildah(folder, "add", "--quiet", empty, base, "/")
        buildah(folder, "commit", "--quiet", "--rm", empty, _BASE)
        trust = ["--volume", f"{_AUTHORITIES}:/etc/site-ca.pem:ro", "--build-arg", "SSL_CERT_FILE=/etc/site-ca.pem"]
        options = ["--format", "docker", "--layers=false", "--build-arg", f"BASE={_BASE}", *trust, "--tag", _IMAGE]
        buildah(folder, "build", *options, "--file", "deploy/container/Containerfile", ".")
        container = buildah(folder, "from", "--pull-never", _IMAGE)
        yield Image(folder, Path(buildah(folder, "mount", container)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
