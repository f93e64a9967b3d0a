"""docs/install.md, command by command: from nothing to a node that a real Slurm drains for a fault."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_site import InstalledSite
from real.foreshock import free_port
from real.postgres import Postgres
from real.programs import need, wait_for
from real.slurm import Slurm, slurm

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=test, GPU has fallen off the bus."


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    """A controller of four nodes."""
    with slurm("gpu[001-004]") as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres, cluster: Slurm) -> Iterator[InstalledSite]:
    """A machine on which nothing of ours is yet; its database goes at the end."""
    need("nginx", "nginx-light")
    found = InstalledSite(tmp_path, postgres_server, "install.md")
    api, tls = free_port(), free_port()
    found.here |= {
        "@127.0.0.1/foreshock": f"@/foreshock?host={postgres_server.folder}",
        "127.0.0.1:10870": f"127.0.0.1:{api}",
        "10443": str(tls),
        "foreshock.example.org": "localhost",
        "/etc/slurm/slurm.conf": str(cluster.folder / "slurm.conf"),
        "/dev/kmsg": str(tmp_path / "kern.log"),
        "'<3>NVRM": "'NVRM",
        "scontrol ": f"SLURM_CONF={cluster.folder / 'slurm.conf'} scontrol ",
        "  - scrape:http://127.0.0.1:9400/metrics\n": f"port: 0\nnode: gpu001\nspool: {tmp_path / 'spool'}\n",
        "  - kmsg\n": f"  - file:{tmp_path / 'kern.log'}:kernel\n",
    }
    found.options = {
        "foreshock-server": ["--port", str(api)],
        "foreshock-dashboard": ["--port", str(free_port())],
    }
    (tmp_path / "kern.log").write_text("")
    try:
        yield found
    finally:
        found.end()
        found.postgres("dropdb", "--if-exists", "--force", "foreshock")
        found.postgres("dropuser", "--if-exists", "foreshock")


def test_the_page_leads_from_nothing_to_a_drained_node(site: InstalledSite, cluster: Slurm) -> None:
    """In its order; each command as it stands there."""
    said: dict[str, list[str]] = {}
    for heading in site.headings():
        for block in site.blocks(heading):
            if "approve ID" in block:
                block = block.replace("ID", proposed(site))
            said.setdefault(heading, []).append(site.run(block))
            site.obey()
            settle(site, block)
    assert any("gpu001" in text for text in said["7. The first fault"])
    wait_for("Slurm drains the node", lambda: "DRAIN" in cluster.state("gpu001"))
    assert re.match(r"foreshock: xid 79 on gpu", cluster.word("gpu001", "Reason"))
    assert {cluster.state(f"gpu00{number}") for number in (2, 3, 4)} == {"IDLE"} or "DRAIN" not in cluster.state(
        "gpu002"
    )
    assert verified(site, "foreshock-server") == ""
    assert all(process.poll() is None for process in site.units.values()), "each unit still runs"
    assert list(site.units) == ["foreshock-server", "nginx", "foreshock-dashboard", "foreshock-sidecar"]


def verified(site: InstalledSite, unit: str) -> str:
    """What systemd says of a unit with its drop-ins."""
    command = [need("systemd-analyze", "systemd"), "verify", f"{unit}.service"]
    places = {"SYSTEMD_UNIT_PATH": f"{site.paths['/etc/systemd/system']}:"}
    done = subprocess.run(command, env={**site.environment(), **places}, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def proposed(site: InstalledSite) -> str:
    """The id of the hint that waits for a person."""
    found: list[str] = []

    def there() -> bool:
        text = site.run("foreshock hints list --state proposed --json\n")
        found[:] = re.findall(r'"id": "(\w+)"', text)
        return bool(found)

    wait_for("a hint is proposed", there)
    return found[0]


def settle(site: InstalledSite, block: str) -> None:
    """Wait as a person does, who reads on meanwhile."""
    if "foreshock-sidecar" in block:
        token = site.folder / "spool" / "token"
        wait_for("the sidecar has a token of its own", lambda: token.exists() or site.units["foreshock-sidecar"].poll())
        assert site.units["foreshock-sidecar"].poll() is None, (site.folder / "foreshock-sidecar.log").read_text()
    if "Xid" in block:
        wait_for("there is a verdict", lambda: "gpu001" in site.run(site.blocks("7. The first fault")[1]))
