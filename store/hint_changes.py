"""What has changed about hints since a caller last asked, for schedulers that pull: at least once, and no gaps.

    page = changed_hints(connection, after=seq, limit=100)
    page.hints, page.seq        # ask again with after=page.seq

Changes are numbered by the audit. On PostgreSQL a transaction may take a lower number and commit later than one with a
higher one: who read on at once would pass it over. So nothing is told beyond the newest number before which no
transaction can still add one: those that are writing to the audit just then are waited for, as CREATE INDEX
CONCURRENTLY does, without holding anybody up. SQLite has one writer.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from store import schema
from store.bulk_rows import among
from store.hint import Hint
from store.hint_log import hint_of

_AUDIT, _HINTS = schema.audit, schema.hints
_WAIT_S = 2.0
_WRITERS = sa.text(
    "SELECT virtualtransaction FROM pg_locks WHERE relation = to_regclass('audit') AND mode = 'RowExclusiveLock'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True, slots=True)
class ChangedHints:
    """Hints as they are now, in the order of their last change on this page, and where to go on."""

    hints: Sequence[Hint]
    seq: int
    more: bool


def changed_hints(connection: sa.Connection, after: int, limit: int, wait_s: float = _WAIT_S) -> ChangedHints:
    """The hints with changes numbered beyond `after`, ended ones too; at most `limit` changes are looked at.

    Where a transaction keeps writing for longer than `wait_s`, the page is empty: ask again.
    """
    horizon = settled_seq(connection, wait_s)
    if horizon is None or horizon <= after:
        return ChangedHints([], after, more=False)
    query = sa.select(_AUDIT.c.seq, _AUDIT.c.subject).where(_AUDIT.c.seq > after, _AUDIT.c.seq <= horizon)
    rows = connection.execute(query.order_by(_AUDIT.c.seq).limit(limit)).all()
    last = {subject: seq for seq, subject in rows}
    found = connection.execute(sa.select(_HINTS).where(among(connection, _HINTS.c.id, last))).mappings()
    hints = sorted((hint_of(row) for row in found), key=lambda hint: last[hint.id])
    more = len(rows) == limit
    return ChangedHints(hints, rows[-1].seq if more else horizon, more)


def seq_before(connection: sa.Connection, moment: datetime) -> int:
    """The number of the last change before the first one at a moment or later."""
    first = connection.scalar(sa.select(sa.func.min(_AUDIT.c.seq)).where(_AUDIT.c.time >= moment))
    return first - 1 if first is not None else _newest(connection)


def settled_seq(connection: sa.Connection, wait_s: float) -> int | None:
    """The newest number below which no change can appear any more; None: not known within `wait_s`."""
    newest = _newest(connection)
    if connection.dialect.name != "postgresql":
        return newest
    # Whoever took a lower number has held this lock since before, and lets go of it once its rows can be seen.
    writing = set(connection.execute(_WRITERS).scalars())
    deadline = time.monotonic() + wait_s
    while writing:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
        writing &= set(connection.execute(_WRITERS).scalars())
    return newest


def _newest(connection: sa.Connection) -> int:
    return connection.scalar(sa.select(sa.func.max(_AUDIT.c.seq))) or 0
