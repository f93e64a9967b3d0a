"""Judges hints once their time is over, and sums up how many were right.

    judge_due(engine, now)                        # a loop's turn
    hindsight(connection, since, until)           # for the API, the command line and Prometheus

Right: within 24 h of the hint its node went out of service unplanned, or a run was stopped by it; for a hint on a fault
also where the node was taken out for repair. Wrong: the node went on without either.

A hint that a scheduler carried out cannot be judged so: a held node shows nothing (FIELD A2). It is `acted` and counts
for no precision. Hints of shadow mode, of the control group, and those that nobody carried out do.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import sqlalchemy as sa

from schedulers.policy.facts import HOLDING, acted, closed_at
from store.database.connections import writing
from store.hints.outcomes import HintOutcome, audited_states, judged_hints, outcomes_of, save_outcomes, unjudged_hints
from store.records.hint import Hint
from store.records.outage import Outage
from store.runs.jobs import jobs_between
from store.runs.losses import Loss
from store.tables import hint_tables, run_tables, schema
from store.tables.bulk_rows import is_one_of

HORIZON = timedelta(hours=24)
# A hold is judged when it has ended, for its cost; but no later than this.
LATEST = timedelta(days=7)
# Records of what a fault did may bear times a little before the hint that it made.
_BEFORE = timedelta(minutes=10)
_HOUR_S, _HOUR_MS = 3600.0, 3_600_000.0
_Z = 1.96

# acted: a scheduler took it. control: left alone to see what comes. asked: proposed or approved, and not carried out.
Basis: TypeAlias = Literal["acted", "control", "asked", "shadow"]
BASES: tuple[Basis, ...] = ("shadow", "control", "asked", "acted")


@dataclass(frozen=True, slots=True)
class JobStay:
    """A job's time on a node; `start` and `end` None: not known, or not yet."""

    run: str
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class HintCase:
    """All that is known of one hint's node around its time."""

    hint: Hint
    basis: Basis
    outages: Sequence[Outage] = ()
    losses: Sequence[Loss] = ()
    stays: Sequence[JobStay] = ()
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class HintTally:
    """Hints of one action and basis: how many were right, with the 95 % interval of their share (Wilson's).

    `precision` is None for what was acted on. GPU-hours are sums of what is known; `unknown_*` counts the rest.
    """

    action: str
    basis: Basis
    judged: int
    right: int
    precision: float | None
    low: float | None
    high: float | None
    lead_s: float | None  # the median of the right ones
    held_gpu_h: float
    saved_gpu_h: float
    unknown_held: int
    unknown_saved: int


def basis_of(is_control: bool, states: Iterable[str]) -> Basis:
    """What became of a hint, of the control group or not, by the states that the audit has seen it in."""
    seen = set(states)
    return basis(is_control, bool(seen & {"sent", "confirmed"}), bool(seen & {"proposed", "approved"}))


def basis(is_control: bool, taken: bool, asked: bool) -> Basis:
    """The same of a hint that a scheduler took, or that was asked for."""
    if taken:
        return "acted"
    if is_control:
        return "control"
    return "asked" if asked else "shadow"


def judge(case: HintCase, now: datetime) -> HintOutcome:
    """What came of a hint whose time is over."""
    hint, made = case.hint, acted(case.hint)
    outage = next((one for one in sorted(case.outages, key=lambda one: one.start) if _counts(one, hint)), None)
    losses = [loss for loss in case.losses if made - _BEFORE <= loss.time <= made + HORIZON]
    moments = [*([] if outage is None else [outage.start]), *(loss.time for loss in losses)]
    first = min(moments, default=None)
    return HintOutcome(
        hint.id,
        now,
        bool(moments),
        None if outage is None else outage.start,
        None if first is None else (first - made).total_seconds(),
        _held_gpu_h(case, now),
        _saved_gpu_h(case, losses),
    )


def _counts(outage: Outage, hint: Hint) -> bool:
    """Whether an outage proves a hint right."""
    made, by_fault = acted(hint), hint.evidence.incident is not None
    if outage.reason.startswith("foreshock:") or (outage.planned and not by_fault):
        return False
    since = made - _BEFORE if by_fault else made
    return since <= outage.start <= made + HORIZON


def _held_gpu_h(case: HintCase, now: datetime) -> float | None:
    """What a hold cost, or would have: from when the node's job had ended, until the hint or the node itself did."""
    hint = case.hint
    if hint.action not in HOLDING:
        return None
    begin, end = acted(hint), closed_at(hint) or min(now, hint.valid_until)
    for stay in case.stays:
        if stay.start <= begin and (stay.end is None or stay.end > begin):
            begin = end if stay.end is None else max(begin, stay.end)
    for outage in case.outages:
        if not outage.reason.startswith("foreshock:") and outage.start >= acted(hint):
            end = min(end, outage.start)
    return None if case.gpus is None else max(0.0, (end - begin).total_seconds()) / _HOUR_S * case.gpus


def _saved_gpu_h(case: HintCase, losses: Sequence[Loss]) -> float | None:
    """What it would have saved; None for what was acted on, and where nobody knows the runs' GPUs.

    A hold or `avoid` saves what a run lost that came to the node after it. A checkpoint or a swap saves lost work.
    """
    action = case.hint.action
    if case.basis == "acted" or action in ("watch", "requeue") or any(loss.lost_gpu_ms is None for loss in losses):
        return None
    if action in ("checkpoint", "swap"):
        return sum(map(_lost_work_gpu_h, losses))
    later = (loss for loss in losses if _came_after(loss, case))
    return sum((loss.lost_gpu_ms or 0) / _HOUR_MS for loss in later)


def _lost_work_gpu_h(loss: Loss) -> float:
    lost_ms = loss.lost_work_ms + loss.restart_ms
    return 0.0 if not lost_ms else (loss.lost_gpu_ms or 0) / _HOUR_MS * loss.lost_work_ms / lost_ms


def _came_after(loss: Loss, case: HintCase) -> bool:
    """Whether the start of a run that was lost came to the node after the hint; where that is not known, no."""
    starts = [stay.start for stay in case.stays if stay.run == loss.run and stay.start <= loss.time]
    return bool(starts) and max(starts) > acted(case.hint)


def tallies(judged: Iterable[tuple[str, Basis, HintOutcome]]) -> list[HintTally]:
    """The judged hints by action and basis, in the order of both."""
    groups: dict[tuple[str, Basis], list[HintOutcome]] = {}
    for action, hint_basis, outcome in judged:
        groups.setdefault((action, hint_basis), []).append(outcome)
    order = sorted(groups, key=lambda key: (key[0], BASES.index(key[1])))
    return [_tally(action, basis, groups[action, basis]) for action, basis in order]


def _tally(action: str, basis: Basis, outcomes: Sequence[HintOutcome]) -> HintTally:
    right = sum(outcome.right for outcome in outcomes)
    counts = basis != "acted"
    low, high = wilson(right, len(outcomes)) if counts else (None, None)
    leads = [outcome.lead_s for outcome in outcomes if outcome.lead_s is not None]
    held = [outcome.held_gpu_h for outcome in outcomes]
    saved = [outcome.saved_gpu_h for outcome in outcomes]
    return HintTally(
        action,
        basis,
        len(outcomes),
        right,
        right / len(outcomes) if counts else None,
        low,
        high,
        statistics.median(leads) if leads else None,
        math.fsum(hours for hours in held if hours is not None),
        math.fsum(hours for hours in saved if hours is not None),
        held.count(None),
        saved.count(None),
    )


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927): it holds for few hints, too."""
    if not count:
        return 0.0, 1.0
    share, square = right / count, _Z * _Z
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _Z / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def false_holds_per_1000_node_days(found: Iterable[HintTally], node_days: float) -> float | None:
    """Holds that were wrong, or would have been, of those that nobody carried out; None without any node-days."""
    wrong = sum(tally.judged - tally.right for tally in found if tally.action in HOLDING and tally.basis != "acted")
    return wrong * 1000.0 / node_days if node_days > 0 else None


_BATCH = 200
_DAY_S = 86_400.0


def judged_as(connection: sa.Connection, hints: Mapping[str, bool]) -> dict[str, tuple[Basis, HintOutcome]]:
    """What came of those hints that have been judged, and on which basis; by id, `hints`: whether it is a control."""
    outcomes = outcomes_of(connection, hints)
    states = audited_states(connection, outcomes)
    return {ident: (basis_of(hints[ident], states.get(ident, ())), outcome) for ident, outcome in outcomes.items()}


_MARGIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What came of the hints of a window. `node_days`: of nodes in service, while hints were made."""

    since: datetime
    until: datetime
    node_days: float
    false_holds_per_1000_node_days: float | None
    tallies: tuple[HintTally, ...]


def judge_due(engine: sa.Engine, now: datetime) -> int:
    """Judge the hints whose time is over; how many there were, at most a few hundred."""
    with engine.connect() as connection:
        found = unjudged_hints(connection, now - HORIZON, now - LATEST, _BATCH)
        found = [hint for hint in found if acted(hint) <= now - HORIZON]  # it may have been raised since it was made
        outcomes = [judge(case, now) for case in _cases(connection, found)]
    if outcomes:
        with writing(engine).begin() as connection:
            save_outcomes(connection, outcomes)
    return len(outcomes)


def _cases(connection: sa.Connection, hints: Sequence[Hint]) -> list[HintCase]:
    if not hints:
        return []
    nodes = sorted({hint.node for hint in hints})
    since, until = min(map(acted, hints)) - _MARGIN, max(map(acted, hints)) + LATEST
    states = audited_states(connection, [hint.id for hint in hints])
    outages = _outages(connection, nodes, since, until)
    losses = _losses(connection, nodes, since, until)
    stays = _stays(connection, nodes, since, until)
    table = schema.nodes.c
    gpus = dict(
        connection.execute(sa.select(table.node, table.gpus).where(is_one_of(connection, table.node, nodes))).all()
    )
    return [
        HintCase(
            hint,
            basis_of(hint.is_control, states.get(hint.id, ())),
            outages.get(hint.node, ()),
            losses.get(hint.node, ()),
            stays.get(hint.node, ()),
            gpus.get(hint.node),
        )
        for hint in hints
    ]


def _outages(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[Outage]]:
    table, found = schema.outages, defaultdict[str, list[Outage]](list)
    query = sa.select(table).where(
        table.c.start >= since, table.c.start <= until, is_one_of(connection, table.c.node, nodes)
    )
    for row in connection.execute(query.order_by(table.c.start)).mappings():
        found[row["node"]].append(Outage(**row))
    return found


def _losses(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[Loss]]:
    table, found = run_tables.interruptions, defaultdict[str, list[Loss]](list)
    query = sa.select(table).where(
        table.c.time >= since, table.c.time <= until, is_one_of(connection, table.c.node, nodes)
    )
    for row in connection.execute(query.order_by(table.c.time)).mappings():
        found[row["node"]].append(Loss(**row))
    return found


def _stays(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, until: datetime
) -> Mapping[str, list[JobStay]]:
    wanted, found = set(nodes), defaultdict[str, list[JobStay]](list)
    for run, start, end, hosts in jobs_between(connection, since, until):
        for node in wanted.intersection(hosts):
            found[node].append(JobStay(run, start, end))
    return found


def hindsight(connection: sa.Connection, since: datetime, until: datetime) -> Hindsight:
    """What came of the hints made in [since, until), of those that are judged."""
    judged = judged_hints(connection, since, until)
    found = tuple(tallies((one.action, basis(one.is_control, one.taken, one.asked), came) for one, came in judged))
    node_days = _node_days(connection, since, until)
    return Hindsight(since, until, node_days, false_holds_per_1000_node_days(found, node_days), found)


def _node_days(connection: sa.Connection, since: datetime, until: datetime) -> float:
    """Of nodes in service, since there are hints; what is younger than the horizon is not judged yet."""
    first: datetime | None = connection.scalar(
        sa.select(sa.func.min(hint_tables.hints.c.created, type_=schema.UtcTime()))
    )
    if first is None:
        return 0.0
    begin, end = max(first, since), until - HORIZON
    days = 0.0
    table = schema.nodes.c
    count = sa.func.count()
    query = sa.select(table.in_service_since, table.in_service_until, count)
    for came, went, nodes in connection.execute(query.group_by(table.in_service_since, table.in_service_until)):
        here = (min(end, went or end) - max(begin, came or begin)).total_seconds()
        days += nodes * max(0.0, here) / _DAY_S
    return days
