"""The control group: what a score alone asks of its nodes is written down and not asked, in every mode."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.settings import Breaker, Budgets, Control, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.control_group import ControlGroup, control_key
from store.hints.hint_log import audit_page, read_hints
from store.models.scores import save_scores
from store.records.hint import Hint
from store.records.node import Node
from store.records.score import Score

from .cluster import HOUR, NOW, fault, hint, sick

WIDE = Policy(mode="act", budgets=Budgets(1000, 100.0, 1000, 1000, 1000), breaker=Breaker(nodes=1000))
LEFT = NodeFacts("a", score=0.5, control=True)


def decided(facts: NodeFacts, *hints: Hint, policy: Policy = WIDE, more: Any = ()) -> Decision:
    """The decision at noon."""
    return decide(Inputs(NOW, [facts, *more], hints), policy)


@pytest.mark.parametrize("mode", ["shadow", "approve", "act"])
def test_what_a_score_asks_of_a_control_node_is_a_shadow_in_every_mode(mode: Any) -> None:
    """With the action that would have been asked for, marked."""
    ((made, word),) = decided(LEFT, policy=replace(WIDE, mode=mode)).changed
    assert (made.action, made.state, made.is_control, word) == ("avoid", "shadow", True, "made")
    ((other, _),) = decided(replace(LEFT, control=False), policy=replace(WIDE, mode=mode)).changed
    assert not other.is_control


def test_a_confirmed_fault_is_never_left_alone() -> None:
    """Alone, and after the score had been left alone: it comes out of the shadow."""
    broken = replace(LEFT, fault=fault("a"))
    ((made, _),) = decided(broken).changed
    assert (made.action, made.state, made.is_control) == ("cordon", "approved", False)
    ((raised, word),) = decided(broken, hint("a", state="shadow", control=True)).changed
    assert (raised.id, raised.state, raised.is_control, word) == ("h-a", "approved", False, "out of the shadow")


def test_a_control_hint_stays_where_it_is_while_its_ground_lasts() -> None:
    """Not pulled out of the shadow, raised within it, renewed and released like others."""
    standing = hint("a", "avoid", state="shadow", control=True)
    assert decided(LEFT, standing) == Decision()
    ((raised, word),) = decided(LEFT, replace(standing, action="watch")).changed
    assert (raised.action, raised.state, raised.is_control, word) == ("avoid", "shadow", True, "escalated")
    ((renewed, word),) = decided(LEFT, hint("a", "avoid", state="shadow", hours_ago=13, control=True)).changed
    assert (renewed.state, renewed.is_control, word) == ("shadow", True, "renewed")
    assert decided(replace(LEFT, score=0.01), standing).released == (standing,)


def test_what_was_asked_before_a_node_was_drawn_runs_its_course() -> None:
    """What a scheduler took is not undone; a shadow of before is marked."""
    assert decided(LEFT, hint("a", "avoid")) == Decision()
    ((marked, word),) = decided(LEFT, hint("a", "avoid", state="shadow")).changed
    assert (marked.state, marked.is_control, word) == ("shadow", True, "left alone")
    ((asked, word),) = decided(replace(LEFT, control=False), hint("a", "avoid", state="shadow", control=True)).changed
    assert (asked.state, asked.is_control, word) == ("approved", False, "out of the shadow")


@pytest.mark.parametrize("mode", ["shadow", "act"])
def test_control_hints_cost_no_budget_and_trip_no_breaker(mode: Any) -> None:
    """Another node of the same leaf gets the one cordon that there is."""
    tight = replace(WIDE, mode=mode, budgets=Budgets(1, 100.0, 1, 1, 1), breaker=Breaker(nodes=2))
    other = sick(NodeFacts("b", leaf="l"))
    decision = decided(replace(LEFT, leaf="l"), policy=tight, more=[other])
    assert {made.node: made.action for made, _ in decision.changed} == {"a": "avoid", "b": "cordon"}
    standing = hint("a", "avoid", state="shadow", hours_ago=0.1, control=True)
    decision = decided(replace(LEFT, leaf="l"), standing, policy=tight, more=[other])
    assert {made.node: made.action for made, _ in decision.changed} == {"b": "cordon"}


def test_the_policy_leaves_alone_whom_the_database_s_key_draws(any_engine: sa.Engine) -> None:
    """A share of the flagged nodes; the audit says which; nobody where the share is nothing."""
    names = [f"n{i:03}" for i in range(200)]
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(name) for name in names])
        save_scores(connection, [Score(name, NOW, 24, 0.5, (), "m") for name in names])
    policy = replace(WIDE, control=Control(percent=20.0))
    run_policy(any_engine, policy, NOW)
    group = ControlGroup(control_key(any_engine), 0.2, timedelta(days=28))
    drawn = {name for name in names if group.holds(name, NOW)}
    with any_engine.connect() as connection:
        hints = read_hints(connection)
        audit = audit_page(connection, 999, None, None)
    assert {one.node for one in hints if one.is_control} == drawn
    assert {one.node: one.state for one in hints} == {n: "shadow" if n in drawn else "approved" for n in names}
    assert {entry["detail"]["node"] for entry in audit if entry["detail"].get("control")} == drawn
    assert 10 < len(drawn) < 80
    run_policy(any_engine, replace(policy, control=Control(percent=0.0)), NOW + HOUR)
    with any_engine.connect() as connection:
        assert {one.state for one in read_hints(connection)} == {"approved"}
