"""Incidents call a GPU by its index where a verdict or another line tells it, as verdicts do."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all

from goodput.stored.computation import compute
from store.database.connections import writing
from store.events.append import append_jobs
from store.records.event import Device, format_time
from store.records.job import Job
from store.runs.ledgers import save_ledgers
from store.tables import schema
from store.verdicts.verdict_log import VerdictChange

from .conftest import NOW
from .test_threads_route import save
from .test_verdicts_route import GPU

PCI = "0000:a8:00.0"
KERNEL = {"type": "gpu", "pci": PCI}


def xid(node: str, second: int, device: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A GPU that is gone, by whom it may be."""
    time = format_time(NOW - timedelta(minutes=5) + timedelta(seconds=second))
    event = {"time": time, "node": node, "source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
    return event | {"cause": "hardware", "device": device, "message": "GPU has fallen off the bus."} | fields


def sent(client: TestClient, engine: sa.Engine, *events: dict[str, Any]) -> None:
    """Kept, and made incidents."""
    assert client.post("/api/v1/events", json=events).json()["accepted"] == len(events)
    fold_all(engine)


def devices(client: TestClient, node: str) -> list[dict[str, Any]]:
    """The device of a node's one incident: in the list, on its own, and on the node's page."""
    (listed,) = client.get("/api/v1/incidents", params={"node": node}).json()["items"]
    own = client.get(f"/api/v1/incidents/{listed['id']}").json()
    (of_node,) = client.get(f"/api/v1/nodes/{node}").json()["incidents"]
    found = [listed, own, of_node]
    assert [one["devices"][0] for one in found] == [one["device"] for one in found]
    return [one["device"] for one in found]


def test_a_verdict_tells_the_index_of_a_gpu(client: TestClient, engine: sa.Engine) -> None:
    """The verdict of that GPU that began nearest to the incident; another node's, and another GPU's, tell nothing."""
    sent(client, engine, xid("n1", 0, KERNEL), xid("n2", 0, KERNEL))
    assert {one["index"] for one in devices(client, "n1")} == {None}
    own = replace(GPU, node="n1", nodes=("n1",), device=Device("gpu", pci=PCI, index=5), since=NOW)
    old = replace(own, device=Device("gpu", pci=PCI, index=2), since=NOW - timedelta(days=3))
    other = replace(own, device=Device("gpu", pci="0000:0f:00.0", index=7))
    blank = replace(own, device=Device("gpu", pci=PCI))
    for number, one in enumerate((old, own, other, blank)):
        save(engine, VerdictChange(replace(one, id=f"g{number}"), "opened"))
    assert [(one["pci"], one["index"]) for one in devices(client, "n1")] == [(PCI, 5)] * 3
    assert {one["index"] for one in devices(client, "n2")} == {None}


def test_another_line_of_the_incident_tells_it(client: TestClient, engine: sa.Engine) -> None:
    """An exporter says both names of the GPU; a GPU whose index nobody tells has none."""
    both = KERNEL | {"index": 3}
    page = {"source": "dcgm", "severity": "error", "message": "gone"}
    sent(
        client, engine, xid("n1", 0, KERNEL), xid("n1", 2, both, **page), xid("n1", 3, KERNEL | {"pci": "0000:0f:00.0"})
    )
    (listed,) = client.get("/api/v1/incidents").json()["items"]
    assert {(one["pci"], one["index"]) for one in listed["devices"]} == {(PCI, 3), ("0000:0f:00.0", None)}


def test_a_device_that_was_written_in_short_is_answered(client: TestClient, engine: sa.Engine) -> None:
    """A row of another program, or of an older version, may leave names out."""
    sent(client, engine, xid("n1", 0, KERNEL), xid("n2", 0, {"type": "node"}))
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.update().values(device={"type": "gpu"}))
    found = client.get("/api/v1/incidents").json()["items"]
    assert [one["device"]["type"] for one in found] == ["gpu", "gpu"]


def test_the_culprit_of_a_run_is_called_as_its_incident_is(client: TestClient, engine: sa.Engine) -> None:
    """By what a verdict says of the GPU, else by another line of the incident; a GPU of which nobody tells it: not."""
    ended = NOW - timedelta(minutes=4)
    begun = ended - timedelta(hours=1)
    nodes = ("n1", "n2", "n3")
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job(n, f"run-{n}", "NODE_FAIL", begun, begun, ended, 1, n) for n in nodes])
    both = KERNEL | {"index": 3}
    page = {"source": "dcgm", "severity": "error", "message": "gone"}
    sent(client, engine, *(xid(node, 0, KERNEL) for node in nodes), xid("n2", 2, both, **page))
    own = replace(GPU, node="n1", nodes=("n1",), device=Device("gpu", pci=PCI, index=5), since=NOW)
    save(engine, VerdictChange(replace(own, id="g0"), "opened"))
    long_ago = {"device": Device("gpu", pci=PCI, index=7), "since": NOW - timedelta(days=3)}  # before another boot
    save(engine, VerdictChange(replace(own, id="g1", node="n2", nodes=("n2",), **long_ago), "opened"))
    with writing(engine).begin() as connection:
        save_ledgers(connection, [ledger for n in nodes if (ledger := compute(connection, f"run-{n}", NOW))])
    for node, index in zip(nodes, (5, 3, None), strict=True):
        (stop,) = client.get(f"/api/v1/runs/run-{node}/goodput").json()["interruptions"]
        assert (stop["culprit"]["pci"], stop["culprit"]["index"]) == (PCI, index), node
