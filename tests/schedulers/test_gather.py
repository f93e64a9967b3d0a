"""The facts of a decision, from the store to the policy's eyes; and turns over time."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import decide
from schedulers.policy.fact_queries import gather
from schedulers.policy.settings import Breaker, Budgets, Policy
from store.database.connections import writing
from store.events.append import append_nodes, append_outages
from store.hints.hint_log import audit_page, read_hints
from store.models.scores import save_scores
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Reason, Score
from store.tables import schema

from .cluster import HOUR, NOW, fault, hint
from .receivers import Scripted, put, turn

AUTO = Policy(mode="act", budgets=Budgets(100, 100.0, 100, 100, 100), breaker=Breaker(nodes=100))


def known(engine: sa.Engine, *names: str) -> None:
    """Nodes with a place."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, f"r-{name}", f"l-{name}", driver="550") for name in names])


def scored(engine: sa.Engine, value: float, *names: str, hours_ago: float = 0, reasons: int = 1) -> None:
    """A scoring of nodes."""
    why = tuple(Reason(f"why {i}", 0.1) for i in range(reasons))
    with writing(engine).begin() as connection:
        save_scores(connection, [Score(name, NOW - hours_ago * HOUR, 24, value, why, "m") for name in names])


def facts(engine: sa.Engine, policy: Policy = AUTO, now: Any = NOW) -> dict[str, Any]:
    """What the policy sees, by node."""
    with engine.connect() as connection:
        return {one.node: one for one in gather(connection, policy, now).nodes}


def test_every_known_node_is_seen_with_its_place(engine: sa.Engine) -> None:
    """Scored or not; a node that is not in the store is not made up from a score."""
    known(engine, "a", "b")
    scored(engine, 0.5, "a", "unknown")
    found = facts(engine)
    assert set(found) == {"a", "b"}
    assert (found["a"].rack, found["a"].leaf, found["a"].driver, found["a"].score) == ("r-a", "l-a", "550", 0.5)
    assert (found["b"].score, found["b"].fault, found["b"].out) == (None, None, False)


def test_reasons_are_read_only_for_those_at_risk_and_five_at_most(engine: sa.Engine) -> None:
    """A few queries over a large cluster."""
    known(engine, "high", "low")
    scored(engine, 0.5, "high", reasons=9)
    scored(engine, AUTO.thresholds.watch / 2, "low", reasons=9)
    found = facts(engine)
    assert found["high"].reasons == ("why 0", "why 1", "why 2", "why 3", "why 4")
    assert found["low"].reasons == ()


@pytest.mark.parametrize(("hours_ago", "seen"), [(0, 0.5), (23.9, 0.5), (24, None), (100, None), (-1, None)])
def test_a_score_counts_for_a_day(engine: sa.Engine, hours_ago: float, seen: float | None) -> None:
    """Neither one of yesterday nor one of tomorrow says anything of now."""
    known(engine, "a")
    scored(engine, 0.5, "a", hours_ago=hours_ago)
    assert facts(engine)["a"].score == seen


@pytest.mark.parametrize(("kind", "action"), [("gbt", "avoid"), ("prior", "watch")])
def test_what_was_learned_elsewhere_alone_asks_no_more_than_to_watch(
    any_engine: sa.Engine, kind: str, action: str
) -> None:
    """A prior has not been seen to be right here."""
    known(any_engine, "a")
    scored(any_engine, 0.5, "a")
    row = {"id": "m", "created": NOW, "trained_until": NOW, "horizon_h": 24, "features": [], "metrics": {}}
    with writing(any_engine).begin() as connection:
        connection.execute(schema.models.insert().values(**row, blob=b"", sha256="", kind=kind))
    with any_engine.connect() as connection:
        decision = decide(gather(connection, AUTO, NOW), AUTO)
    assert [made.action for made, _ in decision.changed] == [action]


def test_an_outage_and_a_fault_are_facts_side_by_side(engine: sa.Engine) -> None:
    """The policy decides what weighs more. No score is told of such a node: it would speak of one that works."""
    known(engine, "a", "b", "c")
    scored(engine, 0.001, "a", "b", "c")
    one = fault("a", 1)
    row = {name: getattr(one, name) for name in ("id", "node", "start", "end", "kind", "code", "severity", "cause")}
    row |= {"action": one.action, "device": {"type": "gpu"}, "message": one.message, "count": 1, "kinds": {}}
    with writing(engine).begin() as connection:
        connection.execute(schema.incidents.insert().values(**row))
        append_outages(connection, [Outage("a", NOW - HOUR / 2, None, "DOWN", "x", None, False, "hardware")])
        append_outages(connection, [Outage("b", NOW - HOUR / 2, None, "DOWN", "x", None, False, "hardware")])
    assert {node: one.score for node, one in facts(engine).items()} == {"a": None, "b": None, "c": 0.001}
    found = facts(engine)["a"]
    assert found.out
    assert found.fault is not None
    assert facts(engine, now=NOW + timedelta(seconds=AUTO.healthy_s))["a"].fault is None


def test_the_hints_of_the_longer_window_are_remembered(engine: sa.Engine) -> None:
    """The budgets look back an hour, the breaker as far as it is told."""
    put(engine, replace(hint("a", state="expired", hours_ago=3), valid_until=NOW - HOUR))
    with engine.connect() as connection:
        assert gather(connection, AUTO, NOW).hints == ()
        wide = replace(AUTO, breaker=Breaker(window_s=4 * 3600.0))
        assert [one.id for one in gather(connection, wide, NOW).hints] == ["h-a"]


def test_a_hint_lives_through_its_days(engine: sa.Engine) -> None:
    """Made, sent, renewed and sent anew, released and told so: hour by hour, with one hint in the end."""
    known(engine, "a")
    told = Scripted()
    for hours in range(40):
        now = NOW + hours * HOUR
        scored(engine, 0.5 if hours < 30 else 0.01, "a", hours_ago=-hours)
        run_policy(engine, AUTO, now)
        turn(engine, told, now=now)
    with engine.connect() as connection:
        (one,) = read_hints(connection)
        words = [entry["detail"].get("change") for entry in reversed(audit_page(connection, 99, None, one.id))]
    assert one.state == "released"
    assert told.actions() == ["avoid", "avoid", "avoid", "release"]
    assert [word for word in words if word] == ["made", "renewed", "renewed"]
    assert len({delivery.id for delivery in told.got}) == 4


def test_a_released_node_that_falls_ill_again_gets_a_new_hint(engine: sa.Engine) -> None:
    """With an id of its own; the old one keeps its end."""
    known(engine, "a")
    for hours, value in ((0, 0.5), (1, 0.01), (2, 0.5)):
        scored(engine, value, "a", hours_ago=-hours)
        run_policy(engine, AUTO, NOW + hours * HOUR)
    with engine.connect() as connection:
        assert [one.state for one in read_hints(connection)] == ["released", "approved"]


def test_a_turn_without_news_writes_nothing(engine: sa.Engine) -> None:
    """It takes no write lock either: another writer holds it all the while."""
    known(engine, "a")
    scored(engine, 0.5, "a")
    run_policy(engine, AUTO, NOW)
    with writing(engine).begin():
        assert run_policy(engine, AUTO, NOW + timedelta(minutes=1)).changed == ()
