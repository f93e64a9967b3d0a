"""A policy lived through stored history: nothing later than each moment is seen, nothing is written."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from diagnosis.incidents.incidents_table import update_incidents
from schedulers.backtest.episode import ReplayResult, ReplaySpan
from schedulers.backtest.replay import (
    Contender,
    DecisionRule,
    acting,
    ask_by,
    cordon_on_fatal_xid,
    held_back,
    no_action,
    replay_side_by_side,
    without_limits,
)
from schedulers.policy.decision import Decision
from schedulers.policy.fact_queries import ScoreHistory
from schedulers.policy.facts import Inputs
from schedulers.policy.settings import Breaker, Budgets, JobWatch, Policy, Validity
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.models.scores import save_scores
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Score
from store.tables import hint_tables, schema

from .cluster import HOUR, NOW

DAY = 24 * HOUR
SPAN = ReplaySpan(NOW, NOW + 4 * DAY)
WIDE = Policy(budgets=Budgets(99, 100.0, 99, 99, 99, 99), breaker=Breaker(nodes=99, cluster_nodes=99))


def struck(engine: sa.Engine, node: str, hours: float, source: str = "kernel", **more: Any) -> None:
    """A fault, so many hours into the span: Xid 79 unless told otherwise."""
    facts: dict[str, Any] = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware"} | more
    event = Event(time=NOW + hours * HOUR, node=node, source=source, message="off the bus", **facts)
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, [event], received=NOW).new)


def out(engine: sa.Engine, node: str, hours: float, ended: float | None, reason: str = "Xid") -> None:
    """An outage, by hours into the span."""
    end = None if ended is None else NOW + ended * HOUR
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage(node, NOW + hours * HOUR, end, "DOWN", reason, None, False, "hardware")])


def scored(engine: sa.Engine, hours: float, **values: float) -> None:
    """A scoring, so many hours into the span."""
    moment = NOW + hours * HOUR
    with writing(engine).begin() as connection:
        save_scores(connection, [Score(node, moment, 24, value, (), "m") for node, value in values.items()])


def with_nodes(engine: sa.Engine) -> sa.Engine:
    """Four nodes of two leaves."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, f"r-{name}", f"l{i // 2}", gpus=8) for i, name in enumerate("abcd")])
    return engine


@pytest.fixture
def fleet(engine: sa.Engine) -> sa.Engine:
    """On SQLite: what a replay reads is tested on both in tests/schedulers/test_fact_queries.py."""
    return with_nodes(engine)


@pytest.fixture
def any_fleet(any_engine: sa.Engine) -> sa.Engine:
    """On either kind of database."""
    return with_nodes(any_engine)


def lived(
    engine: sa.Engine, policy: Policy = WIDE, ask: DecisionRule | None = None, span: ReplaySpan = SPAN
) -> ReplayResult:
    """The replay."""
    with engine.connect() as connection:
        [result] = replay_side_by_side(connection, [Contender(ask or ask_by(policy))], policy, span)
    return result


def told(found: ReplayResult) -> list[tuple[str, str, float, float | None]]:
    """Who was asked what, from and until which hour."""
    return [
        (one.node, one.action, (one.since - NOW) / HOUR, None if one.until is None else (one.until - NOW) / HOUR)
        for one in found.episodes
    ]


def test_a_fault_is_held_from_its_very_moment_until_it_has_been_well_for_a_day(fleet: sa.Engine) -> None:
    """Between two steps; the release comes at a step."""
    struck(fleet, "a", 10.25)
    assert told(lived(fleet)) == [("a", "cordon", 10.25, 35)]
    assert told(lived(fleet, span=replace(SPAN, until=NOW + DAY))) == [("a", "cordon", 10.25, None)]


def test_a_repair_ends_a_hold(fleet: sa.Engine) -> None:
    """While the node is out nothing changes; an outage that lasted beyond a moment had no end then."""
    struck(fleet, "a", 10)
    out(fleet, "a", 12.5, 20.5)
    assert told(lived(fleet)) == [("a", "cordon", 10, 21)]


def test_scores_ask_for_avoid_and_what_follows_is_another_episode(any_fleet: sa.Engine) -> None:
    """Watch, avoid, cordon by a fault, released; then the score asks anew."""
    for hours in range(0, 96, 12):
        scored(any_fleet, hours, a=0.03 if hours < 12 else 0.3 if hours < 60 else 0.01)
    struck(any_fleet, "a", 30.5)
    assert told(lived(any_fleet)) == [
        ("a", "watch", 0, 12),
        ("a", "avoid", 12, 30.5),
        ("a", "cordon", 30.5, 55),
        ("a", "avoid", 56, 60),
    ]


def test_a_hint_that_nobody_renews_lapses_in_the_replay_too(fleet: sa.Engine) -> None:
    """A score that is missing from then on releases nothing: the hint ends with its validity."""
    scored(fleet, 0, a=0.3)
    policy = replace(WIDE, validity=Validity(avoid_s=10 * 3600.0))
    ((_, action, since, until),) = told(lived(fleet, policy))
    assert (action, since) == ("avoid", 0)
    assert until is not None and 24 < until <= 34


def test_what_is_held_back_is_told_apart(fleet: sa.Engine) -> None:
    """By a budget; quiet hours; and by the breaker, which a person resets a day later."""
    for node in "ab":
        struck(fleet, node, 10)
    tight = lived(fleet, replace(WIDE, budgets=Budgets(1, 100.0, 99, 99, 99, 99)))
    assert [(one.node, one.action, one.held_back is None) for one in tight.episodes] == [
        ("a", "cordon", True),
        ("b", "avoid", False),
    ]
    assert held_back(tight) == {"budget": 1}
    hour = (NOW + 10 * HOUR).hour
    quiet = lived(fleet, replace(WIDE, quiet_hours=(f"{hour:02}:00-{(hour + 2) % 24:02}:00",)))
    assert held_back(quiet) == {"waits for a person": 2}
    assert [(node, since) for node, _, since, _ in told(quiet)] == [("a", 10), ("b", 10), ("a", 12), ("b", 12)]
    trips = lived(fleet, replace(WIDE, breaker=Breaker(nodes=2, cluster_nodes=99)))
    assert {trip.group for trip in trips.trips} == {("leaf", "l0")}
    assert held_back(trips) == {"breaker": 2}


def test_each_decision_sees_what_was_known_and_its_own_hints(any_fleet: sa.Engine) -> None:
    """No later fault; no hint but its own; and it is asked at each step and at each fatal fault."""
    struck(any_fleet, "a", 1.5)
    struck(any_fleet, "b", 3, severity="error")
    with writing(any_fleet).begin() as connection:
        connection.execute(
            hint_tables.hints.insert().values(
                id="h", node="c", action="cordon", state="sent", reason="r", owner="o", created=NOW,
                valid_until=NOW + 9 * DAY, evidence={},
            )
        )  # fmt: skip
    seen: list[Inputs] = []

    def ask(inputs: Inputs) -> Decision:
        seen.append(inputs)
        return no_action(inputs)

    found = lived(any_fleet, ask=ask, span=replace(SPAN, until=NOW + 3 * HOUR))
    assert (found.moments, found.episodes) == (4, [])
    assert [(inputs.now - NOW) / HOUR for inputs in seen] == [0, 1, 1.5, 2]
    assert [sum(facts.fault is not None for facts in inputs.nodes) for inputs in seen] == [0, 0, 1, 1]
    assert not any(inputs.hints for inputs in seen)


def test_a_replay_writes_nothing(any_fleet: sa.Engine) -> None:
    """Another writer holds the database all the while."""
    struck(any_fleet, "a", 10)
    with writing(any_fleet).begin():
        assert lived(any_fleet, span=replace(SPAN, until=NOW + DAY)).episodes
    with any_fleet.connect() as connection:
        for table in (hint_tables.hints, schema.audit, hint_tables.trips):
            assert connection.scalar(sa.select(sa.func.count()).select_from(table)) == 0


def test_the_habit_cordons_every_fatal_xid_without_limits(fleet: sa.Engine) -> None:
    """And lets go when the fault is over or repaired; another fault than an Xid is none of its business."""
    for node in "abc":
        struck(fleet, node, 10)
    struck(fleet, "d", 10, kind="gpu_lost", code=None)
    out(fleet, "b", 12, 14)
    found = lived(fleet, replace(WIDE, budgets=Budgets(1, 1.0, 1, 1, 1, 1)), ask=cordon_on_fatal_xid)
    assert told(found) == [("a", "cordon", 10, 35), ("b", "cordon", 10, 14), ("c", "cordon", 10, 35)]


def test_progress_is_told(fleet: sa.Engine) -> None:
    """Of how many moments how many are done."""
    done: list[tuple[int, int]] = []
    with fleet.connect() as connection:
        span = ReplaySpan(NOW, NOW + 3 * HOUR, timedelta(hours=1))
        replay_side_by_side(
            connection, [Contender(no_action)], WIDE, span, on_step=lambda count, whole: done.append((count, whole))
        )
    assert done == [(1, 3), (2, 3), (3, 3)]


def side_by_side(engine: sa.Engine, *contenders: Contender, scores: ScoreHistory | None = None) -> list[ReplayResult]:
    """The replay of several."""
    with engine.connect() as connection:
        return replay_side_by_side(connection, contenders, WIDE, SPAN, scores=scores)


def ran(engine: sa.Engine, start: float, end: float | None, nodes: str = "a,b") -> None:
    """A job, by hours."""
    last = None if end is None else NOW + end * HOUR
    job = Job("7", "llm", "RUNNING", NOW + start * HOUR, NOW + start * HOUR, last, 2, nodes, None)
    with writing(engine).begin() as connection:
        append_jobs(connection, [job])


def test_several_live_side_by_side_and_none_sees_anothers_hints(fleet: sa.Engine) -> None:
    """Each as though it were alone; without limits what a budget refuses is granted."""
    for node in "abc":
        struck(fleet, node, 10)
    tight = replace(WIDE, budgets=Budgets(1, 100.0, 99, 99, 99, 99), breaker=Breaker(nodes=2), quorum=0.9)
    asks = [no_action, cordon_on_fatal_xid, ask_by(tight), ask_by(without_limits(tight))]
    found = side_by_side(fleet, *(Contender(ask) for ask in asks))
    assert found == [lived(fleet, ask=ask) for ask in asks]
    at_once = [sum(one.is_hold and one.since == NOW + 10 * HOUR for one in each.episodes) for each in found]
    assert at_once == [0, 3, 1, 3]
    assert without_limits(tight).quorum == 0.0


def test_the_scores_of_a_backtest_stand_in_for_those_stored(fleet: sa.Engine) -> None:
    """Until they are a day old; the stored ones are not looked at."""
    scored(fleet, 0, b=0.9)
    scores = ScoreHistory.of([(NOW + 6 * HOUR, "a", 0.3)])
    (found,) = side_by_side(fleet, Contender(ask_by(WIDE)), scores=scores)
    ((node, action, since, until),) = told(found)
    assert (node, action, since) == ("a", "avoid", 6)
    assert until is not None and 30 <= until <= 54


def test_jobs_are_asked_where_their_policy_says_so(any_fleet: sa.Engine) -> None:
    """To go on with a spare, for as long as it holds; once; the hint names the run."""
    ran(any_fleet, 5, 10.6)
    struck(any_fleet, "a", 10.5)
    one, other, requeues = side_by_side(
        any_fleet,
        Contender(ask_by(WIDE), acting(WIDE)),
        Contender(ask_by(WIDE)),
        Contender(ask_by(WIDE), acting(replace(WIDE, job_watch=JobWatch(swap=False, requeue=True)))),
    )
    assert told(one) == [("a", "cordon", 10.5, 35), ("a", "swap", 10.5, 10.75)]
    assert [(each.action, each.run) for each in one.episodes] == [("cordon", None), ("swap", "llm")]
    assert told(other) == [("a", "cordon", 10.5, 35)]
    assert [each.action for each in requeues.episodes] == ["cordon", "requeue"]


def test_a_job_that_goes_on_is_not_asked_at_each_step(fleet: sa.Engine) -> None:
    """Its hints are remembered for a day, as those stored are; the node's risk asks it to save, once a day."""
    ran(fleet, 0, None)
    for hours in range(0, 60, 6):
        scored(fleet, hours, a=0.5)
    (found,) = side_by_side(fleet, Contender(ask_by(WIDE), acting(WIDE)))
    saves = [(since, until) for _, action, since, until in told(found) if action == "checkpoint"]
    assert saves[:2] == [(0, 0.25), (24, 24.25)]
    assert all(later - sooner >= 24 for (sooner, _), (later, _) in pairwise(saves))


def test_a_hint_of_a_job_ends_with_the_job(fleet: sa.Engine) -> None:
    """At the next moment, where that is before its time."""
    ran(fleet, 5, 10.55)
    struck(fleet, "a", 10.5)
    struck(fleet, "d", 10.6)
    (found,) = side_by_side(fleet, Contender(ask_by(WIDE), acting(WIDE)))
    assert [(node, until) for node, action, _, until in told(found) if action == "swap"] == [("a", 10.6)]


def test_a_jobs_hint_does_not_stand_in_for_its_nodes(fleet: sa.Engine) -> None:
    """A save that was asked a moment ago does not hide that the node is held: the job is offered a spare."""
    ran(fleet, 0, None)
    scored(fleet, 10, a=0.5)
    struck(fleet, "a", 10.1)
    (found,) = side_by_side(fleet, Contender(ask_by(WIDE), acting(WIDE)))
    assert [(action, since) for _, action, since, _ in told(found)][:4] == [
        ("checkpoint", 10),
        ("watch", 10),
        ("cordon", 10.1),
        ("swap", 10.1),
    ]
