"""The control group: a few nodes, drawn by chance anew each period, of which nothing is asked for their score alone.

Were every node that looks bad taken out of use, nobody would know any more which of them would have failed, and a
model trained on that is blind to what its own hints prevented (FIELD A2, A3.4).

A node is drawn by a keyed hash of its name and the period: every server that shares the database draws the same, and
who does not know the key can neither foresee nor choose it.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import sqlalchemy as sa

from store.database.connections import writing
from store.records.event import EPOCH
from store.tables import schema
from store.tables.bulk_rows import insert_into

_NAME = "control"
_WHOLE = 2.0**64


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """Who is in it: `share` of all nodes, drawn anew every `period`."""

    key: bytes
    share: float
    period: timedelta

    @classmethod
    def of(cls, key: bytes | None, percent: float, period_days: float) -> "ControlGroup | None":
        """The group of some settings; None where nobody is drawn, or nobody has made a key yet."""
        if key is None or percent <= 0.0 or period_days <= 0.0:
            return None
        return cls(key, percent / 100.0, timedelta(days=period_days))

    def holds(self, node: str, now: datetime) -> bool:
        """Whether a node is in the group of the period that a moment lies in."""
        return self.draws(f"{self.number(now)} {node}")

    def among(self, nodes: Iterable[str], now: datetime) -> frozenset[str]:
        """Those of many nodes that are in the group; kept, for the same thousands are asked for all the time."""
        return _is_drawn(self, self.number(now), tuple(nodes))

    def draws(self, text: str) -> bool:
        """Whether a text is drawn."""
        drawn = hashlib.blake2b(text.encode(), digest_size=8, key=self.key).digest()
        return int.from_bytes(drawn) / _WHOLE < self.share

    def number(self, now: datetime) -> int:
        """Which period a moment lies in."""
        return (now - EPOCH) // self.period


@lru_cache(maxsize=4)
def _is_drawn(group: ControlGroup, number: int, nodes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(node for node in nodes if group.draws(f"{number} {node}"))


def read_control_key(connection: sa.Connection) -> bytes | None:
    """The key that all servers of a database share; None while no policy has run there."""
    found = connection.scalar(sa.select(schema.keys.c.key).where(schema.keys.c.name == _NAME))
    return None if found is None else bytes(found)


def control_key(engine: sa.Engine) -> bytes:
    """The same; made by the first that asks."""
    with engine.connect() as connection:
        found = read_control_key(connection)
    if found is not None:
        return found
    with writing(engine).begin() as connection:
        made = insert_into(connection, schema.keys).values(name=_NAME, key=secrets.token_bytes(32))
        connection.execute(made.on_conflict_do_nothing())
        return read_control_key(connection) or b""
