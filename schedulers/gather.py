"""The facts of a decision, from the store: a few queries over present state, none over history."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.facts import Inputs, NodeFacts
from schedulers.settings import Policy
from store.hint_log import recent_hints
from store.read_states import newest_scores, node_rows, nodes_out, score_reasons, unrepaired_faults

_HORIZON_H = 24
# A score that is older than this says nothing of now.
_STALE = timedelta(hours=24)


def gather(connection: sa.Connection, policy: Policy, now: datetime) -> Inputs:
    """What the policy looks at, as of a moment."""
    moment, scores = newest_scores(connection, _HORIZON_H, now)
    if moment is None or moment <= now - _STALE:
        scores = {}
    risky = [(node, moment) for node, score in scores.items() if moment and score >= policy.thresholds.watch]
    reasons = score_reasons(connection, _HORIZON_H, risky)
    faults = unrepaired_faults(connection, now - timedelta(seconds=policy.healthy_s), now)
    out = nodes_out(connection, now)
    nodes = [
        NodeFacts(
            node=row.node,
            rack=row.rack,
            leaf=row.leaf,
            driver=row.driver,
            score=scores.get(row.node),
            reasons=tuple(str(reason.get("text", "")) for reason in reasons.get(row.node, ())[:5]),
            fault=faults.get(row.node),
            out=row.node in out,
        )
        for row in node_rows(connection)
    ]
    window = timedelta(seconds=max(3600.0, policy.breaker.window_s))
    return Inputs(now, nodes, tuple(recent_hints(connection, now, window)))
