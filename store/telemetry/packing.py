"""Packing the devices of closed days' hours (`store/tables/packed_hours.py` reads them).

    pack_closed_days(engine, now)                        # the leader

Names are most of an hour's JSON, and the same from hour to hour and from node to node: the dictionary has them.
A day's dictionary is there before anything is packed with it, and goes when no hour of its time is left.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
import zstandard

from store.database.connections import transact
from store.tables import schema
from store.tables.bulk_rows import insert_into
from store.tables.packed_hours import PackedHours, condensed, day_of, zstd_dictionary

# After its end: what comes late (a spool that waited, a log that was found) comes mostly within it.
CLOSED_FOR = timedelta(days=2)
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# The sample of which a dictionary is made, the longest text of it, and what the dictionary takes.
_SAMPLE, _MOST_CHARS, _DICTIONARY_BYTES = 1_000, 64 * 1024, 16 * 1024
# An hour of four GPUs, their host and its fabric: 358 bytes at level 3, 363 at 9, 329 at 19 for sixty times the work.
_LEVEL = 3
# Rows of one transaction, each of some KB.
_AT_ONCE = 1_000
_TABLE, _DAYS = schema.telemetry, schema.packed_days


def pack_closed_days(engine: sa.Engine, now: datetime, keep_on: Callable[[], bool] = lambda: True) -> int:
    """Pack the days that have been over for CLOSED_FOR; returns how many hours. It may be cut off at any point.

    Args:
        keep_on: asked before each step.
    """
    count = 0
    for day in _open_days(engine, day_of(now - CLOSED_FOR)):
        packer = _packer(engine, day)
        for hour in range(24):
            packed = _AT_ONCE
            while packed == _AT_ONCE:
                if not keep_on():
                    return count
                packed = transact(engine, partial(_pack_some, hour=day + hour * _HOUR, packer=packer))
                count += packed
        done = sa.update(_DAYS).where(_DAYS.c.day == day).values(done=datetime.now(UTC))
        transact(engine, partial(_execute, done))
    return count


def _open_days(engine: sa.Engine, end: datetime) -> Iterator[datetime]:
    """The days before `end` that have hours and are not packed, the oldest first."""
    with engine.connect() as connection:
        done = set(connection.scalars(sa.select(_DAYS.c.day).where(_DAYS.c.done.is_not(None))))
    query = sa.select(sa.func.min(_TABLE.c.time, type_=schema.UtcTime())).where(_TABLE.c.time < end)
    since: datetime | None = None
    while True:
        while since is not None and since in done:
            since += _DAY
        with engine.connect() as connection:
            first = connection.scalar(query if since is None else query.where(_TABLE.c.time >= since))
        if first is None:
            return
        since = day_of(first)
        if since not in done:
            yield since
            since += _DAY


def _packer(engine: sa.Engine, day: datetime) -> zstandard.ZstdCompressor:
    """What packs a day's hours: with the dictionary that it has by now, or a new one."""

    def dictionary(connection: sa.Connection) -> bytes:
        columns = sa.select(sa.cast(_TABLE.c.devices, sa.Text))
        query = columns.where(_TABLE.c.time >= day, _TABLE.c.time < day + _DAY, _TABLE.c.devices.is_not(None))
        texts = [condensed(t).encode() for t in connection.scalars(query.limit(_SAMPLE)) if len(t) <= _MOST_CHARS]
        row = insert_into(connection, _DAYS).values(day=day, dictionary=_trained(texts))
        connection.execute(row.on_conflict_do_nothing())
        return bytes(connection.scalars(sa.select(_DAYS.c.dictionary).where(_DAYS.c.day == day)).one())

    made = transact(engine, dictionary)
    # A frame need not tell its dictionary, which is its day's.
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=zstd_dictionary(made), write_dict_id=False)


def _trained(texts: list[bytes]) -> bytes:
    try:
        return bytes(zstandard.train_dictionary(_DICTIONARY_BYTES, [*texts]).as_bytes()) if texts else b""
    except zstandard.ZstdError:  # too few, or all too short
        return b""


def _execute(statement: sa.Executable, connection: sa.Connection) -> None:
    connection.execute(statement)


def _pack_some(connection: sa.Connection, hour: datetime, packer: zstandard.ZstdCompressor) -> int:
    """Pack some rows of an hour, which nobody changes meanwhile."""
    within = (_TABLE.c.time >= hour, _TABLE.c.time < hour + _HOUR)
    columns = (_TABLE.c.node, _TABLE.c.time, sa.cast(_TABLE.c.devices, sa.Text), _TABLE.c.packed)
    query = sa.select(*columns).where(*within, _TABLE.c.devices.is_not(None)).order_by(_TABLE.c.node)
    hours = PackedHours(connection)
    rows = [
        {"of": node, "at": time, "packed": packer.compress(condensed(hours.text(time, text, packed) or "").encode())}
        for node, time, text, packed in connection.execute(query.limit(_AT_ONCE).with_for_update()).all()
    ]
    if not rows:
        return 0
    if connection.dialect.name == "postgresql":
        values: dict[str, Any] = {name: [row[name] for row in rows] for name in ("of", "at", "packed")}
        connection.connection.cursor().execute(_PACK, {**values, "first": hour, "end": hour + _HOUR})
    else:
        row = (_TABLE.c.node == sa.bindparam("of"), _TABLE.c.time == sa.bindparam("at", type_=schema.UtcTime()))
        packed = sa.bindparam("packed", type_=sa.LargeBinary())
        connection.execute(sa.update(_TABLE).where(*row).values(devices=None, packed=packed), rows)
    return len(rows)


_PACK = """
UPDATE telemetry AS t SET devices = NULL, packed = p.packed
FROM unnest(%(of)s::text[], %(at)s::timestamptz[], %(packed)s::bytea[]) AS p (node, time, packed)
WHERE t.node = p.node AND t.time = p.time AND t.time >= %(first)s AND t.time < %(end)s"""
