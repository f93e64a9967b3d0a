"""The facts of a decision, from the store: a few queries over present state, none over history."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.facts import Inputs, NodeFacts
from schedulers.settings import Policy
from store import schema
from store.hint_log import recent_hints
from store.incident import Incident
from store.read_states import fatal_incidents, newest_scores, node_rows, nodes_out, score_reasons

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
    faults = _unrepaired(connection, now, policy)
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


def _unrepaired(connection: sa.Connection, now: datetime, policy: Policy) -> dict[str, Incident]:
    """Each node's newest confirmed fault that no outage has ended since: after one, the node has been seen to."""
    table = schema.outages
    ended = sa.select(table.c.node, sa.func.max(table.c.end, type_=schema.UtcTime()).label("end"))
    since = now - timedelta(seconds=policy.healthy_s)
    ended = ended.where(table.c.end >= since, table.c.end <= now).group_by(table.c.node)
    repaired = {row.node: row.end for row in connection.execute(ended)}
    found: dict[str, Incident] = {}
    for incident in fatal_incidents(connection, since, now):
        if incident.node is not None and (incident.node not in repaired or repaired[incident.node] < incident.end):
            found[incident.node] = incident
    return found
