"""Writing roll-ups of live sources: several sources of a node may tell of the same hour, and more of it each time.

merge_rollups(connection, [Rollup(node="gpu-017", time=..., devices={"nic:mlx5_0/1": {...}}, ...)])

A row is a node and hour. A measure of a device that comes again replaces what was there of it; other measures and other
devices stay. So do columns that the new roll-up leaves empty. `samples` and `gpus_seen` are those of the source that
sees GPUs. The same roll-up twice changes nothing.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from store import schema
from store.telemetry import Rollup

_KEYS = ("node", "time")
_COUNTS = ("samples", "gpus_seen")
_NAMES = tuple(f.name for f in fields(Rollup))
_GAUGES = tuple(name for name in _NAMES if name not in (*_KEYS, *_COUNTS, "devices"))

# Objects of objects, joined down to the measure. SQLite's json_patch does that by itself (RFC 7396).
_JOINED = """(SELECT json_object_agg(key, CASE WHEN old.value IS NULL THEN new.value
WHEN new.value IS NULL THEN old.value ELSE old.value || new.value END) FROM jsonb_each(telemetry.devices::jsonb) AS old
FULL JOIN jsonb_each(excluded.devices::jsonb) AS new USING (key))"""


def merge_rollups(connection: sa.Connection, rollups: Sequence[Rollup]) -> None:
    """Write roll-ups in the caller's transaction."""
    if not rollups:
        return
    # In one order, so that two writers of the same rows wait for each other and never in a circle.
    ordered = sorted(rollups, key=lambda rollup: (rollup.node, rollup.time))
    connection.execute(_statement(connection), [{name: getattr(one, name) for name in _NAMES} for one in ordered])


def _statement(connection: sa.Connection) -> Any:
    on_postgres = connection.dialect.name == "postgresql"
    table = schema.telemetry
    statement: Any = (postgresql if on_postgres else sqlite).insert(table)
    new = statement.excluded
    sees_gpus = sa.or_(new.gpus_seen > 0, table.c.gpus_seen == 0)
    changed: dict[str, Any] = {name: sa.case((sees_gpus, new[name]), else_=table.c[name]) for name in _COUNTS}
    changed |= {name: sa.func.coalesce(new[name], table.c[name]) for name in _GAUGES}
    joined: Any = sa.text(_JOINED) if on_postgres else sa.func.json_patch(table.c.devices, new.devices)
    changed["devices"] = sa.case(
        (new.devices.is_(sa.null()), table.c.devices), (table.c.devices.is_(sa.null()), new.devices), else_=joined
    )
    return statement.on_conflict_do_update(index_elements=_KEYS, set_=changed)
