"""Nodes as places for work, in one query."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store import schema
from store.append import append_nodes
from store.database import writing
from store.hint import Hint
from store.hint_log import save_hint
from store.node import Node
from store.read_fleet import Fleet
from store.read_placement import Place, read_places

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
FLEET = Fleet(NOW, NOW - DAY, 0.1, None, {24: NOW, 168: NOW})


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
            hint = Hint(ident, "a", "cordon", "confirmed", "foreshock: x", "foreshock", made, NOW + DAY, {}, job)
            save_hint(connection, hint, NOW, {})
        row = {"node": "a", "time": NOW, "reasons": [], "model": "m"}
        connection.execute(schema.scores.insert(), [row | {"horizon_h": h, "score": h / 1000} for h in (24, 168)])
        known = Place("a", "cordoned", 0.024, 0.168, "l", "r", "d", 4, "h", "cordon", "confirmed")
        assert read_places(connection, FLEET) == [known, Place("b", "ok"), Place("leaving", "ok")]
        assert read_places(connection, FLEET, ["b", "gone", "nobody", "b"]) == [Place("b", "ok")]
        assert read_places(connection, FLEET, []) == []
