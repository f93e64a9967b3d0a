"""The audit's hash chain: each row's SHA-256 covers its content and the hash of the row before it.

    append_audit(connection, [AuditEntry(now, "alice", "stop", "switch", {"stop": "holds"})])   # in the caller's own
    verify_chain(connection, head="9f2c...")                                                   # AuditCheck(rows=8, ...)

A row is inserted where its change is made, so that both stand or fall together. It gets its place in the chain right
before the commit, under a lock that is held until then: whoever waits for that lock waits for nobody else, so several
servers on one PostgreSQL neither mix up the chain nor block each other. SQLite has one writer anyway.

The chain shows that a row was changed, removed, inserted or moved. Whoever can write to the database can also compute
all of it anew, or cut off its end: that is seen only against a hash of the head that was kept elsewhere (`head`).
A prune leaves a row of its own in the chain: up to where it cut, and the hash of the last row that went.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.records.event import format_time, parse_time
from store.records.hint import OPEN_STATES
from store.tables import hint_tables, schema

_AUDIT = schema.audit

# What the first row of all follows.
FIRST = "0" * 64
CUT_ACTION, CUT_SUBJECT = "cut", "audit"
# So many digits of a hash name it: as many as a metric's number holds exactly.
LEAST_DIGITS = 13
_LOCK = 7_301_011
_PENDING = "audit rows that are not in the chain yet"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row to be written: who did what to what, when; `detail` is a JSON object."""

    time: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One row of the chain; without place and hash it was written by something else than Foreshock."""

    seq: int
    time: datetime
    actor: str
    action: str
    subject: str
    detail: Any = field(hash=False)
    position: int | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The last row of the chain: its place, counted from 1 since the first row ever, and its hash."""

    position: int = 0
    hash: str = FIRST


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """The first row that is not as it was written. `seq`: of the row; None where it is one that is missing."""

    position: int | None
    seq: int | None
    why: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What a check found. `cut`: the place of the last row that a prune took; `is_anchored`: None where no hash was
    given to look for, else whether a row has it."""

    rows: int
    head: AuditHead
    cut: int = 0
    broken: BrokenRow | None = None
    is_anchored: bool | None = None


def row_hash(previous: str, position: int, row: AuditRow) -> str:
    """The SHA-256 of a row at a place of the chain, as 64 hex digits.

    It is of this JSON, in ASCII, with sorted keys and without blanks: action, actor, detail, position, previous, seq,
    subject, time (in UTC, with microseconds and Z).
    """
    content = {
        "action": row.action,
        "actor": row.actor,
        "detail": row.detail,
        "position": position,
        "previous": previous,
        "seq": row.seq,
        "subject": row.subject,
        "time": format_time(row.time),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def append_audit(connection: sa.Connection, entries: Iterable[AuditEntry]) -> None:
    """Write audit rows in the caller's transaction; they stand in the chain once it is committed."""
    rows = [
        {"time": one.time, "actor": one.actor, "action": one.action, "subject": one.subject, "detail": dict(one.detail)}
        for one in entries
    ]
    if not rows:
        return
    made = _AUDIT.insert().returning(_AUDIT.c.seq, sort_by_parameter_order=True)
    seqs = list(connection.execute(made, rows).scalars())
    _pending(connection).extend(seqs)


def _pending(connection: sa.Connection) -> list[int]:
    """The rows that this transaction has written."""
    known = connection.info.get(_PENDING)
    if known is None or known[0] is not connection.get_transaction():
        known = connection.info[_PENDING] = (connection.get_transaction(), list[int]())
    found: list[int] = known[1]
    return found


@sa.event.listens_for(sa.Engine, "commit")
def _seal(connection: sa.Connection) -> None:
    """Give the rows of a transaction that is about to be committed their places."""
    known = connection.info.pop(_PENDING, None)
    if known is not None and known[0] is connection.get_transaction():
        seal(connection, known[1])


@sa.event.listens_for(sa.Engine, "rollback")
def _forget(connection: sa.Connection) -> None:
    if not connection.invalidated:  # what was written with a session that is gone went with it
        connection.info.pop(_PENDING, None)


def seal(connection: sa.Connection, seqs: Sequence[int]) -> None:
    """Chain rows, as they are stored, in the order of their numbers; nobody else does until the transaction ends."""
    rows: list[AuditRow] = []
    for start in range(0, len(seqs), 500):
        query = sa.select(*_COLUMNS).where(_AUDIT.c.seq.in_(seqs[start : start + 500]), _AUDIT.c.position.is_(None))
        rows += [AuditRow(*row) for row in connection.execute(query.order_by(_AUDIT.c.seq))]
    if not rows:
        return
    # All that is left to be done under the lock: others wait for it until this is committed.
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    head = audit_head(connection)
    places = []
    for row in rows:
        position = head.position + 1
        head = AuditHead(position, row_hash(head.hash, position, row))
        places.append({"of": row.seq, "at": position, "digest": head.hash})
    found = sa.update(_AUDIT).where(_AUDIT.c.seq == sa.bindparam("of"))
    connection.execute(found.values(position=sa.bindparam("at"), hash=sa.bindparam("digest")), places)


_COLUMNS = [_AUDIT.c[name] for name in AuditRow.__slots__]


def audit_head(connection: sa.Connection) -> AuditHead:
    """The newest row's place and hash."""
    query = sa.select(_AUDIT.c.position, _AUDIT.c.hash).where(_AUDIT.c.position.is_not(None))
    row = connection.execute(query.order_by(_AUDIT.c.position.desc()).limit(1)).first()
    return AuditHead() if row is None else AuditHead(row.position, row.hash or "")


def verify_chain(connection: sa.Connection, head: str | None = None) -> AuditCheck:
    """Check every row that is stored, in one reading.

    Args:
        head: a hash, or its first 13 digits or more, that was the head's at some time; it must still be a row's.
    """
    cut = _newest_cut(connection)
    with closing(_stored(connection)) as rows:
        checked = check_rows(rows, cut, head)
    if checked.broken is not None:
        return checked
    loose = connection.execute(
        sa.select(_AUDIT.c.seq).where(_AUDIT.c.position.is_(None)).order_by(_AUDIT.c.seq).limit(1)
    ).first()
    if loose is None:
        return checked
    why = f"row {loose.seq} is not in the chain: something else than Foreshock inserted it, or its place was taken away"
    return AuditCheck(checked.rows, checked.head, checked.cut, BrokenRow(None, loose.seq, why), checked.is_anchored)


def _stored(connection: sa.Connection) -> Generator[AuditRow, None, None]:
    query = sa.select(*_COLUMNS).where(_AUDIT.c.position.is_not(None)).order_by(_AUDIT.c.position, _AUDIT.c.seq)
    with connection.execute(query, execution_options={"yield_per": 1000}) as found:
        for row in found:
            yield AuditRow(*row)


def _newest_cut(connection: sa.Connection) -> AuditHead:
    """Up to where pruning took rows, as the newest row about it says."""
    is_cut = (_AUDIT.c.action == CUT_ACTION, _AUDIT.c.subject == CUT_SUBJECT, _AUDIT.c.position.is_not(None))
    query = sa.select(_AUDIT.c.detail).where(*is_cut).order_by(_AUDIT.c.position.desc()).limit(1)
    return _cut_of(connection.scalar(query)) or AuditHead()


def _cut_of(detail: object) -> AuditHead | None:
    """What a row about a cut says of the last row that went."""
    if not isinstance(detail, Mapping):
        return None
    position, digest = detail.get("position"), detail.get("hash")
    return AuditHead(position, digest) if isinstance(position, int) and isinstance(digest, str) else None


def check_rows(rows: Iterable[AuditRow], begins_after: AuditHead, head: str | None = None) -> AuditCheck:
    """Check rows in the order of their places, the first of which follows `begins_after`."""
    before, count, is_anchored = begins_after, 0, None if head is None else begins_after.hash.startswith(head)
    waiting = iter(rows)
    row = next(waiting, None)
    while row is not None:
        following = next(waiting, None)
        why = _wrong(before, row, following)
        if why is not None:
            broken = BrokenRow(row.position, row.seq, why)
            return AuditCheck(count, before, begins_after.position, broken, is_anchored)
        before, count = AuditHead(before.position + 1, row.hash or ""), count + 1
        is_anchored = is_anchored if head is None else is_anchored or before.hash.startswith(head)
        row = following
    return AuditCheck(count, before, begins_after.position, None, is_anchored)


def _wrong(before: AuditHead, row: AuditRow, following: AuditRow | None) -> str | None:
    """What is wrong with a row that follows another; None where nothing is."""
    position = before.position + 1
    if row.position is None or row.position > position:
        last = "" if row.position is None or row.position == position + 1 else f" to {row.position - 1}"
        return f"the row at place {position}{last} is missing: it was deleted, or moved; row {row.seq} comes next"
    if row.position < position:
        return f"row {row.seq} has place {row.position}, which another row has: it was inserted or moved"
    expected = row_hash(before.hash, position, row)
    if row.hash == expected:
        return None
    stored = row.hash or "none"
    if following is not None and following.position == position + 1:
        # Which of the two was touched is told by the row behind it, which covers the true hash.
        if following.hash == row_hash(stored, position + 1, following):
            what = "time, actor, action, subject, detail or seq"
            return f"the content of row {row.seq} was changed ({what}): {_both(stored, expected)}"
        if following.hash == row_hash(expected, position + 1, following):
            return f"the hash of row {row.seq} was changed, its content is as it was: {_both(stored, expected)}"
    return f"row {row.seq} is not what was written there: {_both(stored, expected)}"


def _both(stored: str, expected: str) -> str:
    return f"{stored[:16]} is stored, {expected[:16]} comes out"


# The chain as lines of JSON, which can be checked without the database.
#
#     {"action": "stop", ..., "position": 812, "previous": "...", "hash": "..."}
#     {"head": {"position": 812, "hash": "..."}}


class AuditFileError(ValueError):
    """A line that is none of an export; the message says why."""


def export_lines(connection: sa.Connection) -> Iterator[str]:
    """Every row as a line, then the head's; without line ends."""
    before = _newest_cut(connection)
    for row in _stored(connection):
        position = before.position + 1 if row.position is None else row.position
        content = {name: getattr(row, name) for name in AuditRow.__slots__} | {"time": format_time(row.time)}
        yield json.dumps(content | {"position": position, "previous": before.hash}, sort_keys=True)
        before = AuditHead(position, row.hash or "")
    yield json.dumps({"head": {"position": before.position, "hash": before.hash}})


@dataclass
class _FileRows:
    """The rows of an export as they are read, and what stands beside them."""

    lines: Iterable[str]
    begins_after: AuditHead | None = None
    head: AuditHead | None = None
    cuts: set[AuditHead] = field(default_factory=set)

    def __iter__(self) -> Iterator[AuditRow]:
        for number, line in enumerate(self.lines, 1):
            found = _object(line, number)
            if "head" in found:
                self.head = _cut_of(found["head"])
                continue
            if self.head is not None:
                raise AuditFileError(f"line {number}: a row behind the line of the head")
            row = _row_of(found, number)
            if self.begins_after is None:
                self.begins_after = AuditHead((row.position or 1) - 1, str(found.get("previous")))
            cut = _cut_of(row.detail) if (row.action, row.subject) == (CUT_ACTION, CUT_SUBJECT) else None
            self.cuts |= set() if cut is None else {cut}
            yield row


def verify_lines(lines: Iterable[str], head: str | None = None) -> AuditCheck:
    """Check an export.

    Raises:
        AuditFileError: a line is none of an export.
    """
    found = _FileRows(lines)
    rows = iter(found)
    first = next(rows, None)
    begins_after = found.begins_after or AuditHead()
    checked = check_rows(_with(first, rows), begins_after, head)
    # What is behind a broken row is read, too: a later row may be the one about a cut.
    broken = checked.broken or _wrong_ends(found, begins_after, checked.head)
    return AuditCheck(checked.rows, checked.head, checked.cut, broken, checked.is_anchored)


def _with(first: AuditRow | None, rows: Iterator[AuditRow]) -> Iterator[AuditRow]:
    if first is not None:
        yield first
    yield from rows


def _wrong_ends(found: _FileRows, begins_after: AuditHead, last: AuditHead) -> BrokenRow | None:
    """What is wrong with where an export begins and ends."""
    if begins_after != AuditHead() and begins_after not in found.cuts:
        why = f"the rows up to place {begins_after.position} are missing, and no row says that they were pruned"
        return BrokenRow(begins_after.position + 1, None, why)
    if found.head is None:
        return BrokenRow(last.position + 1, None, "the line of the head is missing: the end was cut off")
    if found.head != last:
        why = f"the head is said to be at place {found.head.position}, the last row is at {last.position}"
        return BrokenRow(last.position + 1, None, f"{why}: the end was cut off, or the head's line was changed")
    return None


def _object(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise AuditFileError(f"line {number}: no JSON: {error}") from error
    if not isinstance(found, dict):
        raise AuditFileError(f"line {number}: no JSON object")
    return found


def _row_of(found: Mapping[str, Any], number: int) -> AuditRow:
    try:
        values = {name: found[name] for name in AuditRow.__slots__}
        values["time"] = parse_time(values["time"])
        if not isinstance(values["position"], int) or not isinstance(values["seq"], int):
            raise AuditFileError(f"line {number}: position and seq: expected whole numbers")
    except KeyError as error:
        raise AuditFileError(f"line {number}: no {error.args[0]}: is it of `foreshock audit export`?") from error
    except (ValueError, TypeError) as error:
        raise AuditFileError(f"line {number}: {error}") from error
    return AuditRow(**values)


# Retention: the oldest rows go, and a row in the chain says up to where.


def cut_audit(connection: sa.Connection, before: datetime, now: datetime, most: int) -> int:
    """Delete at most so many of the oldest rows, all of which are older than a moment; how many went.

    The rows of a hint that is still open stay, and with them all that follow.
    """
    first = sa.select(sa.func.min(_AUDIT.c.position)).where(_AUDIT.c.time >= before).scalar_subquery()
    oldest = connection.scalar(sa.select(sa.func.min(_AUDIT.c.position)))
    if oldest is None:
        return 0
    end = connection.scalar(sa.select(sa.func.coalesce(first, sa.func.max(_AUDIT.c.position) + 1)))
    end = min(int(end or oldest), oldest + most, _needed(connection))
    last = connection.execute(sa.select(_AUDIT.c.hash).where(_AUDIT.c.position == end - 1)).scalar()
    if end <= oldest or last is None:
        return 0
    gone = connection.execute(sa.delete(_AUDIT).where(_AUDIT.c.position < end)).rowcount
    detail = {"position": end - 1, "hash": last, "rows": gone, "before": format_time(before)}
    append_audit(connection, [AuditEntry(now, "prune", CUT_ACTION, CUT_SUBJECT, detail)])
    return gone


def _needed(connection: sa.Connection) -> int:
    """The first place that stays whatever its age: of a hint that is still open."""
    open_hints = sa.select(hint_tables.hints.c.id).where(hint_tables.hints.c.state.in_(OPEN_STATES))
    found = connection.scalar(sa.select(sa.func.min(_AUDIT.c.position)).where(_AUDIT.c.subject.in_(open_hints)))
    return 2**62 if found is None else int(found)
