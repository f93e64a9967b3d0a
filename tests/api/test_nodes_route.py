"""GET /nodes and GET /nodes/{node}."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from api.server.settings import ApiSettings, InventorySettings
from store.database.connections import writing
from store.database.known_nodes import replace_known
from store.events.append import append_events, append_nodes, append_outages
from store.records.event import Device, Event
from store.records.node import Node
from store.records.outage import Outage
from store.records.telemetry import Rollup
from store.tables import hint_tables, schema
from store.telemetry.hours import append_rollups
from wire.cluster import ClusterJson
from wire.message import Page
from wire.nodes import NodeDetailJson, NodeJson, ScoreJson

from .conftest import NOW, Clock

HOUR = timedelta(hours=1)


def add_score(connection: sa.Connection, node: str, score: float, hours_ago: float = 0, horizon_h: int = 24) -> None:
    """A stored score with one reason."""
    reasons = [{"text": f"because {score}", "contribution": score, "events": ["e1"]}]
    row = {"node": node, "horizon_h": horizon_h, "time": NOW - hours_ago * HOUR, "score": score, "model": "m1"}
    connection.execute(schema.scores.insert().values(**row, reasons=reasons))


def add_hint(connection: sa.Connection, node: str, action: str, state: str) -> None:
    """A stored hint, made an hour ago."""
    connection.execute(
        hint_tables.hints.insert().values(
            id=f"h-{node}",
            node=node,
            action=action,
            state=state,
            reason="foreshock: test",
            owner="foreshock",
            created=NOW - HOUR,
            valid_until=NOW + HOUR,
            evidence={},
        )
    )


def add_incident(connection: sa.Connection, node: str, severity: str = "fatal", hours_ago: float = 1) -> None:
    """A stored hardware incident."""
    moment = NOW - hours_ago * HOUR
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    row = {"id": f"i-{node}-{hours_ago}", "node": node, "start": moment, "end": moment, "kind": "xid", "code": 79}
    row |= {"severity": severity, "cause": "hardware", "action": "drain_node", "device": device, "message": "gone"}
    connection.execute(schema.incidents.insert().values(**row, count=1, kinds={"xid:79": 1}))


@pytest.fixture
def cluster(engine: sa.Engine) -> None:
    """Six nodes, one of each state."""
    with writing(engine).begin() as connection:
        names = ("ok", "risk", "faulty", "out", "cordoned", "silent")
        append_nodes(connection, [Node(name, "r1", "leaf-1", "H100-SXM", 8, "550") for name in names])
        seen = [Event(NOW - timedelta(minutes=1), name, "kernel", "note") for name in names if name != "silent"]
        append_events(connection, seen, NOW)
        for name, score in (("ok", 0.001), ("risk", 0.3), ("out", 0.4)):
            add_score(connection, name, score)
        add_score(connection, "risk", 0.9, hours_ago=5)
        add_score(connection, "risk", 0.5, horizon_h=168)
        add_incident(connection, "faulty")
        add_incident(connection, "ok", hours_ago=30)
        add_incident(connection, "risk", severity="error")
        add_hint(connection, "cordoned", "cordon", "sent")
        add_hint(connection, "ok", "cordon", "shadow")
        append_outages(connection, [Outage("out", NOW - HOUR, None, "DOWN", "x", None, False, "hardware")])
        append_outages(connection, [Outage("ok", NOW - 3 * HOUR, NOW - HOUR, "DOWN", "x", None, False, "hardware")])


def listed(client: TestClient, **query: Any) -> dict[str, Any]:
    """One page of nodes; must be of the published shape."""
    answer = client.get("/api/v1/nodes", params=query)
    assert answer.status_code == 200, answer.text
    check_answer(Page[NodeJson], answer.json())
    shown: dict[str, Any] = answer.json()
    return shown


@pytest.mark.usefixtures("cluster")
def test_each_node_shows_its_worst_state(client: TestClient) -> None:
    """out over cordoned over faulty over at_risk over silent over ok."""
    states = {item["node"]: item["state"] for item in listed(client)["items"]}
    expected = {"ok": "ok", "risk": "at_risk", "faulty": "faulty", "out": "out", "cordoned": "cordoned"}
    assert states == expected | {"silent": "silent"}


@pytest.mark.usefixtures("cluster")
def test_the_devices_of_a_node_are_told_with_their_state(client: TestClient, engine: sa.Engine) -> None:
    """That which shows sign after sign, with its chances, since when and why; a quiet or faulty node has none."""
    signs = [
        Event(NOW - number * HOUR, node, "dcgm", "ecc_sbe", cause="hardware", device=Device("gpu", index=3))
        for number in range(1, 9)
        for node in ("risk", "faulty")
    ]
    with writing(engine).begin() as connection:
        append_events(connection, signs, NOW)
    detail = client.get("/api/v1/nodes/risk").json()
    check_answer(NodeDetailJson, detail)
    (device,) = detail["devices"]
    assert (device["device"], device["state"]) == ("GPU 3", "failing")
    assert sum(device["probabilities"].values()) == pytest.approx(1.0)
    assert device["why"].startswith("8 corrected ECC errors in 28 days")
    for quiet in ("silent", "faulty"):
        assert client.get(f"/api/v1/nodes/{quiet}").json()["devices"] == []


@pytest.mark.usefixtures("cluster")
def test_what_the_inventory_notes_of_a_node_is_its_note(engine: sa.Engine) -> None:
    """In the list and in the node's own answer; null where nothing is noted."""
    settings = ApiSettings(inventory=InventorySettings(notes={"ok": "On loan."}))
    client = TestClient(create_app(settings, engine, lambda: NOW), base_url="http://127.0.0.1:10870")
    found = {item["node"]: item["note"] for item in listed(client)["items"]}
    assert (found.pop("ok"), set(found.values())) == ("On loan.", {None})
    assert client.get("/api/v1/nodes/ok").json()["note"] == "On loan."


@pytest.mark.usefixtures("cluster")
def test_what_never_reported_of_the_inventory_is_counted_and_named(engine: sa.Engine, client: TestClient) -> None:
    """A node without a sidecar is nowhere else: it is not among the nodes until it was heard of."""
    assert client.get("/api/v1/cluster").json()["never_heard"] == {"count": 1, "first": ["silent"]}
    with writing(engine).begin() as connection:
        replace_known(connection, "scheduler:slurm", ["ok", "risk", *(f"x{n:02}" for n in range(30))])
    found = client.get("/api/v1/cluster").json()
    check_answer(ClusterJson, found)
    assert (found["nodes"], found["never_heard"]["count"]) == (6, 31)
    assert found["never_heard"]["first"] == ["silent", *(f"x{n:02}" for n in range(19))]


@pytest.mark.usefixtures("cluster")
def test_the_likeliest_to_fail_comes_first(client: TestClient) -> None:
    """By the newest score of 24 h; a node without one comes last."""
    items = listed(client)["items"]
    assert [item["node"] for item in items][:2] == ["risk", "ok"]
    assert (items[0]["score_24h"], items[0]["score_7d"]) == (0.3, 0.5)
    assert items[0]["reasons"] == [{"text": "because 0.3", "contribution": 0.3, "events": ["e1"]}]
    assert items[2]["score_24h"] is None
    assert items[2]["reasons"] == []


@pytest.mark.usefixtures("cluster")
def test_of_a_node_that_is_out_faulty_or_silent_no_score_is_told(engine: sa.Engine, client: TestClient) -> None:
    """It would be low, or of another question; who asks for scores as of then gets what was said."""
    names = ("faulty", "out", "silent", "risk")
    with writing(engine).begin() as connection:
        for name in names[:3]:
            if name != "out":
                add_score(connection, name, 0.001)
            add_score(connection, name, 0.002, horizon_h=168)
    told = {item["node"]: item for item in listed(client)["items"]}
    assert [told[name]["withheld"] for name in names] == ["faulty", "out", "silent", None]
    for name in names[:3]:
        assert (told[name]["score_24h"], told[name]["score_7d"], told[name]["reasons"]) == (None, None, [])
        assert told[name]["scored_at"] is None
    scores = client.get("/api/v1/scores").json()["items"]
    check_answer(Page[ScoreJson], {"items": scores, "next_cursor": None})
    found = {item["node"]: (item["score"], item["withheld"]) for item in scores}
    assert [found[name] for name in names] == [(None, "faulty"), (None, "out"), (None, "silent"), (0.3, None)]
    then = client.get("/api/v1/scores", params={"at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}).json()["items"]
    assert {item["node"]: item["score"] for item in then}["faulty"] == 0.001


@pytest.mark.usefixtures("cluster")
def test_nodes_can_be_sorted_by_name_and_narrowed_by_state(client: TestClient) -> None:
    """`sort=node` and `state=`."""
    names = [item["node"] for item in listed(client, sort="node")["items"]]
    assert names == sorted(names)
    assert [item["node"] for item in listed(client, state="faulty")["items"]] == ["faulty"]


@pytest.mark.usefixtures("cluster")
def test_pages_show_every_node_once(client: TestClient) -> None:
    """The cursor continues behind the last node shown."""
    found: list[str] = []
    cursor = None
    for _ in range(10):
        shown = listed(client, limit=2, **({"cursor": cursor} if cursor else {}))
        found += [item["node"] for item in shown["items"]]
        cursor = shown["next_cursor"]
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 6


@pytest.mark.usefixtures("cluster")
def test_where_nobody_reports_no_node_is_told_as_well(client: TestClient, clock: Clock) -> None:
    """It is the reporting that is broken, maybe: how the nodes are is not known, since when is told, no score is."""
    before = client.get("/api/v1/cluster").json()
    assert (before["stale"], before["states"]["ok"] > 0) == (False, True)
    clock.forward(hours=2)
    items = listed(client)["items"]
    assert {item["state"] for item in items} == {"cordoned", "faulty", "out", "silent"}
    assert {item["score_24h"] for item in items if item["state"] == "silent"} == {None}
    after = client.get("/api/v1/cluster").json()
    assert (after["stale"], after["heard_until"], after["states"]["ok"]) == (True, before["heard_until"], 0)


@pytest.mark.usefixtures("cluster")
def test_a_node_shows_its_past(client: TestClient, engine: sa.Engine) -> None:
    """Incidents, outages, hints, telemetry and scores, oldest first."""
    with writing(engine).begin() as connection:
        append_rollups(connection, [Rollup("risk", NOW - 2 * HOUR, 960, 8, gpu_temp_mean_c=60.0)])
    answer = client.get("/api/v1/nodes/risk")
    assert answer.status_code == 200, answer.text
    check_answer(NodeDetailJson, answer.json())
    node = answer.json()
    assert [incident["code"] for incident in node["incidents"]] == [79]
    assert [score["score_24h"] for score in node["scores"]] == [0.9, 0.3]
    assert [score["score_7d"] for score in node["scores"]] == [None, 0.5]
    assert node["telemetry"][0]["gpu_temp_mean_c"] == 60.0
    assert node["telemetry"][0]["power_mean_w"] is None
    assert client.get("/api/v1/nodes/out").json()["outages"][0]["end"] is None
    assert client.get("/api/v1/nodes/cordoned").json()["hints"][0]["action"] == "cordon"


def test_a_node_that_nobody_heard_of_is_not_found(client: TestClient) -> None:
    """404 as a problem that names it."""
    answer = client.get("/api/v1/nodes/gpu-999")
    assert answer.status_code == 404
    assert "gpu-999" in answer.json()["detail"]
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_empty_store_lists_nothing(client: TestClient) -> None:
    """No nodes is an answer, too."""
    assert listed(client) == {"items": [], "next_cursor": None}
