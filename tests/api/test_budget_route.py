"""GET /budget: how much of the budget is used."""

from dataclasses import replace

import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from schedulers.policy.settings import Budgets, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.records.node import Node

from .conftest import QUIET, Clock
from .test_hints_route import put


def test_what_is_held_and_may_be(engine: sa.Engine, clock: Clock) -> None:
    """The hint that stands, of those that this server's policy allows."""
    settings = replace(QUIET, policy=Policy(mode="act", budgets=Budgets(nodes=5, percent_of_nodes=100.0, per_hour=2)))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i}") for i in range(9)])
    put(engine, "h1", "sent", hours_ago=0.5)
    with TestClient(create_app(settings, engine, clock)) as client:
        answer = client.get("/api/v1/budget")
    assert answer.status_code == 200
    assert answer.json() == {"held": 1, "most": 5, "held_within_hour": 1, "most_per_hour": 2, "nodes": 9}
