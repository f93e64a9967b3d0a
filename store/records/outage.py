"""An outage: a node out of service, with start, end and cause.

The predictor's label comes from outages, the accountant's lost work too.
The record rides in an `Event` of kind `outage` (as `sacctmgr show event -P` prints it), whose attributes are
`start end state reason user` with times in RFC 3339:

    NodeName|TimeStart|TimeEnd|State|Reason|User
    gpu-017|2025-03-01T04:05:06|2025-03-01T06:00:00|DOWN|Xid 79|root

What a reason means is a table, not code: `catalogs/outage_reasons.csv`, first match wins.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from store.catalog_rows import rows
from store.records.event import CAUSES, Cause, Event, RecordError, parse_time


@dataclass(frozen=True, slots=True)
class Outage:
    """A node out of service. `end` is None while it lasts; a planned one is no failure."""

    node: str
    start: datetime
    end: datetime | None
    state: str
    reason: str
    user: str | None
    planned: bool
    cause: Cause


@dataclass(frozen=True, slots=True)
class ReasonRule:
    """One row of the reason table: a case-insensitive pattern over `STATE reason`."""

    pattern: re.Pattern[str]
    planned: bool
    cause: Cause


@cache
def reason_rules() -> tuple[ReasonRule, ...]:
    """The shipped table of outage reasons, in order."""
    causes = dict(zip(CAUSES, CAUSES, strict=True))
    return tuple(
        ReasonRule(re.compile(row["pattern"], re.IGNORECASE), row["planned"] == "yes", causes[row["cause"]])  # type: ignore[index]  # a wrong word raises KeyError: the table's own test
        for row in rows("outage_reasons")
    )


def classify(state: str, reason: str) -> tuple[bool, Cause]:
    """Whether an outage was planned, and its cause, from Slurm's state and reason."""
    text = f"{state} {reason}"
    for rule in reason_rules():
        if rule.pattern.search(text):
            return rule.planned, rule.cause
    return False, "unknown"


def outage_from_event(event: Event) -> Outage:
    """The outage that an event of kind `outage` carries.

    Raises:
        RecordError: it names no node or no start.
    """
    a = event.attributes
    start, end, user = a.get("start"), a.get("end"), a.get("user")
    if not event.node or not isinstance(start, str):
        raise RecordError("an outage needs 'node' and the attribute 'start'")
    state, reason = str(a.get("state") or ""), str(a.get("reason") or "")
    planned, cause = classify(state, reason)
    return Outage(
        node=event.node,
        start=parse_time(start),
        end=parse_time(end) if isinstance(end, str) and end else None,
        state=state,
        reason=reason,
        user=None if user is None else str(user),
        planned=planned,
        cause=cause,
    )
