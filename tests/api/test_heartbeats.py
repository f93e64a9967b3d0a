"""POST /heartbeats and GET /sidecars: gathered, written once, told by the server's clock."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server import heartbeats as gathering
from api.server.heartbeats import Heartbeats, HeartbeatWriter
from api.server.inventory_names import InventoryNames
from api.server.settings import InventorySettings
from api.server.state import State
from store.database.connections import writing
from store.nodes.sidecars import SidecarReport, count_sidecars
from store.tables import schema

from .conftest import NOW, QUIET, Clock


def beat(node: str = "gpu-017", **changes: Any) -> dict[str, Any]:
    """A heartbeat of a sidecar that fares well."""
    source = {"source": "kmsg", "up": True, "blocked": False, "lines": 1, "events": 0, "errors": 0, "lost": 0}
    return {
        "node": node,
        "time": "2025-03-01T11:59:59Z",
        "version": "0.1.0",
        "boot": None,
        "started": "2025-03-01T00:00:00Z",
        "interval_s": 60,
        "sources": [source],
        "spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 268435456},
        "lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0},
        "rejected": 0,
    } | changes


def source(**changes: Any) -> dict[str, Any]:
    """A source of a heartbeat."""
    return {"source": "journal", "up": True, "blocked": False, "lost": 0} | changes


@pytest.fixture
def state(any_engine: sa.Engine, clock: Clock) -> State:
    """A server's state."""
    made = State(QUIET, any_engine, clock, wall=clock)
    made.tokens.read(any_engine)
    return made


@pytest.fixture
def client(state: State, clock: Clock) -> Iterator[TestClient]:
    """A client of a server whose heartbeats are written only when a test says so: see `write`."""
    app = create_app(QUIET, state.engine, clock)
    app.state.foreshock = state
    yield TestClient(app, raise_server_exceptions=False)


def send(client: TestClient, *beats: Any) -> dict[str, Any]:
    """Send heartbeats as an array."""
    answer = client.post("/api/v1/heartbeats", json=list(beats))
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def shown(client: TestClient, **query: Any) -> dict[str, str]:
    """Each node's sidecar and its state."""
    items = client.get("/api/v1/sidecars", params=query).json()["items"]
    return {item["node"]: item["state"] for item in items}


def test_a_heartbeat_is_told_whole_and_its_node_was_heard_of(client: TestClient, state: State) -> None:
    """By the time of its receipt: a node's clock may be wrong."""
    sent = beat(time="2019-01-01T00:00:00Z", extra={"of": "a newer sidecar"})
    assert send(client, sent) == {"accepted": 1, "known": 0, "rejected": []}
    assert state.heartbeats.write(state.engine) == 1
    (item,) = client.get("/api/v1/sidecars").json()["items"]
    assert (item["node"], item["state"], item["version"]) == ("gpu-017", "ok", "0.1.0")
    assert (item["received"], item["time"]) == ("2025-03-01T12:00:00.000000Z", "2019-01-01T00:00:00.000000Z")
    assert item["report"] == sent
    assert client.get("/api/v1/nodes/gpu-017").json()["last_seen"] == "2025-03-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "ok"),
        ({"sources": []}, "ok"),
        ({"sources": [source(), source(up=False)]}, "troubled"),
        ({"sources": [source(blocked=True)]}, "troubled"),
        ({"sources": [source(lost=1)]}, "troubled"),
        ({"lost": {"events": 1}}, "troubled"),
        ({"lost": {"damaged_bytes": 17}}, "troubled"),
        ({"lost": {}, "rejected": 2}, "troubled"),
    ],
)
def test_what_is_down_blocked_lost_or_refused_is_trouble(
    client: TestClient, state: State, changes: dict[str, Any], expected: str
) -> None:
    """Each alone."""
    send(client, beat(**changes))
    state.heartbeats.write(state.engine)
    assert shown(client) == {"gpu-017": expected}


def test_three_intervals_without_a_word_are_silence(client: TestClient, state: State, clock: Clock) -> None:
    """Each sidecar by its own interval; silence goes before trouble, and one word ends it."""
    send(client, beat("fast", interval_s=10), beat("slow", interval_s=600), beat("ill", interval_s=10, rejected=1))
    state.heartbeats.write(state.engine)
    clock.forward(seconds=30)
    assert shown(client) == {"fast": "ok", "ill": "troubled", "slow": "ok"}
    clock.forward(seconds=1)
    assert shown(client) == {"fast": "silent", "ill": "silent", "slow": "ok"}
    assert shown(client, state="silent") == {"fast": "silent", "ill": "silent"}
    assert client.get("/api/v1/cluster").json()["sidecars"] == {"known": 3, "silent": 2, "troubled": 0}
    send(client, beat("ill", interval_s=10, rejected=1))
    state.heartbeats.write(state.engine)
    assert shown(client, state="troubled") == {"ill": "troubled"}
    assert shown(client, state="ok") == {"slow": "ok"}
    with state.engine.connect() as connection:
        assert count_sidecars(connection, clock()) == {"known": 3, "silent": 1, "troubled": 1}


def test_a_replay_that_runs_ahead_makes_no_sidecar_silent(engine: sa.Engine, clock: Clock) -> None:
    """Sidecars live now: their silence is theirs, whatever the clock of the replayed cluster says."""
    wall = Clock(clock() + timedelta(days=7))
    client = TestClient(create_app(QUIET, engine, clock, wall=wall))
    heartbeats: Heartbeats = client.app.state.foreshock.heartbeats  # type: ignore[attr-defined]
    send(client, beat(interval_s=10))
    heartbeats.write(engine)
    clock.forward(seconds=36_000)
    assert shown(client) == {"gpu-017": "ok"}
    assert client.get("/api/v1/cluster").json()["sidecars"] == {"known": 1, "silent": 0, "troubled": 0}
    wall.forward(seconds=31)
    assert shown(client) == {"gpu-017": "silent"}


def test_pages_of_sidecars_are_whole(client: TestClient, state: State) -> None:
    """By name, with a cursor."""
    send(client, *(beat(f"n{number:02}") for number in range(7)))
    state.heartbeats.write(state.engine)
    found: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    for _ in range(3):
        page = client.get("/api/v1/sidecars", params=query).json()
        found += [item["node"] for item in page["items"]]
        query["cursor"] = page["next_cursor"]
    assert found == [f"n{number:02}" for number in range(7)]
    assert query["cursor"] is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (17, "a record is a JSON object"),
        (beat(node=None), "'node'"),
        (beat(node="n" * 256), "'node'"),
        (beat(version=5), "'version'"),
        (beat(time="soon"), "'time'"),
        (beat(started="9999-01-01T00:00:00Z"), "'started'"),
        (beat(interval_s=0), "'interval_s'"),
        (beat(interval_s=True), "'interval_s'"),
        (beat(interval_s=1e9), "'interval_s'"),
        (beat(sources=None), "'sources'"),
        (beat(sources=[17]), "'sources'"),
        (beat(sources=[source()] * 201), "'sources'"),
        (beat(lost=3), "'lost'"),
        (beat(lost={"events": -1}), "'lost'"),
        (beat(rejected="many"), "'rejected'"),
        (beat(padding="x" * 70_000), "65536 bytes"),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_named_and_its_neighbours_are_taken(
    client: TestClient, state: State, value: Any, words: str
) -> None:
    """By its place."""
    taken = send(client, beat("a"), value, beat("b"))
    assert taken["accepted"] == 2
    (refused,) = taken["rejected"]
    assert refused["line"] == 2
    assert words in refused["detail"]
    assert state.heartbeats.write(state.engine) == 2


def test_only_the_newest_of_a_node_is_written_and_an_older_one_replaces_nothing(state: State) -> None:
    """Of several processes the one that heard last is right."""

    def report(version: str, seconds: int) -> SidecarReport:
        return SidecarReport("n1", NOW + timedelta(seconds=seconds), NOW, version, NOW, False, beat("n1"))

    state.heartbeats.put([report("1", 1), report("2", 2)])
    assert state.heartbeats.write(state.engine) == 1
    state.heartbeats.put([report("late", 1)])
    state.heartbeats.write(state.engine)
    with state.engine.connect() as connection:
        rows = connection.execute(sa.select(schema.sidecars.c.version, schema.sidecars.c.received)).all()
    assert rows == [("2", NOW + timedelta(seconds=2))]


def test_what_could_not_be_written_waits_unless_newer_came(state: State) -> None:
    """A database that is away for a minute costs no heartbeat."""
    report = SidecarReport("n1", NOW, NOW, "1", NOW, False, beat("n1"))
    state.heartbeats.put([report, replace(report, node="n2")])
    with writing(state.engine).begin() as connection:
        connection.execute(sa.text("ALTER TABLE sidecars RENAME TO hidden"))
    with pytest.raises(sa.exc.SQLAlchemyError):
        state.heartbeats.write(state.engine)
    state.heartbeats.put([replace(report, version="2")])
    with writing(state.engine).begin() as connection:
        connection.execute(sa.text("ALTER TABLE hidden RENAME TO sidecars"))
    assert state.heartbeats.write(state.engine) == 2
    with state.engine.connect() as connection:
        found = dict(connection.execute(sa.select(schema.sidecars.c.node, schema.sidecars.c.version)).all())
    assert found == {"n1": "2", "n2": "1"}
    assert state.heartbeats.write(state.engine) == 0


def test_one_that_cannot_be_written_keeps_no_other_from_being_written(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out, once, and its node is logged."""
    report = SidecarReport("n1", NOW, NOW, "1", NOW, False, beat("n1"))
    poison = replace(report, node="n2", report={"extra": object()})
    state.heartbeats.put([report, poison, replace(report, node="n3")])
    assert state.heartbeats.write(state.engine) == 2
    with state.engine.connect() as connection:
        assert set(connection.scalars(sa.select(schema.sidecars.c.node))) == {"n1", "n3"}
    assert "the heartbeat of node 'n2' cannot be written and is left out" in caplog.text
    assert state.heartbeats.write(state.engine) == 0


def test_a_sender_that_makes_up_names_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known may still report."""
    monkeypatch.setattr(gathering, "MOST_NODES", 2)
    report = SidecarReport("n1", NOW, NOW, "1", NOW, False, {})
    heartbeats = Heartbeats()
    assert heartbeats.put(replace(report, node=node) for node in ("n1", "n2", "n3", "n1")) == 1


def test_what_was_gathered_is_written_when_the_server_stops(any_engine: sa.Engine, clock: Clock) -> None:
    """And once a second before."""
    with TestClient(create_app(QUIET, any_engine, clock)) as client:
        send(client, beat("n1"))
    with any_engine.connect() as connection:
        assert connection.scalar(sa.select(schema.sidecars.c.node)) == "n1"


def test_the_writer_outlives_a_database_that_is_away(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Each failure is counted, and the end is an end."""
    monkeypatch.setattr(gathering, "WRITE_EVERY_S", 0.001)
    failed: list[int] = []
    heartbeats = Heartbeats()
    heartbeats.put([SidecarReport("n1", NOW, NOW, "1", NOW, False, {})])
    with writing(engine).begin() as connection:
        connection.execute(sa.text("DROP TABLE sidecars"))
    names = InventoryNames()
    writer = HeartbeatWriter(
        heartbeats, engine, lambda: failed.append(1), lambda: names.refresh(engine, InventorySettings())
    )
    writer.start()
    writer.stop(10)
    assert failed


def test_an_inventory_that_cannot_be_read_holds_no_heartbeat_back(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is counted."""
    monkeypatch.setattr(gathering, "WRITE_EVERY_S", 0.001)
    failed: list[int] = []
    heartbeats = Heartbeats()
    heartbeats.put([SidecarReport("n1", NOW, NOW, "1", NOW, False, {})])
    with writing(engine).begin() as connection:
        connection.execute(sa.text("DROP TABLE inventory"))
    refresh = partial(InventoryNames().refresh, engine, InventorySettings())
    writer = HeartbeatWriter(heartbeats, engine, lambda: failed.append(1), refresh)
    writer.start()
    writer.stop(10)
    assert failed
    with engine.connect() as connection:
        assert connection.scalar(sa.select(schema.sidecars.c.node)) == "n1"
