"""A hundred forged faults: the breaker keeps the holds back, and Slurm gets no hundred reservations in their place."""

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fleet_store import fill_trained
from real.foreshock import serve
from real.patience import patience
from real.programs import wait_for
from real.slurm import slurm

from store.database.connections import migrate, open_database, writing
from store.events.append import append_nodes
from store.records.hostlist import expand
from store.records.node import Node

NODES = "gpu-[000-099]"
_SETTINGS = """\
mode: act
control: {{percent: 0}}
intervals: {{observe_s: 1, policy_s: 1, dispatch_s: 1, score_s: 0, models_s: 0}}
limits: {{requests_per_s: 0}}
schedulers:
  - {{kind: slurm, name: slurm, conf: {conf}, calls_per_min: 100000, soft: reservation}}
"""


def forged(node: str) -> dict[str, object]:
    """A GPU that has fallen off the bus, as whoever may send events can say it."""
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "reset_gpu"}
    moment = {"time": datetime.now(UTC).isoformat(), "source": "kernel", "message": "gone", "attributes": {}}
    return {**fault, **moment, "id": f"forged-{node}", "node": node, "device": device}


@pytest.mark.integration
@pytest.mark.xdist_group("slurm")
def test_a_breaker_that_keeps_holds_back_makes_no_reservations_of_them(tmp_path: Path) -> None:
    """Nothing is held, and of a hundred nodes none is reserved: all of them are watched."""
    url = f"sqlite:///{tmp_path / 'foreshock.db'}"
    engine = open_database(url)
    migrate(engine)
    fill_trained(engine, 100)
    names = expand(NODES)
    with writing(engine).begin() as connection:
        # Of no rack and no leaf: else a verdict may name those first, and no node calls for a hold at all.
        append_nodes(connection, [Node(name) for name in names])
    with slurm(NODES) as cluster:
        (tmp_path / "foreshock.yaml").write_text(_SETTINGS.format(conf=cluster.folder / "slurm.conf"))
        with (
            serve(url, tmp_path, "--config", str(tmp_path / "foreshock.yaml")) as server,
            httpx.Client(base_url=f"{server.url}/api/v1", timeout=patience(60)) as client,
        ):
            body = "\n".join(json.dumps(forged(name)) for name in names)
            assert client.post("/events", content=body).raise_for_status().json()["rejected"] == []

            def asked() -> list[str]:
                items = client.get("/hints?limit=1000").raise_for_status().json()["items"]
                return [item["action"] for item in items if item["placements"]]

            wait_for("every node has a hint that Slurm was asked for", lambda: len(asked()) == 100)
            actions = set(asked())
            trips = client.get("/breaker?in_force=true").raise_for_status().json()["items"]
            reserved = cluster.run("scontrol", "-o", "show", "reservation").count("ReservationName=foreshock-")
            drained = cluster.run("scontrol", "-o", "show", "node").count("Reason=foreshock:")
    engine.dispose()
    assert trips != []
    assert (drained, reserved, actions) == (0, 0, {"watch"})
