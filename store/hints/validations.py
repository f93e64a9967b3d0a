"""Tests of held nodes before their release: begun, ended, and what came of them. On the table `validations`.

A row without an end is a test that runs, or that ended with the server that ran it. `passed` is None for a test that
said nothing of the node: it could not be begun, was put off, or was cut off.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.records.hint import Hint
from store.tables import hint_tables
from store.tables.bulk_rows import is_one_of

_TABLE = hint_tables.validations
OUTPUT_BYTES = 4096
MOST_REPORTS = 100


@dataclass(frozen=True, slots=True)
class Validation:
    """One test of one node. `command` is its words, or `reported by NAME`; `output` the end of what it said."""

    seq: int
    hint: str
    node: str
    command: str
    started: datetime
    ended: datetime | None = None
    passed: bool | None = None
    exit_code: int | None = None
    output: str = ""


def begin_validation(connection: sa.Connection, hint: str, node: str, command: str, now: datetime) -> Validation:
    """Note that a test begins."""
    row = {"hint": hint, "node": node, "command": command, "started": now, "output": ""}
    seq = connection.execute(_TABLE.insert().values(**row).returning(_TABLE.c.seq)).scalar_one()
    return Validation(seq, hint, node, command, now)


def end_validation(
    connection: sa.Connection, seq: int, now: datetime, passed: bool | None, exit_code: int | None, output: str
) -> bool:
    """Note how a test ended; False where that was noted before."""
    values = {"ended": now, "passed": passed, "exit_code": exit_code, "output": output_tail(output)}
    open_row = sa.update(_TABLE).where(_TABLE.c.seq == seq, _TABLE.c.ended.is_(None))
    return connection.execute(open_row.values(**values)).rowcount == 1


def report_validation(
    connection: sa.Connection, hint: Hint, who: str, now: datetime, result: tuple[bool, str]
) -> Validation:
    """Note what another test system, or a person, says of a node: whether it passed, and what was seen.

    Of each reporter the newest `MOST_REPORTS` of a hint are kept: every turn of the policy reads them.
    """
    passed, detail = result
    begun = begin_validation(connection, hint.id, hint.node, f"reported by {who}", now)
    end_validation(connection, begun.seq, now, passed, None, detail)
    own = sa.and_(_TABLE.c.hint == hint.id, _TABLE.c.command == begun.command)
    kept = sa.select(_TABLE.c.seq).where(own).order_by(_TABLE.c.seq.desc()).limit(MOST_REPORTS)
    connection.execute(sa.delete(_TABLE).where(own, _TABLE.c.seq.not_in(kept)))
    return replace(begun, ended=now, passed=passed, output=output_tail(detail))


def output_tail(output: str) -> str:
    """The last 4 kB of a text; what PostgreSQL cannot hold is left out."""
    tail = output.replace("\x00", "").encode("utf-8", "replace")[-OUTPUT_BYTES:]
    return tail.decode("utf-8", "ignore")


def validations_of(connection: sa.Connection, hints: Iterable[str]) -> dict[str, list[Validation]]:
    """The tests of some hints, each hint's in order."""
    query = sa.select(_TABLE).where(is_one_of(connection, _TABLE.c.hint, sorted(set(hints)))).order_by(_TABLE.c.seq)
    return _by(query, connection, "hint")


def validations_of_nodes(
    connection: sa.Connection, nodes: Iterable[str], since: datetime
) -> dict[str, list[Validation]]:
    """The tests of some nodes since a moment, each node's in order."""
    query = sa.select(_TABLE).where(is_one_of(connection, _TABLE.c.node, sorted(set(nodes))), _TABLE.c.started >= since)
    return _by(query.order_by(_TABLE.c.seq), connection, "node")


def unfinished(connection: sa.Connection) -> list[Validation]:
    """Tests without an end."""
    query = sa.select(_TABLE).where(_TABLE.c.ended.is_(None)).order_by(_TABLE.c.seq)
    return [_of(row) for row in connection.execute(query).mappings()]


def _by(query: sa.Select[Any], connection: sa.Connection, key: str) -> dict[str, list[Validation]]:
    found: dict[str, list[Validation]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row[key], []).append(_of(row))
    return found


def _of(row: Any) -> Validation:
    return Validation(**{name: row[name] for name in Validation.__slots__})
