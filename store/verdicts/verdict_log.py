"""Verdicts, and every change of them: each is written together with what has changed, in one transaction.

    open_verdicts(connection)                       # those that stand now, the likeliest first
    verdicts_between(connection, since, until)      # those that stood at any time of a window
    save_changes(connection, [VerdictChange(verdict, "opened")], now)
    revisions_after(connection, seq, 100)           # for who listens: numbered in the order of their commits

A change's number is never given twice and never lies below one that was read before: one writer at a time adds them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from store.records.verdict import CauseClass, Verdict, VerdictState
from store.tables import schema, verdict_tables
from store.tables.bulk_rows import insert_rows, is_one_of
from store.tables.pages import PageMark
from store.tables.schema import UtcTime
from store.tables.verdict_tables import STANDING

_TABLE, _REVISIONS, _SUBJECTS = (
    verdict_tables.verdicts,
    verdict_tables.verdict_revisions,
    verdict_tables.verdict_subjects,
)
# Of advisory locks: "vdct".
_LOCK = 0x76646374
# Incidents that a verdict names.
_MOST_INCIDENTS = 200
# So many of the newest changes of a verdict are told.
_MOST_REVISIONS = 1000
_ENDED: tuple[VerdictState, ...] = ("explained", "closed")
STANDING_STATES: tuple[VerdictState, ...] = ("open", "revised")
_DECODER = msgspec.json.Decoder(Verdict)
_COLUMNS = tuple(column.name for column in _TABLE.columns)
_REVISION_COLUMNS = ("verdict", "revision", "time", "state", "what", "probability", "document")


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A verdict as it is from now on, what has changed (in words), and as it was; None: it is new."""

    verdict: Verdict
    what: str
    before: Verdict | None = None


@dataclass(frozen=True, slots=True)
class VerdictRevision:
    """One change as it was written."""

    seq: int
    time: datetime
    what: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class VerdictWindow:
    """Which verdicts: None leaves a side open. `states`: in any of them; `since`, `until`: their first sign."""

    states: Sequence[VerdictState] | None = None
    cause_class: CauseClass | None = None
    node: str | None = None
    run: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """A verdict with when it was first told of, when it last changed and ended, and why it ended."""

    verdict: Verdict
    opened: datetime
    changed: datetime
    ended: datetime | None = None
    why: str | None = None


def open_verdicts(connection: sa.Connection) -> list[Verdict]:
    """The verdicts that stand now, the likeliest first."""
    found = [_verdict(row) for row in connection.execute(sa.select(*_READ).where(STANDING))]
    return sorted(found, key=lambda verdict: (-verdict.probability, verdict.since, verdict.id))


def verdicts_between(
    connection: sa.Connection, since: datetime, until: datetime, node: str | None = None, run: str | None = None
) -> list[Verdict]:
    """Verdicts that stood at any time of since <= time < until, by their first sign; of a node or run alone, too."""
    query = sa.select(*_READ).where(_TABLE.c.since < until)
    query = query.where(sa.or_(_TABLE.c.ended.is_(None), _TABLE.c.ended >= since))
    for found in _named(node, run):
        query = query.where(found)
    return [_verdict(row) for row in connection.execute(query.order_by(_TABLE.c.since, _TABLE.c.id))]


def verdicts_of(connection: sa.Connection, idents: Iterable[str]) -> list[Verdict]:
    """The verdicts of some ids, whatever became of them."""
    query = sa.select(*_READ).where(is_one_of(connection, _TABLE.c.id, set(idents)))
    return [_verdict(row) for row in connection.execute(query)]


def verdict(connection: sa.Connection, ident: str) -> Verdict | None:
    """The verdict of an id, whatever became of it."""
    found = stored_verdict(connection, ident)
    return None if found is None else found.verdict


def stored_verdict(connection: sa.Connection, ident: str) -> StoredVerdict | None:
    """The same with its times."""
    row = connection.execute(sa.select(*_READ).where(_TABLE.c.id == ident)).first()
    return None if row is None else _stored(row)


def verdict_page(
    connection: sa.Connection, window: VerdictWindow, after: PageMark | None, size: tuple[int, bool]
) -> list[StoredVerdict]:
    """Verdicts by their first sign, oldest first, beyond a mark; `size`: how many at most, whether the newest."""
    limit, newest = size
    query = sa.select(*_READ)
    if window.states is not None:
        stands = set(window.states) == set(STANDING_STATES)
        query = query.where(STANDING if stands else _TABLE.c.state.in_(window.states))
    if window.cause_class is not None:
        query = query.where(_TABLE.c["class"] == window.cause_class)
    if window.since is not None:
        query = query.where(_TABLE.c.since >= window.since)
    if window.until is not None:
        query = query.where(_TABLE.c.since < window.until)
    for found in _named(window.node, window.run):
        query = query.where(found)
    if after is not None:
        mark = sa.tuple_(sa.literal(after[0], UtcTime()), sa.literal(after[1], sa.Text()))
        here = sa.tuple_(_TABLE.c.since, _TABLE.c.id)
        query = query.where(here < mark if newest else here > mark)
    order = (_TABLE.c.since.desc(), _TABLE.c.id.desc()) if newest else (_TABLE.c.since, _TABLE.c.id)
    rows = connection.execute(query.order_by(*order).limit(limit)).all()
    return [_stored(row) for row in (reversed(rows) if newest else rows)]


def recent_verdicts(connection: sa.Connection, since: datetime) -> list[tuple[Verdict, datetime]]:
    """Verdicts that ended at a moment or later, each with when."""
    rows = connection.execute(sa.select(*_READ).where(_TABLE.c.ended >= since).order_by(_TABLE.c.ended))
    return [(_verdict(row), row.ended) for row in rows]


def incidents_of(connection: sa.Connection, nodes: Iterable[str], window: tuple[datetime, datetime]) -> tuple[str, ...]:
    """The incidents that showed on some nodes within a window, the first ones."""
    table = schema.incidents
    query = sa.select(table.c.id).where(
        is_one_of(connection, table.c.node, set(nodes)), table.c.end >= window[0], table.c.start <= window[1]
    )
    return tuple(connection.scalars(query.order_by(table.c.start, table.c.id).limit(_MOST_INCIDENTS)))


def known_incidents(connection: sa.Connection, events: Iterable[str]) -> frozenset[str]:
    """Those of some events by which an incident is known: each bears the id of its first."""
    table = schema.incidents
    return frozenset(connection.scalars(sa.select(table.c.id).where(is_one_of(connection, table.c.id, set(events)))))


def standing_ranks(connection: sa.Connection) -> dict[str, int]:
    """The place of each verdict that stands among all of those, 1 the likeliest."""
    columns = (_TABLE.c.id, _TABLE.c.probability, _TABLE.c.since)
    rows = sorted(connection.execute(sa.select(*columns).where(STANDING)), key=lambda row: (-row[1], row[2], row[0]))
    return {row.id: place for place, row in enumerate(rows, 1)}


def count_standing(connection: sa.Connection) -> dict[str, int]:
    """How many verdicts of each class stand now."""
    query = sa.select(_TABLE.c["class"], sa.func.count()).where(STANDING).group_by(_TABLE.c["class"])
    return {str(name): int(count) for name, count in connection.execute(query)}


def save_changes(connection: sa.Connection, changes: Sequence[VerdictChange], now: datetime) -> None:
    """Write verdicts as they are from now on, and each change. One of an id alone at a time.

    `what` of a verdict that ends says why it does.
    """
    if not changes:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    known = [change.verdict.id for change in changes if change.before is not None]
    opened = _opened(connection, known)
    documents = {change.verdict.id: msgspec.json.encode(change.verdict).decode() for change in changes}
    if known:
        connection.execute(sa.delete(_TABLE).where(is_one_of(connection, _TABLE.c.id, known)))
    rows = [_row(change, opened.get(change.verdict.id, now), now, documents) for change in changes]
    insert_rows(connection, _TABLE, _COLUMNS, rows)
    _save_subjects(connection, changes)
    insert_rows(
        connection,
        _REVISIONS,
        _REVISION_COLUMNS,
        [_revision_row(change, now, documents[change.verdict.id]) for change in changes],
    )


def revisions_of(connection: sa.Connection, ident: str) -> list[VerdictRevision]:
    """The newest changes of a verdict, at most a thousand, oldest first."""
    query = (
        sa.select(_REVISIONS)
        .where(_REVISIONS.c.verdict == ident)
        .order_by(_REVISIONS.c.seq.desc())
        .limit(_MOST_REVISIONS)
    )
    return [_revision(row) for row in reversed(connection.execute(query).all())]


def revisions_after(connection: sa.Connection, seq: int, limit: int) -> list[VerdictRevision]:
    """Changes numbered beyond `seq`, in their order."""
    query = sa.select(_REVISIONS).where(_REVISIONS.c.seq > seq).order_by(_REVISIONS.c.seq).limit(limit)
    return [_revision(row) for row in connection.execute(query)]


def newest_seq(connection: sa.Connection) -> int:
    """The number of the newest change; 0 where there is none."""
    return connection.scalar(sa.select(sa.func.max(_REVISIONS.c.seq))) or 0


def _opened(connection: sa.Connection, idents: Sequence[str]) -> dict[str, datetime]:
    if not idents:
        return {}
    query = sa.select(_TABLE.c.id, _TABLE.c.opened).where(is_one_of(connection, _TABLE.c.id, idents))
    return {row.id: row.opened for row in connection.execute(query)}


def _save_subjects(connection: sa.Connection, changes: Sequence[VerdictChange]) -> None:
    """Whom verdicts name: what is new of it goes in, what is no more goes."""
    rows: list[tuple[str, str, str]] = []
    for change in changes:
        here, before = subjects_of(change.verdict), set() if change.before is None else subjects_of(change.before)
        rows += [(change.verdict.id, *subject) for subject in sorted(here - before)]
        for kind in ("node", "run", "incident"):
            gone = [name for of, name in before - here if of == kind]
            if gone:
                mine = (_SUBJECTS.c.verdict == change.verdict.id, _SUBJECTS.c.kind == kind)
                connection.execute(sa.delete(_SUBJECTS).where(*mine, is_one_of(connection, _SUBJECTS.c.name, gone)))
    insert_rows(connection, _SUBJECTS, ("verdict", "kind", "name"), rows)


def subjects_of(found: Verdict) -> set[tuple[str, str]]:
    """The nodes, runs and incidents that a verdict names."""
    nodes = {("node", name) for name in (found.node, *found.nodes, *found.victims) if name}
    incidents = {("incident", name) for name in found.incident_ids() if name}
    return nodes | incidents | {("run", name) for name in found.jobs if name}


def _named(node: str | None, run: str | None) -> Iterable[sa.ColumnElement[bool]]:
    for kind, name in (("node", node), ("run", run)):
        if name is not None:
            mine = (_SUBJECTS.c.kind == kind, _SUBJECTS.c.name == name)
            yield _TABLE.c.id.in_(sa.select(_SUBJECTS.c.verdict).where(*mine))


def _row(change: VerdictChange, opened: datetime, now: datetime, documents: dict[str, str]) -> tuple[Any, ...]:
    """The row of a verdict, in the order of _COLUMNS."""
    one = change.verdict
    is_over = one.state in _ENDED
    return (
        *(one.id, one.cause_class, one.name, one.node, one.state, one.revision, one.probability, one.since),
        *(opened, now, now if is_over else None, change.what if is_over else None),
        *(one.explained_by, documents[one.id]),
    )


def _revision_row(change: VerdictChange, now: datetime, document: str) -> tuple[Any, ...]:
    one = change.verdict
    return (one.id, one.revision, now, one.state, change.what, one.probability, document)


_READ = (_TABLE.c.document, _TABLE.c.opened, _TABLE.c.changed, _TABLE.c.ended, _TABLE.c.why)


def _verdict(row: Any) -> Verdict:
    return _DECODER.decode(row.document)


def _stored(row: Any) -> StoredVerdict:
    return StoredVerdict(_verdict(row), row.opened, row.changed, row.ended, row.why)


def _revision(row: Any) -> VerdictRevision:
    return VerdictRevision(row.seq, row.time, row.what, _verdict(row))


def closed(found: Verdict, state: VerdictState = "closed", explained_by: str | None = None) -> Verdict:
    """A verdict that ends: one revision on."""
    return replace(found, state=state, revision=found.revision + 1, explained_by=explained_by)
