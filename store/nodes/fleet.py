"""What there is to know of nodes as places for work: where they are, their risk, their open hint.

known = SchedulableNodes()                              # one for each database
places = known.read(connection, fleet)                  # `fleet` as below
places = known.read(connection, fleet, ["gpu-001"])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import sqlalchemy as sa

from store.database.known_nodes import absent_hints, is_counted
from store.models.scores import KnownScores
from store.nodes.node_states import not_ours, scores_beside, still_shown
from store.records.hint import LIVE_STATES, OPEN_STATES
from store.tables import hint_tables, schema
from store.tables.bulk_rows import is_one_of
from store.tables.pages import answer_rows

# Every node's present state as one query: the database joins, judges, sorts and counts; Python sees a page.
#
#     fleet = Fleet(now, faulty_since=now - DAY, watch=0.1, silent_before=None, scored={24: moment, 168: None})
#     node_page(connection, fleet, NodePage(by_score=True, state="faulty", limit=100))
#
# A node's state is the first that applies: unknown (the inventory does not have it), out (an outage is open), cordoned
# (by a live hint of ours that a scheduler may hold), faulty (a fatal hardware incident that no outage has ended:
# of the last day, or a gauge showed within it that it stands), silent (not heard of), at_risk (its risk of 24 h is at
# the threshold), ok.
# A node that is out, faulty or silent has no score: it is withheld, for the model says when a node that works will
# fail. What it makes of one that has failed already, or tells nothing, may be low.

DAY_H, WEEK_H = 24, 168
_HOLDS = ("cordon", "drain")  # what keeps work off its node, once it is sent or about to be
_NO_SCORE = -1.0  # sorts behind every score
_SHOWN = ("node", "rack", "leaf", "gpu_model", "gpus", "driver", "last_seen")


@dataclass(frozen=True, slots=True)
class FleetQuery:
    """What the present is: `scored` is each horizon's newest scoring; `silent_before` None: none is silent."""

    now: datetime
    faulty_since: datetime
    watch: float
    silent_before: datetime | None
    scored: Mapping[int, datetime | None]


@dataclass(frozen=True, slots=True)
class NodePage:
    """Which nodes: the likeliest to fail first or by name; `after` is the node that ended the page before.

    `at_work`: only those that have a score and that no hint holds.
    """

    by_score: bool = False
    state: str | None = None
    node: str | None = None
    after: str | None = None
    limit: int | None = None
    at_work: bool = False


def node_page(connection: sa.Connection, fleet: FleetQuery, page: NodePage) -> list[dict[str, Any]]:
    """Nodes as objects of an answer: the columns of `nodes`, `state score_24h score_7d withheld reasons hint_id
    hint_action hint_state`, and `rank`.

    A page after a node that is gone is empty: who pages must not begin again.
    """
    shown = _page(connection, fleet, page).subquery("page")
    # The page alone is joined with what no state follows from.
    day, week = (_scores_beside(connection, shown.c.node, fleet, horizon_h) for horizon_h in (DAY_H, WEEK_H))
    joined = shown.outerjoin(day, day.c.node == shown.c.node).outerjoin(week, week.c.node == shown.c.node)
    reasons = sa.case((shown.c.withheld.is_(None), day.c.reasons), else_=sa.null())
    shown_columns = (
        shown,
        reasons.label("reasons"),
        _visible_score(shown.c.withheld, week.c.score).label("score_7d"),
    )
    whole = sa.select(*shown_columns).select_from(joined).subquery()
    return answer_rows(connection, whole, *_order(whole, page))


def node_risks(connection: sa.Connection, fleet: FleetQuery) -> Sequence[Any]:
    """Of every node, by name: `node state score_24h score_7d`."""
    states, week = node_states(fleet).subquery(), scores_of(fleet, WEEK_H)
    score_7d = _visible_score(states.c.withheld, week.c.score).label("score_7d")
    query = sa.select(states.c.node, states.c.state, states.c.score_24h, score_7d)
    joined = states.outerjoin(week, week.c.node == states.c.node)
    return connection.execute(query.select_from(joined).order_by(states.c.node)).all()


def count_states(connection: sa.Connection, fleet: FleetQuery) -> dict[str, tuple[int, int | None]]:
    """How many nodes are in each state that any is in, and their GPUs (None where no node's are known)."""
    states = node_states(fleet).subquery()
    query = sa.select(states.c.state, sa.func.count(), sa.func.sum(states.c.gpus)).group_by(states.c.state)
    found = connection.execute(query)
    return {state: (count, None if gpus is None else int(gpus)) for state, count, gpus in found}


def _page(connection: sa.Connection, fleet: FleetQuery, page: NodePage) -> sa.Select[Any]:
    """The nodes of a page."""
    # In the order of their names, no more nodes are judged than are shown.
    few = not (page.by_score or page.at_work or page.state or page.limit is None)
    day = _scores_beside(connection, schema.nodes.c.node, fleet, DAY_H) if few else None
    states = node_states(fleet, page.node, day).cte("fleet")
    query = sa.select(states)
    if page.state is not None:
        query = query.where(states.c.state == page.state)
    if page.at_work:
        query = query.where(states.c.state.in_(("ok", "at_risk")), states.c.rank > _NO_SCORE)
    if page.after is not None and page.by_score:
        mark = sa.select(states.c.rank).where(states.c.node == page.after).scalar_subquery()
        same = sa.and_(states.c.rank == mark, states.c.node > page.after)
        query = query.where(sa.or_(states.c.rank < mark, same))
    elif page.after is not None:
        query = query.where(sa.exists().where(schema.nodes.c.node == page.after), states.c.node > page.after)
    return query.order_by(*_order(states, page)).limit(page.limit)


def _order(states: sa.FromClause, page: NodePage) -> tuple[sa.ColumnElement[Any], ...]:
    return (states.c.rank.desc(), states.c.node) if page.by_score else (states.c.node,)


def node_states(
    fleet: FleetQuery, node: str | None = None, day: sa.FromClause | None = None, told_of: bool = False
) -> sa.Select[Any]:
    """Each node (or one) with its state and its score of 24 h, or why that is `withheld`; `rank` is what the list by
    risk is sorted by.

    Args:
        day: the scores, where few nodes are asked for (`scores_beside`).
        told_of: leave out the nodes whose state follows from their score alone, and that no hint is open for.
    """
    nodes = schema.nodes
    out, faulty, hints = _out(fleet), _faulty(fleet), _open_hints()
    day = scores_of(fleet, DAY_H) if day is None else day
    holding = hints.c.action.in_(_HOLDS) & hints.c.state.in_(LIVE_STATES) & hints.c.id.not_in(absent_hints())
    is_out = (out.c.node.is_not(None), "out")
    hides: list[tuple[sa.ColumnElement[bool], str]] = [is_out, (faulty.c.node.is_not(None), "faulty")]
    if fleet.silent_before is not None:
        hides.append((nodes.c.last_seen.is_(None) | (nodes.c.last_seen < fleet.silent_before), "silent"))
    judged = [
        (sa.not_(is_counted(nodes.c.node)), "unknown"),
        is_out,
        (holding, "cordoned"),
        *hides[1:],
        (day.c.score >= fleet.watch, "at_risk"),
    ]
    withheld = sa.case(*((rule, sa.literal(name)) for rule, name in hides), else_=sa.null())
    joined: sa.FromClause = nodes
    for other in (out, faulty, hints, day):
        joined = joined.outerjoin(other, other.c.node == nodes.c.node)
    query = sa.select(
        *(nodes.c[name] for name in _SHOWN),
        sa.case(*((rule, sa.literal(name)) for rule, name in judged), else_=sa.literal("ok")).label("state"),
        _visible_score(withheld, day.c.score).label("score_24h"),
        withheld.label("withheld"),
        sa.func.coalesce(_visible_score(withheld, day.c.score), _NO_SCORE).label("rank"),
        hints.c.id.label("hint_id"),
        hints.c.action.label("hint_action"),
        hints.c.state.label("hint_state"),
    ).select_from(joined)
    if told_of:
        some = sa.union_all(*(sa.select(each.c.node) for each in (out, faulty, hints)))
        query = query.where(sa.or_(nodes.c.node.in_(some), *(rule for rule, name in hides if name == "silent")))
    return query if node is None else query.where(nodes.c.node == node)


def _visible_score(withheld: sa.ColumnElement[Any], score: sa.ColumnElement[float]) -> sa.ColumnElement[float | None]:
    """A score where it is not withheld."""
    return sa.case((withheld.is_(None), score), else_=sa.null())


def withheld_scores(connection: sa.Connection, fleet: FleetQuery, names: Sequence[str]) -> dict[str, str]:
    """Of some nodes those whose score is withheld, with why: `out`, `faulty` or `silent`."""
    states = node_states(fleet, day=_scores_beside(connection, schema.nodes.c.node, fleet, DAY_H)).subquery()
    query = sa.select(states.c.node, states.c.withheld).where(states.c.withheld.is_not(None))
    return {
        row.node: row.withheld for row in connection.execute(query.where(is_one_of(connection, states.c.node, names)))
    }


def _out(fleet: FleetQuery) -> sa.CTE:
    """Nodes with an open outage."""
    table = schema.outages
    lasting = table.c.end.is_(None) | (table.c.end > fleet.now)
    return sa.select(table.c.node).where(table.c.start <= fleet.now, lasting).distinct().cte("out")


def _faulty(fleet: FleetQuery) -> sa.CTE:
    """Nodes with a confirmed fault that no outage has ended since. One dated later counts: a clock runs ahead.

    One that ended long ago counts as long as a gauge shows that it stands.
    """
    outages, incidents = schema.outages, schema.incidents
    ended = sa.select(outages.c.node, sa.func.max(outages.c.end, type_=schema.UtcTime()).label("end"))
    ended = ended.where(outages.c.end >= fleet.faulty_since, outages.c.end <= fleet.now).group_by(outages.c.node)
    repaired = ended.subquery("repaired")
    query = (
        sa.select(incidents.c.node)
        .outerjoin(repaired, repaired.c.node == incidents.c.node)
        .where(incidents.c.severity == "fatal", incidents.c.cause == "hardware", incidents.c.node.is_not(None))
        .where(incidents.c.end >= fleet.faulty_since)
        .where(repaired.c.end.is_(None) | (repaired.c.end < incidents.c.end))
    )
    standing = sa.select(incidents.c.node).where(
        incidents.c.severity == "fatal", incidents.c.cause == "hardware", incidents.c.node.is_not(None)
    )
    standing = standing.where(incidents.c.end < fleet.faulty_since, still_shown(fleet.faulty_since))
    seen_to = sa.exists().where(outages.c.node == incidents.c.node, not_ours(outages.c.reason))
    standing = standing.where(~seen_to.where(outages.c.end >= incidents.c.end, outages.c.end <= fleet.now))
    return query.union(standing).cte("faulty")


def _open_hints() -> sa.CTE:
    """Each node's open hint; the newest, should there be several."""
    table = hint_tables.hints
    newest = sa.func.row_number().over(partition_by=table.c.node, order_by=(table.c.created.desc(), table.c.id.desc()))
    ranked = sa.select(table.c.node, table.c.id, table.c.action, table.c.state, newest.label("place"))
    hints = ranked.where(table.c.state.in_(OPEN_STATES), table.c.job.is_(None)).subquery()
    # Grouped, not filtered: PostgreSQL takes a filter on a place for one row, and then loops over them for each node.
    newest_of = (
        sa.func.max(sa.case((hints.c.place == 1, hints.c[name]))).label(name) for name in ("id", "action", "state")
    )
    return sa.select(hints.c.node, *newest_of).group_by(hints.c.node).cte("hint")


def scores_of(fleet: FleetQuery, horizon_h: int) -> sa.Subquery:
    """Each node's score of the newest scoring; one that was not scored then has none, rather than an old one."""
    table, moment = schema.scores, fleet.scored.get(horizon_h)
    query = sa.select(table.c.node, table.c.score, table.c.reasons)
    if moment is None:
        return query.where(sa.false()).subquery(f"score_{horizon_h}")
    return query.where(table.c.horizon_h == horizon_h, table.c.time == moment).subquery(f"score_{horizon_h}")


def _scores_beside(
    connection: sa.Connection, node: sa.ColumnElement[str], fleet: FleetQuery, horizon_h: int
) -> sa.FromClause:
    """The same, to be joined with few nodes."""
    moment = fleet.scored.get(horizon_h)
    return scores_of(fleet, horizon_h) if moment is None else scores_beside(connection, node, horizon_h, moment)


class SchedulableNode(NamedTuple):
    """A node in service; None where nobody has said. A tuple, for there are thousands in an answer."""

    node: str
    state: str
    risk_24h: float | None = None
    withheld: str | None = None
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    gpus: int | None = None
    hint: str | None = None
    hint_action: str | None = None
    hint_state: str | None = None


@dataclass(slots=True)
class SchedulableNodes:
    """Every node in service that counts, or those of some that do; what is as it was is not made again.

    Where nodes are comes as one text, and only another text than the last is read. What speaks against nodes is of
    few, and is asked for each time. All others are as their scores say.
    """

    scores: KnownScores = field(default_factory=KnownScores)
    _made: tuple[Any, Mapping[str, float], Mapping[str, SchedulableNode]] | None = None

    def read(
        self, connection: sa.Connection, fleet: FleetQuery, names: Sequence[str] | None = None
    ) -> list[SchedulableNode]:
        """The nodes, by name."""
        day, texts = self.scores.read(connection, DAY_H, fleet.scored.get(DAY_H)), _texts(connection, fleet, names)
        nodes = dict(self._well(texts, day, fleet.watch) if names is None else _well(texts, day, fleet.watch))
        spoken_against = _spoken_against(fleet.silent_before is not None)
        if names is not None:
            spoken_against = spoken_against.where(is_one_of(connection, spoken_against.selected_columns.node, names))
        moments = {"now": fleet.now, "faulty_since": fleet.faulty_since, "silent_before": fleet.silent_before}
        for node, state, *rest in connection.execute(spoken_against, moments):
            if (well := nodes.get(node)) is not None:
                nodes[node] = _changed(well, state, *rest)
        return list(nodes.values())

    def _well(self, texts: Sequence[str], day: Mapping[str, float], watch: float) -> Mapping[str, SchedulableNode]:
        kept, made = (texts, watch), self._made
        if made is None or made[0] != kept or made[1] is not day:
            self._made = made = kept, day, _well(texts, day, watch)
        return made[2]


def _texts(connection: sa.Connection, fleet: FleetQuery, names: Sequence[str] | None) -> tuple[str, ...]:
    """Where nodes are, each column of all of them as one JSON array: to read rows is most of the cost of asking."""
    nodes = schema.nodes.c
    listed = sa.func.json_agg if connection.dialect.name == "postgresql" else sa.func.json_group_array
    columns = (nodes.node, nodes.leaf, nodes.rack, nodes.nvlink_domain, nodes.gpus)
    texts: list[sa.ColumnElement[Any]] = [sa.cast(listed(column), sa.Text) for column in columns]
    query = _in_service(sa.select(*texts), fleet.now)
    if names is not None:
        query = query.where(is_one_of(connection, nodes.node, names))
    return tuple(text or "[]" for text in connection.execute(query).one())


def _in_service(query: sa.Select[Any], now: Any) -> sa.Select[Any]:
    """The query, whose rows are nodes, for those in service that count; `now`: a moment, or what one is bound to."""
    until = schema.nodes.c.in_service_until
    return query.where(is_counted(schema.nodes.c.node), sa.or_(until.is_(None), until > now))


def _well(texts: Sequence[str], day: Mapping[str, float], watch: float) -> Mapping[str, SchedulableNode]:
    """Nodes that nothing speaks against but their score, in the order of their names."""
    found = {}
    for node, leaf, rack, domain, gpus in sorted(zip(*map(orjson.loads, texts), strict=True), key=itemgetter(0)):
        risk = day.get(node)
        state = "ok" if risk is None or risk < watch else "at_risk"
        found[node] = SchedulableNode(node, state, risk, None, leaf, rack, domain, gpus)
    return found


def _moment(name: str) -> Any:
    return sa.bindparam(name, type_=schema.UtcTime())


@lru_cache(maxsize=2)
def _spoken_against(is_silence_told: bool) -> sa.Select[Any]:
    """`node state withheld hint_id hint_action hint_state` of nodes that are not as their scores say, or have a hint.

    Built once, for that takes longer than half of the answer; the moments are those of a `FleetQuery`, by name.
    """
    silent_before = _moment("silent_before") if is_silence_told else None
    states = node_states(FleetQuery(_moment("now"), _moment("faulty_since"), 0.0, silent_before, {}), told_of=True)
    of_some = _in_service(states, _moment("now")).subquery()
    columns = ("node", "state", "withheld", "hint_id", "hint_action", "hint_state")
    return sa.select(*(of_some.c[name] for name in columns))


def _changed(well: SchedulableNode, state: str, withheld: str | None, *hint: str | None) -> SchedulableNode:
    """A node with what speaks against it; one that has a hint alone may be at risk all the same."""
    state, risk = well.state if state == "ok" else state, well.risk_24h if withheld is None else None
    return SchedulableNode(well.node, state, risk, withheld, *well[4:8], *hint)
