"""docs/install.md, command by command: from nothing to a node that a real Slurm drains for a fault."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.postgres import Postgres
from real.programs import need, wait_for
from real.slurm import Slurm, slurm
from slurm_site import FAULT, SlurmSite, slurm_site

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    """A controller of four nodes."""
    with slurm("gpu[001-004]") as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres, cluster: Slurm) -> Iterator[SlurmSite]:
    """A machine on which nothing of ours is yet."""
    with slurm_site(tmp_path, postgres_server, cluster) as found:
        yield found


def test_the_page_leads_from_nothing_to_a_drained_node(site: SlurmSite, cluster: Slurm) -> None:
    """In its order; each command as it stands there. Prometheus, Alertmanager and NATS have their part in it."""
    site.walk()
    assert any("gpu001" in text for text in site.said[FAULT])
    assert re.match(r"foreshock: xid 79 on gpu", cluster.word("gpu001", "Reason"))
    assert all("DRAIN" not in cluster.state(f"gpu00{number}") for number in (2, 3, 4))
    wait_for("Alertmanager holds the verdict", lambda: "gpu001" in site.alerted())
    site.fault_behind_nats()
    assert verified(site, "foreshock-server") == ""
    assert verified(site, "foreshock-consumer") == ""
    assert all(process.poll() is None for process in site.units.values()), "each unit still runs"
    units = {"foreshock-server", "nginx", "foreshock-dashboard", "foreshock-sidecar", "foreshock-consumer"}
    assert set(site.units) == units


def verified(site: SlurmSite, unit: str) -> str:
    """What systemd says of a unit with its drop-ins."""
    command = [need("systemd-analyze", "systemd"), "verify", f"{unit}.service"]
    places = {"SYSTEMD_UNIT_PATH": f"{site.paths['/etc/systemd/system']}:"}
    done = subprocess.run(command, env={**site.environment(), **places}, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
