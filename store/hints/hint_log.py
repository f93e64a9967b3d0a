"""Hints and their audit: every change of a hint is written together with who made it, why and when."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit
from store.records.hint import OPEN_STATES, Approval, Hint, HintState, StateChange, hint_of
from store.tables import hint_tables, schema
from store.tables.bulk_rows import insert_into, is_one_of
from store.tables.pages import PageMark, ordered_page

# What has changed about hints since a caller last asked, for schedulers that pull: at least once, and no gaps.
#
#     page = changed_hints(connection, after=seq, limit=100)
#     page.hints, page.seq        # ask again with after=page.seq
#
# Changes are numbered by the audit. On PostgreSQL a transaction may take a lower number and commit later than one with
# a higher one: who read on at once would pass it over. So nothing is told beyond the newest number before which no
# transaction can still add one: those that are writing to the audit just then are waited for, as CREATE INDEX
# CONCURRENTLY does, without holding anybody up. SQLite has one writer.

_AUDIT = schema.audit
_HINTS = hint_tables.hints
_HOLDS = ("cordon", "drain")
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
    found = connection.execute(sa.select(_HINTS).where(is_one_of(connection, _HINTS.c.id, last))).mappings()
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


ACTOR_POLICY = "policy"
ACTOR_DISPATCH = "dispatch"


def read_hint(connection: sa.Connection, ident: str) -> Hint | None:
    """The hint of an id."""
    row = connection.execute(sa.select(_HINTS).where(_HINTS.c.id == ident)).mappings().first()
    return None if row is None else hint_of(row)


def lock_hint(connection: sa.Connection, ident: str) -> None:
    """Have everybody who would change a hint wait for the end of this transaction. SQLite has one writer anyway."""
    connection.execute(sa.select(_HINTS.c.id).where(_HINTS.c.id == ident).with_for_update())


def read_hints(connection: sa.Connection, states: Sequence[str] | None = None, node: str | None = None) -> list[Hint]:
    """Hints in the order they were made; of some states, of one node."""
    query = sa.select(_HINTS).order_by(_HINTS.c.created, _HINTS.c.id)
    if states is not None:
        query = query.where(_HINTS.c.state.in_(states))
    if node is not None:
        query = query.where(_HINTS.c.node == node)
    return [hint_of(row) for row in connection.execute(query).mappings()]


def read_hints_by_id(connection: sa.Connection, idents: Iterable[str]) -> list[Hint]:
    """The hints of these ids, of those that there are."""
    listed = sorted(set(idents))
    if not listed:
        return []
    query = sa.select(_HINTS).where(is_one_of(connection, _HINTS.c.id, listed))
    return [hint_of(row) for row in connection.execute(query.order_by(_HINTS.c.created, _HINTS.c.id)).mappings()]


def read_hints_of(connection: sa.Connection, nodes: Iterable[str], states: Sequence[str]) -> list[Hint]:
    """The hints of a few nodes that are in one of some states, in the order they were made."""
    listed = sorted(set(nodes))
    if not listed:
        return []
    query = sa.select(_HINTS).where(_HINTS.c.state.in_(states), is_one_of(connection, _HINTS.c.node, listed))
    return [hint_of(row) for row in connection.execute(query.order_by(_HINTS.c.created, _HINTS.c.id)).mappings()]


def recent_hints(connection: sa.Connection, now: datetime, window: timedelta) -> list[Hint]:
    """What the policy must remember: hints that are open, still valid, or became what they are within the window.

    What was made or raised within it is valid until later than its beginning, however short its validity.
    """
    query = sa.select(_HINTS).where(
        sa.or_(_HINTS.c.state.in_(OPEN_STATES), _HINTS.c.valid_until > now - window, _HINTS.c.created >= now - window)
    )
    return [hint_of(row) for row in connection.execute(query.order_by(_HINTS.c.created, _HINTS.c.id)).mappings()]


def save_hint(
    connection: sa.Connection, hint: Hint, now: datetime, detail: Mapping[str, Any], was: Hint | None = None
) -> bool:
    """Write a hint that the policy made or changed, and the audit row.

    Args:
        was: the hint as it was read, of one that is changed: what a person did to it since is not written over.

    Returns:
        whether it was written.
    """
    row = hint.to_row()
    changed = [name for name in row if name not in ("id", "created", "node")]
    if was is None:
        made = insert_into(connection, _HINTS).values(**row)
        excluded = {name: made.excluded[name] for name in changed}
        connection.execute(made.on_conflict_do_update(index_elements=["id"], set_=excluded))
    else:
        lock_hint(connection, hint.id)
        current = read_hint(connection, hint.id)
        if current is not None and current.evidence.ticket != was.evidence.ticket:
            return False  # its ticket was closed since: the next turn heeds that
        values = {name: row[name] for name in changed}
        if connection.execute(sa.update(_HINTS).where(*_as_seen(was)).values(**values)).rowcount == 0:
            return False
    written = {"hint": hint.action, "reason": hint.reason, "evidence": row["evidence"]}
    note(connection, now, ACTOR_POLICY, hint, {**written, **detail})
    return True


def _as_seen(hint: Hint) -> tuple[sa.ColumnElement[bool], ...]:
    """That a hint still is as somebody read it. Whoever changes it at the same moment is waited for by the database."""
    columns = (_HINTS.c.id, _HINTS.c.state, _HINTS.c.action, _HINTS.c.valid_until)
    return tuple(column == getattr(hint, column.name) for column in columns)


def read_job_hints(connection: sa.Connection, since: datetime) -> list[Hint]:
    """Hints of jobs that are open or were made since a moment, in the order they were made."""
    kept = sa.or_(_HINTS.c.state.in_(OPEN_STATES), _HINTS.c.created >= since)
    query = sa.select(_HINTS).where(_HINTS.c.job.is_not(None), kept).order_by(_HINTS.c.created, _HINTS.c.id)
    return [hint_of(row) for row in connection.execute(query).mappings()]


def close_hint(
    connection: sa.Connection,
    hint: Hint,
    state: HintState,
    now: datetime,
    actor: str,
    detail: Mapping[str, Any] | None = None,
) -> Hint:
    """End a hint; its evidence then names who ended it, and when.

    A hold that others than the policy end is a person's word for the node: what its gauges showed by then is let go.
    """
    ended = change_state(connection, hint, state, now, actor, detail)
    if ended.state != state or ended.evidence.closed is not None:
        return ended
    if hint.action in _HOLDS and hint.job is None and actor.partition(":")[0] != ACTOR_POLICY:
        made = insert_into(connection, hint_tables.node_releases).values(node=hint.node, time=now)
        connection.execute(made.on_conflict_do_update(index_elements=["node"], set_={"time": made.excluded.time}))
    current = _read_again(connection, ended)
    evidence = replace(current.evidence, closed=StateChange(actor, now))
    return save_evidence(connection, replace(current, evidence=evidence))


def approve_hint(connection: sa.Connection, hint: Hint, now: datetime, actor: str) -> Hint:
    """Approve a proposed hint; its evidence then names who approved it, and when."""
    approved = change_state(connection, hint, "approved", now, actor)
    if approved.state != "approved" or approved.evidence.approved is not None:
        return approved
    current = _read_again(connection, approved)
    evidence = replace(current.evidence, approved=StateChange(actor, now))
    return save_evidence(connection, replace(current, evidence=evidence))


def add_approval(connection: sa.Connection, hint: Hint, given: Approval) -> Hint:
    """Write down one person's approval of a hint that needs another's, too: it stays proposed."""
    current = _read_again(connection, hint)
    approvals = (*(each for each in current.evidence.approvals or () if each.action == given.action), given)
    approved = save_evidence(connection, replace(current, evidence=replace(current.evidence, approvals=approvals)))
    note(connection, given.time, given.by, approved, {"hint": hint.action, "approval": f"{len(approvals)} of 2"})
    return approved


def _read_again(connection: sa.Connection, hint: Hint) -> Hint:
    """The hint as it is stored now: the policy may have added evidence. Nobody else changes it in this transaction."""
    return read_hint(connection, hint.id) or hint


def save_evidence(connection: sa.Connection, hint: Hint) -> Hint:
    """Write a hint's evidence, whatever else has become of it; the audit row is the caller's."""
    connection.execute(sa.update(_HINTS).where(_HINTS.c.id == hint.id).values(evidence=hint.evidence.to_json()))
    return hint


def change_state(
    connection: sa.Connection,
    hint: Hint,
    state: HintState,
    now: datetime,
    actor: str,
    detail: Mapping[str, Any] | None = None,
) -> Hint:
    """Move a hint to a state, if it is still as the caller saw it; the audit row is written with it.

    Returns:
        the hint as it is now: in `state`, or as somebody else has left it in between.
    """
    if connection.execute(sa.update(_HINTS).where(*_as_seen(hint)).values(state=state)).rowcount == 0:
        return read_hint(connection, hint.id) or hint
    moved = replace(hint, state=state)
    note(connection, now, actor, moved, {"was": hint.state, "hint": hint.action, **(detail or {})})
    return moved


def note(connection: sa.Connection, now: datetime, actor: str, hint: Hint, detail: Mapping[str, Any]) -> None:
    """Add an audit row on a hint; its `action` is the state that the hint has come to."""
    note_all(connection, now, [(actor, hint, detail)])


def note_all(connection: sa.Connection, now: datetime, said: Iterable[tuple[str, Hint, Mapping[str, Any]]]) -> None:
    """Add the audit rows of many hints at once: who, of which hint, what."""
    found = (
        (actor, hint, {"node": hint.node, **({} if hint.policy is None else {"policy": hint.policy}), **detail})
        for actor, hint, detail in said
    )
    append_audit(connection, (AuditEntry(now, actor, hint.state, hint.id, detail) for actor, hint, detail in found))


def audit_page(connection: sa.Connection, limit: int, before: int | None, subject: str | None) -> list[dict[str, Any]]:
    """Audit rows, the newest first, at most `limit`, with a `seq` under `before`."""
    table = schema.audit
    query = sa.select(table).order_by(table.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.seq < before)
    if subject is not None:
        query = query.where(table.c.subject == subject)
    return [dict(row) for row in connection.execute(query).mappings()]


def hint_page(
    connection: sa.Connection, states: Sequence[str] | None, node: str | None, after: PageMark | None, limit: int
) -> list[dict[str, Any]]:
    """Hints, the last `limit` that were made (before the mark), oldest first."""
    table = hint_tables.hints
    query = sa.select(table)
    if states is not None:
        query = query.where(table.c.state.in_(states))
    if node is not None:
        query = query.where(table.c.node == node)
    return ordered_page(connection, query, "created", after, (limit, True))
