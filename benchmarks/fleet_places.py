"""A large fleet's smaller tables as COPY's text: nodes, cables, outages, hints, audit, sidecars."""

from datetime import timedelta

import numpy as np
import orjson

from benchmarks.fleet_rows import LEAF, NULL, Size, micros, name, stamp
from store.tables import schema

_UP = 32  # cables of a switch towards the level above


def place_rows(size: Size) -> list[tuple[str, bytes]]:
    """Nodes with rack and leaf, and a fabric of three levels."""
    nodes, cables = [], []
    rest = f"\t{NULL}" * (len(schema.links.columns) - 5) + "\n"  # what a cable's ends are called, and since when
    since = stamp(micros(size.day(size.days)))
    for number in range(size.nodes):
        leaf = number // LEAF
        seen = stamp(micros(size.end) - number * 50_000)
        place = f"rack-{number // 16:04d}\tleaf-{leaf:03d}"
        nodes.append(f"{name(number)}\t{place}\tH100-SXM\t8\t550.90.07\t{since}\t{NULL}\t{seen}\t{NULL}\n")
        cables.append(f"leaf-{leaf:03d}\t{number % LEAF + 1}\t{name(number)}\t1\thca{rest}")
    leaves = -(-size.nodes // LEAF)
    for leaf in range(leaves):
        for port in range(_UP):
            group = leaf // 16
            cables.append(
                f"leaf-{leaf:03d}\t{LEAF + port + 1}\tspine-{group:02d}-{port:02d}\t{leaf % 16 + 1}\tswitch{rest}"
            )
            core = f"core-{port:02d}-{leaf % 16:02d}"
            cables.append(f"spine-{group:02d}-{port:02d}\t{leaf % 16 + 33}\t{core}\t{group + 1}\tswitch{rest}")
    return [("nodes", "".join(nodes).encode()), ("links", "".join(cables).encode())]


def small_rows(size: Size) -> list[tuple[str, bytes]]:
    """Outages (3.8 a thousand node-days, FIELD D1), hints with their audit and deliveries, each node's sidecar."""
    hints, audit = _hints(size)
    found = [("outages", _outages(size)), ("hints", hints), ("audit", audit), ("sidecars", _sidecars(size))]
    return [*found, *_receivers(size)]


def _outages(size: Size) -> bytes:
    random = np.random.default_rng(11)
    rows, end = {}, micros(size.end)
    for number in range(int(size.nodes * size.days * 0.0038)):
        node, start = int(random.integers(size.nodes)), end - int(random.uniform(0, size.days * 86_400e6))
        until = start + int(random.exponential(4 * 3600e6))
        planned = number % 5 == 0
        rest = f"DOWN\t{'maintenance' if planned else 'Not responding'}\troot\t{planned}\t"
        rest += "unknown\n" if planned else "hardware\n"
        rows[node, start] = f"{name(node)}\t{stamp(start)}\t{NULL if until > end else stamp(until)}\t{rest}"
    return "".join(rows.values()).encode()


def _hints(size: Size) -> tuple[bytes, bytes]:
    random = np.random.default_rng(13)
    hints, audit = [], []
    count = max(4, size.nodes // 2)
    for number in range(count):
        made = size.end - timedelta(days=size.days * (count - number) / count)
        is_open = number >= count - max(2, size.nodes // 250)
        state = ("shadow", "approved", "confirmed")[number % 3] if is_open else ("expired", "withdrawn")[number % 2]
        node, ident = name(int(random.integers(size.nodes))), f"h{number:08d}"
        at, until = stamp(micros(made)), stamp(micros(made + timedelta(days=1)))
        action = ("watch", "avoid", "cordon")[number % 3]
        evidence = orjson.dumps({"score_24h": 0.11, "reasons": [{"text": "row remaps", "events": ["0f" * 16]}]})
        hints.append(
            f"{ident}\t{node}\t{action}\t{state}\tforeshock: risk 0.11\tforeshock\t{at}\t{until}\t{evidence.decode()}"
            f"\t{NULL}\t{NULL}\n"
        )
        detail = orjson.dumps({"node": node, "hint": action, "reason": "risk 0.11"}).decode()
        audit += [f"{at}\tpolicy\t{step}\t{ident}\t{detail}\n" for step in ("proposed", "approved", "sent", state)]
    return "".join(hints).encode(), "".join(audit).encode()


def _receivers(size: Size) -> list[tuple[str, bytes]]:
    """What was sent of each hint, to one that is read back and to a webhook, and what came of it."""
    placements, outbox, outcomes = [], [], []
    count = max(4, size.nodes // 2)
    for number in range(count):
        ident, node = f"h{number:08d}", name(number % size.nodes)
        at = stamp(micros(size.end - timedelta(days=size.days * (count - number) / count)))
        placements.append(f"{ident}\tslurm\t{node}\trelease\treleased\t1\t{at}\t{at}\t{at}\t{NULL}\n")
        for action in ("cordon", "release"):
            payload = orjson.dumps({"data": {"id": ident, "node": node, "action": action, "mode": "act"}}).decode()
            outbox.append(f"{ident}.{action}\t{ident}\tops\t{payload}\t1\t{at}\tdelivered\t{NULL}\n")
        outcomes.append(f"{ident}\t{at}\t{number % 3 == 0}\t{NULL}\t{NULL}\t8.0\t{NULL}\n")
    tables = {"placements": placements, "outbox": outbox, "hint_outcomes": outcomes}
    return [(table, "".join(rows).encode()) for table, rows in tables.items()]


def _sidecars(size: Size) -> bytes:
    rows = []
    at, started = stamp(micros(size.end)), stamp(micros(size.end - timedelta(days=20)))
    for number in range(size.nodes):
        troubled = number % 500 == 3
        source = {"source": "kmsg", "up": not troubled, "blocked": False, "lines": 812_345, "events": 214, "errors": 0}
        report = {
            "node": name(number),
            "interval_s": 60,
            "sources": [source | {"lost": 0, "failures": 0}],
            "spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 268_435_456},
            "lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0},
            "rejected": 0,
        }
        shown = orjson.dumps(report).decode()
        rows.append(f"{name(number)}\t{at}\t{at}\t0.1.0\t{started}\t{troubled}\t{shown}\t60\n")
    return "".join(rows).encode()
