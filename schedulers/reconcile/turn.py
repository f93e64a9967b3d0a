"""One turn for one scheduler that is read back: observe, plan, store, order, store, observe again.

    result = run_actuator(TurnContext(engine, actuator, ("slurm", "kube"), policy, clock), keep_on)

An order is stored before it goes out, so a server that is killed at any point leaves nothing that its successor does
not see. A new hold, or a graver one, is ordered by the observation of the turn before, which saves seconds: the
scheduler reads the node again right before it writes. To confirm, to release and to see what people changed takes a
new observation, which is slow in a large cluster.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.facts import AVOIDING, HOLDING
from schedulers.policy.kill_switch import effective_stop, may_ask
from schedulers.policy.proposal import RANK
from schedulers.policy.settings import Policy
from schedulers.reconcile.actuator import Actuator, Hold, JobOrder, Order, OrderReport, SchedulerAwayError
from schedulers.reconcile.gate import allowed_orders
from schedulers.reconcile.placement_log import (
    PlacementContext,
    placement_after_report,
    placement_without_answer,
    write_down,
    write_placements,
)
from schedulers.reconcile.plan import (
    WRITTEN_BACK_WITHIN,
    HourBudget,
    JobPlan,
    OrderPlan,
    ReconcileInputs,
    job_reported,
    job_unanswered,
    plan_jobs,
    reconcile,
    stop_of,
)
from store.database.connections import transact
from store.database.known_nodes import SCHEDULER, replace_known
from store.hints.hint_log import read_hints, read_hints_by_id, read_hints_of
from store.hints.holds import SchedulerHold, hints_without_hold, holds_of, open_holds, recent_avoids, recent_holds
from store.nodes.domains import note_domains
from store.nodes.shown_nodes import ShownNode, note_look
from store.records.hint import OPEN_STATES, Hint

FRESH = timedelta(seconds=60)


@dataclass(slots=True)
class LastObservation:
    """What a server remembers of a scheduler between two turns: when it saw it, and what it held then."""

    at: datetime | None = None
    holds: Mapping[str, Hold] = field(default_factory=dict)
    shown: Mapping[str, ShownNode] = field(default_factory=dict)
    noted: datetime | None = None  # when that was written down last
    domains: Mapping[str, str] = field(default_factory=dict)  # the NVLink domain of each node that has one

    known: frozenset[str] | None = None  # the nodes that were last written down as this scheduler's

    def pop_fresh(self, now: datetime) -> Mapping[str, Hold]:
        """What was seen lately, once: a turn that fails begins with a new look."""
        holds, self.holds = self.holds, {}
        return holds if self.at is not None and now - self.at <= FRESH else {}


def first_plan(connection: sa.Connection, seen: ReconcileInputs) -> tuple[ReconcileInputs, OrderPlan]:
    """The orders that need no new look with their placements, and what they go by.

    Args:
        seen: with the holds as they were seen last, without hints and placements.
    """
    held = {hold.node: hold for hold in seen.holds}
    ids = hints_without_hold(connection, seen.scheduler, seen.now)
    nodes = {hint.node for hint in read_hints_by_id(connection, ids)} & held.keys()
    hints = {hint.id: hint for hint in read_hints_of(connection, nodes, OPEN_STATES)}
    holds = [held[node] for node in sorted(nodes)]
    named = {hold.hint for hold in holds if hold.hint is not None} - hints.keys()
    hints |= {hint.id: hint for hint in read_hints_by_id(connection, named)}
    rows = (each for found in holds_of(connection, sorted(hints)).values() for each in found)
    placements = {each.hint: each for each in rows if each.scheduler == seen.scheduler}
    seen = replace(seen, holds=holds, hints=hints, placements=placements)
    plan = reconcile(seen)
    orders = tuple(order for order in plan.orders if _is_more(order, placements.get(order.hint)))
    given = {order.hint for order in orders}
    return seen, OrderPlan(orders, tuple(each for each in plan.placements if each.hint in given))


def _is_more(order: Order, was: SchedulerHold | None) -> bool:
    return was is None or RANK[order.action] > RANK[was.action]


# Orders, their effect, and what a hold that was taken over leaves to be done.
_PASSES = 3
_HOUR = timedelta(hours=1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn works with.

    `names`: of all schedulers that are read back; `lock`: of all their turns together; `last`: kept between two turns.
    """

    engine: sa.Engine
    actuator: Actuator
    names: Sequence[str]
    policy: Callable[[], Policy]
    clock: Callable[[], datetime]
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: LastObservation = field(default_factory=LastObservation)


@dataclass(frozen=True, slots=True)
class ActuatorTurnResult:
    """What a turn saw last and did. `ours` and `foreign`: nodes held; `orphans`: marks that no hint explains."""

    ours: int = 0
    foreign: int = 0
    orphans: tuple[Hold, ...] = ()
    reports: tuple[OrderReport, ...] = ()


@dataclass(frozen=True, slots=True)
class _Observation:
    """What a scheduler tells; `looked`: when it was seen before; `started`: known once `is_asked`."""

    holds: Sequence[Hold]
    now: datetime
    looked: datetime | None
    started: datetime | None = None
    start_is_known: bool = False


@dataclass(frozen=True, slots=True)
class _TurnPlan:
    seen: ReconcileInputs
    plan: OrderPlan
    jobs: JobPlan


def run_actuator(acting: TurnContext, keep_on: Callable[[], bool]) -> ActuatorTurnResult:
    """Bring one scheduler to where the hints want it. `keep_on` is asked before anything is ordered.

    Raises:
        SchedulerAwayError: it cannot be asked; whatever it did nevertheless is seen once it is back.
        SQLAlchemyError: the database cannot be used; nothing was ordered that does not stand in it.
    """
    reports = _order_early(acting, keep_on)
    for _ in range(_PASSES):
        now, holds = acting.clock(), acting.actuator.observe()
        _note_look(acting, holds, now)
        _note_nodes(acting, frozenset(hold.node for hold in holds))
        _note_domains(acting, {hold.node: hold.nvlink_domain for hold in holds if hold.nvlink_domain})
        planned = _save_plan(acting, _Observation(holds, now, acting.last.at), is_news=bool(reports))
        acting.last.at, acting.last.holds = now, {hold.node: hold for hold in holds}
        if not (planned.plan.orders or planned.jobs.orders) or not keep_on():
            break
        orders, job_orders = _allowed(acting, planned, holds)
        reports += _order(acting, orders)
        reports += _ask(acting, job_orders)
    ours = sum(hold.action is not None for hold in holds) - len(planned.plan.orphans)
    foreign = sum(hold.foreign is not None for hold in holds)
    return ActuatorTurnResult(ours, foreign, planned.plan.orphans, tuple(reports))


def _order_early(acting: TurnContext, keep_on: Callable[[], bool]) -> list[OrderReport]:
    """Give the orders that need no new look."""
    name, now, policy = acting.actuator.name, acting.clock(), acting.policy()
    holds = acting.last.pop_fresh(now)
    with acting.engine.connect() as connection:
        if not holds or not hints_without_hold(connection, name, now):
            return []

    def work(connection: sa.Connection) -> OrderPlan:
        stop = stop_of(policy.mode, effective_stop(connection, policy))
        hours = _hours(connection, acting, now)
        planned = ReconcileInputs(name, now, tuple(holds.values()), {}, {}, stop, hours)
        seen, plan = first_plan(connection, planned)
        write_down(connection, _placed(acting, seen.hints, now), plan, JobPlan())
        return plan

    with acting.lock:
        plan = transact(acting.engine, work)
    if not plan.orders or not keep_on():
        return []
    with acting.engine.connect() as connection:
        stop = stop_of(acting.policy().mode, effective_stop(connection, acting.policy()))
        orders = allowed_orders(connection, stop, plan.orders, (), acting.actuator.avoid_takes)
    return _order(acting, orders)


def _save_plan(acting: TurnContext, look: _Observation, is_news: bool) -> _TurnPlan:
    """The plan of this moment; what it orders and what was seen is written down. Most turns find nothing to write."""
    if not is_news:
        with acting.engine.connect() as connection:
            planned = _make_plan(connection, acting, look)
            if not write_down(connection, _context_after(acting, planned), planned.plan, planned.jobs, dry=True):
                return planned

    def work(connection: sa.Connection) -> _TurnPlan | None:
        anew = _make_plan(connection, acting, look)
        if anew.plan.undone and not look.start_is_known:
            return None
        write_down(connection, _context_after(acting, anew), anew.plan, anew.jobs)
        return anew

    while True:
        with acting.lock:
            written = transact(acting.engine, work)
        if written is not None:
            return written
        # A hold of ours is gone: taken off, or lost with the scheduler's memory. It is asked outside of transactions.
        look = replace(look, started=acting.actuator.started(), start_is_known=True)


def _make_plan(connection: sa.Connection, acting: TurnContext, look: _Observation) -> _TurnPlan:
    name, policy, holds, now = acting.actuator.name, acting.policy(), look.holds, look.now
    placements = {placement.hint: placement for placement in open_holds(connection, name, now - WRITTEN_BACK_WITHIN)}
    hints = {hint.id: hint for hint in read_hints(connection, states=OPEN_STATES)}
    named = {*placements, *(hold.hint for hold in holds if hold.hint is not None)} - hints.keys()
    hints |= {hint.id: hint for hint in read_hints_by_id(connection, sorted(named))}
    stop = stop_of(policy.mode, effective_stop(connection, policy))
    hours = _hours(connection, acting, now)
    seen = ReconcileInputs(name, now, holds, hints, placements, stop, hours, look.looked, look.started)
    return _TurnPlan(seen, reconcile(seen), plan_jobs(name, hints, placements, stop, now))


def _hours(connection: sa.Connection, acting: TurnContext, now: datetime) -> tuple[HourBudget, ...]:
    """What may be taken within the hour, by holds and, where that takes nodes, by avoids."""
    budgets, name = acting.policy().budgets, acting.actuator.name
    holds = HourBudget(HOLDING, HOLDING, recent_holds(connection, now - _HOUR, name), budgets.per_hour)
    if not acting.actuator.avoid_takes:
        return (holds,)
    lately = recent_avoids(connection, now - _HOUR, name)
    return holds, HourBudget(AVOIDING, (*AVOIDING, *HOLDING), lately, budgets.avoid_per_hour)


def _note_nodes(acting: TurnContext, names: frozenset[str]) -> None:
    """Write down which nodes the scheduler has, where that has changed; one that shows none is not believed."""
    if names and names != acting.last.known:
        word = SCHEDULER + acting.actuator.name
        transact(acting.engine, lambda connection: replace_known(connection, word, names))
        acting.last.known = names


def _note_domains(acting: TurnContext, domains: Mapping[str, str]) -> None:
    """Write down the NVLink domains that the scheduler's labels tell, where they have changed."""
    if domains != acting.last.domains:
        transact(acting.engine, lambda connection: note_domains(connection, domains, is_told=True))
        acting.last.domains = domains


def _note_look(acting: TurnContext, holds: Sequence[Hold], now: datetime) -> None:
    """Write down what the scheduler shows of its nodes, where that has changed, and now and then that it answers."""
    shown = {hold.node: ShownNode(hold.foreign is not None or not hold.is_up, hold.is_up) for hold in holds}
    last = acting.last
    if last.noted is not None and last.shown == shown and timedelta(0) <= now - last.noted < FRESH:
        return
    transact(acting.engine, lambda connection: note_look(connection, acting.actuator.name, now, shown))
    last.noted, last.shown = now, shown


def _allowed(acting: TurnContext, planned: _TurnPlan, holds: Sequence[Hold]) -> tuple[list[Order], list[JobOrder]]:
    """What may go out of a plan, right before it does."""
    policy = acting.policy()
    with acting.engine.connect() as connection:
        stop = stop_of(policy.mode, effective_stop(connection, policy))
        orders = allowed_orders(connection, stop, planned.plan.orders, holds, acting.actuator.avoid_takes)
    return orders, [order for order in planned.jobs.orders if may_ask(stop, order.action)]


def _placed(acting: TurnContext, hints: Mapping[str, Hint], now: datetime) -> PlacementContext:
    return PlacementContext(acting.actuator.name, tuple(acting.names), hints, now)


def _context_after(acting: TurnContext, planned: _TurnPlan) -> PlacementContext:
    seen = planned.seen
    gone = {hint.node for hint in seen.hints.values()}.difference(hold.node for hold in seen.holds)
    return replace(_placed(acting, seen.hints, seen.now), gone=frozenset(gone))


def _order(acting: TurnContext, orders: Sequence[Order]) -> list[OrderReport]:
    """Give orders and write down what was answered."""
    if not orders:
        return []
    try:
        reports = list(acting.actuator.carry_out(orders))
    except SchedulerAwayError:
        now = acting.clock()
        _change(acting, [order.hint for order in orders], lambda was: placement_without_answer(was, now))
        raise
    now, said = acting.clock(), {report.subject: report for report in reports}
    for order in orders:
        if (report := said.get(order.node)) is not None:
            level = logging.INFO if report.result == "done" else logging.WARNING
            words = (acting.actuator.name, order.action, order.node, order.hint, report.result, report.detail)
            _log.log(level, "%s: %s %s for hint %s: %s %s", *words)
    answered = {order.hint: said[order.node] for order in orders if order.node in said}
    _change(acting, list(answered), lambda was: placement_after_report(was, answered[was.hint], now), answered)
    return reports


def _ask(acting: TurnContext, orders: Sequence[JobOrder]) -> list[OrderReport]:
    """Ask jobs, one after the other: a job may be asked two things, and a report names the job alone."""
    reports: list[OrderReport] = []
    for order in orders:
        try:
            said = acting.actuator.ask_jobs([order])
        except SchedulerAwayError:
            _change(acting, [order.hint], job_unanswered)
            raise
        now, report = acting.clock(), next(iter(said), OrderReport(order.job, "retry", "no answer"))
        _log.info(
            "%s: %s job %s for hint %s: %s", acting.actuator.name, order.action, order.job, order.hint, report.result
        )
        answered = {order.hint: report}
        _change(acting, [order.hint], lambda was: job_reported(was, answered[was.hint], now), answered)  # noqa: B023
        reports.append(report)
    return reports


def _change(
    acting: TurnContext,
    hints: Sequence[str],
    change: Callable[[SchedulerHold], SchedulerHold],
    answered: Mapping[str, OrderReport] | None = None,
) -> None:
    """Write down what came of orders, with what it makes of the hints."""

    def work(connection: sa.Connection) -> None:
        name = acting.actuator.name
        rows = [each for found in holds_of(connection, hints).values() for each in found if each.scheduler == name]
        changed = [anew for was in rows if (anew := change(was)) != was]
        known = {hint.id: hint for hint in read_hints_by_id(connection, hints)}
        write_placements(connection, _placed(acting, known, acting.clock()), changed, answered or {})

    with acting.lock:
        transact(acting.engine, work)
