"""A fabric whose link flaps, from its manager's events to a hint on the host, and back when the link is calm."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from fleet_store import day
from real.programs import wait_for

from api.app import create_app
from api.loops.model_upkeep import Upkeep
from api.server.settings import TrainingSchedule
from api.server.state import State
from schedulers.policy.settings import Control, Policy
from store.records.event import format_time

from .conftest import QUIET, Clock

HOSTS, FLAPPING = 40, "gpu-7"


@pytest.fixture
def clock() -> Clock:
    """Stands two months after the first event."""
    return Clock(day(60))


@pytest.fixture
def site(engine: sa.Engine, clock: Clock) -> Iterator[tuple[TestClient, Upkeep]]:
    """A server in shadow mode whose policy turns, and the upkeep of its models, of which only links are due."""
    training = TrainingSchedule(nice=0, every_days=0.0)
    policy = Policy(mode="shadow", control=Control(0.0))
    settings = replace(QUIET, training=training, policy=policy, intervals=replace(QUIET.intervals, policy_s=0.1))
    with TestClient(create_app(settings, engine, clock)) as client:
        cables = [
            {"switch": "leaf-0", "port": i, "peer": f"gpu-{i}", "peer_port": 1, "peer_type": "hca"}
            for i in range(HOSTS)
        ]
        assert client.post("/api/v1/topology", json=cables).status_code == 200
        yield client, Upkeep(State(settings, engine, clock))


def lost(host: str, at_d: float) -> dict[str, Any]:
    """A port that vanishes, as the subnet manager tells it."""
    told = {"time": format_time(day(at_d)), "node": host, "source": "opensm", "kind": "port_removed"}
    return told | {"severity": "error", "cause": "fabric", "action": "none", "device": {"type": "port"}}


def history() -> list[dict[str, Any]]:
    """Two months in which every third day another link begins to flap for four days, until somebody cleans it.

    Within them it is lost about five times a day; the last one is still at it.
    """
    draw = Random(1)
    hosts = [f"gpu-{i}" for i in range(HOSTS) if f"gpu-{i}" != FLAPPING]
    spans = [*((hosts[n], 2.0 + 3 * n, 6.0 + 3 * n) for n in range(17)), (FLAPPING, 58.0, 60.0)]
    told = []
    for host, at_d, until_d in spans:
        while at_d < until_d:
            told.append(lost(host, at_d))
            at_d += draw.uniform(0.1, 0.3)
    return told


def hint_of(client: TestClient) -> dict[str, Any]:
    """The one hint; an empty one where there is none."""
    items = client.get("/api/v1/hints", params={"limit": 100}).json()["items"]
    assert len(items) < 2
    return dict(items[0]) if items else {"state": "", "valid_until": ""}


@pytest.mark.integration
def test_a_flapping_link_has_its_host_watched_until_it_is_calm(site: tuple[TestClient, Upkeep], clock: Clock) -> None:
    """Told by events, scored by a real child, asked in shadow; once the link has been calm for a while it is over."""
    client, upkeep = site
    assert client.post("/api/v1/events", json=history()).status_code == 200
    assert hint_of(client)["state"] == ""
    upkeep.turn(lambda: True)
    wait_for("a hint", lambda: hint_of(client)["state"] == "shadow", 20)
    hint = hint_of(client)
    assert (hint["node"], hint["action"]) == (FLAPPING, "watch")
    link = hint["evidence"]["link"]
    assert (link["name"], link["ends"]) == ("leaf-0/7", ["leaf-0 port 7", "gpu-7 port 1"])
    assert hint["reason"].startswith("foreshock: link leaf-0/7, which is ")
    (top, *_) = client.get("/api/v1/links").json()["items"]
    assert (top["link"], top["node"], top["score"]) == ("leaf-0/7", FLAPPING, link["score"])
    assert set(link["events"]) <= {event for reason in top["reasons"] for event in reason["events"]}
    days = 0.0
    while hint_of(client)["state"] == "shadow":
        clock.forward(hours=18)
        days += 0.75
        assert days < 6, client.get("/api/v1/links").json()["items"][0]
        upkeep.turn(lambda: True)
        wait_for("a turn", lambda: _is_seen(hint_of(client), clock), 20)
    assert hint_of(client)["state"] == "released"


def _is_seen(hint: dict[str, Any], clock: Clock) -> bool:
    """Whether a turn of the policy has renewed or ended it since the clock was moved."""
    return hint["state"] != "shadow" or hint["valid_until"] > format_time(clock() + timedelta(hours=23))
