"""Small clusters for the policy's tests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from schedulers.policy.facts import NodeFacts
from store.database.connections import writing
from store.nodes.node_states import FaultSign
from store.records.event import Device
from store.records.hint import Evidence, Hint
from store.records.incident import Incident
from store.tables import hint_tables
from store.tables.bulk_rows import upsert

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def fault(node: str, hours_ago: float = 0.1, action: Any = "reset_gpu") -> Incident:
    """A confirmed fault: Xid 79."""
    moment = NOW - hours_ago * HOUR
    device = Device("gpu", "0000:0f:00.0")
    return Incident(
        f"i-{node}-{hours_ago}",
        node,
        moment,
        moment,
        "xid",
        79,
        "fatal",
        "hardware",
        action,
        device,
        "GPU has fallen off the bus.",
        1,
    )


def nodes(count: int, **facts: Any) -> list[NodeFacts]:
    """Nodes n000 ..., each on a rack and leaf of its own unless told otherwise."""
    places = [{"rack": f"r{i}", "leaf": f"l{i}"} | facts for i in range(count)]
    return [NodeFacts(f"n{i:03}", **place) for i, place in enumerate(places)]


def hint(node: str, action: Any = "cordon", state: Any = "sent", hours_ago: float = 2, **evidence: Any) -> Hint:
    """A hint that was made a while ago, for a day."""
    made = NOW - hours_ago * HOUR
    found = Evidence(**({"acted": made, "score": 0.5} | evidence))
    return Hint(f"h-{node}", node, action, state, "foreshock: test", "foreshock", made, made + 24 * HOUR, found)


def sick(facts: NodeFacts, **fault_facts: Any) -> NodeFacts:
    """The same node with a confirmed fault."""
    return replace(facts, fault=fault(facts.node, **fault_facts))


def sign(source: str, kind: str, hours_ago: float = 0.1, **facts: Any) -> FaultSign:
    """An error of the hardware that a source tells of."""
    moment = NOW - hours_ago * HOUR
    made: dict[str, Any] = {"code": None, "severity": "error", "cause": "hardware", "end": moment} | facts
    return FaultSign(f"i-{source}-{kind}", source, kind, start=moment, **made)


def show(
    engine: sa.Engine, *nodes: str, since: datetime, until: datetime, is_out: bool = False, back: datetime | None = None
) -> None:
    """A scheduler shows nodes over a time: up, or out; `back` since when the latter is over."""
    up_since = None if is_out else since
    rows = [
        {"scheduler": "slurm", "node": node, "is_out": is_out, "up_since": up_since, "back": back} for node in nodes
    ]
    with writing(engine).begin() as connection:
        upsert(connection, hint_tables.scheduler_looks, [{"scheduler": "slurm", "since": since, "seen": until}])
        upsert(connection, hint_tables.scheduler_nodes, rows)


PAIR = (sign("kernel", "nvlink_error", 0.3), sign("dcgm", "row_remap_failure", 0.1))
