"""What each check has said of nodes, and what came of it: cases, and the record of each check.

    add_sayings(connection, [Saying("kernel", "xid 79", "gpu-017", first, last)])
    due_cases(connection, now - HORIZON, 2000)       # those that can be judged
    check_records(connection)                        # each check's record, those of the most nodes first

On the tables `check_cases` and `check_records`. A check is a source and what it names: a kind and code (`xid 79`), or
what a detector calls it (`check_hw_ib`). What it says of a node again within the horizon is the same case.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import sqlalchemy as sa

from store.database.known_nodes import is_counted
from store.records.event_sources import DETECTORS, NO_FAULT
from store.tables import hint_tables, schema
from store.tables.bulk_rows import is_one_of, upsert
from store.tables.day_totals import DayStart

_CASES, _RECORDS = hint_tables.check_cases, hint_tables.check_records
# followed: the node went out of service unplanned. cleared: nothing came. contradicted: a person turned a hint on it
# down, or the node passed the site's test. unknown: it was held, or taken out as planned: nobody knows what would have
# come.
CheckOutcome: TypeAlias = Literal["followed", "cleared", "contradicted", "unknown"]
CHECK_OUTCOMES: tuple[CheckOutcome, ...] = get_args(CheckOutcome)

HORIZON = timedelta(days=7)
# What a record looks back at.
KEPT = timedelta(days=365)
# The score, as a check beside those of events.
MODEL = "model"
# What one node may open at a time, and how long a name may be: a node that invents checks fills nothing.
MOST_OPEN = 64
MOST_NAME = 200
# Records that are kept: those of the most nodes.
MOST_RECORDS = 1000
_READ = "checks"
# A transaction that began before another may commit after it: on PostgreSQL this much is read twice.
_OVERLAP = timedelta(minutes=2)
_ROWS = 200_000
_CHUNK = 1_000
_SPOKEN = ("warning", "error", "fatal")


@dataclass(frozen=True, slots=True)
class Saying:
    """What a check said of a node on a day: first and last."""

    source: str
    name: str
    node: str
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class CheckCase:
    """What a check said of a node within the horizon from `said` on."""

    source: str
    name: str
    node: str
    said: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class CheckTally:
    """What came of a check's cases. `right`, `wrong`: each node counts once, by the share of its judged cases."""

    source: str
    name: str
    said: int
    waiting: int
    followed: int
    cleared: int
    contradicted: int
    unknown: int
    nodes: int
    right: float
    wrong: float
    last: datetime


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """A check's record: its tally, and of how many nodes it was right, 0-1, with the 95 % interval."""

    tally: CheckTally
    precision: float
    low: float
    high: float


def check_name(kind: str, code: int | None) -> str:
    """What a check of the machine itself is called: `xid 79`."""
    return kind if code is None else f"{kind} {code}"


def names_of(source: str, kind: str, code: int | None, check: str | None) -> list[str]:
    """The checks that an event speaks for: a detector's own word for it, and what two detectors are weighed by."""
    machine = check_name(kind, code)[:MOST_NAME]
    if source not in DETECTORS or not check:
        return [machine]
    return [check[:MOST_NAME], machine] if source == "nhc" else [check[:MOST_NAME]]


# What has come in, from the events: by their receipt on PostgreSQL, by their row on SQLite, which numbers them.


def new_sayings(connection: sa.Connection, now: datetime) -> Iterator[tuple[list[Saying], int | None]]:
    """What has come in since the last time, in parts; a part may bring the mark to be set once it is in.

    Where it is stopped in between, the next time reads on from the last mark: a saying that is known adds nothing.
    """
    marked = connection.scalar(sa.select(schema.marks.c.number).where(schema.marks.c.name == _READ)) or 0
    for bounds, mark in _steps(connection, marked, now):
        part: list[Saying] = []
        with connection.execute(_spoken(now).where(*bounds).execution_options(yield_per=_CHUNK)) as rows:
            for row in rows:
                part += [
                    Saying(row.source, name, row.node, row.first, row.last)
                    for name in names_of(row.source, row.kind, row.code, row.named)
                ]
                if len(part) >= _CHUNK:
                    yield part, None
                    part = []
        yield part, mark


def _steps(connection: sa.Connection, marked: int, now: datetime) -> Iterator[tuple[list[Any], int]]:
    """The parts that are read one after the other, and the mark after each."""
    table = schema.events
    if connection.dialect.name == "postgresql":
        begun = datetime.fromtimestamp(marked / 1e6, now.tzinfo) - _OVERLAP
        newest = connection.scalar(sa.select(sa.func.max(table.c.received)).where(table.c.received >= begun))
        if newest is not None:
            yield [table.c.received >= begun], round(newest.timestamp() * 1e6)
        return
    row = sa.literal_column("events._rowid_", sa.BigInteger)
    newest = connection.scalar(sa.select(sa.func.max(row)).select_from(table)) or 0
    first = marked if marked <= newest else 0  # the rows were numbered anew
    for begin in range(first, newest, _ROWS):
        yield [row > begin, row <= begin + _ROWS], min(begin + _ROWS, newest)


def _spoken(now: datetime) -> sa.Select[Any]:
    """What was said of each node on each day."""
    c = schema.events.c
    named = sa.case((c.source.in_(sorted(DETECTORS)), c.attributes["check"].as_string()), else_=None)
    keys = (c.source, c.kind, c.code, c.node)
    moments = (sa.func.min(c.time, type_=schema.UtcTime()), sa.func.max(c.time, type_=schema.UtcTime()))
    query = sa.select(*keys, named.label("named"), moments[0].label("first"), moments[1].label("last")).where(
        c.severity.in_(_SPOKEN),
        c.node.is_not(None),
        c.source.not_in(sorted(NO_FAULT)),
        c.time >= now - KEPT,
    )
    return query.group_by(*keys, sa.literal_column("named"), DayStart(c.time)).order_by(sa.literal_column("first"))


def set_read(connection: sa.Connection, mark: int) -> None:
    """Note up to where the events were read."""
    upsert(connection, schema.marks, [{"name": _READ, "number": mark}])


class AddedCases(NamedTuple):
    """How many cases are new or go on, and how many sayings were left out."""

    changed: int
    left_out: int


def add_sayings(connection: sa.Connection, sayings: Collection[Saying]) -> AddedCases:
    """Make cases of what was said, or note that an open one goes on.

    A node that has `MOST_OPEN` cases within the horizon opens no more.
    """
    if not sayings:
        return AddedCases(0, 0)
    ordered = sorted(sayings, key=lambda one: (one.first, one.source, one.name, one.node))
    cases = _cases_about(connection, {one.node for one in ordered}, ordered[0].first, ordered[-1].last)
    open_of: dict[str, list[datetime]] = {}
    for (_, _, node), mine in cases.items():
        open_of.setdefault(node, []).extend(case.said for case in mine)
    changed: dict[tuple[str, str, str, datetime], CheckCase] = {}
    left_out = 0
    for one in ordered:
        mine = cases.setdefault((one.source, one.name, one.node), [])
        place, case = next(
            ((i, case) for i, case in enumerate(mine) if case.said - HORIZON < one.first < case.said + HORIZON),
            (-1, None),
        )
        if case is None:
            others = open_of.setdefault(one.node, [])
            if sum(abs(said - one.first) < HORIZON for said in others) >= MOST_OPEN:
                left_out += 1
                continue
            case = CheckCase(one.source, one.name, one.node, one.first, one.last)
            mine.append(case)
            others.append(case.said)
        elif one.last > case.last:
            case = replace(case, last=one.last)
            mine[place] = case
        else:
            continue
        changed[case.source, case.name, case.node, case.said] = case
    upsert(connection, _CASES, [_row(case) for case in changed.values()])
    return AddedCases(len(changed), left_out)


def _row(case: CheckCase) -> dict[str, Any]:
    return {"source": case.source, "name": case.name, "node": case.node, "said": case.said, "last": case.last}


def _cases_about(
    connection: sa.Connection, nodes: Collection[str], first: datetime, last: datetime
) -> dict[tuple[str, str, str], list[CheckCase]]:
    c = _CASES.c
    query = sa.select(c.source, c.name, c.node, c.said, c.last).where(
        is_one_of(connection, c.node, nodes), c.said > first - HORIZON, c.said < last + HORIZON
    )
    found: dict[tuple[str, str, str], list[CheckCase]] = {}
    for row in connection.execute(query):
        found.setdefault((row.source, row.name, row.node), []).append(CheckCase(*row))
    return found


# What came of them.


def due_cases(connection: sa.Connection, before: datetime, limit: int) -> list[CheckCase]:
    """Cases that began before a moment and are not judged yet, the oldest first."""
    c = _CASES.c
    query = sa.select(c.source, c.name, c.node, c.said, c.last).where(hint_tables.UNJUDGED, c.said <= before)
    return [CheckCase(*row) for row in connection.execute(query.order_by(c.said).limit(limit))]


def save_verdicts(connection: sa.Connection, outcomes: Mapping[CheckCase, CheckOutcome]) -> None:
    """Write what came of some cases."""
    upsert(connection, _CASES, [{**_row(case), "outcome": outcome} for case, outcome in outcomes.items()])


def forget_cases(connection: sa.Connection, before: datetime) -> int:
    """Delete the cases that no record looks back at any more."""
    return connection.execute(sa.delete(_CASES).where(_CASES.c.said < before)).rowcount


def tallies(
    connection: sa.Connection, at: datetime, among: Collection[tuple[str, str]] | None = None
) -> list[CheckTally]:
    """Each check's tally as of a moment: of what it said in the year before, judged by what had come by then.

    Only nodes that count are in it: one that invents nodes adds nothing.

    Args:
        among: these checks alone, source and name; None: those of the most nodes.
    """
    c = _CASES.c
    judged = sa.and_(c.outcome.is_not(None), c.said <= at - HORIZON)

    def count(*outcomes: CheckOutcome) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((sa.and_(judged, c.outcome.in_(outcomes)), 1), else_=0))

    of_nodes = sa.select(
        c.source,
        c.name,
        c.node,
        sa.func.count().label("said"),
        *(count(outcome).label(outcome) for outcome in CHECK_OUTCOMES),
        sa.func.max(c.said, type_=schema.UtcTime()).label("last"),
    ).where(c.said > at - KEPT, c.said <= at, is_counted(c.node))
    if among is not None:
        of_nodes = of_nodes.where(sa.or_(*(sa.and_(c.source == source, c.name == name) for source, name in among)))
    n = of_nodes.group_by(c.source, c.name, c.node).subquery().c
    against = n.followed + n.cleared + n.contradicted
    share = sa.case((against > 0, n.followed * 1.0 / against), else_=0.0)
    sums = {name: sa.func.sum(n[name]) for name in ("said", *CHECK_OUTCOMES)}
    right = sa.func.sum(share)
    heard = sa.func.sum(sa.case((against > 0, 1), else_=0))
    query = sa.select(
        n.source,
        n.name,
        *(column.label(name) for name, column in sums.items()),
        sa.func.count().label("nodes"),
        right.label("right"),
        heard.label("heard"),
        sa.func.max(n.last, type_=schema.UtcTime()).label("last"),
    ).group_by(n.source, n.name)
    query = query.order_by(sa.func.count().desc(), sums["said"].desc(), n.source, n.name).limit(MOST_RECORDS)
    return [_tally(row) for row in connection.execute(query).mappings()]


def _tally(row: Any) -> CheckTally:
    came = {name: int(row[name]) for name in CHECK_OUTCOMES}
    said = int(row["said"])
    right = float(row["right"])
    return CheckTally(
        row["source"],
        row["name"],
        said=said,
        waiting=said - sum(came.values()),
        **came,
        nodes=int(row["nodes"]),
        right=right,
        wrong=int(row["heard"]) - right,
        last=row["last"],
    )


def save_records(connection: sa.Connection, records: Sequence[CheckRecord]) -> None:
    """Put the records in the place of those of before."""
    connection.execute(sa.delete(_RECORDS))
    rows = [{**asdict(one.tally), "precision": one.precision, "low": one.low, "high": one.high} for one in records]
    if rows:
        connection.execute(_RECORDS.insert(), rows)


def check_records(connection: sa.Connection, among: Collection[tuple[str, str]] | None = None) -> list[CheckRecord]:
    """The records as they were last made, the widest first; of some checks alone, where given."""
    c = _RECORDS.c
    query = sa.select(_RECORDS)
    if among is not None:
        query = query.where(
            sa.or_(sa.false(), *(sa.and_(c.source == source, c.name == name) for source, name in among))
        )
    found = []
    for row in connection.execute(query.order_by(c.nodes.desc(), c.said.desc(), c.source, c.name)).mappings():
        rest = dict(row)
        share = [rest.pop(name) for name in ("precision", "low", "high")]
        found.append(CheckRecord(CheckTally(**rest), *share))
    return found


def has_records(connection: sa.Connection) -> bool:
    """Whether any record was ever made."""
    return connection.scalar(sa.select(sa.literal(1)).select_from(_RECORDS).limit(1)) is not None
