"""Nodes as places for work: what is kept between two questions never shows."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import save_hint
from store.nodes.fleet import FleetQuery, SchedulableNode, SchedulableNodes
from store.records.hint import Hint
from store.records.node import Node
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
FLEET = FleetQuery(NOW, NOW - DAY, 0.1, None, {24: NOW, 168: NOW})


def test_a_place_has_all_that_is_known_and_one_that_has_left_is_none(any_engine: sa.Engine) -> None:
    """Risks of both horizons, the open hint on the node itself; of an unknown node nothing but its name and state."""
    with writing(any_engine).begin() as connection:
        append_nodes(
            connection,
            [
                Node("a", rack="r", leaf="l", gpus=4, nvlink_domain="d"),
                Node("b"),
                Node("gone", in_service_until=NOW),
                Node("leaving", in_service_until=NOW + DAY),
            ],
        )
        for ident, job in (("h", None), ("j", "job-1")):
            made = NOW if job else NOW - DAY
            hint = Hint(ident, "a", "cordon", "confirmed", "foreshock: x", "foreshock", made, NOW + DAY, job=job)
            save_hint(connection, hint, NOW, {})
        row = {"node": "a", "time": NOW, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert(), [row | {"horizon_h": h, "score": h / 1000} for h in (24, 168)])
        known = SchedulableNode("a", "cordoned", 0.024, None, "l", "r", "d", 4, "h", "cordon", "confirmed")
        nodes = SchedulableNodes()
        assert nodes.read(connection, FLEET) == [
            known,
            SchedulableNode("b", "ok"),
            SchedulableNode("leaving", "ok"),
        ]
        assert nodes.read(connection, FLEET, ["b", "gone", "nobody", "b"]) == [SchedulableNode("b", "ok")]
        assert nodes.read(connection, FLEET, []) == []
        assert nodes.scores.read(connection, 168, NOW) == {"a": 0.168}
