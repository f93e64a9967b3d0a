"""From hints of running jobs to what is asked of a scheduler about them. Pure.

A job cannot be read back as a node can: what was answered is what is known. So a requeue or a swap whose answer was
lost is not asked again (a second one would cost the job twice); to save once more costs little, so that is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from schedulers.actuator import JobOrder, Report
from schedulers.kill_switch import may_ask
from schedulers.reconcile import again, is_due
from schedulers.settings import Stop
from store.hint import LIVE_STATES, OPEN_STATES, Hint
from store.placements import FINAL_STATES, Placement

LOST = "its answer was lost: it is not asked again"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What is to be asked; `placements` are written before that."""

    orders: tuple[JobOrder, ...] = ()
    placements: tuple[Placement, ...] = ()


def plan_jobs(
    scheduler: str, hints: Mapping[str, Hint], placements: Mapping[str, Placement], stop: Stop, now: datetime
) -> JobPlan:
    """The orders of this moment; the same arguments as `reconcile` has."""
    orders, changed = list[JobOrder](), list[Placement]()
    for hint in hints.values():
        if hint.job is None:
            continue
        was = placements.get(hint.id)
        if _is_due(hint, was, stop, now):
            attempts = 1 if was is None else was.attempts + 1
            # Until it is answered; what comes between is a crash.
            due = again(attempts, now) if hint.action == "checkpoint" else hint.valid_until
            changed.append(Placement(hint.id, scheduler, hint.node, hint.action, "asked", attempts, due, now))
            orders.append(_order(hint, hint.job))
        elif was is not None and was.state not in FINAL_STATES and hint.state not in OPEN_STATES:
            changed.append(replace(was, state="released", observed=now))
    return JobPlan(tuple(orders), tuple(changed))


def _is_due(hint: Hint, was: Placement | None, stop: Stop, now: datetime) -> bool:
    if hint.state not in LIVE_STATES or hint.valid_until <= now or hint.is_control or not may_ask(stop, hint.action):
        return False
    if was is None or was.action != hint.action:
        return True
    # Only to save is due again where the clock was set back: the others wait until their end, once they are lost.
    return was.state == "asked" and (was.due <= now or (hint.action == "checkpoint" and is_due(was, now)))


def _order(hint: Hint, job: str) -> JobOrder:
    spare = hint.evidence.get("spare")
    return JobOrder(job, hint.id, hint.action, hint.node, hint.reason, spare if isinstance(spare, str) else None)


def job_reported(was: Placement, report: Report, now: datetime) -> Placement:
    """A placement after the scheduler's answer: `confirmed` is that it did as asked."""
    detail = report.detail[:300] or None
    if report.result == "retry":
        return replace(was, due=again(was.attempts, now), detail=detail)
    state = "confirmed" if report.result == "done" else report.result
    return replace(was, state=state, observed=now, detail=detail)


def job_unanswered(was: Placement) -> Placement:
    """A placement whose order got no answer."""
    return was if was.action == "checkpoint" else replace(was, detail=LOST)
