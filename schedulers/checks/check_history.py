"""Keeps the record of every check over the site's own history: what it said, and what came of it within seven days.

    note_checks(engine, now)       # a loop's turn: what was said, what came of it, the records

followed: an unplanned outage of the node began within seven days. contradicted: a person withdrew or released a hint
on it, or the node passed the site's test. unknown: a scheduler held the node for us, it was taken out as planned, or by
the detector itself: NHC that marks a node down, with its own words as the reason, confirms no check of NHC. cleared:
nothing came.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from schedulers.checks.check_weights import record_of
from store.database.connections import writing
from store.hints.check_log import (
    HORIZON,
    KEPT,
    MODEL,
    AddedCases,
    CheckCase,
    CheckOutcome,
    Saying,
    add_sayings,
    check_name,
    due_cases,
    forget_cases,
    has_records,
    new_sayings,
    save_records,
    save_verdicts,
    set_read,
    tallies,
)
from store.hints.hint_log import ACTOR_POLICY
from store.hints.outcomes import sent_hints
from store.records.event_sources import DETECTORS
from store.records.hint import Hint, hint_of
from store.records.outage import Outage
from store.tables import hint_tables, schema
from store.tables.bulk_rows import is_one_of

_BATCH = 1_000
# Records of what a fault did may bear times a little before the fault.
_BEFORE = timedelta(minutes=10)
_SOFT = ("watch", "avoid")
_HOLDING = ("cordon", "drain")


class Founded(NamedTuple):
    """What a hint was founded on: the source and name of a check."""

    source: str
    name: str


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What is known of one node around the time of its cases."""

    outages: Sequence[Outage] = ()
    hints: Sequence[Hint] = ()
    tests: Sequence[tuple[datetime, bool]] = ()  # when the site's test ended, and whether the node passed
    founded: Mapping[str, frozenset[Founded]] = field(default_factory=dict)  # of each hint, by id
    taken: frozenset[str] = frozenset()  # ids of hints that a scheduler carried out


def outcome_of(case: CheckCase, known: NodeHistory) -> CheckOutcome:
    """What came of a case whose time is over."""
    until = case.said + HORIZON
    outages = [
        one
        for one in known.outages
        if case.said - _BEFORE <= one.start < until and not one.reason.startswith("foreshock:")
    ]
    if any(not one.planned and not _own_doing(case, one) for one in outages):
        return "followed"
    hints = [hint for hint in known.hints if case.said - _BEFORE <= hint.created < until]
    if any(_turned_down(hint) and (case.source, case.name) in known.founded.get(hint.id, ()) for hint in hints):
        return "contradicted"
    if outages:
        return "unknown"
    if any(passed and case.said <= ended < until for ended, passed in known.tests):
        return "contradicted"
    held = (*_HOLDING, *_SOFT) if case.source == MODEL else _HOLDING
    if any(hint.id in known.taken and hint.action in held for hint in hints):
        return "unknown"
    return "cleared"


def _own_doing(case: CheckCase, outage: Outage) -> bool:
    """Whether a detector that marks nodes itself has made the outage: its own word is in the reason."""
    reason = outage.reason.lower()
    return case.source in DETECTORS and (case.source in reason or case.name.lower() in reason)


def _turned_down(hint: Hint) -> bool:
    closed = hint.evidence.closed
    return hint.state in ("withdrawn", "released") and closed is not None and closed.by != ACTOR_POLICY


def note_checks(engine: sa.Engine, now: datetime, keep_on: Callable[[], bool] = lambda: True) -> int:
    """Take what was said since the last time, judge what is due, and make the records anew; returns what was left out.

    It may be stopped at any point and goes on there.
    """
    added = AddedCases(0, 0)
    with engine.connect() as reading:
        for part, mark in new_sayings(reading, now):
            with writing(engine).begin() as connection:
                added = _sum(added, add_sayings(connection, part))
                if mark is not None:
                    set_read(connection, mark)
            if not keep_on():
                return added.left_out
        scored, is_first = _scored(reading, now), not has_records(reading)
    with writing(engine).begin() as connection:
        added = _sum(added, add_sayings(connection, scored))
        is_news = forget_cases(connection, now - KEPT) > 0 or added.changed > 0 or is_first
    while keep_on() and _judge(engine, now):
        is_news = True
    if keep_on() and is_news:
        with engine.connect() as reading:
            records = [record_of(tally) for tally in tallies(reading, now)]
        with writing(engine).begin() as connection:
            save_records(connection, records)
    return added.left_out


def _sum(one: AddedCases, other: AddedCases) -> AddedCases:
    return AddedCases(one.changed + other.changed, one.left_out + other.left_out)


def _scored(connection: sa.Connection, now: datetime) -> list[Saying]:
    """What the score said: the hints that were made for it alone."""
    table = hint_tables.hints
    query = sa.select(table).where(table.c.created >= now - HORIZON, table.c.job.is_(None))
    return [
        Saying(MODEL, _risk(hint), hint.node, hint.created, hint.created)
        for hint in map(hint_of, connection.execute(query).mappings())
        if _by_score(hint)
    ]


def _by_score(hint: Hint) -> bool:
    known = hint.evidence
    return known.score is not None and known.incident is None and not known.witnesses and hint.action in _SOFT


def _risk(hint: Hint) -> str:
    return f"risk 24 h: {hint.action}"


def _judge(engine: sa.Engine, now: datetime) -> int:
    """Judge some of the cases whose time is over; how many there were."""
    with engine.connect() as connection:
        due = due_cases(connection, now - HORIZON, _BATCH)
        known = _histories(connection, due) if due else {}
    if due:
        nothing = NodeHistory()
        outcomes = {case: outcome_of(case, known.get(case.node, nothing)) for case in due}
        with writing(engine).begin() as connection:
            save_verdicts(connection, outcomes)
    return len(due)


def _histories(connection: sa.Connection, cases: Sequence[CheckCase]) -> dict[str, NodeHistory]:
    """What is known of the nodes of some cases, from a little before the first to the horizon of the last."""
    nodes = {case.node for case in cases}
    since, until = min(case.said for case in cases) - _BEFORE, max(case.said for case in cases) + HORIZON
    outages, hints = defaultdict[str, list[Outage]](list), defaultdict[str, list[Hint]](list)
    table = schema.outages
    query = sa.select(table).where(
        table.c.start >= since, table.c.start < until, is_one_of(connection, table.c.node, nodes)
    )
    for row in connection.execute(query).mappings():
        outages[row["node"]].append(Outage(**row))
    made = hint_tables.hints
    asked = sa.select(made).where(
        made.c.created >= since, made.c.created < until, made.c.job.is_(None), is_one_of(connection, made.c.node, nodes)
    )
    for hint in map(hint_of, connection.execute(asked).mappings()):
        hints[hint.node].append(hint)
    tests = _tests(connection, nodes, since, until)
    every = [hint for mine in hints.values() for hint in mine]
    founded, taken = _foundations(connection, every), sent_hints(connection, [hint.id for hint in every])
    return {
        node: NodeHistory(outages.get(node, ()), hints.get(node, ()), tests.get(node, ()), founded, taken)
        for node in nodes
    }


def _tests(
    connection: sa.Connection, nodes: Collection[str], since: datetime, until: datetime
) -> dict[str, list[tuple[datetime, bool]]]:
    """The site's tests of some nodes that said something."""
    c = hint_tables.validations.c
    query = sa.select(c.node, c.ended, c.passed).where(
        c.started >= since, c.started < until, c.ended.is_not(None), c.passed.is_not(None)
    )
    found: dict[str, list[tuple[datetime, bool]]] = {}
    for node, ended, passed in connection.execute(query.where(is_one_of(connection, c.node, nodes))):
        found.setdefault(node, []).append((ended, passed))
    return found


def _foundations(connection: sa.Connection, hints: Sequence[Hint]) -> dict[str, frozenset[Founded]]:
    """What each hint was founded on: its incident's own word, two witnesses, or the score."""
    idents = {hint.evidence.incident for hint in hints if hint.evidence.incident is not None}
    c = schema.incidents.c
    query = sa.select(c.id, c.source, c.kind, c.code)
    named = {}
    if idents:
        for ident, source, kind, code in connection.execute(query.where(is_one_of(connection, c.id, idents))):
            named[ident] = Founded(source or "", check_name(kind, code))
    found = {}
    for hint in hints:
        known = hint.evidence
        said = {Founded(one.source, check_name(one.kind, one.code)) for one in known.witnesses or ()}
        if known.incident in named and not said:
            said.add(named[known.incident])
        if _by_score(hint):
            said.add(Founded(MODEL, _risk(hint)))
        found[hint.id] = frozenset(said)
    return found
