"""Judges the hints whose time is over, from the store; and sums up what came of them.

judge_due(engine, now)                        # a loop's turn
hindsight(connection, since, until)           # for the API, the command line and Prometheus
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.facts import HOLDING, acted
from schedulers.hindsight import (
    HORIZON,
    LATEST,
    Case,
    Stay,
    Tally,
    basis,
    basis_of,
    false_holds_per_1000_node_days,
    judge,
    tallies,
)
from store import schema
from store.bulk_rows import among
from store.database import writing
from store.hint import OPEN_STATES, Hint
from store.hint_log import read_hints
from store.hint_outcomes import audited_states, judged_hints, save_outcomes, unjudged_hints
from store.losses import Loss
from store.outage import Outage
from store.running_jobs import jobs_between

_BATCH = 200
_DAY_S = 86_400.0
_MARGIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What came of the hints of a window. `node_days`: of nodes in service, while hints were made."""

    since: datetime
    until: datetime
    node_days: float
    false_holds_per_1000_node_days: float | None
    tallies: tuple[Tally, ...]


def judge_due(engine: sa.Engine, now: datetime) -> int:
    """Judge the hints whose time is over; how many there were, at most a few hundred."""
    with engine.connect() as connection:
        found = unjudged_hints(connection, now - HORIZON, now - LATEST, _BATCH)
        found = [hint for hint in found if acted(hint) <= now - HORIZON]  # it may have been raised since it was made
        outcomes = [judge(case, now) for case in _cases(connection, found)]
    if outcomes:
        with writing(engine).begin() as connection:
            save_outcomes(connection, outcomes)
    return len(outcomes)


def _cases(connection: sa.Connection, hints: Sequence[Hint]) -> list[Case]:
    if not hints:
        return []
    nodes = sorted({hint.node for hint in hints})
    since, until = min(map(acted, hints)) - _MARGIN, max(map(acted, hints)) + LATEST
    states = audited_states(connection, [hint.id for hint in hints])
    outages = _outages(connection, nodes, since, until)
    losses = _losses(connection, nodes, since, until)
    stays = _stays(connection, nodes, since, until)
    table = schema.nodes.c
    gpus = dict(connection.execute(sa.select(table.node, table.gpus).where(among(connection, table.node, nodes))).all())
    return [
        Case(
            hint,
            basis_of(hint, states.get(hint.id, ())),
            outages.get(hint.node, ()),
            losses.get(hint.node, ()),
            stays.get(hint.node, ()),
            gpus.get(hint.node),
        )
        for hint in hints
    ]


def _outages(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[Outage]]:
    table, found = schema.outages, defaultdict[str, list[Outage]](list)
    query = sa.select(table).where(
        table.c.start >= since, table.c.start <= until, among(connection, table.c.node, nodes)
    )
    for row in connection.execute(query.order_by(table.c.start)).mappings():
        found[row["node"]].append(Outage(**row))
    return found


def _losses(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[Loss]]:
    table, found = schema.interruptions, defaultdict[str, list[Loss]](list)
    query = sa.select(table).where(table.c.time >= since, table.c.time <= until, among(connection, table.c.node, nodes))
    for row in connection.execute(query.order_by(table.c.time)).mappings():
        found[row["node"]].append(Loss(**row))
    return found


def _stays(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[Stay]]:
    wanted, found = set(nodes), defaultdict[str, list[Stay]](list)
    for run, start, end, hosts in jobs_between(connection, since, until):
        for node in wanted.intersection(hosts):
            found[node].append(Stay(run, start, end))
    return found


def hindsight(connection: sa.Connection, since: datetime, until: datetime) -> Hindsight:
    """What came of the hints made in [since, until), of those that are judged."""
    judged = judged_hints(connection, since, until)
    found = tuple(tallies((one.action, basis(one.is_control, one.taken, one.asked), came) for one, came in judged))
    node_days = _node_days(connection, since, until)
    return Hindsight(since, until, node_days, false_holds_per_1000_node_days(found, node_days), found)


def _node_days(connection: sa.Connection, since: datetime, until: datetime) -> float:
    """Of nodes in service, since there are hints; what is younger than the horizon is not judged yet."""
    first: datetime | None = connection.scalar(sa.select(sa.func.min(schema.hints.c.created, type_=schema.UtcTime())))
    if first is None:
        return 0.0
    begin, end = max(first, since), until - HORIZON
    days = 0.0
    table = schema.nodes.c
    count = sa.func.count()
    query = sa.select(table.in_service_since, table.in_service_until, count)
    for came, went, nodes in connection.execute(query.group_by(table.in_service_since, table.in_service_until)):
        here = (min(end, went or end) - max(begin, came or begin)).total_seconds()
        days += nodes * max(0.0, here) / _DAY_S
    return days


def repair_cases(connection: sa.Connection) -> list[Hint]:
    """Open holds whose nodes failed their test too often: people are wanted."""
    held = (hint for hint in read_hints(connection, states=OPEN_STATES) if hint.action in HOLDING)
    return [hint for hint in held if "repair" in hint.evidence]
