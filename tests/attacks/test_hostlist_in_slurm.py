"""What placement prints, a real Slurm reads as nodes: no option, no keyword, no list that breaks a submission."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.slurm import Slurm, slurm

from api.app import create_app
from api.server.settings import ApiSettings, Intervals
from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.records.hostlist import compress, expand
from store.records.node import Node
from store.records.outage import Outage

pytestmark = pytest.mark.integration
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = (
    *(
        "-rf",
        "--all",
        "-1",
        "ALL",
        "all",
        "DEFAULT",
        "none",
        "(null)",
        "a,b",
        "n[00-05]",
        "a b",
        "$(id)",
        "../x",
        "a;b",
    ),
)
_OFF = Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Six nodes."""
    with slurm("n[00-05]") as found:
        yield found


def test_sbatch_takes_the_list_of_nodes_to_avoid(engine: sa.Engine, cluster: Slurm) -> None:
    """Names of before stand in the database, and are out: they are in no list that Slurm gets."""
    real = [f"n{i:02}" for i in range(6)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, gpus=8) for name in (*real, *HOSTILE)])
        out = [Outage(name, NOW, None, "DOWN", "t", None, False, "hardware") for name in ("n01", "n02", *HOSTILE)]
        append_outages(connection, out)
    client = TestClient(create_app(ApiSettings(intervals=_OFF), engine, lambda: NOW))
    text = client.get("/api/v1/placement", params={"format": "hostlist", "list": "avoid"}).text.strip()
    assert text == "n[01-02]"
    job = cluster.run("sbatch", "--parsable", "--hold", f"--exclude={text}", "-N", "2", "--wrap=true").strip()
    shown = cluster.run("scontrol", "show", "job", job)
    assert "ExcNodeList=n[01-02]" in shown
    client.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_name_reaches_the_command(cluster: Slurm, name: str) -> None:
    """Written beside real ones, the list still excludes those alone."""
    written = compress(["n03", name, "n04"])
    assert expand(written) == ["n03", "n04"]
    job = cluster.run("sbatch", "--parsable", "--hold", f"--exclude={written}", "--wrap=true").strip()
    assert "ExcNodeList=n[03-04]" in cluster.run("scontrol", "show", "job", job)
