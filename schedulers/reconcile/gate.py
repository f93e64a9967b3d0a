"""The last check before an order or a delivery goes out: the kill switch, and trips of the breaker since the decision.

    orders = allowed_orders(connection, stop, orders, holds)

Between the decision and the order a scheduler may have been away for long; what is held already may be confirmed anew.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from schedulers.policy.breaker import groups
from schedulers.policy.facts import AVOIDING, HOLDING, NodeFacts
from schedulers.policy.kill_switch import may_ask
from schedulers.policy.settings import Stop
from schedulers.reconcile.actuator import Hold, Order
from schedulers.reconcile.delivery import action_of
from store.hints.outbox import deliveries_of
from store.hints.stops import newest_trips
from store.nodes.node_states import node_places
from store.records.hint import LIVE_STATES, Evidence, Hint, HintAction


def allowed_orders(
    connection: sa.Connection, stop: Stop, orders: Sequence[Order], holds: Sequence[Hold], avoid_takes: bool = False
) -> list[Order]:
    """The orders that may go out now: none that is stopped, and no new hold in a group that has tripped.

    Args:
        avoid_takes: whether an `avoid` takes its node there as a hold does.
    """
    takes = {each: TAKEN_BY[each] for each in (*HOLDING, *(AVOIDING if avoid_takes else ()))}
    taken = {hold.node: hold.action for hold in holds if hold.hint is not None}
    allowed = [order for order in orders if may_ask(stop, order.action)]
    new = [order for order in allowed if order.action in takes and taken.get(order.node) not in takes[order.action]]
    back = held_back(connection, {order.node: order.evidence for order in new})
    late = {(order.node, order.action) for order in new if order.node in back}
    return [order for order in allowed if (order.node, order.action) not in late]


# What a node is taken by already when it is ordered anew: an `avoid` of one that is held takes nothing more.
TAKEN_BY: Mapping[HintAction, Sequence[HintAction]] = {
    "cordon": HOLDING,
    "drain": HOLDING,
    "avoid": (*AVOIDING, *HOLDING),
}


def may_send(connection: sa.Connection, stop: Stop, hint: Hint, release: bool) -> bool:
    """Whether a hint, or its release, may be sent now to a receiver that cannot be read back."""
    if not may_ask(stop, "release" if release else hint.action):
        return False
    if release or hint.action not in HOLDING or hint.state not in LIVE_STATES:
        return True
    deliveries = deliveries_of(connection, hint.id)
    if any(one.state == "delivered" and action_of(one) in HOLDING for one in deliveries):
        return True  # it is held there, and only to be renewed or raised
    return not held_back(connection, {hint.node: hint.evidence})


def held_back(connection: sa.Connection, new: Mapping[str, Evidence]) -> frozenset[str]:
    """Of the nodes that are to be held anew (with the hint's evidence), those with a group that has tripped."""
    if not new:
        return frozenset()
    tripped = {trip.group for trip in newest_trips(connection) if trip.reset is None}
    if not tripped:
        return frozenset()
    places = {place[0]: place for place in node_places(connection, sorted(new))}
    found = set()
    for node, evidence in new.items():
        _name, rack, leaf, driver, domain, *_rest = places.get(node, (node, None, None, None, None))
        facts = NodeFacts(node, rack, leaf, driver, nvlink_domain=domain)
        if not tripped.isdisjoint(groups(facts, evidence.code)):
            found.add(node)
    return frozenset(found)
