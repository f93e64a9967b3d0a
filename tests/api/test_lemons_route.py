"""`GET /lemons`: kept ready by a loop, made on the spot only where there is none yet."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.programs import wait_for

from api.app import create_app
from api.loops.repair_list import REST, LemonTurns
from api.server.settings import Intervals
from api.server.state import CachedAnswer, State
from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.records.node import Node
from store.records.outage import Outage

from .conftest import NOW, QUIET, Clock


def fail(engine: sa.Engine, name: str, times: int, nodes: int = 0) -> None:
    """A node goes out so many times, every fifth day until now; others go out once or never."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i:03}") for i in range(nodes)])
        starts = [(name, NOW - timedelta(days=4 * i + 1)) for i in range(times)]
        starts += [(f"gpu-{i:03}", NOW - timedelta(days=i / 20 + 2)) for i in range(5, nodes, 10)]
        outages = [Outage(n, t, t + timedelta(hours=2), "DOWN", "Xid 79", None, False, "hardware") for n, t in starts]
        append_outages(connection, outages)


def test_the_list_comes_with_evidence(any_client: TestClient, any_engine: sa.Engine) -> None:
    """On either database; the fields are those of the published schema."""
    fail(any_engine, "gpu-000", 6, nodes=300)
    answer = any_client.get("/api/v1/lemons")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["nodes"], body["found"], body["next_cursor"]) == (300, 1, None)
    item = body["items"][0]
    assert item["node"] == "gpu-000"
    assert item["evidence"][0]["text"].startswith("6 unplanned outages in 28 days")
    schemas = any_client.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["LemonJson"]["required"]) == set(item)
    assert set(schemas["RepairListJson"]["properties"]) == set(body)


def test_what_has_not_changed_is_not_sent_again(client: TestClient, engine: sa.Engine) -> None:
    """By its tag."""
    fail(engine, "gpu-000", 6, nodes=300)
    tag = client.get("/api/v1/lemons").headers["ETag"]
    assert client.get("/api/v1/lemons", headers={"If-None-Match": tag}).status_code == 304
    assert client.get("/api/v1/lemons", headers={"If-None-Match": '"other"'}).status_code == 200


def test_requests_take_what_is_kept_and_the_loop_makes_it_anew(engine: sa.Engine, clock: Clock) -> None:
    """A request costs no look at the fleet; the loop brings the new failure."""
    app = create_app(replace(QUIET, intervals=replace(QUIET.intervals, lemons_s=0.01)), engine, clock)
    with TestClient(app) as client:
        wait_for("an empty list is kept", lambda: client.get("/api/v1/lemons").json()["found"] == 0)
        fail(engine, "gpu-000", 6, nodes=300)
        wait_for("the node is listed", lambda: client.get("/api/v1/lemons").json()["found"] == 1)


def test_without_the_loop_the_first_request_makes_it_once(client: TestClient, engine: sa.Engine) -> None:
    """Later ones take that, however old."""
    assert client.get("/api/v1/lemons").json()["nodes"] == 0
    fail(engine, "gpu-000", 6, nodes=300)
    assert client.get("/api/v1/lemons").json()["nodes"] == 0


def test_a_costly_list_is_made_seldom(engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of a processor: one that took 2 s rests for 40."""
    state = State(QUIET, engine, clock)
    now, made = [0.0], []

    def make(_state: State) -> bytes:
        made.append(now[0])
        now[0] += 2.0
        return b"{}"

    monkeypatch.setattr("api.loops.repair_list.repair_list_answer", make)
    turns = LemonTurns(state, monotonic=lambda: now[0])
    for _ in range(100):
        turns.turn()
        now[0] += 1.0
    assert made == [0.0, 2.0 + 2.0 * REST, 2 * (2.0 + 2.0 * REST)]


def test_a_kept_answer_is_made_anew_when_told_to() -> None:
    """However young the one of before is, with another tag."""
    kept = CachedAnswer(keep_s=float("inf"))
    first = kept.get(lambda: b"1")
    assert kept.get(lambda: b"2") == first
    assert kept.renew(lambda: b"2") != first
    assert kept.get(lambda: b"3")[0] == b"2"


def test_the_loop_can_be_switched_off() -> None:
    """As every other one."""
    assert QUIET.intervals.lemons_s == 0
    assert Intervals().lemons_s > 0
