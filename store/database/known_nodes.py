"""Which nodes there are, and by whose word: the inventory.

    replace_known(connection, "scheduler:slurm", names)      # a scheduler that was read back; others keep theirs
    add_known(connection, ARCHIVE, names)                    # nodes.csv
    query.where(is_counted(schema.nodes.c.node))             # quorum, percentages, placement, spares

What a node says of itself (events, heartbeats, telemetry, alerts) makes a row in `nodes`, and nothing here: whoever may
send could otherwise invent a thousand nodes. Where nobody at all gives an inventory, every node counts that speaks, and
no node is held without a person's yes (`is_given`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from store.database.coordination import move_mark
from store.tables import hint_tables, schema
from store.tables.bulk_rows import insert_into, is_one_of

OPERATOR, ARCHIVE, TOPOLOGY, TOKEN = "operator", "archive", "topology", "token"
SCHEDULER = "scheduler:"  # begins the word for a scheduler, before its name
# The mark that moves when the inventory changes.
INVENTORY = "inventory"
_TABLE = schema.inventory
_PLACED = hint_tables.placements


def is_given(connection: sa.Connection) -> bool:
    """Whether anybody says which nodes there are. Tokens alone do not: each speaks for one node."""
    return bool(connection.scalar(sa.select(_has_inventory())))


def _has_inventory() -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(sa.literal(1)).select_from(_TABLE))


def is_counted(node: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a node counts: the inventory knows it, or nobody gives one."""
    return sa.or_(sa.not_(_has_inventory()), node.in_(sa.select(_TABLE.c.node)), node.in_(_issued()))


def _issued() -> sa.Select[Any]:
    """The nodes that have a token of their own: a pattern of several is no node's name, and so finds none."""
    return sa.select(schema.tokens.c.node).where(schema.tokens.c.revoked.is_(None))


def counts(connection: sa.Connection, node: str) -> bool:
    """Whether one node counts."""
    return bool(connection.scalar(sa.select(is_counted(sa.literal(node, sa.Text)))))


def absent_hints() -> sa.Select[Any]:
    """Ids of the hints whose node no scheduler knows that was asked for them."""
    other = _PLACED.alias("other")
    elsewhere = sa.exists(sa.select(sa.literal(1)).where(other.c.hint == _PLACED.c.hint, other.c.state != "absent"))
    return sa.select(_PLACED.c.hint).where(_PLACED.c.state == "absent", sa.not_(elsewhere))


def known_names(connection: sa.Connection, by: str | None = None) -> frozenset[str]:
    """Every name of the inventory, or those by one word."""
    query = sa.select(_TABLE.c.node).distinct()
    return frozenset(connection.scalars(query if by is None else query.where(_TABLE.c.known_by == by)))


def knowers(connection: sa.Connection, nodes: Sequence[str]) -> Mapping[str, str]:
    """By whose word each of some nodes is known: the strongest; a node that is not known is not in it."""
    issued = _issued().with_only_columns(schema.tokens.c.node, sa.literal(TOKEN)).distinct()
    query = sa.union_all(
        sa.select(_TABLE.c.node, _TABLE.c.known_by).where(is_one_of(connection, _TABLE.c.node, nodes)),
        issued.where(is_one_of(connection, schema.tokens.c.node, nodes)),
    )
    found: dict[str, str] = {}
    for node, word in sorted(connection.execute(query), key=lambda row: _strength(row[1])):
        found.setdefault(node, word)
    return found


def count_known(connection: sa.Connection) -> Mapping[str, int]:
    """How many nodes are known by each word."""
    query = sa.select(_TABLE.c.known_by, sa.func.count()).group_by(_TABLE.c.known_by).order_by(_TABLE.c.known_by)
    return {word: int(count) for word, count in connection.execute(query)}


def never_heard(connection: sa.Connection) -> list[str]:
    """The names of the inventory that were never heard of, in order."""
    heard = sa.select(schema.nodes.c.node).where(schema.nodes.c.last_seen.is_not(None))
    query = sa.select(_TABLE.c.node).distinct().where(_TABLE.c.node.not_in(heard)).order_by(_TABLE.c.node)
    return list(connection.scalars(query))


def count_unknown(connection: sa.Connection) -> int:
    """How many nodes speak that the inventory does not know."""
    nodes = schema.nodes.c.node
    return int(connection.scalar(sa.select(sa.func.count(nodes)).where(sa.not_(is_counted(nodes)))) or 0)


def add_known(connection: sa.Connection, by: str, names: Iterable[str]) -> None:
    """Note that nodes are known by a word; those that are so already stay."""
    new = set(names) - known_names(connection, by)
    if new:
        _insert(connection, by, new)
        move_mark(connection, INVENTORY)


def append_named(connection: sa.Connection, names: Iterable[str]) -> None:
    """Rows of `nodes` for those that were not heard of yet: an operator names them, so they count."""
    have = frozenset(connection.scalars(sa.select(schema.nodes.c.node)))
    new = [{"node": name} for name in sorted(set(names) - have)]
    if new:
        connection.execute(insert_into(connection, schema.nodes).on_conflict_do_nothing(), new)


def replace_known(connection: sa.Connection, by: str, names: Iterable[str]) -> bool:
    """Note that exactly these nodes are known by a word; says whether that changes anything."""
    wanted, were = frozenset(names), known_names(connection, by)
    if wanted == were:
        return False
    if gone := were - wanted:
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.known_by == by, is_one_of(connection, _TABLE.c.node, gone)))
    if new := wanted - were:
        _insert(connection, by, new)
    move_mark(connection, INVENTORY)
    return True


def _insert(connection: sa.Connection, by: str, names: Iterable[str]) -> None:
    """Rows of nodes by a word; another process may write the same at the same moment."""
    rows = [{"node": name, "known_by": by} for name in sorted(names)]
    connection.execute(insert_into(connection, _TABLE).on_conflict_do_nothing(), rows)


def _strength(word: str) -> int:
    """The place of a word among the others: an operator's first."""
    order = (OPERATOR, SCHEDULER, TOPOLOGY, ARCHIVE, TOKEN)
    return next((place for place, name in enumerate(order) if word.startswith(name)), len(order))
