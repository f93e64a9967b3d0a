"""Writing roll-ups of live sources: several sources of a node may tell of the same hour, and more of it each time.

merge_rollups(connection, [Rollup(node="gpu-017", time=..., devices={"nic:mlx5_0/1": {...}}, ...)])

A row is a node and hour. A measure of a device that comes again replaces what was there of it; other measures and other
devices stay. So do columns that the new roll-up leaves empty. `samples` and `gpus_seen` are those of the source that
sees GPUs. The same roll-up twice changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from store import schema
from store.telemetry import Rollup

_KEYS = ("node", "time")
_COUNTS = ("samples", "gpus_seen")
_NAMES = tuple(f.name for f in fields(Rollup))
_GAUGES = tuple(name for name in _NAMES if name not in (*_KEYS, *_COUNTS, "devices"))
# Roll-ups of one statement, each of 10 KB or so.
_AT_ONCE = 500


def merge_rollups(connection: sa.Connection, rollups: Sequence[Rollup]) -> None:
    """Write roll-ups in the caller's transaction."""
    if not rollups:
        return
    # In one order, so that two writers of the same rows wait for each other and never in a circle.
    ordered = sorted(rollups, key=lambda rollup: (rollup.node, rollup.time))
    if connection.dialect.name == "postgresql":
        for part in _apart(ordered):
            connection.exec_driver_sql(_MERGE, (orjson.dumps(part).decode(),))
    else:
        connection.execute(_sqlite_merge(), [{name: getattr(one, name) for name in _NAMES} for one in ordered])


def _apart(ordered: Sequence[Rollup]) -> Iterator[list[Rollup]]:
    """The same in parts that hold no node and hour twice: a statement may change a row but once."""
    part: list[Rollup] = []
    for rollup in ordered:
        again = bool(part) and (part[-1].node, part[-1].time) == (rollup.node, rollup.time)
        if again or len(part) == _AT_ONCE:
            yield part
            part = []
        part.append(rollup)
    yield part


def _sqlite_merge() -> Any:
    table = schema.telemetry
    statement = sqlite.insert(table)
    new = statement.excluded
    sees_gpus = sa.or_(new.gpus_seen > 0, table.c.gpus_seen == 0)
    changed: dict[str, Any] = {name: sa.case((sees_gpus, new[name]), else_=table.c[name]) for name in _COUNTS}
    changed |= {name: sa.func.coalesce(new[name], table.c[name]) for name in _GAUGES}
    # Joined down to the measure by itself (RFC 7396).
    joined = sa.func.json_patch(table.c.devices, new.devices)
    changed["devices"] = sa.case(
        (new.devices.is_(sa.null()), table.c.devices), (table.c.devices.is_(sa.null()), new.devices), else_=joined
    )
    return statement.on_conflict_do_update(index_elements=_KEYS, set_=changed)


# Written once, and one document: to build the statement and send values one by one cost more than all of its work.
_COUNT = "CASE WHEN excluded.gpus_seen > 0 OR telemetry.gpus_seen = 0 THEN excluded.{0} ELSE telemetry.{0} END"
JOINED_DEVICES = """CASE WHEN excluded.devices IS NULL THEN telemetry.devices
        WHEN telemetry.devices IS NULL THEN excluded.devices
        ELSE (SELECT json_object_agg(key, CASE WHEN old.value IS NULL THEN new.value
            WHEN new.value IS NULL THEN old.value ELSE old.value || new.value END)
            FROM jsonb_each(telemetry.devices::jsonb) AS old
            FULL JOIN jsonb_each(excluded.devices::jsonb) AS new USING (key)) END"""
_MERGE = f"""
INSERT INTO telemetry ({", ".join(_NAMES)})
SELECT {", ".join(_NAMES)} FROM json_to_recordset(%s::json) AS told(node text, time timestamptz, samples int,
    gpus_seen int, {", ".join(f"{name} float8" for name in _GAUGES)}, devices json)
ORDER BY node COLLATE "C", time
ON CONFLICT (node, time) DO UPDATE SET
    {", ".join(f"{name} = {_COUNT.format(name)}" for name in _COUNTS)},
    {", ".join(f"{name} = coalesce(excluded.{name}, telemetry.{name})" for name in _GAUGES)},
    devices = {JOINED_DEVICES}
"""  # noqa: S608  # our own names
