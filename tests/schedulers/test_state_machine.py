"""Over random floods, clock jumps, restarts, outages and people: no limit is ever exceeded by what schedulers hold for
us, nothing foreign is touched, and whatever is held is justified or let go.

The policy's turn and the turn of each scheduler are the program's own, over a database in memory; the schedulers are a
model (`model_scheduler.py`). HINT_RUNS=10000 pytest tests/schedulers/test_state_machine.py is the long form.
"""

import os
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from schedulers.actuator import SchedulerAwayError
from schedulers.controls import reset_breaker, set_switch
from schedulers.facts import HOLDING
from schedulers.kill_switch import effective_stop
from schedulers.policy import Decision
from schedulers.settings import Mode, Policy, Stop
from schedulers.turn import run_policy
from schedulers.turn_actuator import Acting, run_actuator
from schedulers.verdict import VerdictError, approve, release_node, withdraw
from store.database import writing
from store.event import format_time
from store.hint import OPEN_STATES, Hint
from store.hint_log import read_hint, read_hints
from store.trips import newest_trips

from . import model_draws as draws
from .hint_invariants import none_tripped, spares_left, within_budget
from .model_scheduler import KilledError, Mark, ModelScheduler
from .model_world import NODES, START, add_fault, add_scores, empty, memory, set_job, set_outage

RUNS = int(os.environ.get("HINT_RUNS", "150"))
STEPS = 8
HOUR = timedelta(hours=1)
# Turns, five minutes apart, within which a scheduler that answers has let go of what nobody asks any more.
BOUND = 3


class Hints(RuleBasedStateMachine):
    """One cluster, one or two schedulers, one server that may die, and people."""

    @initialize(policy=draws.policies, count=st.integers(1, 2), busy=st.lists(draws.node_names, unique=True))
    def begin(self, policy: Policy, count: int, busy: list[str]) -> None:
        """A new cluster."""
        self.engine, self.policy, self.now, self.latest = memory(), policy, START, START
        empty(self.engine)
        add_scores(self.engine, {NODES[0]: 0.0}, START)
        self.schedulers = [ModelScheduler(name, {node: Mark() for node in NODES}) for name in ("slurm", "kube")[:count]]
        self.granted: list[tuple[datetime, str]] = []
        self.overdue: dict[tuple[str, str], tuple[int, datetime]] = {}
        self.faults = 0
        if busy:
            set_job(self.engine, busy, START)

    @rule(found=draws.flood, age_s=st.sampled_from([0.0, 5.0, 900.0, 7200.0, -600.0]), turns=st.integers(0, 2))
    def faults_come(self, found: list[tuple[str, int]], age_s: float, turns: int) -> None:
        """Late, at once, or from a host whose clock runs ahead."""
        for node, code in found:
            self.faults += 1
            add_fault(self.engine, f"i{self.faults}", node, code, self.now - timedelta(seconds=age_s))
        self.latest = max(self.latest, self.now - timedelta(seconds=age_s))
        self.turn(turns)

    @rule(node=draws.node_names, code=st.sampled_from([79, 79, 48]))
    def a_fault_comes(self, node: str, code: int) -> None:
        """One, now."""
        self.faults_come([(node, code)], 0.0, 2)

    @rule(found=draws.scores)
    def scores_come(self, found: dict[str, float]) -> None:
        """Of some nodes."""
        add_scores(self.engine, found, self.now)
        self.turn()

    @rule(node=draws.node_names, hours=st.sampled_from([None, 0.0, 0.5]))
    def an_outage(self, node: str, hours: float | None) -> None:
        """That lasts, or has ended."""
        set_outage(self.engine, node, self.now - HOUR, None if hours is None else self.now - hours * HOUR)
        self.turn()

    @rule(busy=st.lists(draws.node_names, unique=True, min_size=1))
    def a_job_moves(self, busy: list[str]) -> None:
        """To other nodes."""
        set_job(self.engine, busy, self.now)

    @rule(seconds=draws.spans, turns=st.integers(1, 2))
    def time_passes(self, seconds: float, turns: int) -> None:
        """From a second to a day."""
        self.now += timedelta(seconds=seconds)
        self.turn(turns)

    @rule(seconds=draws.jumps)
    def the_clock_jumps(self, seconds: float) -> None:
        """Back, or far ahead."""
        self.now += timedelta(seconds=seconds)
        self.turn()

    @rule(which=draws.schedulers, trouble=st.sampled_from(["away", "lost", "killed", "deaf", "busy", None, None]))
    def a_scheduler_changes(self, which: int, trouble: str | None) -> None:
        """It goes away, obeys by half, or answers again; what it holds stays."""
        self.schedulers[which % len(self.schedulers)].trouble = trouble
        self.turn()

    @rule(
        which=draws.schedulers,
        first=draws.flood,
        then=draws.flood,
        word=st.sampled_from(["release", "withdraw", "none"]),
    )
    def while_a_scheduler_is_away(self, which: int, first: Any, then: Any, word: str) -> None:
        """Faults come, a person lets a node go, more faults come; then it answers again."""
        away = self.schedulers[which % len(self.schedulers)]
        away.trouble = "away"
        self.faults_come(first, 0.0, 1)
        self.a_person_decides(word, 0)
        self.faults_come(then, 0.0, 1)
        away.trouble = None
        self.turn(2)

    @rule(word=st.sampled_from(["approve", "approve", "withdraw", "release"]), which=st.integers(0, 5))
    def a_person_decides(self, word: str, which: int) -> None:
        """On one of the open hints."""
        with writing(self.engine).begin() as connection:
            found = sorted(read_hints(connection, states=OPEN_STATES), key=lambda hint: hint.action not in HOLDING)
            if not found:
                return
            hint = found[which % len(found)]
            with suppress(VerdictError):
                if word == "approve":
                    approve(connection, hint.id, self.now, "alice", self.policy.mode)
                elif word == "withdraw":
                    withdraw(connection, hint.id, self.now, "alice")
                elif word == "release":
                    release_node(connection, hint.node, self.now, "alice")
        self.turn()

    @rule(which=draws.schedulers, node=draws.node_names, what=draws.visits)
    def a_person_goes_to_the_scheduler(self, which: int, node: str, what: str) -> None:
        """Holds a node, takes ours over, undoes ours, lets go of theirs, leaves a mark that nobody knows."""
        mark = self.schedulers[which % len(self.schedulers)].marks[node]
        if what in ("cordon", "take over"):
            mark.foreign = "bob: new fans"
        if what in ("take over", "undo"):
            mark.action = mark.hint = None
        if what == "go":
            mark.foreign = None
        if what == "orphan" and mark.hint is None:
            mark.action, mark.hint = "cordon", "orphan-1"
        self.turn()

    @rule(stop=draws.stops)
    def a_person_stops(self, stop: Stop) -> None:
        """Or lets go on."""
        with writing(self.engine).begin() as connection:
            set_switch(connection, stop, "test", self.now, "alice")
        self.turn()

    @rule(backlog=st.sampled_from(["drop", "review"]))
    def a_person_resets(self, backlog: Any) -> None:
        """The oldest trip that is in force."""
        with writing(self.engine).begin() as connection:
            found = [trip for trip in newest_trips(connection) if trip.reset is None]
            if found:
                reset_breaker(connection, found[0].seq, backlog, self.now, "alice")
        self.turn()

    @rule(mode=draws.modes)
    def the_mode_changes(self, mode: Mode) -> None:
        """By file."""
        self.policy = replace(self.policy, mode=mode)
        self.turn()

    def turn(self, times: int = 1) -> None:
        """The server's turns, a second apart; nothing is kept in memory between two, so each is a restart."""
        for _ in range(times):
            before, stop = self.held(), self.stop()
            decision = run_policy(self.engine, self.policy, self.now)
            self.check_decision(decision, stop)
            names = tuple(one.name for one in self.schedulers)
            for one in self.schedulers:
                acting = Acting(self.engine, one, names, lambda: self.policy, lambda: self.now)
                with suppress(SchedulerAwayError, KilledError):
                    run_actuator(acting, lambda: True)
            self.check(before, stop)
            self.now += timedelta(seconds=1)
            self.latest = max(self.latest, self.now)

    def stop(self) -> Stop:
        """What is stopped."""
        with self.engine.connect() as connection:
            stop = effective_stop(connection, self.policy)
        return "holds" if self.policy.mode == "shadow" and stop == "none" else stop

    def held(self) -> dict[tuple[str, str], Mark]:
        """Each scheduler's nodes that bear a mark of ours."""
        return {
            (one.name, node): replace(mark)
            for one in self.schedulers
            for node, mark in one.marks.items()
            if mark.hint is not None and not mark.hint.startswith("orphan")
        }

    def check_decision(self, decision: Decision, stop: Stop) -> None:
        """By the hour, and spares: counted when it is decided. While stopped nothing new is asked."""
        made = [hint for hint, word in decision.changed if word == "made" and hint.job is None]
        assert stop == "none" or all(hint.state == "shadow" for hint in made)
        acted = format_time(self.now)
        asked = (hint for hint, _word in decision.changed if hint.action in HOLDING and hint.state != "shadow")
        new = [hint for hint in asked if hint.evidence["acted"] == acted]
        if new:
            self.granted += [(self.now, hint.node) for hint in new]
            lately = {node for time, node in self.granted if time >= self.now - HOUR}
            assert len(lately) <= self.policy.budgets.per_hour, lately
            if self.policy.budgets.keep_spares:
                spares_left(self.engine, self.policy, self.now, new)

    def check(self, before: dict[tuple[str, str], Mark], stop: Stop) -> None:
        """The invariants, on what the schedulers hold."""
        held = self.held()
        assert [wrong for one in self.schedulers for wrong in one.wrong] == []
        if stop == "all":
            assert held == before
        new = {key: mark for key, mark in held.items() if mark.action in HOLDING and not _holds(before.get(key))}
        assert not (new and stop != "none"), (new, stop)
        within_budget({node for (_name, node), mark in held.items() if mark.action in HOLDING}, self.policy)
        with self.engine.connect() as connection:
            tripped = {trip.group for trip in newest_trips(connection) if trip.reset is None}
            hints = {mark.hint: read_hint(connection, mark.hint or "") for mark in held.values()}
        none_tripped(new, tripped, hints)
        self.check_overdue(held, stop, hints)

    def check_overdue(
        self, held: dict[tuple[str, str], Mark], stop: Stop, hints: dict[str | None, Hint | None]
    ) -> None:
        """Each mark stands for an open hint of its node, or is gone soon after the scheduler answers."""
        troubled = {one.name for one in self.schedulers if one.trouble is not None}
        for key, mark in held.items():
            hint = hints[mark.hint]
            assert hint is not None
            assert hint.node == key[1]
            if hint.state in OPEN_STATES or key[0] in troubled or stop == "all":
                self.overdue.pop(key, None)
                continue
            count, last = self.overdue.get(key, (0, self.now - HOUR))
            if self.now - last >= timedelta(seconds=301):
                self.overdue[key] = (count + 1, self.now)
            assert self.overdue[key][0] <= BOUND, (key, mark, hint)
        for key in set(self.overdue) - set(held):
            del self.overdue[key]

    def teardown(self) -> None:
        """In the end all is well again, for a day: nothing of ours is left on any node, and no hint is open."""
        if not hasattr(self, "schedulers"):
            return
        with writing(self.engine).begin() as connection:
            set_switch(connection, "none", "all is well", self.now, "alice")
        for one in self.schedulers:
            one.trouble = None
        self.now = self.latest + 27 * HOUR
        for _ in range(3):
            self.turn()
            self.now += timedelta(seconds=400)
        assert self.held() == {}
        with self.engine.connect() as connection:
            assert read_hints(connection, states=OPEN_STATES) == []


def _holds(mark: Mark | None) -> bool:
    return mark is not None and mark.action in HOLDING


TestHints = Hints.TestCase
TestHints.settings = settings(
    max_examples=RUNS,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
