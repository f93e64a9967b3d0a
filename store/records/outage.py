"""An outage: a node out of service, with start, end and cause.

The predictor's label comes from outages, the accountant's lost work too.
The record rides in an `Event` of kind `outage` (as `sacctmgr show event -P` prints it), whose attributes are
`start end state reason user` with times in RFC 3339:

    NodeName|TimeStart|TimeEnd|State|Reason|User
    gpu-017|2025-03-01T04:05:06|2025-03-01T06:00:00|DOWN|Xid 79|root

What a reason means is a table, not code: `catalogs/outage_reasons.csv`, first match wins. A site's own rows
(`outage_reasons:` in its configuration) come before the shipped ones, but for what Foreshock itself asked.

    own = ReasonRule(re.compile("ops-bot"), planned=True, cause="unknown")
    OutageReasons((own,)).judge("DRAIN", "by ops-bot")    # (True, "unknown")
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Protocol

from store.catalog_rows import rows
from store.records.event import CAUSES, Cause, Event, RecordError, time_among

# A reason is a sentence. What follows is not searched: whoever may tell one must not make that take long.
_MOST_SEARCHED = 1000
# Numbers with dots, or a branch alone (`driver upgrade 550`); a number of nodes is neither.
_VERSION = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,4}){1,3}(?![\w.]*\d)", re.ASCII)
_BRANCH = re.compile(
    r"(?:^|\bdrivers?(?:\s+(?:release|version|upgrade|update|rollout))?)\s+[rv]?(\d{3})\b", re.IGNORECASE | re.ASCII
)
_TO = re.compile(r"\bto\b|->|=>", re.IGNORECASE)


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

    @property
    def driver(self) -> str | None:
        """The version of the driver that this planned outage brought, where its reason tells one.

        >>> from datetime import datetime
        >>> Outage("a", datetime(2025, 3, 1), None, "DRAIN", "driver 550.90 to 570.124.06", None, True, "driver").driver
        '570.124.06'
        """
        if not self.planned or self.cause != "driver":
            return None
        reason = self.reason[:_MOST_SEARCHED]
        newer = _TO.split(reason, maxsplit=1)[-1]
        if found := _VERSION.search(newer) or _BRANCH.search(newer):
            return found[found.re.groups]
        found = _VERSION.search(reason) or _BRANCH.search(reason)
        return None if found is None else found[found.re.groups]


class ReasonPattern(Protocol):
    """A compiled pattern, of `re` (the shipped table) or of RE2 (a site's own: none of those can stall)."""

    def search(self, text: str, /) -> Any:
        """A match anywhere in the text, or None."""


@dataclass(frozen=True, slots=True)
class ReasonRule:
    """One row of the reason table: a case-insensitive pattern over `STATE reason`. `own`: the site's own."""

    pattern: ReasonPattern = field(compare=False)
    planned: bool
    cause: Cause
    text: str = ""
    own: bool = False


@cache
def reason_rules() -> tuple[ReasonRule, ...]:
    """The shipped table of outage reasons, in order."""
    causes = dict(zip(CAUSES, CAUSES, strict=True))
    return tuple(
        ReasonRule(
            re.compile(row["pattern"], re.IGNORECASE),
            row["planned"] == "yes",
            causes[row["cause"]],  # type: ignore[index]  # a wrong word raises KeyError: the table's own test
            row["pattern"],
        )
        for row in rows("outage_reasons")
    )


class OutageReasons:
    """What reasons mean at a site: the shipped table, and the site's own rows before it."""

    def __init__(self, own: tuple[ReasonRule, ...] = ()) -> None:
        self.own = own

    def __eq__(self, other: object) -> bool:
        """Whether reasons mean the same."""
        return isinstance(other, OutageReasons) and other.own == self.own

    def __hash__(self) -> int:
        """That of the site's own rows."""
        return hash(self.own)

    @cached_property
    def _rules(self) -> tuple[ReasonRule, ...]:
        first, *shipped = reason_rules()  # the first is our own hints': no site may make them failures to learn from
        return (first, *self.own, *shipped)

    def rule(self, state: str, reason: str) -> ReasonRule | None:
        """The row that decides on an outage; None where no row knows its reason."""
        text = f"{state} {reason}"[:_MOST_SEARCHED]
        return next((rule for rule in self._rules if rule.pattern.search(text)), None)

    def judge(self, state: str, reason: str) -> tuple[bool, Cause]:
        """Whether an outage was planned, and its cause; what no row knows was not, of unknown cause."""
        rule = self.rule(state, reason)
        return (False, "unknown") if rule is None else (rule.planned, rule.cause)


SHIPPED_REASONS = OutageReasons()


def classify(state: str, reason: str) -> tuple[bool, Cause]:
    """Whether an outage was planned, and its cause, by the shipped table, from Slurm's state and reason."""
    return SHIPPED_REASONS.judge(state, reason)


def outage_from_event(event: Event, reasons: OutageReasons = SHIPPED_REASONS) -> Outage:
    """The outage that an event of kind `outage` carries.

    Raises:
        RecordError: it names no node or no start; a time is none.
    """
    a = event.attributes
    start, end, user = time_among(a, "start"), time_among(a, "end"), a.get("user")
    if not event.node or start is None:
        raise RecordError("an outage needs 'node' and the attribute 'start'")
    state, reason = str(a.get("state") or ""), str(a.get("reason") or "")
    planned, cause = reasons.judge(state, reason)
    return Outage(
        node=event.node,
        start=start,
        end=end and max(end, start),  # an end before its start is a clock's error
        state=state,
        reason=reason,
        user=None if user is None else str(user),
        planned=planned,
        cause=cause,
    )
