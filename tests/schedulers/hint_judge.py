"""Plays a small cluster's turns and holds them to what must always be true: for `test_state_machine.py`."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision
from schedulers.policy.facts import HOLDING
from schedulers.policy.kill_switch import effective_stop
from schedulers.policy.proposal import is_opted_out
from schedulers.policy.settings import Policy, Stop
from schedulers.reconcile.actuator import SchedulerAwayError
from schedulers.reconcile.turn import TurnContext, run_actuator
from store.hints.hint_log import ACTOR_POLICY, read_hints_by_id
from store.hints.holds import holds_of
from store.hints.outcomes import sent_hints
from store.hints.stops import Trip, newest_trips
from store.nodes.shown_nodes import LONGEST_GAP
from store.records.hint import LIVE_STATES, OPEN_STATES, Hint

from .hint_invariants import none_tripped, spares_left, within_budget, within_hour
from .model_scheduler import KilledError, Mark, ModelScheduler
from .model_world import places_of

HOUR = timedelta(hours=1)
# Turns, five minutes apart, within which a scheduler that answers has let go of what nobody asks any more.
BOUND = 3
Key = tuple[str, str]  # a scheduler and a node


@dataclass
class Vouchers:
    """What the judge itself saw of nodes: by their heartbeats, and by each scheduler's answers, without a long gap."""

    beats: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)  # since, until
    looks: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    down: dict[Key, datetime] = field(default_factory=dict)  # when a node was last seen to be down

    def look(self, one: ModelScheduler, now: datetime) -> None:
        """A scheduler answered."""
        since, until = self.looks.get(one.name, (now, now))
        is_unbroken = timedelta(0) <= now - until <= LONGEST_GAP
        self.looks[one.name] = (since if is_unbroken else now, now)
        for node, mark in one.marks.items():
            if mark.is_down:
                self.down[one.name, node] = now

    def vouch(self, node: str, schedulers: list[str], now: datetime, healthy: timedelta) -> bool:
        """Whether heartbeats cover the healthy time, or every scheduler's answers do."""
        begin = now - healthy
        beat = self.beats.get(node)
        if beat is not None and beat[0] <= begin and beat[1] >= now - LONGEST_GAP:
            return True
        return all(
            name in self.looks
            and self.looks[name][0] <= begin
            and self.looks[name][1] >= now - LONGEST_GAP
            and self.down.get((name, node), begin) <= begin
            for name in schedulers
        )


@dataclass
class Judge:
    """The server's turns over one database, and what they may not do.

    `fresh`: what came to be held in this turn; `taken`: when nodes came to be held; `undone`: holds that people took
    off after they had been read back; `overdue`: how often a hold was seen that nothing explains.
    """

    engine: sa.Engine
    policy: Policy
    now: datetime
    schedulers: list[ModelScheduler]
    fresh: dict[Key, Mark] = field(default_factory=dict)
    taken: list[tuple[datetime, str]] = field(default_factory=list)
    granted: list[tuple[datetime, str]] = field(default_factory=list)
    undone: set[tuple[str, str]] = field(default_factory=set)
    overdue: dict[Key, tuple[int, datetime]] = field(default_factory=dict)
    avoided: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    vouchers: Vouchers = field(default_factory=Vouchers)

    def __post_init__(self) -> None:
        for one in self.schedulers:
            one.after = lambda node, was, one=one: self.obeyed(one, node, was)  # type: ignore[misc]
            one.looked = lambda one=one: self.vouchers.look(one, self.now)  # type: ignore[misc]
        self.restart()

    def restart(self) -> None:
        """The server remembers nothing but its database."""
        names = tuple(one.name for one in self.schedulers)
        self.acting = [
            TurnContext(self.engine, one, names, lambda: self.policy, lambda: self.now) for one in self.schedulers
        ]

    def turn(self, times: int = 1) -> None:
        """Whole turns, a second apart."""
        for _ in range(times):
            stop, before = self.stop(), self.held()
            takers = [one.name for one in self.schedulers if one.avoid_takes]
            self.check_decision(run_policy(self.engine, self.policy, self.now, takers=takers), stop)
            self.check_releases(before)
            self.schedulers_turn()

    def schedulers_turn(self) -> None:
        """The schedulers' loops alone: the policy's is late."""
        before, stop = self.held(), self.stop()
        self.fresh = {}
        with self.engine.connect() as connection:
            trips = newest_trips(connection)
        for one in self.acting:
            with suppress(SchedulerAwayError, KilledError):
                run_actuator(one, lambda: True)
        self.check(before, stop, trips)
        self.now += timedelta(seconds=1)

    def stop(self) -> Stop:
        """What is stopped."""
        with self.engine.connect() as connection:
            stop = effective_stop(connection, self.policy)
        return "holds" if self.policy.mode == "shadow" and stop == "none" else stop

    def held(self) -> dict[Key, Mark]:
        """Each scheduler's nodes that bear a mark of ours."""
        return {
            (one.name, node): replace(mark)
            for one in self.schedulers
            for node, mark in one.marks.items()
            if mark.hint is not None and not mark.hint.startswith("orphan")
        }

    def obeyed(self, scheduler: ModelScheduler, node: str, was: Mark) -> None:
        """A node was marked: at no moment is a limit exceeded, not even before a release that is under way."""
        mark = scheduler.marks[node]
        if mark.action == "avoid" and scheduler.avoid_takes and (was.hint is None or was.action == "watch"):
            self.obeyed_avoid(scheduler, node)
        if mark.action not in HOLDING or (was.action in HOLDING and was.hint is not None):
            return
        self.fresh[scheduler.name, node] = replace(mark)
        holding = {key for key, each in self.held().items() if each.action in HOLDING}
        within_budget({held for _name, held in holding}, self.policy.budgets)
        if not any(held == node and name != scheduler.name for name, held in holding):
            self.taken.append((self.now, node))
            within_hour(self.taken, self.now, self.policy.budgets.per_hour)

    def obeyed_avoid(self, scheduler: ModelScheduler, node: str) -> None:
        """A node was taken by an `avoid`: no limit is exceeded, and nothing that it shares a cause with has tripped."""
        marks = {
            held: mark.hint or ""
            for (name, held), mark in self.held().items()
            if mark.action == "avoid" and name in {one.name for one in self.schedulers if one.avoid_takes}
        }
        with self.engine.connect() as connection:
            hints = {hint.id: hint for hint in read_hints_by_id(connection, sorted(set(marks.values())))}
            trips = {trip.group for trip in newest_trips(connection) if trip.reset is None}
        limits = self.policy.budgets.of_avoid()
        # What is about to be held counts there.
        within_budget({held for held, ident in marks.items() if hints[ident].action not in HOLDING}, limits)
        lately = self.avoided.setdefault(scheduler.name, [])
        lately.append((self.now, node))
        within_hour(lately, self.now, limits.per_hour)
        assert not trips & places_of(node, hints[marks[node]].evidence.code), (node, trips)

    def check_releases(self, before: dict[Key, Mark]) -> None:
        """The policy lets go of what schedulers hold only where heartbeats or a scheduler vouch for the node."""
        held = {mark.hint: node for (_name, node), mark in before.items() if mark.action in HOLDING}
        with self.engine.connect() as connection:
            hints = read_hints_by_id(connection, [ident for ident in held if ident is not None])
            taken = sent_hints(connection, [hint.id for hint in hints])
        for hint in hints:
            closed = hint.evidence.closed
            if closed is None or closed.time != self.now or closed.by != ACTOR_POLICY or hint.id not in taken:
                continue
            known = [one.name for one in self.schedulers if hint.node in one.marks]
            is_vouched = self.vouchers.vouch(hint.node, known, self.now, timedelta(seconds=self.policy.healthy_s))
            assert is_vouched or is_opted_out(hint.node, self.policy), hint

    def undo(self, scheduler: ModelScheduler, node: str) -> None:
        """A person takes our mark off."""
        mark = scheduler.marks[node]
        if mark.hint is not None and mark.action in HOLDING:
            with self.engine.connect() as connection:
                found = holds_of(connection, [mark.hint]).get(mark.hint, [])
            if any((p.scheduler, p.state, p.action) == (scheduler.name, "confirmed", mark.action) for p in found):
                self.undone.add((scheduler.name, mark.hint))
        mark.action = mark.hint = None

    def check_decision(self, decision: Decision, stop: Stop) -> None:
        """By the hour, and spares: counted when it is decided. While stopped nothing new is asked."""
        made = [hint for hint, word in decision.changed if word in ("made", "escalated") and hint.job is None]
        assert stop == "none" or all(hint.state == "shadow" for hint in made), (stop, made)
        asked = (hint for hint, _word in decision.changed if hint.action in HOLDING and hint.state != "shadow")
        new = [hint for hint in asked if hint.evidence.acted == self.now]
        assert not [hint for hint in new if is_opted_out(hint.node, self.policy)]
        if new:
            self.granted += [(self.now, hint.node) for hint in new]
            within_hour(self.granted, self.now, self.policy.budgets.per_hour)
            if self.policy.budgets.keep_spares:
                spares_left(self.engine, self.policy, self.now, new)

    def check(self, before: dict[Key, Mark], stop: Stop, trips: list[Trip]) -> None:
        """The invariants, on what the schedulers hold."""
        held = self.held()
        assert [wrong for one in self.schedulers for wrong in one.wrong] == []
        assert stop != "all" or held == before
        assert not (self.fresh and stop != "none"), (self.fresh, stop)
        if not held and not self.fresh:
            self.overdue.clear()
            return
        named = {mark.hint for mark in (*held.values(), *self.fresh.values()) if mark.hint is not None}
        with self.engine.connect() as connection:
            hints = {hint.id: hint for hint in read_hints_by_id(connection, sorted(named))}
        within_budget({node for (_name, node), mark in held.items() if mark.action in HOLDING}, self.policy.budgets)
        none_tripped(self.fresh, {trip.group for trip in trips if trip.reset is None}, hints)
        for (name, node), mark in self.fresh.items():
            hint = hints[mark.hint or ""]
            assert (name, hint.id) not in self.undone, f"{node}: a person had taken it off"
            assert hint.valid_until > self.now, f"{node}: asked after its time"
            assert hint.state in LIVE_STATES or (hint.state == "withdrawn" and hint.evidence.closed is not None), hint
        self.check_overdue(held, stop, hints)

    def check_overdue(self, held: dict[Key, Mark], stop: Stop, hints: dict[str, Hint]) -> None:
        """Each mark stands for an open hint of its node, or is gone soon after the scheduler answers."""
        troubled = {one.name for one in self.schedulers if one.trouble is not None}
        for key, mark in held.items():
            hint = hints[mark.hint or ""]
            assert hint.node == key[1]
            if hint.state in OPEN_STATES or key[0] in troubled or stop == "all":
                self.overdue.pop(key, None)
                continue
            count, last = self.overdue.get(key, (0, self.now - HOUR))
            if abs(self.now - last) >= timedelta(seconds=301):
                self.overdue[key] = (count + 1, self.now)
            assert self.overdue[key][0] <= BOUND, (key, mark, hint)
        for key in set(self.overdue) - set(held):
            del self.overdue[key]
