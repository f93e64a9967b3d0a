"""What each detector said of a node: the parts of its incidents, where an incident joins those of a minute."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson
import sqlalchemy as sa

from store import schema
from store.event import Cause, Severity, parse_time
from store.read_states import of_this_machine


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that one source said; `end` is when it last did, as far as it is kept."""

    incident: str
    source: str
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    start: datetime
    end: datetime


def error_signs(
    connection: sa.Connection, since: datetime, now: datetime, until: datetime | None = None
) -> dict[str, list[Sign]]:
    """What was said of each node in its incidents of at least an error that showed since a moment.

    Args:
        now: what ended before the node's present machine came into service was another's.
        until: leave out what began later; None: nothing, for a host's clock may run ahead.
    """
    table = schema.incidents.c
    query = sa.select(
        *(table.node, table.id, table.source, table.kind, table.code, table.severity, table.cause),
        *(table.start, table.end, table.heads),
    ).select_from(schema.incidents.outerjoin(schema.nodes, schema.nodes.c.node == table.node))
    query = query.where(
        of_this_machine(now), table.severity.in_(("error", "fatal")), table.node.is_not(None), table.end >= since
    )
    if until is not None:
        query = query.where(table.start <= until)
    found: dict[str, list[Sign]] = {}
    for node, ident, source, kind, code, severity, cause, start, end, heads in connection.execute(query):
        signs = found.setdefault(node, [])
        if heads is None:
            signs.append(Sign(ident, source or "", kind, code, severity, cause, start, end))
        else:
            signs += _of_heads(ident, heads, end, until)
    return found


def _of_heads(ident: str, heads: str, end: datetime, until: datetime | None) -> Sequence[Sign]:
    """The signs of an incident of several things (`diagnosis/root.py`, Head), without mere consequences."""
    signs = []
    for head in orjson.loads(heads):
        time = parse_time(head["time"])
        if not head.get("follows") and (until is None or time <= until):
            said = head.get("source") or ""
            signs.append(
                Sign(ident, said, head["kind"], head["code"], head["severity"], head["cause"], time, max(time, end))
            )
    return signs
