"""Closed days on PostgreSQL, written anew once: without the room that their writers needed.

    compact_days(engine, ("events", "telemetry"), before, keep_on)

Rows that come in no order leave a quarter of an index's pages empty; roll-ups that are written again every five minutes
leave their former selves behind. A day that is over gets few rows more: its indexes are filled to the last byte, and
its table holds what there is. The comment of its table says that it is done.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from store.database.partitions import LOCK_TIMEOUT_MS, Partition, is_lock_busy, partitions

# Who reads a day waits while it is written anew: up to four seconds for the telemetry of 12,500 nodes, which is 150 MB,
# half a second for each index of their events. Larger ones stay as they are.
_MOST_BYTES = 1 << 30
_SIGN = "closed: written anew"
_log = logging.getLogger(__name__)


def compact_days(
    engine: sa.Engine, tables: Iterable[str], before: datetime, keep_on: Callable[[], bool] = lambda: True
) -> int:
    """Write the days anew that ended by a moment and were not yet; returns how many. On SQLite there are none.

    A day whose lock is not to be had at once waits for the next call.
    """
    count = 0
    for table in tables:
        with engine.connect() as connection:
            parts = [part for part in partitions(connection, table) if part.until is not None and part.until <= before]
        for part in parts:
            if not keep_on():
                return count
            count += _compact(engine, part)
    return count


def _compact(engine: sa.Engine, part: Partition) -> bool:
    """Whether it is done now, and was not before."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        size, sign = connection.execute(_STATE, {"name": part.name}).one()
        if sign == _SIGN or size > _MOST_BYTES:
            return False
        try:
            connection.execute(sa.text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))
            indexes = connection.scalars(_INDEXES, {"name": part.name}).all()
            for index in indexes:
                connection.execute(sa.text(f"ALTER INDEX {index} SET (fillfactor = 100)"))
            # Events are never written again: their table is full as it is. One index at a time, and others have a turn.
            anew = [f"REINDEX INDEX {index}" for index in indexes]
            for statement in anew if part.table == "events" else [f"VACUUM (FULL, ANALYZE) {part.name}"]:
                connection.execute(sa.text(statement))
            connection.execute(sa.text(f"COMMENT ON TABLE {part.name} IS '{_SIGN}'"))
        except DBAPIError as error:
            if not is_lock_busy(error):
                raise
            _log.info("%s is in use: it is written anew another time", part.name)
            return False
        finally:
            connection.execute(sa.text("RESET lock_timeout"))
    return True


_STATE = sa.text(
    "SELECT pg_relation_size(c.oid), obj_description(c.oid, 'pg_class') FROM pg_class c"
    " WHERE c.oid = to_regclass(:name)"
)
_INDEXES = sa.text(
    "SELECT c.oid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = to_regclass(:name) AND a.amname = 'btree'"
)
