"""What each detector said of a node: the parts of its incidents, where an incident joins those of a minute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.records.event import Cause, Severity
from store.records.incident import Incident, incident_of
from store.tables import hint_tables, schema
from store.tables.bulk_rows import as_rows, is_one_of
from store.tables.pages import backwards, between

# The present state of every node: what the lists and the policy ask for, in a few queries over small sets.


def node_places(connection: sa.Connection, among_nodes: Sequence[str] | None = None) -> Sequence[Any]:
    """Of every node that counts (name, rack, leaf, driver, NVLink domain, GPUs), by name: they are many."""
    nodes = schema.nodes.c
    columns = (nodes.node, nodes.rack, nodes.leaf, nodes.driver, nodes.nvlink_domain, nodes.gpus)
    query = sa.select(*columns).where(is_counted(nodes.node)).order_by(nodes.node)
    if among_nodes is not None:
        query = query.where(is_one_of(connection, nodes.node, among_nodes))
    return connection.execute(query).all()


def unusual_gpus(connection: sa.Connection, usual: int) -> dict[str, int]:
    """The GPUs of the nodes that count and have another number than is usual; nothing of one of which none is known."""
    nodes = schema.nodes.c
    query = sa.select(nodes.node, nodes.gpus).where(is_counted(nodes.node), nodes.gpus != usual, nodes.gpus > 0)
    return dict(connection.execute(query).all())


def newest_scores(
    connection: sa.Connection, horizon_h: int, at: datetime, node: str | None = None, since: datetime | None = None
) -> tuple[datetime | None, dict[str, float]]:
    """When nodes were last scored for a horizon, no later than a moment, and each node's score then.

    A node that was not scored then (it was out of service, say) has none, rather than an old one. Of a moment before
    `since` nothing is told.
    """
    table = schema.scores
    moment = newest_scoring(connection, horizon_h, at, since)
    if moment is None:
        return None, {}
    query = sa.select(table.c.node, table.c.score).where(table.c.horizon_h == horizon_h, table.c.time == moment)
    return moment, dict(connection.execute(_of(query, table.c.node, node)).all())


def is_of_prior(connection: sa.Connection, horizon_h: int, moment: datetime | None) -> bool:
    """Whether the scores of a moment are a prior's: a model that has learned nothing here yet."""
    scores, models = schema.scores.c, schema.models.c
    one = sa.select(scores.model).where(scores.horizon_h == horizon_h, scores.time == moment).limit(1).scalar_subquery()
    return connection.scalar(sa.select(models.kind).where(models.id == one)) == "prior"


def newest_scoring(
    connection: sa.Connection, horizon_h: int, at: datetime, since: datetime | None = None
) -> datetime | None:
    """When nodes were last scored for a horizon, no later than a moment, and not before another."""
    table = schema.scores
    query = sa.select(sa.func.max(table.c.time, type_=schema.UtcTime())).where(table.c.horizon_h == horizon_h)
    for begin, end in backwards(at, since):
        moment: datetime | None = connection.scalar(between(query, table.c.time, begin, end).where(table.c.time <= at))
        if moment is not None:
            return moment
    return None


def score_reasons(
    connection: sa.Connection, horizon_h: int, keys: Sequence[tuple[str, datetime]]
) -> dict[str, list[Any]]:
    """The reasons of the scores of (node, time), as they are stored; few moments, please."""
    found: dict[str, list[Any]] = {node: [] for node, _time in keys}
    for moment in {time for _node, time in keys}:
        nodes = [node for node, time in keys if time == moment]
        some = scores_of_some(connection, horizon_h, moment, nodes, "reasons")
        found.update((node, reasons or []) for node, reasons in some.items())
    return found


def scores_of_some(
    connection: sa.Connection,
    horizon_h: int,
    moment: datetime,
    nodes: Sequence[str],
    column: Literal["score", "reasons"],
) -> dict[str, Any]:
    """The score, or its reasons, of those of some nodes that were scored at a moment, by name."""
    named = as_rows(connection, set(nodes))
    one = scores_beside(connection, named.c.value, horizon_h, moment)
    query = sa.select(one.c.node, one.c[column]).select_from(named.join(one, one.c.node == named.c.value))
    return dict(connection.execute(query).all())


def scores_beside(
    connection: sa.Connection, node: sa.ColumnElement[str], horizon_h: int, moment: datetime
) -> sa.FromClause:
    """The scores of a moment (`node score reasons`), to be joined with few nodes.

    Of a scoring that is newer than its statistics PostgreSQL expects one row, and would read all of it once for each
    node. So it is to look for one node after the other: the limit keeps the query apart, the sum the wrong index out.
    """
    table = schema.scores
    query = sa.select(table.c.node, table.c.score, table.c.reasons).where(table.c.time == moment)
    if connection.dialect.name != "postgresql":
        return query.where(table.c.horizon_h == horizon_h).subquery()
    return query.where(table.c.horizon_h + 0 == horizon_h, table.c.node == node).limit(1).lateral()


def nodes_out(connection: sa.Connection, at: datetime, node: str | None = None) -> set[str]:
    """Nodes with an outage that is open at a moment; those that are out for our own hint alone are not among them."""
    table = schema.outages
    query = sa.select(table.c.node).where(table.c.start <= at, sa.or_(table.c.end.is_(None), table.c.end > at))
    query = query.where(not_ours(table.c.reason))
    return set(connection.scalars(_of(query, table.c.node, node)))


def not_ours(reason: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether an outage is another's than a drain of ours, which Slurm records like any."""
    return sa.or_(reason.is_(None), reason.not_like("foreshock:%"))


def last_repairs(connection: sa.Connection, since: datetime, now: datetime) -> dict[str, datetime]:
    """When each node's newest outage ended, of those that ended within a window and were no drain of ours."""
    outages = schema.outages
    ended = sa.select(outages.c.node, sa.func.max(outages.c.end, type_=schema.UtcTime()).label("end"))
    ended = ended.where(outages.c.end >= since, outages.c.end <= now, not_ours(outages.c.reason))
    return {row.node: row.end for row in connection.execute(ended.group_by(outages.c.node))}


def still_shown(since: datetime) -> sa.ColumnElement[bool]:
    """Whether a gauge has shown since a moment that an incident's fault stands, and no person let the node go since."""
    incidents, let_go = schema.incidents.c, hint_tables.node_releases.c
    by_person = sa.exists().where(let_go.node == incidents.node, let_go.time >= incidents.end)
    return sa.and_(incidents.shown >= since, ~by_person)


def oldest_shown(connection: sa.Connection, since: datetime) -> datetime:
    """When the oldest fault ended that a gauge has shown since a moment; that moment where none is older."""
    column = schema.incidents.c.end
    query = sa.select(sa.func.min(column, type_=schema.UtcTime())).where(schema.incidents.c.shown >= since)
    oldest: datetime | None = connection.scalar(query)
    return since if oldest is None else min(oldest, since)


def unrepaired_faults(
    connection: sa.Connection,
    since: datetime,
    now: datetime,
    until: datetime | None = None,
    repaired: Mapping[str, datetime] | None = None,
    is_own: Callable[[Incident], bool] = lambda _incident: True,
) -> dict[str, Incident]:
    """Each node's newest confirmed fault (a fatal hardware incident) since a moment that no outage has ended.

    One that ended before counts as well, where a gauge has shown since that it stands (`still_shown`).
    After an outage the node has been seen to, but not after a drain of ours. What ended before the node's machine came
    into service was another machine's. An incident dated after `now` counts (its host's clock runs ahead), but where it
    began after `until`, for whoever looks back.

    Args:
        repaired: when nodes were seen to, from `oldest_shown` on; None: by the outages that are told.
        is_own: whether a fault counts as its node's own.
    """
    incidents = schema.incidents
    if repaired is None:
        repaired = last_repairs(connection, oldest_shown(connection, since), now)
    query = sa.select(incidents).select_from(incidents.outerjoin(schema.nodes, schema.nodes.c.node == incidents.c.node))
    query = query.where(
        of_this_machine(now),
        incidents.c.severity == "fatal",
        incidents.c.cause == "hardware",
        incidents.c.node.is_not(None),
        sa.or_(incidents.c.end >= since, still_shown(since)),
    )
    if until is not None:
        query = query.where(incidents.c.start <= until)
    found: dict[str, Incident] = {}
    for row in connection.execute(query.order_by(incidents.c.start)).mappings():
        incident = incident_of(row)
        if incident.node is None or (incident.node in repaired and repaired[incident.node] >= incident.end):
            continue
        if is_own(incident):
            found[incident.node] = incident
    return found


def watched_links(
    connection: sa.Connection, since: datetime, now: datetime, until: datetime | None = None
) -> dict[str, Incident]:
    """Each node's newest incident since a moment that is an NVLink which stands out among those of its domain."""
    incidents = schema.incidents
    query = sa.select(incidents).select_from(incidents.outerjoin(schema.nodes, schema.nodes.c.node == incidents.c.node))
    query = query.where(
        of_this_machine(now),
        incidents.c.severity == "warning",
        incidents.c.start >= since,
        incidents.c.start <= (until or now),
        incidents.c.kind == "nvlink_outlier",
        incidents.c.node.is_not(None),
    )
    found = (incident_of(row) for row in connection.execute(query.order_by(incidents.c.start)).mappings())
    return {incident.node: incident for incident in found if incident.node is not None}


def of_this_machine(now: datetime) -> sa.ColumnElement[bool]:
    """Whether an incident, joined to its node, is not that of a machine that another has taken the place of."""
    machine = schema.nodes.c.in_service_since
    return sa.or_(machine.is_(None), machine > now, machine <= schema.incidents.c.end)


def last_faults(connection: sa.Connection, nodes: Sequence[str]) -> dict[str, datetime]:
    """When each of a few nodes last showed a fatal hardware fault, repaired or not."""
    table = schema.incidents
    newest = sa.func.max(table.c.end, type_=schema.UtcTime())
    query = sa.select(table.c.node, newest).where(table.c.severity == "fatal", table.c.cause == "hardware")
    found = connection.execute(query.where(is_one_of(connection, table.c.node, nodes)).group_by(table.c.node)).all()
    return {node: moment for node, moment in found if node is not None}


def out_of_service(connection: sa.Connection, now: datetime) -> set[str]:
    """Nodes that are not in service yet, or no more."""
    nodes = schema.nodes.c
    over = sa.or_(nodes.in_service_since > now, nodes.in_service_until <= now)
    return set(connection.scalars(sa.select(nodes.node).where(over)))


# The moment until which nodes were heard of is the word of so many of them: one whose clock runs ahead, or that lies,
# does not make a cluster look heard of.
_MOST_WITNESSES, _NODES_A_WITNESS = 3, 4


def heard_until(connection: sa.Connection, at: datetime) -> datetime | None:
    """Until when nodes that count were heard of, before a moment; None: none ever was.

    It is the newest moment that three of them have reached, of a small cluster one in four.
    """
    nodes = schema.nodes.c
    counted = is_counted(nodes.node)
    some = sa.select(nodes.node).where(counted).limit(_MOST_WITNESSES * _NODES_A_WITNESS).subquery()
    total = connection.scalar(sa.select(sa.func.count()).select_from(some)) or 0
    witnesses = max(1, total // _NODES_A_WITNESS)
    query = sa.select(nodes.last_seen).where(counted, nodes.last_seen.is_not(None))
    newest = connection.scalars(query.order_by(nodes.last_seen.desc()).limit(witnesses)).all()
    return min(newest[-1], at) if len(newest) == witnesses else None


def _of(query: sa.Select[Any], column: sa.ColumnElement[Any], node: str | None) -> sa.Select[Any]:
    """The query for one node, or for all."""
    return query if node is None else query.where(column == node)


@dataclass(frozen=True, slots=True)
class FaultSign:
    """One thing that one source said; `end` is when it last did, as far as it is kept."""

    incident: str
    source: str
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    start: datetime
    end: datetime


def fault_signs(
    connection: sa.Connection, since: datetime, now: datetime, until: datetime | None = None
) -> dict[str, list[FaultSign]]:
    """What was said of each node in its incidents of at least an error that showed since a moment.

    Args:
        now: what ended before the node's present machine came into service was another's.
        until: leave out what began later; None: nothing, for a host's clock may run ahead.
    """
    table = schema.incidents.c
    query = sa.select(
        *(table.node, table.id, table.source, table.kind, table.code, table.severity, table.cause),
        *(table.start, table.end, table.heads),
    ).select_from(schema.incidents.outerjoin(schema.nodes, schema.nodes.c.node == table.node))
    query = query.where(
        of_this_machine(now), table.severity.in_(("error", "fatal")), table.node.is_not(None), table.end >= since
    )
    if until is not None:
        query = query.where(table.start <= until)
    found: dict[str, list[FaultSign]] = {}
    for node, ident, source, kind, code, severity, cause, start, end, heads in connection.execute(query):
        signs = found.setdefault(node, [])
        if heads is None:
            signs.append(FaultSign(ident, source or "", kind, code, severity, cause, start, end))
        else:
            signs += _of_heads(ident, heads, end, until)
    return found


class _Head(msgspec.Struct, frozen=True):
    """What a sign takes over of a head (`diagnosis/incidents/root.py`, IncidentHead)."""

    time: datetime
    kind: str
    code: int | None
    severity: Any
    cause: Any
    source: str | None = None
    follows: bool = False


_HEADS = msgspec.json.Decoder(list[_Head])


def _of_heads(ident: str, heads: str, end: datetime, until: datetime | None) -> Sequence[FaultSign]:
    """The signs of an incident of several things, without mere consequences."""
    return [
        FaultSign(
            ident, head.source or "", head.kind, head.code, head.severity, head.cause, head.time, max(head.time, end)
        )
        for head in _HEADS.decode(heads)
        if not head.follows and (until is None or head.time <= until)
    ]
