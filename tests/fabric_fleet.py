"""A fleet in a store for the map: nodes under leaves and spines, a few of each state, runs, temperatures, bad links.

fill_fabric(engine, 12_500, now)       # some seconds on SQLite
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_jobs, append_nodes
from store.nodes.topology import append_topology
from store.records.job import Job
from store.records.node import FabricLink, Node, TopologyReport
from store.tables import schema

LEAF, SPINES, RUN = 32, 16, 448
FAULTY, OUT, RISKY, SILENT = 7, 11, 13, 17  # the first node of each state


def name_of(number: int) -> str:
    """The name of a node."""
    return f"gpu-{number:05}"


def fill_fabric(engine: sa.Engine, nodes: int, now: datetime) -> None:
    """A node in each 500 is faulty, out, at risk, silent; a cable in each 1,000 erred. Rows as intake writes them."""
    names = [name_of(number) for number in range(nodes)]
    leaves = sorted({f"leaf-{number // LEAF:03}" for number in range(nodes)})
    cables = [
        FabricLink(f"leaf-{number // LEAF:03}", number % LEAF + 1, name, 1, "hca", hca="mlx5_0")
        for number, name in enumerate(names)
    ]
    cables += [
        FabricLink(leaf, LEAF + 1 + spine, f"spine-{spine:02}", place + 1, "switch")
        for place, leaf in enumerate(leaves)
        for spine in range(SPINES)
    ]
    hosts = [Node(name, f"rack-{n // 8:04}", f"leaf-{n // LEAF:03}", "H100", 8) for n, name in enumerate(names)]
    began = now - timedelta(days=1)
    parts = {f"llm-{at // RUN:02}": names[at : at + RUN] for at in range(0, nodes, RUN)}
    jobs = [
        Job(str(at), run, "RUNNING", began, began, None, len(part), ",".join(part), None)
        for at, (run, part) in enumerate(parts.items())
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, hosts)
        append_topology(connection, TopologyReport(tuple(cables), (), ()))
        append_jobs(connection, jobs)
        _measures(connection, names, now)
        _troubles(connection, names, now)


def _measures(connection: sa.Connection, names: list[str], now: datetime) -> None:
    """When each was heard of, its hour of telemetry and its scores."""
    silent = set(names[SILENT::500])
    table = schema.nodes
    seen = sa.update(table).values(last_seen=now - timedelta(minutes=1))
    connection.execute(seen.where(table.c.node.not_in(silent)))
    connection.execute(sa.update(table).where(table.c.node.in_(silent)).values(last_seen=now - timedelta(hours=3)))
    hour = now.replace(minute=0, second=0, microsecond=0)
    heat = [
        {"node": name, "time": hour, "samples": 960, "gpus_seen": 8, "gpu_temp_max_c": 55.0 + number % 30}
        for number, name in enumerate(names)
    ]
    connection.execute(sa.insert(schema.telemetry), heat)
    scores = [
        {"node": name, "horizon_h": horizon, "time": now, "score": 0.4 if number % 500 == RISKY else 0.004,
         "reasons": [], "model": "m"}
        for number, name in enumerate(names)
        for horizon in (24, 168)
    ]  # fmt: skip
    connection.execute(sa.insert(schema.scores), scores)


def _troubles(connection: sa.Connection, names: list[str], now: datetime) -> None:
    """Faults, outages, and errors of links by the host's word and by the switch's."""
    moment = now - timedelta(minutes=20)
    same = {"start": moment, "end": moment, "action": "watch", "message": "m", "count": 3, "kinds": {}}
    gpu, port = {"type": "gpu", "index": 3}, {"type": "port", "port": 1}
    fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "device": gpu}
    link = {"kind": "link_down", "code": None, "severity": "error", "cause": "fabric", "device": port}
    rows = [same | fault | {"id": f"f-{name}", "node": name} for name in names[FAULTY::500]]
    rows += [same | link | {"id": f"l-{name}", "node": name} for name in names[23::1000]]
    rows += [same | link | {"id": "s", "node": "leaf-000", "device": {"type": "port", "port": LEAF + 1}}]
    connection.execute(sa.insert(schema.incidents), rows)
    outages = [
        {"node": name, "start": moment, "end": None, "state": "DOWN", "reason": "r", "planned": False,
         "cause": "hardware"}
        for name in names[OUT::500]
    ]  # fmt: skip
    connection.execute(sa.insert(schema.outages), outages)
