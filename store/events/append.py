"""Appends: every write that sources make, idempotent, in the caller's transaction.

with writing(engine).begin() as connection:
    taken = append_events(connection, events, received=now)
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import orjson
import sqlalchemy as sa

from store.database.known_nodes import ARCHIVE, add_known
from store.events.event_rows import COLUMNS, Owners, copy_new, new_ones, owners_by_id, sqlite_rows
from store.events.ledger_intake import note_late, note_lines
from store.nodes.domains import domains_of, note_domains
from store.nodes.topology import append_groups, append_names, note_columns, note_own_ports
from store.nodes.topology import append_links as append_links
from store.records.event import BOUND, Event, RecordError, format_time, owner_of, with_bound_id, with_id
from store.records.job import Job, job_from_event
from store.records.node import NODE_COLUMNS, DeviceName, Node, NodeGroup
from store.records.outage import SHIPPED_REASONS, Outage, OutageReasons, outage_from_event
from store.tables import schema
from store.tables.bulk_rows import is_one_of, upsert, upsert_last_seen

# Clocks drift and zones are mistaken for each other; a day covers both.
MAX_AHEAD = timedelta(days=1)
# A scheduler reckons when a job may start, a year ahead at the most. A ledger has rows for each day of its run.
_JOBS_AHEAD = timedelta(days=732)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append took: `new` was not there before (as stored: each has a time), `known` was; `nodes` had news."""

    new: tuple[Event, ...]
    known: int

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that the new events speak of."""
        return frozenset(event.node for event in self.new if event.node)


def append_events(
    connection: sa.Connection,
    events: Iterable[Event],
    received: datetime,
    *,
    note_nodes: bool = True,
    reasons: OutageReasons = SHIPPED_REASONS,
) -> AppendResult:
    """Append events; one whose id is there already changes nothing.

    Events of kind `outage` and `job` also update those tables; lines of training logs wait for their run's ledger.
    An event without a time happened, for all we know, when it was received; so did one that is dated in the future
    (its host's clock is wrong, or a log says 2999): what it said is kept as the attribute `time_claimed`.

    Args:
        note_nodes: whether their nodes are noted as heard of. Who has more to do in the transaction calls `note_seen`
            at its end: other writers wait for those rows until the commit.
        reasons: what the reasons of outages mean at this site.
    """
    latest = max(received, datetime.now(UTC)) + MAX_AHEAD
    unique: dict[str, Event] = {}
    undated: set[str] = set()
    for event in map(with_id, events):
        event = _apart(event, unique)
        name = event.id or ""
        unique[name] = event
        if event.time is None or event.time > latest:
            undated.add(name)
            unique[name] = _dated(event, received)
    fresh = _insert_new(connection, list(unique.values()), received, undated)
    outages = _decoded(fresh, "outage", lambda event: outage_from_event(event, reasons))
    append_outages(connection, outages, received)
    append_jobs(connection, _before(received + _JOBS_AHEAD, _decoded(fresh, "job", job_from_event)))
    note_lines(connection, fresh, received)
    note_domains(connection, domains_of(fresh))
    note_own_ports(connection, fresh, received)
    if note_nodes:
        note_seen(connection, fresh, received)
    return AppendResult(new=tuple(fresh), known=len(unique) - len(fresh))


def _apart(event: Event, others: Mapping[str, Event]) -> Event:
    """The event, under another id where one of another node or run has its own, or where no sender can have made it.

    Senders choose ids. One node's must not make another's later event a known one, which is lost.
    """
    ident = event.id or ""
    other = others.get(ident)
    if ident.startswith(BOUND) or (
        other is not None and owner_of(other.node, other.run()) != owner_of(event.node, event.run())
    ):
        return with_bound_id(event)
    return event


def _dated(event: Event, received: datetime) -> Event:
    """The event at the time of its receipt."""
    if event.time is None:
        return replace(event, time=received)
    attributes = {**event.attributes, "time_claimed": format_time(event.time)}
    return replace(event, time=received, attributes=attributes)


def _insert_new(
    connection: sa.Connection, events: list[Event], received: datetime, undated: set[str]
) -> Sequence[Event]:
    """Insert what is not there; returns what was new. Two writers at once cannot make a duplicate."""
    if not events:
        return events
    if connection.dialect.name == "postgresql":
        return copy_new(connection, events, received, undated)
    # SQLite has one writer at a time: what is not there now will not be there in a moment.

    def look(asked: Sequence[Event]) -> Owners:
        ids = orjson.dumps([event.id for event in asked]).decode()
        return owners_by_id(connection.exec_driver_sql(_KNOWN, (ids,)))

    fresh = new_ones(events, look)
    if fresh:
        connection.exec_driver_sql(_INSERT, list(sqlite_rows(fresh, received)))
    return fresh


_KNOWN = "SELECT id, node, run FROM events WHERE id IN (SELECT value FROM json_each(?))"
_INSERT = (
    f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608  # our own names
    " ON CONFLICT DO NOTHING"
)


def _decoded(events: Iterable[Event], kind: str, decode: Any) -> list[Any]:
    """The typed records that events of a kind carry; one that carries none stays a plain event."""
    found = []
    for event in events:
        if event.kind == kind:
            try:
                found.append(decode(event))
            except RecordError:
                continue
    return found


def _before(latest: datetime, jobs: Iterable[Job]) -> list[Job]:
    """The jobs all of whose times are possible ones."""
    return [job for job in jobs if all(one is None or one < latest for one in (job.submit, job.start, job.end))]


def note_seen(connection: sa.Connection, events: Sequence[Event], received: datetime) -> None:
    """Every node that is heard of is known, with the time of its newest event."""
    moments = sorted(((event.time or received, event.node) for event in events if event.node), key=itemgetter(0))
    upsert_last_seen(connection, {node: moment for moment, node in moments})


def append_outages(connection: sa.Connection, outages: Iterable[Outage], received: datetime | None = None) -> None:
    """Append outages; a later record of the same start closes or corrects the earlier one.

    Args:
        received: when they came: what one that came late may change of the runs' ledgers is noted for them.
    """
    taken = list(outages)
    rows = [asdict(outage) for outage in taken]
    if received is not None and rows:
        note_late(connection, _blaming(connection, rows), received)
    upsert(connection, schema.outages, rows)
    _note_drivers(connection, taken, received)


def _note_drivers(connection: sa.Connection, outages: Iterable[Outage], received: datetime | None) -> None:
    """Known nodes have the driver that a planned outage brought, if it is newer than the one known.

    What is planned for a time to come brought none yet; that a release was taken back is not read from a reason.
    """
    latest = (received or datetime.now(UTC)) + MAX_AHEAD
    told: dict[str, str] = {}
    for outage in outages:
        version = outage.driver
        if version is not None and outage.start <= latest:
            told[outage.node] = max(told.get(outage.node, version), version, key=_version_number)
    if not told:
        return
    nodes = schema.nodes
    columns = (nodes.c.node, nodes.c.rack, nodes.c.leaf, nodes.c.driver, nodes.c.nvlink_domain)
    found = connection.execute(sa.select(*columns).where(is_one_of(connection, nodes.c.node, told))).mappings()
    rows = [dict(row) for row in found if _version_number(row["driver"] or "") < _version_number(told[row["node"]])]
    news = [{**row, "driver": told[row["node"]]} for row in rows]
    note_columns(connection, news, received)
    for row in news:
        connection.execute(nodes.update().where(nodes.c.node == row["node"]).values(driver=row["driver"]))


def _version_number(version: str) -> list[int]:
    """The parts of a version, to be compared; of a word that is none, those of its digits.

    >>> _version_number("570.124.06") > _version_number("570.86.15")
    True
    """
    return [int(part) for part in re.findall(r"\d{1,9}", version, re.ASCII)]


def _blaming(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, datetime]]:
    """Node and begin of those outages that say something new of whose fault a stop was: an end alone does not."""
    table = schema.outages
    nodes, starts = {row["node"] for row in rows}, [row["start"] for row in rows]
    query = sa.select(table.c.node, table.c.start, table.c.planned, table.c.cause)
    query = query.where(table.c.node.in_(nodes), table.c.start.between(min(starts), max(starts)))
    known = {(row.node, row.start): (row.planned, row.cause) for row in connection.execute(query)}
    found = []
    for row in rows:
        before, now = known.get((row["node"], row["start"])), (row["planned"], row["cause"])
        if before != now and not (row["planned"] and (before is None or before[0])):
            found.append((row["node"], row["start"]))
    return found


def append_jobs(connection: sa.Connection, jobs: Iterable[Job]) -> None:
    """Append attempts; a later record of the same attempt replaces the earlier one.

    A job that changed its size has a record of each: in the books the later ones are submitted when it changed. The
    queue goes on to show it as submitted at first: that reopens no record that has ended so.
    """
    rows = []
    for job in jobs:
        began = job.submit or job.start  # the submit is there before the start, and a requeue sets it anew
        rows.append({**asdict(job), "attempt": format_time(began) if began else ""})
    table = schema.jobs
    upsert(connection, table, rows, lambda new: (table.c.state != "RESIZING") | new["end"].is_not(None))


def append_nodes(connection: sa.Connection, nodes: Iterable[Node], at: datetime | None = None) -> None:
    """Append nodes of a nodes.csv, which names them; what is known of one already is replaced, but `last_seen`."""
    taken = list(nodes)
    rows = [{name: getattr(node, name) for name in NODE_COLUMNS} for node in taken]
    note_columns(connection, rows, at)
    upsert(connection, schema.nodes, rows)
    append_groups(connection, (NodeGroup(node.node, kind, name) for node in taken for kind, name in node.groups), at)
    append_names(connection, (DeviceName(*name) for node in taken for name in node.names), at)
    add_known(connection, ARCHIVE, [row["node"] for row in rows])


# What `foreshock ingest` has taken of archives: files by their path and content, so that it resumes where it was.


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file that was taken to its end."""

    path: str  # relative to the archive
    sha256: str
    records: int
    skipped: int
    done: datetime


def read_ingested(connection: sa.Connection) -> dict[tuple[str, str], IngestedFile]:
    """Every file taken, by path and content."""
    table = schema.ingested
    rows = connection.execute(sa.select(table)).mappings()
    return {(row["path"], row["sha256"]): IngestedFile(**row) for row in rows}


def note_ingested(connection: sa.Connection, file: IngestedFile) -> None:
    """Note a file as taken; in the transaction that wrote its records."""
    row = {"path": file.path, "sha256": file.sha256, "records": file.records, "skipped": file.skipped}
    upsert(connection, schema.ingested, [{**row, "done": file.done}])
