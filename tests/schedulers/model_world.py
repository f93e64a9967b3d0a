"""A small cluster in a database in memory, and what happens to it: for the state machine of `test_state_machine.py`."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from schedulers.policy.breaker import Group, groups
from schedulers.policy.facts import NodeFacts
from store.database.connections import open_database, writing
from store.events.append import append_nodes, append_outages
from store.records.node import Node
from store.records.outage import Outage
from store.tables import hint_tables, schema
from store.tables.bulk_rows import upsert

START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
PLACES = {
    f"n{i:02}": NodeFacts(f"n{i:02}", f"r{i // 4}", f"l{i // 6}", "550" if i < 8 else "560", nvlink_domain=f"d{i // 3}")
    for i in range(11)
} | {"n11": NodeFacts("n11")}
NODES = tuple(PLACES)
_EMPTIED = ("hints", "audit", "placements", "trips", "switches", "incidents", "scores", "outages", "jobs", "outbox")
_EMPTIED += ("sidecars", "scheduler_looks", "scheduler_nodes")


@cache
def memory() -> sa.Engine:
    """One database in memory for all runs of a process; each begins with it empty."""
    engine = open_database("sqlite://")
    hint_tables.metadata.create_all(engine)
    with writing(engine).begin() as connection:
        connection.execute(schema.keys.insert().values(name="control", key=b"the same in every run".ljust(32)))
        append_nodes(
            connection,
            [
                Node(one.node, one.rack, one.leaf, driver=one.driver, nvlink_domain=one.nvlink_domain, gpus=8)
                for one in PLACES.values()
            ],
        )
    return engine


def empty(engine: sa.Engine) -> None:
    """Forget all that has happened."""
    with writing(engine).begin() as connection:
        for name in _EMPTIED:
            connection.execute(hint_tables.metadata.tables[name].delete())
        connection.execute(schema.nodes.update().values(last_seen=None))


def places_of(node: str, code: str | None) -> set[Group]:
    """The groups that a node shares a cause with."""
    return set(groups(PLACES[node], code))


def add_fault(engine: sa.Engine, ident: str, node: str, code: int, began: datetime) -> None:
    """A fatal hardware incident; of code 48 the part must be replaced."""
    row = {"id": ident, "node": node, "start": began, "end": began, "kind": "xid", "code": code, "severity": "fatal"}
    row |= {"cause": "hardware", "action": "replace_part" if code == 48 else "reset_gpu", "message": "gone"}
    row |= {"device": {"type": "gpu"}, "count": 1, "kinds": {f"xid:{code}": 1}, "source": "kernel"}
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.insert().values(**row))


def add_scores(engine: sa.Engine, scores: dict[str, float], now: datetime) -> None:
    """A scoring; nodes that are not named have none."""
    rows = [
        {"node": node, "horizon_h": 24, "time": now, "score": score, "reasons": [], "model": "m"}
        for node, score in scores.items()
    ]
    with writing(engine).begin() as connection:
        connection.execute(schema.scores.delete().where(schema.scores.c.time == now))
        if rows:
            connection.execute(schema.scores.insert(), rows)


def set_outage(engine: sa.Engine, node: str, start: datetime, end: datetime | None) -> None:
    """A node is out, or was."""
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage(node, start, end, "DOWN", "broken", None, False, "hardware")])


def set_heartbeats(engine: sa.Engine, nodes: Iterable[str], since: datetime, now: datetime) -> None:
    """The sidecars of nodes have been heard of without a gap over a time."""
    row = {"received": now, "time": now, "version": "1", "started": since, "troubled": False, "report": {}}
    rows = [{**row, "node": node, "unbroken_since": since} for node in nodes]
    with writing(engine).begin() as connection:
        upsert(connection, schema.sidecars, rows)
        connection.execute(schema.nodes.update().where(schema.nodes.c.node.in_(list(nodes))).values(last_seen=now))


def set_job(engine: sa.Engine, nodes: list[str], now: datetime) -> None:
    """The one job that runs, on these nodes."""
    row: dict[str, Any] = {"job_id": "1", "attempt": "1", "run": "r", "state": "RUNNING", "submit": now}
    row |= {"start": now - timedelta(days=30), "end": None, "nodes": len(nodes), "node_list": ",".join(nodes)}
    with writing(engine).begin() as connection:
        connection.execute(schema.jobs.delete())
        connection.execute(schema.jobs.insert().values(**row))
