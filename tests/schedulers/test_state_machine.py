"""Over random floods, clock jumps, restarts, outages and people: no limit is ever exceeded by what schedulers hold for
us, nothing foreign is touched, and whatever is held is justified or let go.

The policy's turn and the turn of each scheduler are the program's own, over a database in memory; the schedulers are a
model (`model_scheduler.py`); `hint_judge.py` has what must hold. The long form, 15,000 runs:
make deep ARGS=tests/schedulers/test_state_machine.py
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from approvers import ALICE
from depth import deepened, is_deep
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from schedulers.lifecycle.approval import approve
from schedulers.lifecycle.operator_actions import (
    RequestRefusedError,
    release_node,
    reset_breaker,
    set_switch,
    withdraw,
)
from schedulers.policy.facts import HOLDING
from schedulers.policy.settings import Mode, Policy, Stop
from store.database.connections import writing
from store.hints.hint_log import read_hints
from store.hints.stops import newest_trips
from store.records.hint import OPEN_STATES

from . import model_draws as draws
from .hint_judge import HOUR, Judge
from .model_scheduler import Mark, ModelScheduler
from .model_world import NODES, START, add_fault, add_scores, empty, memory, set_heartbeats, set_job, set_outage

RUNS = 30
SHARDS = 15 if is_deep() else 2
STEPS = 7


class Hints(RuleBasedStateMachine):
    """One cluster, one or two schedulers, one server that may die, and people."""

    stop_file: Path

    @initialize(
        policy=draws.policies,
        count=st.integers(1, 2),
        busy=st.lists(draws.node_names, unique=True),
        first=draws.flood,
        takes=st.sampled_from([(), ("slurm",), ("slurm", "kube")]),
    )
    def begin(
        self, policy: Policy, count: int, busy: list[str], first: list[tuple[str, int]], takes: tuple[str, ...]
    ) -> None:
        """A new cluster, and its first flood."""
        self.engine = memory()
        empty(self.engine)
        add_scores(self.engine, {NODES[0]: 0.0}, START)
        told = [
            ModelScheduler(name, {node: Mark() for node in NODES}, avoid_takes=name in takes)
            for name in ("slurm", "kube")[:count]
        ]
        self.judge = Judge(self.engine, policy, START, told)
        self.latest, self.faults = START, 0
        if busy:
            set_job(self.engine, busy, START)
        self.faults_come(first, 0.0, 1)

    def turn(self, times: int = 1) -> None:
        """Whole turns of the server."""
        self.judge.turn(times)
        self.latest = max(self.latest, self.judge.now)

    def told(self, which: int) -> ModelScheduler:
        """One of the schedulers."""
        return self.judge.schedulers[which % len(self.judge.schedulers)]

    def held_first(self, which: int) -> str:
        """A node: of those that are held, if any."""
        held = sorted({node for (_name, node), mark in self.judge.held().items() if mark.action in HOLDING})
        return held[which % len(held)] if held else NODES[which]

    @rule(found=draws.flood, age_s=st.sampled_from([0.0, 0.0, 5.0, 7200.0, -600.0]), turns=st.integers(1, 2))
    def faults_come(self, found: list[tuple[str, int]], age_s: float, turns: int) -> None:
        """Late, at once, or from a host whose clock runs ahead."""
        for node, code in found:
            self.faults += 1
            add_fault(self.engine, f"i{self.faults}", node, code, self.judge.now - timedelta(seconds=age_s))
        self.latest = max(self.latest, self.judge.now - timedelta(seconds=age_s))
        self.turn(turns)

    @rule(found=draws.scores)
    def scores_come(self, found: dict[str, float]) -> None:
        """Of some nodes."""
        add_scores(self.engine, found, self.judge.now)
        self.turn()

    @rule(which=st.integers(0, 5), hours=st.sampled_from([None, 0.0, 0.5]))
    def an_outage(self, which: int, hours: float | None) -> None:
        """That lasts, or has ended."""
        now = self.judge.now
        set_outage(self.engine, self.held_first(which), now - HOUR, None if hours is None else now - hours * HOUR)
        self.turn()

    @rule(which=draws.schedulers, node=st.integers(0, 5), is_down=st.booleans(), is_told=st.booleans())
    def a_node_goes_down(self, which: int, node: int, is_down: bool, is_told: bool) -> None:
        """Or comes back, as a scheduler sees it; whoever tells outages may say that one has ended."""
        name = self.held_first(node)
        self.told(which).marks[name].is_down = is_down
        if is_told:
            set_outage(self.engine, name, self.judge.now - HOUR, None if is_down else self.judge.now)
        self.turn()

    @rule(turns=st.integers(1, 5))
    def ten_minutes_pass(self, turns: int) -> None:
        """Again and again, so that nobody loses sight of a scheduler."""
        for _ in range(turns):
            self.judge.now += timedelta(seconds=600)
            self.turn()

    @rule(names=st.lists(draws.node_names, unique=True, min_size=1), hours=st.sampled_from([0.5, 23.0, 25.0]))
    def heartbeats_come(self, names: list[str], hours: float) -> None:
        """Of some nodes, for a while; of the others nothing is heard then."""
        begin, self.judge.now = self.judge.now, self.judge.now + hours * HOUR
        self.heartbeats(names, begin)
        self.turn()

    def heartbeats(self, names: Sequence[str], since: datetime) -> None:
        """Without a gap, until now."""
        set_heartbeats(self.engine, names, since, self.judge.now)
        self.judge.vouchers.beats |= dict.fromkeys(names, (since, self.judge.now))

    @rule(busy=st.lists(draws.node_names, unique=True, min_size=1))
    def a_job_moves(self, busy: list[str]) -> None:
        """To other nodes."""
        set_job(self.engine, busy, self.judge.now)

    @rule(seconds=draws.spans, is_late=st.booleans(), restarts=st.booleans())
    def time_passes(self, seconds: float, is_late: bool, restarts: bool) -> None:
        """From a second to a day; the policy's loop may be late, the server another one."""
        self.judge.now += timedelta(seconds=seconds)
        if restarts:
            self.judge.restart()
        if is_late:
            self.judge.schedulers_turn()
        self.turn()

    @rule(seconds=draws.jumps)
    def the_clock_jumps(self, seconds: float) -> None:
        """Back, or far ahead."""
        self.judge.now += timedelta(seconds=seconds)
        self.turn()

    @rule(which=draws.schedulers, trouble=st.one_of(draws.troubles, st.none()))
    def a_scheduler_changes(self, which: int, trouble: str | None) -> None:
        """It goes away, obeys by half, or answers again; what it holds stays."""
        self.told(which).trouble = trouble
        self.turn()

    @rule(
        which=draws.schedulers,
        floods=draws.two_floods,
        word=st.sampled_from(["release", "withdraw", "none", "none"]),
        away_s=st.sampled_from([0.0, 1200.0, 3500.0, 3700.0, 13 * 3600.0]),
        back=st.sampled_from([None, None, "lost", "killed", "deaf"]),
    )
    def while_a_scheduler_is_away(self, which: int, floods: Any, word: str, away_s: float, back: str | None) -> None:
        """Faults come, a person lets a node go, time passes, more faults come; then it answers again, or by half."""
        one = self.told(which)
        one.trouble = "away"
        if word == "none" and back is None:  # all are: what was decided goes out late, whatever has come between
            for other in self.judge.schedulers:
                other.trouble = "away"
        self.faults_come(floods[0], 0.0, 1)
        self.a_person_decides(word, 0)
        self.judge.now += timedelta(seconds=away_s)
        if away_s > 12 * 3600.0:
            self.answer_again(back)
            self.judge.schedulers_turn()
        self.faults_come(floods[1], 0.0, 1)
        self.answer_again(back)
        self.turn(2)

    def answer_again(self, how: str | None) -> None:
        """Whoever is away is back."""
        for one in self.judge.schedulers:
            if one.trouble == "away":
                one.trouble = how

    @rule(
        first=draws.flood,
        stop=st.sampled_from(["holds", "holds", "all"]),
        how=st.sampled_from(["switch", "setting", "file"]),
        is_decided=st.booleans(),
    )
    def faults_come_while_stopped(self, first: Any, stop: Stop, how: str, is_decided: bool) -> None:
        """Or were decided before, and not ordered yet; then it goes on."""
        if is_decided:
            for one in self.judge.schedulers:
                one.trouble = "away"
            self.faults_come(first, 0.0, 1)
        self.stops(stop, how)
        for one in self.judge.schedulers:
            one.trouble = None
        self.faults_come(first, 0.0, 1)
        self.a_person_decides("release", 0)
        self.stops("none", how)
        self.turn()

    def stops(self, stop: Stop, how: str) -> None:
        """One of the three ways to stop."""
        if how == "switch":
            with writing(self.engine).begin() as connection:
                set_switch(connection, stop, "test", self.judge.now, "alice")
        elif how == "setting":
            self.judge.policy = replace(self.judge.policy, stop=stop)
        else:
            self.stop_file.unlink(missing_ok=True)
            if stop != "none":
                self.stop_file.write_text(stop)
            self.judge.policy = replace(self.judge.policy, stop_file=self.stop_file)

    @rule(stop=draws.stops, how=st.sampled_from(["switch", "setting", "file"]))
    def a_person_stops(self, stop: Stop, how: str) -> None:
        """Or lets go on."""
        self.stops(stop, how)
        self.turn()

    @rule(word=st.sampled_from(["approve", "approve all", "withdraw", "release"]), which=st.integers(0, 5))
    def a_person_decides(self, word: str, which: int) -> None:
        """On one of the open hints, or on all."""
        judge = self.judge
        with writing(self.engine).begin() as connection:
            found = sorted(read_hints(connection, states=OPEN_STATES), key=lambda hint: hint.action not in HOLDING)
            for hint in found if word == "approve all" else found[which % len(found) :][:1] if found else []:
                with suppress(RequestRefusedError):
                    if word.startswith("approve"):
                        approve(connection, hint.id, judge.now, ALICE, judge.policy)
                    elif word == "withdraw":
                        withdraw(connection, hint.id, judge.now, "alice")
                    elif word == "release":
                        release_node(connection, hint.node, judge.now, "alice")
        self.turn()

    @rule(
        which=draws.schedulers,
        node=st.integers(0, 5),
        what=draws.visits,
        code=st.sampled_from([None, None, 79]),
        turns=st.integers(1, 2),
    )
    def a_person_goes_to_the_scheduler(self, which: int, node: int, what: str, code: int | None, turns: int) -> None:
        """Holds a node, takes ours over, undoes ours, lets go of theirs, opts out, leaves a mark that nobody knows."""
        one, name = self.told(which), self.held_first(node)
        mark = one.marks[name]
        if what in ("cordon", "take over"):
            mark.foreign = "bob: new fans"
        if what in ("take over", "undo"):
            self.judge.undo(one, name)
        if what == "go":
            mark.foreign = None
        if what == "orphan" and mark.hint is None:
            mark.action, mark.hint = "cordon", "orphan-1"
        if what.startswith("opt"):
            mark.is_opted_out = what == "opt out"
        if code is None:
            self.turn(turns)
        else:
            self.faults_come([(name, code)], 0.0, turns)

    @rule(backlog=st.sampled_from(["drop", "review"]))
    def a_person_resets(self, backlog: Any) -> None:
        """The oldest trip that is in force."""
        with writing(self.engine).begin() as connection:
            found = [trip for trip in newest_trips(connection) if trip.reset is None]
            if found:
                reset_breaker(connection, found[0].seq, backlog, self.judge.now, "alice")
        self.turn()

    @rule(mode=draws.modes)
    def the_mode_changes(self, mode: Mode) -> None:
        """By file."""
        self.judge.policy = replace(self.judge.policy, mode=mode)
        self.turn()

    def teardown(self) -> None:
        """In the end all is well again, for a day: nothing of ours is left on any node, and no hint is open."""
        if not hasattr(self, "judge"):
            return
        for how in ("switch", "setting", "file"):
            self.stops("none", how)
        for one in self.judge.schedulers:
            one.trouble = None
        for one in self.judge.schedulers:
            for mark in one.marks.values():
                mark.is_down = False
        begin, self.judge.now = self.latest, self.latest + 27 * HOUR
        self.heartbeats(NODES, begin)
        for _ in range(2):
            self.turn()
            self.judge.now += timedelta(seconds=400)
        assert self.judge.held() == {}
        with self.engine.connect() as connection:
            assert read_hints(connection, states=OPEN_STATES) == []


@pytest.mark.hypothesis
@pytest.mark.parametrize("shard", range(SHARDS))
def test_hints(shard: int, tmp_path: Path) -> None:
    """Each shard draws its own share."""

    class OfShard(Hints):
        """With a stop file of its own."""

        stop_file = tmp_path / "stop"

    own = settings(max_examples=RUNS // SHARDS, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(OfShard, settings=deepened(own))  # type: ignore[no-untyped-call]
