"""Plans the orders that bring a scheduler from what it holds to what the hints want. Pure.

    plan = reconcile(ReconcileInputs("slurm", now, actuator.observe(), hints, placements))
    save(plan.placements)                      # first: an order is stored before it goes out
    for report in actuator.carry_out(plan.orders): ...      # then observe and reconcile again

Nothing else is remembered: a restart, an outage, a lost answer and a person's change all look like a state that is not
the wanted one. Our mark on a node carries the hint's id, so a hold is released however long after its hint ended. What
has no mark of ours is left alone, as is a mark with an unknown id (an orphan): a person releases those.

A scheduler that is killed loses its last seconds: Slurm's controller saves its state late. Such a hold is ordered
again (`is_forgotten`); one that a person removed is not.

A job cannot be read back as a node can. So a requeue or swap whose answer was lost is not ordered again: a second one
would cost the job twice. A second checkpoint costs little, so it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from schedulers.policy.facts import HOLDING
from schedulers.policy.kill_switch import may_ask
from schedulers.policy.settings import Mode, Stop
from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport
from store.hints.holds import FINAL_STATES, RecentHolds, SchedulerHold
from store.plural import many
from store.records.hint import LIVE_STATES, OPEN_STATES, Hint, HintAction, HoldState

# Slurm saves its nodes within 5 s of a change, or of the save before it; a machine under load takes longer.
SAVED_WITHIN = timedelta(seconds=60)
# Where it is not known when we saw it last (our server was started anew, too): so long after the order at the latest.
BACK_WITHIN = timedelta(minutes=15)
# Who writes a node's marks back as they had read them before our release does so at once, or some time after: the node
# controller of Kubernetes before 1.26 writes the list of taints unguarded (kubernetes/kubernetes#113136).
WRITTEN_BACK_WITHIN = timedelta(minutes=2)
# The start is told in whole seconds.
_SECOND = timedelta(seconds=1)


def is_forgotten(was: SchedulerHold, looked: datetime | None, started: datetime | None) -> bool:
    """Whether a confirmed hold that is gone was lost with the scheduler's memory.

    Args:
        looked: when this server last saw what the scheduler holds, before now; None: not since its own start.
        started: when the scheduler was started, by our clock; None: it forgets nothing, or cannot tell.
    """
    if started is None or was.asked is None or was.state != "confirmed":
        return False
    last = max((moment for moment in (looked, was.observed) if moment is not None), default=was.asked)
    if looked is None and started - was.asked > BACK_WITHIN:
        return False
    return started + _SECOND > last and last - was.asked <= SAVED_WITHIN


# Seconds until an order that shows no effect is given again, by how often it was given; a release is never given up.
AGAIN_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
OPTED_OUT = "the node's label says that it must not be touched"
_TAKEN = "taken over: "
_LETTING_GO = ("asked", "released")
# What an action keeps off a node: undoing is to go down here, whatever else is left behind.
_GRAVITY: Mapping[HintAction, int] = {"watch": 1, "avoid": 2, "cordon": 3, "drain": 3}
_RANK: Mapping[HintAction, int] = {**_GRAVITY, "drain": 4}


@dataclass(frozen=True, slots=True)
class HourBudget:
    """How many nodes may be brought to one of some actions within an hour. `taken`: those that were lately.

    `kept_by`: what a node is kept from work by already, so that the action takes nothing more.
    """

    actions: Sequence[HintAction]
    kept_by: Sequence[HintAction]
    taken: RecentHolds
    most: int


@dataclass(frozen=True, slots=True)
class ReconcileInputs:
    """The ground of a plan.

    Args:
        holds: every node that the scheduler knows, as it tells them now.
        hints: by id: those that are open, and those that a hold or a placement names.
        placements: by hint: this scheduler's, those that were released lately as well.
        hours: how many nodes may be taken within an hour, and which were lately.
        looked: when this server last saw the scheduler, before now.
        started: when the scheduler was started; None: it forgets nothing, or was not asked.
    """

    scheduler: str
    now: datetime
    holds: Sequence[Hold]
    hints: Mapping[str, Hint]
    placements: Mapping[str, SchedulerHold] = field(default_factory=dict)
    stop: Stop = "none"
    hours: Sequence[HourBudget] = ()
    looked: datetime | None = None
    started: datetime | None = None


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """What is to be done: `placements` are written before `orders` go out, `undone` are withdrawn."""

    orders: tuple[Order, ...] = ()
    placements: tuple[SchedulerHold, ...] = ()
    undone: tuple[Hint, ...] = ()
    orphans: tuple[Hold, ...] = ()  # marks of ours that no hint of ours explains


@dataclass(frozen=True, slots=True)
class _NodeStep:
    """What comes of one hint on one node; nothing where all of it is None."""

    placement: SchedulerHold | None = None
    order: Order | None = None
    undone: Hint | None = None


def stop_of(mode: Mode, stop: Stop) -> Stop:
    """What may not be ordered: in shadow mode nothing is held anew, whatever the kill switch says."""
    return "holds" if mode == "shadow" and stop == "none" else stop


def is_live(hint: Hint, now: datetime) -> bool:
    """Whether a hint of a node is to be held: agreed upon, and not lapsed. What has lapsed is not asked late."""
    return hint.job is None and hint.state in LIVE_STATES and hint.valid_until > now and not hint.is_control


def is_over(hint: Hint) -> bool:
    """Whether a hold of this hint is to be taken off. Not while it waits for a person's yes.

    Nor when it has only lapsed: whether a held node must pass a test before it is let go is for the policy's turn to
    say, which then ends the hint.
    """
    return hint.state not in OPEN_STATES


def reconcile(seen: ReconcileInputs) -> OrderPlan:
    """The orders of this moment, the gravest first, and what is to be written down of them."""
    holds = {hold.node: hold for hold in seen.holds}
    steps = [_towards(hint, holds.get(node), seen) for node, hint in _hints_to_hold(seen).items()]
    for hour in seen.hours:
        steps = _within_hour(steps, seen, hour)
    # Of a node that is ordered again, the order takes the old hold over: no work comes in between.
    taken = {step.placement.node for step in steps if step.placement is not None and step.placement.state == "asked"}
    orphans = []
    for hold in seen.holds:
        if hold.action is None:
            continue
        marked = None if hold.hint is None else seen.hints.get(hold.hint)
        if marked is None:
            orphans.append(hold)
        elif is_over(marked) and hold.node not in taken:
            steps.append(_release(marked, hold, seen))
    steps += _steps_of_gone(seen, holds)
    orders = sorted((step.order for step in steps if step.order is not None), key=_gravest_first)
    placements = [step.placement for step in steps if step.placement is not None]
    changed = tuple(each for each in placements if each != seen.placements.get(each.hint))
    undone = tuple(step.undone for step in steps if step.undone is not None)
    return OrderPlan(tuple(orders), changed, undone, tuple(orphans))


def _within_hour(steps: list[_NodeStep], seen: ReconcileInputs, hour: HourBudget) -> list[_NodeStep]:
    """The same, where new holds (or avoids that take) beyond the hour's budget wait, the least grave ones.

    Decided within the budget is not ordered within it: a scheduler may have been away, a person have approved many.
    """
    free = hour.taken.held | hour.taken.lately | {hold.node for hold in seen.holds if hold.action in hour.kept_by}
    orders = [step.order for step in steps if step.order is not None and step.order.action in hour.actions]
    new = sorted((order for order in orders if order.node not in free), key=_gravest_first)
    room = max(0, hour.most - len(hour.taken.lately))
    late = {order.hint for order in new[room:]}
    return [
        _waiting(step.order, seen, hour) if step.order is not None and step.order.hint in late else step
        for step in steps
    ]


def _waiting(order: Order, seen: ReconcileInputs, hour: HourBudget) -> _NodeStep:
    """A hold that was never ordered, or not for an hour; a softer one of the same hint is left in its place."""
    word = "taken" if hour.actions == HOLDING else "avoided"
    why = f"waits: budget: {many(hour.most, 'node')} may be {word} within an hour"
    fresh = SchedulerHold(order.hint, seen.scheduler, order.node, order.action, "asked", 0, seen.now)
    was = seen.placements.get(order.hint, fresh)
    if was.state == "confirmed" or (was.state, was.action, was.asked) == ("asked", order.action, None):
        return _NodeStep(replace(was, detail=why))
    return _NodeStep(replace(was, action=order.action, state="asked", attempts=0, asked=None, due=seen.now, detail=why))


def _gravest_first(order: Order) -> tuple[int, str]:
    return (-_RANK.get(order.action, 0), order.node)


def _hints_to_hold(seen: ReconcileInputs) -> dict[str, Hint]:
    """The hint that each node is to be held for: the gravest, of equals the oldest."""
    found: dict[str, Hint] = {}
    live = (hint for hint in seen.hints.values() if is_live(hint, seen.now))
    for hint in sorted(live, key=lambda hint: (-_RANK.get(hint.action, 0), hint.created, hint.id)):
        found.setdefault(hint.node, hint)
    return found


def _towards(hint: Hint, hold: Hold | None, seen: ReconcileInputs) -> _NodeStep:
    """What a live hint asks of its node."""
    was = seen.placements.get(
        hint.id, SchedulerHold(hint.id, seen.scheduler, hint.node, hint.action, "asked", 0, seen.now)
    )
    if hold is None:
        return _NodeStep(_as("absent", replace(was, attempts=0), seen, f"{seen.scheduler} knows no node {hint.node}"))
    is_mine = hold.action is not None and hold.hint == hint.id
    if is_mine and hold.action == hint.action and not (was.state == "confirmed" and was.due < hint.valid_until):
        return _NodeStep(_confirmed(was, hint, seen))
    if not is_mine and hold.action is not None:
        other = None if hold.hint is None else seen.hints.get(hold.hint)
        if other is None or not is_over(other):
            why = f"it bears our mark, for hint {hold.hint}, which we cannot go by"
            return _NodeStep(_as("foreign", replace(was, attempts=0), seen, why))
    if hold.foreign is not None:
        is_taken = not is_mine and (was.state == "confirmed" or _is_taken(was))
        why = (_TAKEN if is_taken else "") + hold.foreign[:300]
        return _NodeStep(_as("foreign", replace(was, attempts=0), seen, why))
    if was.state == "undone" or _is_undone(was, hold if is_mine else None):
        if is_forgotten(was, seen.looked, seen.started):
            return _forgotten(was, hint, seen)
        why = f"{was.action} was taken off in {seen.scheduler}: left as it is"
        return _NodeStep(_as("undone", was, seen, why), undone=hint)
    if hold.is_opted_out and not is_mine:
        return _NodeStep(_as("refused", replace(was, attempts=0), seen, OPTED_OUT))
    return _ordered(was, hint, hint.action, seen)


def _forgotten(was: SchedulerHold, hint: Hint, seen: ReconcileInputs) -> _NodeStep:
    """A hold that was lost with the scheduler's memory: ordered again, or waiting for that while all is stopped."""
    lost = replace(was, state="asked", attempts=0, due=seen.now)
    step = _ordered(lost, hint, hint.action, seen)
    why = f"{seen.scheduler} was killed before it had saved it, and started anew"
    return replace(step, placement=replace(step.placement or lost, detail=why))


def _is_undone(was: SchedulerHold, mine: Hold | None) -> bool:
    """Whether somebody took off what we had read back, or what they had put in its place."""
    held = 0 if mine is None or mine.action is None else _GRAVITY.get(mine.action, 0)
    return held < _GRAVITY.get(was.action, 0) and (was.state == "confirmed" or _is_taken(was))


def _is_taken(was: SchedulerHold) -> bool:
    """Whether others have put their own hold in the place of ours."""
    return was.state == "foreign" and was.detail is not None and was.detail.startswith(_TAKEN)


def _release(hint: Hint, hold: Hold, seen: ReconcileInputs) -> _NodeStep:
    """A hold of ours whose hint is over."""
    fresh = SchedulerHold(hint.id, seen.scheduler, hold.node, "release", "asked", 0, seen.now)
    return _ordered(seen.placements.get(hint.id, fresh), hint, "release", seen)


def _steps_of_gone(seen: ReconcileInputs, holds: Mapping[str, Hold]) -> Iterator[_NodeStep]:
    """Placements of hints that are over, of which nothing of ours is there any more."""
    for ident, was in seen.placements.items():
        hint, hold = seen.hints.get(ident), holds.get(was.node)
        if hint is not None and (hint.job is not None or not is_over(hint)):
            continue
        if hint is not None and hold is not None and _is_left(hold, was):
            yield _release(hint, hold, seen)
        elif was.state not in FINAL_STATES and (hold is None or hold.action is None or hold.hint != ident):
            yield _NodeStep(_as("released", was, seen, None))


def _is_left(hold: Hold, was: SchedulerHold) -> bool:
    """Whether a part of what is taken off is there without its hint's id: another wrote over it with old data."""
    return hold.action is not None and hold.hint is None and was.action == "release" and was.state in _LETTING_GO


def _ordered(was: SchedulerHold, hint: Hint, action: HintAction, seen: ReconcileInputs) -> _NodeStep:
    """An order, if it may go out and is due; one that has had no effect is given again later each time."""
    if not may_ask(seen.stop, action):
        return _NodeStep()
    is_anew = was.action != action or was.attempts == 0 or was.state in ("confirmed", *FINAL_STATES)
    if not is_anew and (was.state == "refused" or not is_due(was, seen.now)):
        return _NodeStep(was)
    attempts = 1 if is_anew else was.attempts + 1
    # A hold that is renewed, raised or let go was taken when it was; one that is not seen yet may be taken by this.
    since = was.asked if action == "release" or (was.state == "confirmed" and was.action in HOLDING) else None
    asked = replace(was, action=action, state="asked", attempts=attempts, asked=since or seen.now, detail=None)
    order = Order(was.node, hint.id, action, hint.reason, hint.valid_until, hint.evidence)
    return _NodeStep(replace(asked, due=again(attempts, seen.now)), order)


def is_due(was: SchedulerHold, now: datetime) -> bool:
    """Whether an order that shows no effect is given again; at once where a clock that was set back put it off."""
    return was.due <= now or was.due > again(was.attempts, now)


def again(attempts: int, now: datetime) -> datetime:
    """When an order that was given so often is given once more, if it shows no effect."""
    return now + timedelta(seconds=AGAIN_S[min(attempts, len(AGAIN_S)) - 1])


def _confirmed(was: SchedulerHold, hint: Hint, seen: ReconcileInputs) -> SchedulerHold:
    """Read back; `due` becomes the end that was ordered: one that is moved on later is ordered, too."""
    if was.state == "confirmed" and was.action == hint.action:
        return was
    until = hint.valid_until
    return replace(was, action=hint.action, state="confirmed", due=until, observed=seen.now, detail=None)


def _as(state: HoldState, was: SchedulerHold, seen: ReconcileInputs, detail: str | None) -> SchedulerHold:
    """A placement that was found in a state; `observed` is when that was first."""
    if was.state == state and was.detail == detail and was.observed is not None:
        return was
    return replace(was, state=state, observed=seen.now, detail=detail)


LOST = "its answer was lost: it is not asked again"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What is to be asked; `placements` are written before that."""

    orders: tuple[JobOrder, ...] = ()
    placements: tuple[SchedulerHold, ...] = ()


def plan_jobs(
    scheduler: str, hints: Mapping[str, Hint], placements: Mapping[str, SchedulerHold], stop: Stop, now: datetime
) -> JobPlan:
    """The orders of this moment; the same arguments as `reconcile` has."""
    orders, changed = list[JobOrder](), list[SchedulerHold]()
    for hint in hints.values():
        if hint.job is None:
            continue
        was = placements.get(hint.id)
        if _is_due(hint, was, stop, now):
            attempts = 1 if was is None else was.attempts + 1
            # Until it is answered; what comes between is a crash.
            due = again(attempts, now) if hint.action == "checkpoint" else hint.valid_until
            changed.append(SchedulerHold(hint.id, scheduler, hint.node, hint.action, "asked", attempts, due, now))
            orders.append(_order(hint, hint.job))
        elif was is not None and was.state not in FINAL_STATES and hint.state not in OPEN_STATES:
            changed.append(replace(was, state="released", observed=now))
    return JobPlan(tuple(orders), tuple(changed))


def _is_due(hint: Hint, was: SchedulerHold | None, stop: Stop, now: datetime) -> bool:
    if hint.state not in LIVE_STATES or hint.valid_until <= now or hint.is_control or not may_ask(stop, hint.action):
        return False
    if was is None or was.action != hint.action:
        return True
    # Only to save is due again where the clock was set back: the others wait until their end, once they are lost.
    return was.state == "asked" and (was.due <= now or (hint.action == "checkpoint" and is_due(was, now)))


def _order(hint: Hint, job: str) -> JobOrder:
    return JobOrder(job, hint.id, hint.action, hint.node, hint.reason, hint.evidence.spare)


def job_reported(was: SchedulerHold, report: OrderReport, now: datetime) -> SchedulerHold:
    """A placement after the scheduler's answer: `confirmed` is that it did as asked."""
    detail = report.detail[:300] or None
    if report.result == "retry":
        return replace(was, due=again(was.attempts, now), detail=detail)
    state = "confirmed" if report.result == "done" else report.result
    return replace(was, state=state, observed=now, detail=detail)


def job_unanswered(was: SchedulerHold) -> SchedulerHold:
    """A placement whose order got no answer."""
    return was if was.action == "checkpoint" else replace(was, detail=LOST)
