"""The record of a replayed policy: which node or job it asked for what, from when to when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from schedulers.policy.facts import HOLDING
from store.hints.stops import Trip
from store.records.hint import HintAction


@dataclass(frozen=True, slots=True)
class ReplaySpan:
    """What is lived through: from `since` to before `until`, at each step and when each fatal fault began."""

    since: datetime
    until: datetime
    step: timedelta = timedelta(hours=1)
    reset_after: timedelta = timedelta(hours=24)  # of a trip of the breaker, by a person


@dataclass(frozen=True, slots=True)
class Episode:
    """One node that was asked for one thing, from when to when; `until` None: to the end of the span.

    `run`: whose job was asked, of a `checkpoint`, `swap` or `requeue`.
    """

    hint: str
    node: str
    action: HintAction
    since: datetime
    until: datetime | None
    reason: str
    held_back: str | None = None  # what would have been a hold, and why it was not
    run: str | None = None

    @property
    def is_hold(self) -> bool:
        """Whether it keeps work off the node."""
        return self.action in HOLDING


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a policy asked over a span: how often it was asked, at how many moments, and what tripped."""

    span: ReplaySpan
    moments: int
    episodes: Sequence[Episode]
    trips: Sequence[Trip]
