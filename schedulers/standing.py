"""Where a hint stands, from what each scheduler that is read back says of it. Pure.

Of several schedulers at once a hint is `confirmed` when all that know its node hold it, or find it held by others; one
that is away is waited for, and keeps nobody else from acting.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from schedulers.actuator import Report
from schedulers.reconcile import is_live
from store.hint import Hint, HintState
from store.placements import Placement

# A node may be away for a while, as one that is installed anew; only then is it one that nobody knows.
ABSENT_FOR = timedelta(minutes=10)


def standing(hint: Hint, placements: Sequence[Placement], schedulers: Sequence[str], now: datetime) -> HintState:
    """The state that a live hint of a node comes to; its own where nothing has changed.

    Args:
        placements: of this hint, of any schedulers.
        schedulers: the names of all that are read back.
    """
    mine = {placement.scheduler: placement for placement in placements if placement.scheduler in schedulers}
    if not mine or not is_live(hint, now):
        return hint.state
    if len(mine) == len(schedulers) and all(_is_lost(placement, now) for placement in mine.values()):
        return "withdrawn"
    held = [each for each in mine.values() if each.state == "confirmed" and each.action == hint.action]
    met = [*held, *(each for each in mine.values() if each.state == "foreign")]
    settled = len(met) + sum(each.state in ("absent", "refused") for each in mine.values())
    if met and settled == len(schedulers):
        return "confirmed"
    return "sent" if hint.state == "approved" and held else hint.state


def _is_lost(placement: Placement, now: datetime) -> bool:
    since = placement.observed
    return placement.state == "absent" and since is not None and now - since >= ABSENT_FOR


def reported(was: Placement, report: Report, now: datetime) -> Placement:
    """A placement after the scheduler's answer. Whether it was carried out is for the next observation to tell."""
    detail = report.detail[:300] or None
    if was.action == "release":
        # Nothing but its absence ends a hold of ours: whatever the answer, it is asked again until that is seen.
        return replace(was, detail=None if report.result == "done" else detail)
    if report.result in ("foreign", "absent", "refused"):
        return replace(was, state=report.result, observed=now, detail=detail)
    return replace(was, detail=None if report.result == "done" else detail)


def unanswered(was: Placement, now: datetime) -> Placement:
    """A placement whose order got no answer: what it came to is seen once the scheduler is back, and it is due then."""
    return replace(was, due=min(was.due, now), detail="the scheduler did not answer")
