"""What a policy would have asked over stored history: decided anew at each moment, its own hints in memory. No writes.

    [lived] = replay_side_by_side(connection, [Contender(ask_by(policy))], policy, ReplaySpan(since, until))
    lived.episodes                        # who was asked what, from when to when, and why

Any function from `Inputs` to a `Decision` can be lived through, several side by side for one reading of the facts; the
jobs' hints too, where a `Contender` names the policy that makes them. Every hint is carried out at once, as in mode
`act`; a person approves nothing, and resets the breaker after a day. What is not kept cannot be asked of: when a node
was silent, who was in the control group, how grave an incident was before it was over.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TypeAlias

import sqlalchemy as sa

from schedulers.backtest.episode import Episode, ReplayResult, ReplaySpan
from schedulers.policy.decision import Decision, decide
from schedulers.policy.fact_queries import ScoreHistory, look_back
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.job_hints import ask_jobs
from schedulers.policy.settings import Breaker, Budgets, Policy
from store.hints.hint_log import ACTOR_POLICY
from store.hints.stops import Trip
from store.records.event import format_time
from store.records.hint import OPEN_STATES, Hint, StateChange
from store.tables import schema

# What a policy is held against: doing nothing, the habit of a cordon at every fatal Xid, itself without limits.

_HABIT = "habit"
_NO_LIMIT = 10**9


def no_action(_inputs: Inputs) -> Decision:
    """Nothing is ever asked."""
    return Decision()


def cordon_on_fatal_xid(inputs: Inputs) -> Decision:
    """Every node with a fatal Xid is cordoned at once, without budget or breaker, until it is over or repaired."""
    standing = inputs.open_by_node()
    made = tuple((hint, "made") for hint in _cordons(inputs) if hint.node not in standing)
    well = tuple(
        standing[facts.node]
        for facts in inputs.nodes
        if facts.node in standing and not _is_struck(facts) and not facts.out
    )
    return Decision(made, well)


def without_limits(policy: Policy) -> Policy:
    """The same policy without budgets, breaker and quorum: what they cost, and what they spare."""
    most = {each.name: _NO_LIMIT for each in fields(Budgets)}
    wide = Budgets(**{**most, "percent_of_nodes": 100.0, "avoid_percent": 100.0, "keep_spares": 0})  # type: ignore[arg-type]
    return replace(policy, budgets=wide, breaker=Breaker(_NO_LIMIT, _NO_LIMIT), quorum=0.0)


def _is_struck(facts: NodeFacts) -> bool:
    return facts.fault is not None and facts.fault.kind == "xid"


def _cordons(inputs: Inputs) -> Iterator[Hint]:
    for facts in inputs.nodes:
        if facts.fault is not None and _is_struck(facts) and not facts.out:
            ident = hashlib.blake2b(f"{_HABIT} {facts.node} {format_time(inputs.now)}".encode(), digest_size=8)
            reason = f"foreshock: xid {facts.fault.code}"
            # It ends with its ground, not by the clock.
            until = inputs.now + timedelta(days=3650)
            yield Hint(ident.hexdigest(), facts.node, "cordon", "approved", reason, _HABIT, inputs.now, until)


DecisionRule: TypeAlias = Callable[[Inputs], Decision]
_ASKING = ("approved", "sent", "confirmed")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Contender:
    """What is lived through: how it decides on nodes, and whose job hints it makes (None: none).

    `avoid_takes`: whether some scheduler takes a node out of use for an `avoid`, so that its budgets hold.
    """

    ask: DecisionRule
    jobs: Policy | None = None
    avoid_takes: bool = False


@dataclass
class _ReplayMemory:
    """The hints of the replay, the episodes that are over, and those that run, by hint."""

    hints: dict[str, Hint] = field(default_factory=dict)
    past: list[Episode] = field(default_factory=list)
    running: dict[str, Episode] = field(default_factory=dict)
    trips: dict[tuple[str, str], Trip] = field(default_factory=dict)
    all_trips: list[Trip] = field(default_factory=list)


def ask_by(policy: Policy) -> DecisionRule:
    """What a policy asks, as though it were carried out: in mode `act`, by nobody stopped."""
    carried_out = acting(policy)
    return lambda inputs: decide(inputs, carried_out)


def acting(policy: Policy) -> Policy:
    """A policy as though all that it asks were carried out: in mode `act`, by nobody stopped."""
    return replace(policy, mode="act", stop="none", stop_file=None)


def replay_side_by_side(
    connection: sa.Connection,
    contenders: Sequence[Contender],
    policy: Policy,
    span: ReplaySpan,
    *,
    scores: ScoreHistory | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> list[ReplayResult]:
    """Live through a span with several contenders, none of which sees another's hints.

    Args:
        policy: its windows say how far back faults and hints are looked at.
        scores: in place of those stored.
        on_step: told how many of how many moments are done.
    """
    memories = [_ReplayMemory() for _ in contenders]
    moments = list(_moments(connection, span))
    for count, now in enumerate(moments):
        seen = look_back(connection, policy, now, scores)
        for contender, memory in zip(contenders, memories, strict=True):
            _live(connection, contender, memory, seen, span)
            _forget(memory, now, policy)
        if on_step is not None:
            on_step(count + 1, len(moments))
    return [
        ReplayResult(
            span,
            len(moments),
            sorted([*memory.past, *memory.running.values()], key=lambda one: (one.since, one.node, one.action)),
            tuple(memory.all_trips),
        )
        for memory in memories
    ]


def _live(
    connection: sa.Connection, contender: Contender, memory: _ReplayMemory, seen: Inputs, span: ReplaySpan
) -> None:
    """One moment of one contender."""
    now = seen.now
    _expire(memory, now)
    _reset(memory, now, span)
    hints, trips = tuple(memory.hints.values()), tuple(memory.trips.values())
    inputs = replace(seen, hints=hints, trips=trips, avoid_takes=contender.avoid_takes)
    _apply(memory, contender.ask(inputs), now)
    if contender.jobs is not None:
        _ask_jobs(connection, contender.jobs, memory, inputs)


def _ask_jobs(connection: sa.Connection, policy: Policy, memory: _ReplayMemory, inputs: Inputs) -> None:
    """The jobs' hints, after the nodes' own."""
    known = memory.hints.values()
    stands = {hint.node: hint for hint in known if hint.job is None and hint.state in OPEN_STATES}
    past = [hint for hint in known if hint.job is not None]
    found = ask_jobs(connection, inputs, stands, past, policy)
    for hint, _why in found.over:
        memory.hints[hint.id] = replace(hint, state="released")
        _end(memory, hint, inputs.now)
    for hint in found.made:
        memory.hints[hint.id] = hint
        _begin(memory, hint, inputs.now)


def _moments(connection: sa.Connection, span: ReplaySpan) -> Iterator[datetime]:
    """When is decided, in order: the steps, and the beginnings of fatal faults in between."""
    table = schema.incidents.c
    query = sa.select(table.start).where(
        table.severity == "fatal", table.cause == "hardware", table.node.is_not(None), table.start < span.until
    )
    found = set(connection.scalars(query.where(table.start >= span.since)))
    now = span.since
    while now < span.until:
        found.add(now)
        now += span.step
    return iter(sorted(found))


def _expire(memory: _ReplayMemory, now: datetime) -> None:
    for hint in list(memory.hints.values()):
        if hint.state in OPEN_STATES and hint.valid_until <= now:
            memory.hints[hint.id] = replace(hint, state="expired")
            _end(memory, hint, hint.valid_until)


def _reset(memory: _ReplayMemory, now: datetime, span: ReplaySpan) -> None:
    for group, trip in memory.trips.items():
        if trip.reset is None and now - trip.time >= span.reset_after:
            memory.trips[group] = replace(trip, reset=now, reset_by="replay")


def _apply(memory: _ReplayMemory, decision: Decision, now: datetime) -> None:
    for hint in decision.released:
        closed = StateChange(ACTOR_POLICY, now)
        memory.hints[hint.id] = replace(hint, state="released", evidence=replace(hint.evidence, closed=closed))
        _end(memory, hint, now)
    for hint, _word in decision.changed:
        memory.hints[hint.id] = hint
        _begin(memory, hint, now)
    for trip in decision.tripped:
        if trip.group not in memory.trips or memory.trips[trip.group].reset is not None:
            noted = Trip(len(memory.all_trips) + 1, now, *trip.group, trip.why, trip.count)
            memory.trips[trip.group] = noted
            memory.all_trips.append(noted)


def _begin(memory: _ReplayMemory, hint: Hint, now: datetime) -> None:
    """What a hint asks from now on, where it is something else than before."""
    runs = memory.running.get(hint.id)
    held_back = hint.evidence.held
    if hint.state not in _ASKING:
        held_back = f"waits for a person: {hint.evidence.quiet or hint.state}"
    if runs is not None and (runs.action, runs.held_back) == (hint.action, held_back):
        return
    _end(memory, hint, now)
    run = hint.evidence.run if hint.job is not None else None
    memory.running[hint.id] = Episode(hint.id, hint.node, hint.action, now, None, hint.reason, held_back, run)


def _end(memory: _ReplayMemory, hint: Hint, now: datetime) -> None:
    if (runs := memory.running.pop(hint.id, None)) is not None:
        memory.past.append(replace(runs, until=now))


def _forget(memory: _ReplayMemory, now: datetime, policy: Policy) -> None:
    """Let go of what no decision asks for any more (`store/hints/hint_log.py`, recent_hints and read_job_hints)."""
    since = now - timedelta(seconds=max(3600.0, policy.breaker.window_s))
    memory.hints = {
        ident: hint
        for ident, hint in memory.hints.items()
        if hint.state in OPEN_STATES
        or hint.valid_until > now
        or hint.created >= (since if hint.job is None else now - _DAY)
    }


def held_back(lived: ReplayResult) -> Counter[str]:
    """What was turned down, by the kind of limit: quorum, breaker, budget, waits for a person."""
    return Counter(one.held_back.partition(":")[0] for one in lived.episodes if one.held_back is not None)
