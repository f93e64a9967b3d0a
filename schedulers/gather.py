"""The facts of a decision, from the store: a few queries over present state, none over history."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.facts import Inputs, NodeFacts
from schedulers.settings import Policy
from store.control import ControlGroup
from store.hint_log import recent_hints
from store.read_states import newest_scores, node_places, nodes_out, score_reasons, unrepaired_faults
from store.trips import newest_trips

_HORIZON_H = 24
# A score that is older than this says nothing of now.
_STALE = timedelta(hours=24)


def gather(connection: sa.Connection, policy: Policy, now: datetime, group: ControlGroup | None = None) -> Inputs:
    """What the policy looks at, as of a moment. Without a `group` no node is left alone for control."""
    moment, scores = newest_scores(connection, _HORIZON_H, now)
    if moment is None or moment <= now - _STALE:
        scores = {}
    risky = [(node, moment) for node, score in scores.items() if moment and score >= policy.thresholds.watch]
    reasons = score_reasons(connection, _HORIZON_H, risky)
    faults = unrepaired_faults(connection, now - timedelta(seconds=policy.healthy_s), now)
    out = nodes_out(connection, now)
    # By place, for there are as many as nodes.
    nodes = [
        NodeFacts(
            node,
            rack,
            leaf,
            driver,
            scores.get(node),
            tuple(str(reason.get("text", "")) for reason in reasons[node][:5]) if node in reasons else (),
            faults.get(node),
            node in out,
            # Drawn among those alone of which their score asks something: a draw costs, and nodes are many.
            group is not None and node in reasons and group.holds(node, now),
            domain,
        )
        for node, rack, leaf, driver, domain in node_places(connection)
    ]
    window = timedelta(seconds=max(3600.0, policy.breaker.window_s))
    hints = tuple(recent_hints(connection, now, window))
    return Inputs(now, nodes, hints, trips=newest_trips(connection))
