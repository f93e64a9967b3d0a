"""Budgets and the breaker, on their own."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.budget import Budget, groups, tripped
from schedulers.facts import Inputs, NodeFacts
from schedulers.policy import Decision, decide
from schedulers.settings import Breaker, Budgets, Mode, Policy
from store.hint import OPEN_STATES, Hint

from .cluster import NOW, fault, hint, nodes

OPEN = Budgets(1000, 100.0, 1000, 1000, 1000)
AUTO = Policy(mode="act", budgets=OPEN, breaker=Breaker(nodes=1000))
HOLDS = ("cordon", "drain")


def budget(facts: list[NodeFacts], hints: list[Hint], **limits: Any) -> Budget:
    """A budget of which only the named limits are narrow."""
    return Budget(Inputs(NOW, facts, tuple(hints)), replace(AUTO, budgets=replace(OPEN, **limits)))


@pytest.mark.parametrize(
    ("known", "percent", "allowed"),
    [(10, 2.0, 1), (49, 2.0, 1), (99, 2.0, 1), (100, 2.0, 2), (149, 2.0, 2), (1000, 2.0, 20), (7, 0.0, 1)],
)
def test_a_share_is_rounded_down_but_never_to_nothing(known: int, percent: float, allowed: int) -> None:
    """Of the nodes known; a share of zero still leaves one."""
    facts = nodes(known)
    left = budget(facts, [], percent_of_nodes=percent)
    granted = 0
    for one in facts:
        if left.refuse(one) is None:
            left.charge(one)
            granted += 1
    assert granted == allowed


def test_a_zero_budget_holds_everything_back() -> None:
    """The operator's way to say: never."""
    (one,) = nodes(1)
    assert "0 may be" in str(budget([one], [], nodes=0).refuse(one))
    assert "0 may be" in str(budget([one], [], per_hour=0).refuse(one))
    assert "0 may be" in str(budget([one], [], per_rack=0).refuse(one))


def test_a_node_without_a_place_has_no_rack_or_leaf_to_exhaust() -> None:
    """Unknown is not one big rack."""
    facts = nodes(5, rack=None, leaf=None)
    left = budget(facts, [hint(one.node) for one in facts[:3]], per_rack=1, per_leaf=1)
    assert left.refuse(facts[4]) is None


def test_a_full_rack_leaves_the_next_one_open() -> None:
    """By the node's own place."""
    full, other = nodes(3, rack="r1"), replace(nodes(1)[0], node="z", rack="r2")
    left = budget([*full, other], [hint(full[0].node), hint(full[1].node)], per_rack=2)
    assert "rack r1 has 2 nodes held, 2 may be" in str(left.refuse(full[2]))
    assert left.refuse(other) is None


def test_holding_hints_count_whatever_their_state_and_lighter_ones_do_not() -> None:
    """A proposed cordon is a promise; a watch keeps nobody off."""
    facts = nodes(10)
    standing = [hint("n000", state="proposed"), hint("n001", "drain", state="approved"), hint("n002")]
    light = [hint("n003", "watch"), hint("n004", "avoid"), hint("n005", state="expired", hours_ago=30)]
    assert budget(facts, [*standing, *light], nodes=4).refuse(facts[9]) is None
    assert "3 nodes are held already, 3 may be" in str(budget(facts, [*standing, *light], nodes=3).refuse(facts[9]))


def test_a_held_node_that_is_no_longer_known_still_costs() -> None:
    """It is out there, cordoned; only its rack is unknown."""
    left = budget(nodes(3), [hint("gone")], nodes=1)
    assert "1 nodes are held already" in str(left.refuse(nodes(3)[0]))


def test_the_hour_counts_what_was_withdrawn_too() -> None:
    """Undoing a cordon does not buy another one at once."""
    facts = nodes(5)
    taken_back = [hint("n000", state="withdrawn", hours_ago=0.5), hint("n001", state="released", hours_ago=0.9)]
    assert "2 cordons within the hour" in str(budget(facts, taken_back, per_hour=2).refuse(facts[4]))
    older = [replace(one, evidence={}, created=NOW.replace(hour=9)) for one in taken_back]
    assert budget(facts, older, per_hour=2).refuse(facts[4]) is None


@pytest.mark.parametrize(("mode", "counts"), [("shadow", True), ("approve", False), ("act", False)])
def test_shadows_cost_only_among_shadows(mode: Mode, counts: bool) -> None:
    """A rehearsal is as strict as the real thing, and does not eat from it."""
    facts = nodes(3)
    policy = replace(AUTO, mode=mode, budgets=replace(OPEN, nodes=1))
    left = Budget(Inputs(NOW, facts, (hint("n000", state="shadow"),)), policy)
    assert (left.refuse(facts[2]) is not None) is counts


def test_the_breaker_trips_at_its_number_and_not_before() -> None:
    """Three calls of one leaf pass, four do not."""
    facts = nodes(20, leaf="leaf-1", driver=None)
    policy = replace(AUTO, breaker=Breaker(nodes=4))
    inputs = Inputs(NOW, facts)
    assert tripped(inputs, facts[:3], policy) == {}
    assert list(tripped(inputs, facts[:4], policy)) == [("leaf", "leaf-1")]


def test_a_node_that_calls_and_was_cordoned_within_the_window_counts_once() -> None:
    """It is one node."""
    facts = nodes(20, leaf="leaf-1")
    policy = replace(AUTO, breaker=Breaker(nodes=4))
    recent = tuple(hint(one.node, hours_ago=0.5) for one in facts[:3])
    assert tripped(Inputs(NOW, facts, recent), facts[:3], policy) == {}
    assert tripped(Inputs(NOW, facts, recent), facts[2:4], policy) != {}


def test_the_breaker_s_window_is_its_own() -> None:
    """A cordon of half an hour ago is outside a window of ten minutes."""
    facts = nodes(20, leaf="leaf-1")
    recent = tuple(hint(one.node, hours_ago=0.5) for one in facts[:3])
    short = replace(AUTO, breaker=Breaker(nodes=4, window_s=600.0))
    assert tripped(Inputs(NOW, facts, recent), facts[3:4], short) == {}


def test_a_node_belongs_to_the_groups_it_names() -> None:
    """Leaf and driver; nothing where neither is known."""
    assert groups(NodeFacts("a", "r", "l", "550")) == [("leaf", "l"), ("driver", "550")]
    assert groups(NodeFacts("a", "r")) == []


FACTS = st.lists(
    st.tuples(
        st.sampled_from(["r0", "r1", None]),
        st.sampled_from(["l0", "l1", None]),
        st.none() | st.floats(0, 1),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)
STANDING = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["watch", "avoid", "cordon", "drain"]),
        st.sampled_from([*OPEN_STATES, "withdrawn", "released", "expired"]),
        st.floats(0, 30),
    ),
    max_size=12,
    unique_by=lambda one: one[0],
)
LIMITS = st.builds(
    Budgets, st.integers(0, 6), st.floats(0, 100), st.integers(0, 3), st.integers(0, 4), st.integers(0, 5)
)


def drawn(facts: list[Any], standing: list[Any]) -> Inputs:
    """The inputs of what hypothesis drew."""
    known = [
        NodeFacts(f"n{i:03}", rack, leaf, None, score, (), fault(f"n{i:03}") if sick else None, out)
        for i, (rack, leaf, score, sick, out) in enumerate(facts)
    ]
    hints = [hint(f"n{i:03}", action, state, hours) for i, action, state, hours in standing]
    return Inputs(NOW, known, tuple(hints))


def after(inputs: Inputs, decision: Decision) -> list[Hint]:
    """The hints that stand once a decision is carried out."""
    ended = {one.id for one in decision.released}
    found = {one.id: one for one in inputs.hints} | {one.id: one for one, _ in decision.changed}
    return [one for one in found.values() if one.id not in ended and one.state in OPEN_STATES]


@settings(max_examples=150)
@given(FACTS, STANDING, LIMITS, st.sampled_from(["shadow", "approve", "act"]))
def test_no_limit_is_ever_passed(facts: Any, standing: Any, limits: Budgets, mode: Mode) -> None:
    """Absolute, share, rack, leaf, hour: a decision only ever adds up to each, whatever stood before."""
    inputs = drawn(facts, standing)
    decision = decide(inputs, Policy(mode=mode, budgets=limits, breaker=Breaker(nodes=1000)))
    counted = [h for h in inputs.hints if h.state in OPEN_STATES and (h.state != "shadow" or mode == "shadow")]
    held = {h.node for h in counted if h.action in HOLDS}
    new = [h.node for h, _ in decision.changed if h.action in HOLDS and h.node not in held]
    share = max(1, int(len(inputs.nodes) * limits.percent_of_nodes / 100))
    if new:
        assert len(held) + len(new) <= min(limits.nodes, share)
        recent = [h for h in inputs.hints if h.action in HOLDS and (NOW - h.created).total_seconds() <= 3600]
        assert len(recent) + len(new) <= limits.per_hour
    place = {one.node: one for one in inputs.nodes}
    for limit, of in ((limits.per_rack, "rack"), (limits.per_leaf, "leaf")):
        for group in {getattr(place[node], of) for node in new} - {None}:
            inside = [node for node in {*held, *new} if node in place and getattr(place[node], of) == group]
            assert len(inside) <= limit


@settings(max_examples=100)
@given(FACTS, STANDING, LIMITS, st.sampled_from(["shadow", "approve", "act"]))
def test_a_node_never_has_two_open_hints(facts: Any, standing: Any, limits: Budgets, mode: Mode) -> None:
    """Nor one that is made and released at once, nor any while somebody else has it out of service."""
    inputs = drawn(facts, standing)
    decision = decide(inputs, Policy(mode=mode, budgets=limits))
    open_nodes = [one.node for one in after(inputs, decision)]
    assert len(open_nodes) == len(set(open_nodes))
    changed, released = {h.node for h, _ in decision.changed}, {h.node for h in decision.released}
    assert not changed & released
    assert not changed & {one.node for one in inputs.nodes if one.out}


@settings(max_examples=100)
@given(FACTS, STANDING, LIMITS, st.sampled_from(["shadow", "approve", "act"]))
def test_the_same_facts_a_second_time_change_nothing_more(
    facts: Any, standing: Any, limits: Budgets, mode: Mode
) -> None:
    """No flapping: what a decision made, the next one leaves alone, unless a release has made room."""
    inputs = drawn(facts, standing)
    policy = Policy(mode=mode, budgets=limits, breaker=Breaker(nodes=1000))
    decision = decide(inputs, policy)
    ended = [h for h in inputs.hints if h.state not in OPEN_STATES]
    second = decide(replace(inputs, hints=(*after(inputs, decision), *ended)), policy)
    assert second.released == ()
    raised = [h for h, _ in second.changed if h.action in HOLDS]
    assert not raised or decision.released


@settings(max_examples=60)
@given(FACTS, STANDING)
def test_the_order_of_the_nodes_does_not_matter(facts: Any, standing: Any) -> None:
    """Pure, and fair: only fault, score and name decide who comes first."""
    inputs = drawn(facts, standing)
    policy = Policy(mode="act", budgets=Budgets(3, 50.0, 1, 2, 2))
    turned = replace(inputs, nodes=list(reversed(inputs.nodes)))
    one, two = decide(inputs, policy), decide(turned, policy)
    assert {h.node: h for h, _ in one.changed} == {h.node: h for h, _ in two.changed}
    assert {h.id for h in one.released} == {h.id for h in two.released}


def test_of_equals_the_first_by_name_is_served() -> None:
    """Whatever the order in which they were read: the same facts give the same hints."""
    sick = [replace(one, fault=fault(one.node)) for one in nodes(5)]
    policy = replace(AUTO, budgets=replace(OPEN, nodes=1))
    for order in (sick, sick[::-1], sick[2:] + sick[:2]):
        decision = decide(Inputs(NOW, order), policy)
        assert [made.node for made, _ in decision.changed if made.action == "cordon"] == ["n000"]
