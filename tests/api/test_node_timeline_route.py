"""`GET /nodes/{node}/timeline` and `GET /nodes/{node}/gpus`: jobs, errors by the hour, and what GPUs are called."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.nodes.topology import append_topology
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import DeviceName, Node, TopologyReport
from wire.message import Page
from wire.nodes import NodeGpuJson, NodeTimelineJson

from .conftest import NOW

HOUR = timedelta(hours=1)


def fill(engine: sa.Engine) -> None:
    """Two jobs of gpu-2 and one of others; a counter that rose by 40, a lost link; what its GPUs are called."""
    risen = Event(NOW - HOUR, "gpu-2", "dcgm", "ecc_sbe", device=Device("gpu", index=3), attributes={"count": 40})
    again = Event(NOW - HOUR / 2, "gpu-2", "kernel", "ecc_dbe", device=Device("gpu", "0000:0f:00.0", 3))
    lost = Event(NOW - 3 * HOUR, "gpu-2", "kernel", "link_down", severity="error")
    other = Event(NOW - HOUR, "gpu-3", "dcgm", "ecc_sbe", device=Device("gpu", index=3))
    mapped = Event(NOW - 9 * HOUR, "gpu-2", "kernel", "gpu_map", device=Device("gpu", "0000:0f:00.0", uuid="GPU-7"))
    forged = Event(NOW, "gpu-2", "training", "x", device=Device("gpu", index=5), attributes={"serial": "666"})
    names = [
        DeviceName("gpu", "gpu-2/0000:0f:00.0", "serial", "1650523000011"),
        DeviceName("gpu", "gpu-2/gpu0", "serial", "1650523000012"),
        DeviceName("nic", "gpu-2/mlx5_0", "serial", "MT1"),
        DeviceName("gpu", "gpu-20/gpu0", "serial", "9"),
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in ("gpu-2", "gpu-3", "gpu-20")])
        append_jobs(
            connection,
            [
                Job("1", "large", "FAILED", NOW - 9 * HOUR, NOW - 9 * HOUR, NOW - 5 * HOUR, 3, "gpu-[1-3]"),
                Job("2", "other", "COMPLETED", NOW - 9 * HOUR, NOW - 9 * HOUR, NOW - 5 * HOUR, 2, "gpu-[3,20]"),
                Job("3", "small", "RUNNING", NOW - 4 * HOUR, NOW - 4 * HOUR, None, 1, "gpu-2"),
                Job("4", "old", "COMPLETED", NOW - 900 * HOUR, NOW - 900 * HOUR, NOW - 899 * HOUR, 1, "gpu-2"),
            ],
        )
        append_topology(connection, TopologyReport((), tuple(names)))
        append_events(connection, [risen, again, lost, other, mapped, forged], NOW)


def get(client: TestClient, path: str, **asked: Any) -> dict[str, Any]:
    """The answer."""
    answer = client.get(f"/api/v1/nodes/{path}", params=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_what_ran_on_a_node_and_what_erred_there(any_client: TestClient, any_engine: sa.Engine) -> None:
    """Within thirty days; a rise of forty is forty errors, in the hour in which it was read."""
    fill(any_engine)
    told = get(any_client, "gpu-2/timeline")
    check_answer(NodeTimelineJson, told)
    assert [(job["job"], job["run"], job["end"] is None) for job in told["jobs"]] == [
        ("1", "large", False),
        ("3", "small", True),
    ]
    assert [
        (hour["time"][11:13], hour["corrected"], hour["uncorrected"], hour["links"]) for hour in told["errors"]
    ] == [
        ("09", 0, 0, 1),
        ("11", 40, 1, 0),
    ]
    assert (told["jobs_since"], told["errors_since"]) == (None, None)
    part = get(any_client, "gpu-2/timeline", until=(NOW - 5.5 * HOUR).isoformat())
    assert ([job["job"] for job in part["jobs"]], part["errors"]) == (["1"], [])
    assert any_client.get("/api/v1/nodes/gpu-99/timeline").status_code == 404


def test_what_was_not_looked_at_is_said(client: TestClient, engine: sa.Engine, monkeypatch: Any) -> None:
    """A node of a busy cluster: of older jobs and events nothing is claimed."""
    fill(engine)
    monkeypatch.setattr("api.routes.node_timeline.MOST_JOBS", 1)
    monkeypatch.setattr("api.routes.node_timeline.MOST_EVENTS", 2)
    told = get(client, "gpu-2/timeline")
    assert [job["job"] for job in told["jobs"]] == ["3"]
    assert (told["jobs_since"][11:16], told["errors_since"][11:16]) == ("08:00", "11:00")


def test_the_gpus_of_a_node_with_their_serial_numbers(any_client: TestClient, any_engine: sa.Engine) -> None:
    """What the topology and the node's own hardware tell is put together; a training program has no say in it."""
    fill(any_engine)
    told = get(any_client, "gpu-2/gpus")
    check_answer(Page[NodeGpuJson], told)
    assert told["items"] == [
        {"index": 0, "pci": None, "uuid": None, "serial": "1650523000012", "type": "gpu"},
        {"index": 3, "pci": "0000:0f:00.0", "uuid": "GPU-7", "serial": "1650523000011", "type": "gpu"},
    ]
    assert get(any_client, "gpu-3/gpus")["items"] == [
        {"index": 3, "pci": None, "uuid": None, "serial": None, "type": "gpu"}
    ]
    assert any_client.get("/api/v1/nodes/gpu-99/gpus").status_code == 404
