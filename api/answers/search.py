"""What has a name: nodes, what they are called besides, runs, incidents, verdicts and hints, for whoever types one.

    search(connection, "gpu-01")          # nodes whose name begins so, then those that have it inside
    search(connection, "1650523000011")   # the node whose GPU has this serial number

A name of a device, an id and a job's number must be whole; names of nodes, runs and causes may be a part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.events.incident_thread import incident_known_by
from store.records.node import NAME_KINDS
from store.tables import hint_tables, schema, verdict_tables
from store.tables.topology_tables import device_names

SearchKind: TypeAlias = Literal["node", "device", "run", "incident", "verdict", "hint"]
# Of each kind: who types two letters wants no list of a thousand.
_MOST_OF_A_KIND = 8


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One thing that bears the name: its id, its own name, what else tells it apart, and its node, if it has one."""

    kind: SearchKind
    id: str
    name: str
    detail: str = ""
    node: str | None = None


def search(connection: sa.Connection, text: str, most: int) -> list[SearchResult]:
    """What bears a name, or has it in its own; whole names first, at most so many of them.

    Args:
        text: not empty; capitals and small letters are the same in names of nodes, runs and causes.
    """
    ways = (_whole, _nodes, _runs, _causes)
    found = (result for way in ways for result in islice(way(connection, text), _MOST_OF_A_KIND))
    return list(dict.fromkeys(islice(found, most)))


def _whole(connection: sa.Connection, text: str) -> Iterator[SearchResult]:
    """By an id, a job's number, or another name of a device."""
    incident = incident_known_by(connection, text)
    if incident is not None:
        kind = incident["kind"] if incident["code"] is None else f"{incident['kind']} {incident['code']}"
        yield SearchResult("incident", incident["id"], kind, incident["severity"], incident["node"])
    c = verdict_tables.verdicts.c
    for row in connection.execute(_verdicts().where(c.id == text)):
        yield _cause(row)
    hints = hint_tables.hints
    for row in connection.execute(
        sa.select(hints.c.id, hints.c.action, hints.c.state, hints.c.node).where(hints.c.id == text)
    ):
        yield SearchResult("hint", row.id, row.action, row.state, row.node)
    jobs = schema.jobs.c
    for row in connection.execute(sa.select(jobs.run).where(jobs.job_id == text).distinct().limit(_MOST_OF_A_KIND)):
        yield SearchResult("run", row.run, row.run, f"job {text}")
    yield from _devices(connection, text)


def _devices(connection: sa.Connection, text: str) -> Iterator[SearchResult]:
    """GUIDs and serial numbers are told in small letters or in capitals."""
    c, spelt = device_names.c, {text, text.lower(), text.upper()}
    query = sa.select(c["class"], c.device, c.kind).where(c.kind.in_(NAME_KINDS), c.name.in_(spelt), c.until.is_(None))
    for row in connection.execute(query.order_by(c.device).limit(_MOST_OF_A_KIND)):
        node = None if row[0] == "switch" else row.device.partition("/")[0]
        yield SearchResult("device", row.device, row.device, f"{row.kind} of a {row[0]}", node)


def _nodes(connection: sa.Connection, text: str) -> Iterator[SearchResult]:
    c = schema.nodes.c
    query = sa.select(c.node, c.rack, c.leaf).where(is_counted(c.node), _within(c.node, text))
    for row in connection.execute(query.order_by(*_nearest(c.node, text)).limit(_MOST_OF_A_KIND)):
        place = ", ".join(f"{kind} {name}" for kind, name in (("rack", row.rack), ("leaf", row.leaf)) if name)
        yield SearchResult("node", row.node, row.node, place, row.node)


def _runs(connection: sa.Connection, text: str) -> Iterator[SearchResult]:
    c = schema.jobs.c
    query = sa.select(c.run).where(_within(c.run, text)).group_by(c.run).order_by(*_nearest(c.run, text))
    for row in connection.execute(query.limit(_MOST_OF_A_KIND)):
        yield SearchResult("run", row.run, row.run)


def _causes(connection: sa.Connection, text: str) -> Iterator[SearchResult]:
    """Verdicts by the name of what they hold to be the cause, the newest first."""
    c = verdict_tables.verdicts.c
    for row in connection.execute(
        _verdicts().where(_within(c.name, text)).order_by(c.since.desc()).limit(_MOST_OF_A_KIND)
    ):
        yield _cause(row)


def _verdicts() -> sa.Select[Any]:
    c = verdict_tables.verdicts.c
    return sa.select(c.id, c["class"], c.name, c.state, c.node)


def _cause(row: Any) -> SearchResult:
    return SearchResult("verdict", row.id, row.name, f"{row[1]}, {row.state}", row.node)


def _within(column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(text.lower(), autoescape=True)


def _nearest(column: sa.ColumnElement[Any], text: str) -> tuple[Any, ...]:
    """The very name first, then those that begin so, then by name."""
    name, wanted = sa.func.lower(column), text.lower()
    return name != wanted, ~name.startswith(wanted, autoescape=True), column
