"""The threads of incidents and verdicts: what people did about them, kept and found again. On `thread_entries`.

    add_entries(connection, [ThreadEntry(now, ThreadWord("ack", "ann"), subject)])
    threads = threads_of(connection, [subject])              # {id: [entry, ...]}
    life_of(threads[subject.id], subject, now).state         # acknowledged

An incident's id is its first event's, and an earlier event that comes late, or another incident that it grows together
with, changes it. So an entry keeps the node and the start of what the person saw, and belongs to whatever incident
covers that moment.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.records.incident import IncidentLife, ThreadEntry, ThreadSubject, ThreadWord, life_of, verdict_subject
from store.records.verdict import Verdict
from store.tables import schema
from store.tables.bulk_rows import is_one_of
from store.tables.pages import document_of, moment_of
from store.tables.verdict_tables import thread_entries

# Of one thread: who writes more has lost his way, or is a program.
MOST_ENTRIES = 500


def incident_subject(row: Mapping[str, Any]) -> ThreadSubject:
    """An incident, of a row of `incidents` or of a page of them."""
    start, end = moment_of(row, "start"), moment_of(row, "end")
    last = end if row["shown"] is None else max(end, moment_of(row, "shown"))
    part = str(row["domain"] or "") if row["node"] is not None else _unplaced(row)
    return ThreadSubject(row["id"], row["node"], start, end, part, row["severity"], last)


def _unplaced(row: Mapping[str, Any]) -> str:
    """Incidents of no node are told apart by device and kind."""
    device = document_of(row, "device") or {}
    where = [str(value) for value in device.values() if value is not None]
    return " ".join([row["kind"], *where, row["name"] or ""])


def add_entries(connection: sa.Connection, entries: Iterable[ThreadEntry]) -> None:
    """Write entries; none is ever changed."""
    rows = [_row(entry) for entry in entries]
    if rows:
        connection.execute(sa.insert(thread_entries), rows)


def _row(entry: ThreadEntry) -> dict[str, Any]:
    seen = entry.seen
    place = {"subject": seen.id, "node": seen.node, "part": seen.part, "moment": seen.start}
    bad = {"severity": seen.severity, "last": seen.last, "named": seen.named, "extent": seen.extent}
    return {"time": entry.time, **asdict(entry.word), **place, **bad}


def _entry(row: Any) -> ThreadEntry:
    word = ThreadWord(row.step, row.actor, row.text, row.owner, row.until)
    place = (row.subject, row.node, row.moment, row.moment)
    return ThreadEntry(row.time, word, ThreadSubject(*place, row.part, row.severity, row.last, row.named, row.extent))


def threads_of(connection: sa.Connection, subjects: Sequence[ThreadSubject]) -> dict[str, list[ThreadEntry]]:
    """The entries of some incidents and verdicts by id, each thread in order; those without any are left out."""
    if not subjects:
        return {}
    c = thread_entries.c
    first, last = min(one.start for one in subjects), max(one.end for one in subjects)
    nodes = sorted({one.node for one in subjects if one.node is not None})
    near = sa.and_(c.moment >= first, c.moment <= last, sa.or_(c.node.is_(None), is_one_of(connection, c.node, nodes)))
    query = sa.select(thread_entries).where(sa.or_(near, is_one_of(connection, c.subject, [s.id for s in subjects])))
    # Whoever sends events chooses their ids, and so those of incidents: one may be a verdict's, too.
    by_id = {(one.id, one.named != ""): one for one in subjects}
    by_place: dict[tuple[str | None, str], list[ThreadSubject]] = defaultdict(list)
    for one in subjects:
        if not one.named:  # a verdict keeps its id
            by_place[one.node, one.part].append(one)
    found: dict[str, list[ThreadEntry]] = defaultdict(list)
    for row in connection.execute(query.order_by(c.seq)):
        its = by_id.get((row.subject, row.named != ""))
        if its is None and not row.named:
            its = _covering(by_place[row.node, row.part], row.moment)
        if its is not None:
            found[its.id].append(_entry(row))
    return dict(found)


def _covering(subjects: Sequence[ThreadSubject], moment: datetime) -> ThreadSubject | None:
    return next((one for one in subjects if one.start <= moment <= one.end), None)


def silenced_until(connection: sa.Connection, verdict: Verdict, now: datetime) -> datetime | None:
    """Until when nobody is to be told of a verdict; None where nothing silences it as it is now."""
    life, _thread = lives_of(connection, [verdict_subject(verdict)], now)[verdict.id]
    return life.silenced_until


def incident_known_by(connection: sa.Connection, ident: str) -> dict[str, Any] | None:
    """The incident of an id, or of the id that it once had: that of any event of its node within its time."""
    table, events = schema.incidents, schema.events
    query = sa.select(table)
    found = connection.execute(query.where(table.c.id == ident)).mappings().first()
    if found is None:
        event = connection.execute(sa.select(events.c.node, events.c.time).where(events.c.id == ident)).first()
        if event is not None and event.node is not None:
            covers = query.where(table.c.node == event.node, table.c.start <= event.time, table.c.end >= event.time)
            found = connection.execute(covers.order_by(table.c.start.desc(), table.c.id)).mappings().first()
    return None if found is None else dict(found)


def incidents_known_by(connection: sa.Connection, idents: Iterable[str]) -> list[dict[str, Any]]:
    """The incidents of some ids, by their start; those that bear another id by now are left out."""
    table = schema.incidents
    query = sa.select(table).where(is_one_of(connection, table.c.id, set(idents))).order_by(table.c.start, table.c.id)
    return [dict(row) for row in connection.execute(query).mappings()]


def lives_of(
    connection: sa.Connection, subjects: Sequence[ThreadSubject], now: datetime
) -> dict[str, tuple[IncidentLife, list[ThreadEntry]]]:
    """The life and the thread of each, by id."""
    threads = threads_of(connection, subjects)
    found = ((one, threads.get(one.id, [])) for one in subjects)
    return {one.id: (life_of(thread, one, now), thread) for one, thread in found}
