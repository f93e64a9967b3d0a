"""Which runs' ledgers a fault or outage may change that came long after: those that used its node at about that time.

touched(connection, late, {"llm-70b": until}, with_jobs={"llm-70b"})
"""

from collections.abc import Container, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import sqlalchemy as sa

from goodput.wall_time.attempts import nodes_of
from store.ledgers import jobs_between
from store.log_news import LATE, LateNews

# What explains a stop lies between the attempt's start and this long after its end: a node is marked down within half
# an hour (goodput/wall_time/blame.py), an incident is looked for within minutes (goodput/cluster/causes.py), and clocks
# differ.
NEAR = timedelta(hours=1)


def touched(
    connection: sa.Connection, late: Sequence[LateNews], until: Mapping[str, datetime], with_jobs: Container[str]
) -> set[str]:
    """The runs to be accounted again.

    Args:
        until: until when each stored ledger goes: one that ended before nobody's fault can change.
        with_jobs: the runs that jobs name. Of another nobody knows its nodes: it counts as touched.
    """
    if not late:
        return set()
    since = min(one.since for one in late)
    asked = {run for run, end in until.items() if end >= since - LATE}
    found = {run for run in asked if run not in with_jobs}
    if any(one.node is None for one in late):
        return asked
    by_node: dict[str, list[LateNews]] = {}
    for one in late:
        by_node.setdefault(one.node or "", []).append(one)
    hosts = lru_cache(maxsize=256)(nodes_of)  # attempts of a run mostly have the same nodes
    for run, start, end, node_list in jobs_between(connection, since - NEAR, max(x.until for x in late) + NEAR):
        if run not in asked or run in found:
            continue
        nodes = hosts(node_list)
        near = (one for node in by_node.keys() & nodes for one in by_node[node])
        if not nodes or any(one.until >= start and (end is None or one.since <= end + NEAR) for one in near):
            found.add(run)
    return found
