"""What is known of nodes whose samples others send: where counters stood, the open hour; a row a node, plain JSON.

    states = held_states(connection, ["gpu-017"], now)      # and nobody else changes them until the commit
    save_states(connection, {"gpu-017": state}, now)

A row is written in the transaction that writes what the samples told, so that nothing is told twice, or never: neither
where a server dies, nor where several share the database.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard

from store.tables import topology_tables
from store.tables.bulk_rows import insert_into, is_one_of, upsert

_log = logging.getLogger(__name__)
_TABLE = topology_tables.device_watches
_LEVEL = 1
# A node of eight GPUs has 100 KB; one that invents devices begins anew here.
MOST_BYTES = 4 * 1024 * 1024
# A node that sent nothing for so long is forgotten: its counters begin anew.
KEEP = timedelta(days=30)
# Rows of one look: those of nodes that are gone need no hurry.
_AT_ONCE = 100


def held_states(connection: sa.Connection, nodes: Collection[str], now: datetime) -> dict[str, dict[str, Any]]:
    """The states of some nodes, held in this transaction; a node that has none has an empty one."""
    # In one order, so that two writers of the same rows wait for each other and never in a circle.
    ordered = sorted(nodes)
    rows = [{"node": node, "received": now, "state": None} for node in ordered]
    connection.execute(insert_into(connection, _TABLE).on_conflict_do_nothing(), rows)
    query = sa.select(_TABLE.c.node, _TABLE.c.state).where(is_one_of(connection, _TABLE.c.node, ordered))
    held = connection.execute(query.order_by(_TABLE.c.node).with_for_update())
    return {node: _unpacked(state) for node, state in held}


def save_states(connection: sa.Connection, states: Mapping[str, Mapping[str, Any]], now: datetime) -> None:
    """Write them, and forget nodes that have long sent nothing."""
    rows = [{"node": node, "received": now, "state": _packed(node, states[node])} for node in sorted(states)]
    upsert(connection, _TABLE, rows)
    old = sa.select(_TABLE.c.node).where(_TABLE.c.received < now - KEEP).limit(_AT_ONCE)
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.node.in_(old.with_for_update(skip_locked=True))))


def _packed(node: str, state: Mapping[str, Any]) -> bytes | None:
    text = orjson.dumps(state)
    if len(text) > MOST_BYTES:
        _log.warning("node %s tells of more devices than any has: what is known of it begins anew", node)
        return None
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text)


def _unpacked(packed: bytes | None) -> dict[str, Any]:
    if packed is None:
        return {}
    try:
        state = orjson.loads(zstandard.ZstdDecompressor().decompress(packed))
    except (zstandard.ZstdError, orjson.JSONDecodeError):
        return {}
    return state if isinstance(state, dict) else {}
