"""The last look before something goes out: what was decided before a stop or a trip does not go out after it."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.reconcile.actuator import Hold, Order
from schedulers.reconcile.gate import allowed_orders, held_back, may_send
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import save_hint
from store.hints.outbox import Delivery, queue_deliveries
from store.hints.stops import note_trip, reset_trip
from store.records.hint import Evidence
from store.records.node import Node

from .cluster import NOW, hint


@pytest.fixture(autouse=True)
def _cluster(engine: sa.Engine) -> None:
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("a", "r1", "l1", driver="550", nvlink_domain="d1"), Node("b")])


def trip(engine: sa.Engine, kind: str, name: str) -> None:
    """A group trips."""
    with writing(engine).begin() as connection:
        note_trip(connection, (kind, name), "breaker: test", 4, NOW, "policy")


def order(action: Any = "cordon", node: str = "a", **evidence: Any) -> Order:
    """An order that was decided a while ago."""
    return Order(node, f"h-{node}", action, "foreshock: test", NOW + timedelta(hours=1), Evidence(**evidence))


def passed(engine: sa.Engine, *orders: Order, stop: Any = "none", holds: tuple[Hold, ...] = ()) -> list[str]:
    """What may go out."""
    with engine.connect() as connection:
        return [f"{one.action} {one.node}" for one in allowed_orders(connection, stop, orders, holds)]


def test_the_switch_is_asked(engine: sa.Engine) -> None:
    """Releases go on under `holds`."""
    orders = (order(), order("release", "b"), order("watch", "b"))
    assert passed(engine, *orders) == ["cordon a", "release b", "watch b"]
    assert passed(engine, *orders, stop="holds") == ["release b"]
    assert passed(engine, *orders, stop="all") == []


@pytest.mark.parametrize(
    ("kind", "name", "goes"),
    [
        ("leaf", "l1", False),
        ("rack", "r1", False),
        ("driver", "550", False),
        ("nvlink_domain", "d1", False),
        ("code", "xid 79", False),
        ("cluster", "all", False),
        ("leaf", "l2", True),
        ("code", "xid 48", True),
    ],
)
def test_a_group_that_has_tripped_since_takes_no_new_hold(engine: sa.Engine, kind: str, name: str, goes: bool) -> None:
    """Of the node's place, or of the fault that the hint stands on; until it is reset."""
    trip(engine, kind, name)
    assert passed(engine, order(code="xid 79")) == (["cordon a"] if goes else [])
    with writing(engine).begin() as connection:
        reset_trip(connection, 1, "review", NOW, "alice")
    assert passed(engine, order(code="xid 79")) == ["cordon a"]


def test_what_is_soft_or_held_already_goes_on(engine: sa.Engine) -> None:
    """A drain of a held node, a release, an avoid; a node that only bears a taint is not held."""
    trip(engine, "leaf", "l1")
    orders = (order("avoid"), order("release"), order("drain"))
    assert passed(engine, *orders) == ["avoid a", "release a"]
    assert passed(engine, *orders, holds=(Hold("a", action="avoid", hint="h-a"),)) == ["avoid a", "release a"]
    assert len(passed(engine, *orders, holds=(Hold("a", action="cordon", hint="h-a"),))) == 3


def test_an_unknown_node_is_of_the_cluster(engine: sa.Engine) -> None:
    """It has no place that could have tripped."""
    trip(engine, "leaf", "l1")
    assert passed(engine, order(node="z")) == ["cordon z"]
    trip(engine, "cluster", "all")
    assert passed(engine, order(node="z")) == []


def test_a_webhook_is_asked_nothing_new_of_a_tripped_group(engine: sa.Engine) -> None:
    """But renewed in what it holds, and told of releases and proposals."""
    trip(engine, "leaf", "l1")
    one = hint("a", state="approved")
    with writing(engine).begin() as connection:
        save_hint(connection, one, NOW, {})
        assert not may_send(connection, "none", one, release=False)
        assert may_send(connection, "holds", one, release=True)
        assert not may_send(connection, "all", one, release=True)
        assert may_send(connection, "none", hint("a", state="proposed"), release=False)
        assert may_send(connection, "none", hint("a", "avoid", "approved"), release=False)
        payload = {"data": {"action": "cordon", "mode": "act"}}
        queue_deliveries(connection, [Delivery("x", one.id, "ops", payload, 1, NOW, "delivered")])
        assert may_send(connection, "none", one, release=False)
        assert not may_send(connection, "holds", one, release=False)


def test_without_trips_nothing_is_held_back(engine: sa.Engine) -> None:
    """Nor where nothing is asked."""
    with engine.connect() as connection:
        assert held_back(connection, {"a": Evidence()}) == frozenset()
        assert held_back(connection, {}) == frozenset()
