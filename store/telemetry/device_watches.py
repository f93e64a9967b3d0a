"""What is known of nodes whose samples others send: where counters stood, the open hour; a row a node, plain JSON.

    renew_states(connection, ["gpu-017"], now, renewed)      # renewed("gpu-017", state) -> its new state

A row is written in the transaction that writes what the samples told, so that nothing is told twice, or never: neither
where a server dies, nor where several share the database.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
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
# Rows of one look, which are in memory together. Those of nodes that are gone need no hurry.
_AT_ONCE = 100


def renew_states(
    connection: sa.Connection,
    nodes: Collection[str],
    now: datetime,
    renewed: Callable[[str, dict[str, Any]], Mapping[str, Any]],
) -> None:
    """Write what `renewed` makes of each node's state, and forget nodes that have long sent nothing.

    Nobody else changes them until the commit. A node that has no state has an empty one; one is unpacked at a time.
    """
    # In one order, so that two writers of the same rows wait for each other and never in a circle.
    ordered = sorted(nodes)
    for first in range(0, len(ordered), _AT_ONCE):
        some = ordered[first : first + _AT_ONCE]
        held = _locked_rows(connection, some, now)
        rows = [
            {"node": node, "received": now, "state": _packed(node, renewed(node, _unpacked(held.pop(node, None))))}
            for node in some
        ]
        upsert(connection, _TABLE, rows)
    old = sa.select(_TABLE.c.node).where(_TABLE.c.received < now - KEEP).limit(_AT_ONCE)
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.node.in_(old.with_for_update(skip_locked=True))))


def _locked_rows(connection: sa.Connection, nodes: Sequence[str], now: datetime) -> dict[str, bytes | None]:
    """The rows of some nodes, packed, held in this transaction."""
    rows = [{"node": node, "received": now, "state": None} for node in nodes]
    connection.execute(insert_into(connection, _TABLE).on_conflict_do_nothing(), rows)
    query = sa.select(_TABLE.c.node, _TABLE.c.state).where(is_one_of(connection, _TABLE.c.node, nodes))
    held = connection.execute(query.order_by(_TABLE.c.node).with_for_update())
    return {row.node: row.state for row in held}


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
