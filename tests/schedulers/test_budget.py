"""Budgets, on their own and in decisions; `test_state_machine.py` has them over time."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedulers.policy.budget import HoldBudget
from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.settings import Breaker, Budgets, Mode, Policy
from store.records.hint import OPEN_STATES, Evidence, Hint

from .cluster import NOW, fault, hint, nodes

OPEN = Budgets(1000, 100.0, 1000, 1000, 1000, 1000)
AUTO = Policy(mode="act", budgets=OPEN, breaker=Breaker(nodes=1000))
HOLDS = ("cordon", "drain")


def budget(facts: list[NodeFacts], hints: list[Hint], **limits: Any) -> HoldBudget:
    """A budget of which only the named limits are narrow."""
    return HoldBudget(Inputs(NOW, facts, tuple(hints)), replace(AUTO, budgets=replace(OPEN, **limits)))


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
    assert "1 node is held already" in str(left.refuse(nodes(3)[0]))


def test_the_hour_counts_what_was_withdrawn_too() -> None:
    """Undoing a cordon does not buy another one at once."""
    facts = nodes(5)
    taken_back = [hint("n000", state="withdrawn", hours_ago=0.5), hint("n001", state="released", hours_ago=0.9)]
    assert "2 cordons within the hour" in str(budget(facts, taken_back, per_hour=2).refuse(facts[4]))
    older = [replace(one, evidence=Evidence(), created=NOW.replace(hour=9)) for one in taken_back]
    assert budget(facts, older, per_hour=2).refuse(facts[4]) is None


@pytest.mark.parametrize(("mode", "counts"), [("shadow", True), ("approve", False), ("act", False)])
def test_shadows_cost_only_among_shadows(mode: Mode, counts: bool) -> None:
    """A rehearsal is as strict as the real thing, and does not eat from it."""
    facts = nodes(3)
    policy = replace(AUTO, mode=mode, budgets=replace(OPEN, nodes=1))
    left = HoldBudget(Inputs(NOW, facts, (hint("n000", state="shadow"),)), policy)
    assert (left.refuse(facts[2]) is not None) is counts


def test_a_node_that_a_scheduler_has_not_let_go_of_costs_on() -> None:
    """Its hint has ended, the release is on its way: it is out of service all the same, and counts once."""
    facts = nodes(4, rack="r1")
    inputs = Inputs(NOW, facts, (hint("n000"),), still_held=frozenset({"n000", "n001"}))
    left = HoldBudget(inputs, replace(AUTO, budgets=replace(OPEN, nodes=2)))
    assert "2 nodes are held already, 2 may be" in str(left.refuse(facts[3]))
    assert HoldBudget(inputs, replace(AUTO, budgets=replace(OPEN, nodes=3))).refuse(facts[3]) is None
    assert "rack r1 has 2" in str(HoldBudget(inputs, replace(AUTO, budgets=replace(OPEN, per_rack=2))).refuse(facts[3]))


def test_a_full_nvlink_domain_is_closed_and_an_unknown_one_is_none() -> None:
    """Nodes of one NVL72 are not taken one after the other."""
    facts = nodes(4, nvlink_domain="d1")
    left = budget(facts, [hint("n000"), hint("n001")], per_nvlink_domain=2)
    assert "nvlink domain d1 has 2 nodes held, 2 may be" in str(left.refuse(facts[3]))
    assert left.refuse(replace(facts[3], nvlink_domain=None)) is None


def idle(*states: bool | None, **more: Any) -> list[NodeFacts]:
    """Nodes of which a job is known to run, or not, or nothing."""
    return [replace(one, idle=state, **more) for one, state in zip(nodes(len(states)), states, strict=True)]


def test_enough_idle_nodes_must_be_left_after_a_hold() -> None:
    """Two of three may be asked for where one is to stay; each is charged."""
    facts = idle(True, True, True, False)
    left = budget(facts, [], keep_spares=1)
    for one in facts[:2]:
        assert left.refuse(one) is None
        left.charge(one)
    assert "1 node is known to be idle, 1 must stay so" in str(left.refuse(facts[2]))
    assert left.refuse(replace(facts[2], fault=fault("n002"))) is None  # it is no spare anyway


def test_a_busy_node_takes_a_spare_for_its_job() -> None:
    """When it is held, and as long as the job has not moved."""
    facts = idle(False, False, True, True)
    assert budget(facts, [], keep_spares=1).refuse(facts[0]) is None
    assert "must stay so" in str(budget(facts, [], keep_spares=2).refuse(facts[0]))
    assert "1 node is known to be idle" in str(budget(facts, [hint("n001")], keep_spares=1).refuse(facts[0]))


@pytest.mark.parametrize(
    "unfit", [{"idle": None}, {"out": True}, {"fault": fault("n001")}, {"idle": False}, {"let_go": True}]
)
def test_what_is_not_known_to_be_idle_and_well_is_no_spare(unfit: dict[str, Any]) -> None:
    """Missing data counts for nothing."""
    facts = idle(True, True)
    assert budget(facts, [], keep_spares=1).refuse(facts[0]) is None
    facts[1] = replace(facts[1], **unfit)
    assert "must stay so" in str(budget(facts, [], keep_spares=1).refuse(facts[0]))


def test_a_spare_that_is_held_is_none() -> None:
    """It does not count twice either."""
    facts = idle(True, True, True)
    assert "must stay so" in str(budget(facts, [hint("n001")], keep_spares=2).refuse(facts[0]))
    assert budget(facts, [hint("n001")], keep_spares=1).refuse(facts[0]) is None


def test_where_no_job_is_known_spares_cannot_be_judged() -> None:
    """With spares to keep nothing is held; without, nobody asks."""
    facts = nodes(3)
    assert "of none is known whether a job runs" in str(budget(facts, [], keep_spares=1).refuse(facts[0]))
    assert budget(facts, [], keep_spares=0).refuse(facts[0]) is None


def test_a_hold_that_becomes_a_drain_costs_nothing_new() -> None:
    """Neither now nor within the hour: it is the same node."""
    sick = [replace(one, fault=fault(one.node, action="drain_node")) for one in nodes(2)]
    standing = hint("n000", "cordon", hours_ago=2)
    policy = replace(AUTO, budgets=replace(OPEN, nodes=1, per_hour=1))
    decision = decide(Inputs(NOW, sick[:1], (standing,)), policy)
    ((raised, word),) = decision.changed
    assert (raised.action, word, raised.evidence.acted) == ("drain", "escalated", standing.evidence.acted)
    later = decide(Inputs(NOW, sick, (raised,)), replace(policy, budgets=replace(OPEN, per_hour=1)))
    assert [(made.node, made.action) for made, _ in later.changed] == [("n001", "drain")]


def test_shadows_of_the_hour_cost_only_among_shadows() -> None:
    """After weeks of shadow the first hour of `act` is not used up."""
    facts = nodes(3)
    past = Inputs(NOW, facts, (hint("n000", state="shadow", hours_ago=0.1),))
    policy = replace(AUTO, budgets=replace(OPEN, per_hour=1))
    assert HoldBudget(past, policy).refuse(facts[2]) is None
    assert HoldBudget(past, replace(policy, mode="shadow")).refuse(facts[2]) is not None


FACTS = st.lists(
    st.tuples(
        st.sampled_from(["r0", "r1", None]),
        st.sampled_from(["l0", "l1", None]),
        st.none() | st.floats(0, 1),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["d0", "d1", None]),
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
    Budgets,
    st.integers(0, 6),
    st.floats(0, 100),
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 5),
    st.integers(0, 3),
)


def drawn(facts: list[Any], standing: list[Any]) -> Inputs:
    """The inputs of what hypothesis drew."""
    known = [
        NodeFacts(
            f"n{i:03}",
            rack,
            leaf,
            None,
            score,
            (),
            fault(f"n{i:03}") if sick else None,
            out,
            nvlink_domain=domain,
            is_shown_out=out,
        )
        for i, (rack, leaf, score, sick, out, domain) in enumerate(facts)
    ]
    hints = [hint(f"n{i:03}", action, state, hours) for i, action, state, hours in standing]
    return Inputs(NOW, known, tuple(hints))


def after(inputs: Inputs, decision: Decision) -> list[Hint]:
    """The hints that stand once a decision is carried out."""
    ended = {one.id for one in decision.released}
    found = {one.id: one for one in inputs.hints} | {one.id: one for one, _ in decision.changed}
    return [one for one in found.values() if one.id not in ended and one.state in OPEN_STATES]


# Three plain nodes and a sick one, and a shadow hint of this hour on the first.
PLAIN = ("r0", "l0", None, False, False, "d0")
SICK = ("r0", "l0", None, True, False, "d0")


@example([PLAIN, PLAIN, PLAIN, SICK], [(0, "cordon", "shadow", 0.0)], Budgets(1, 0.0, 1, 1, 1, 1), "approve")
@settings(max_examples=150)
@given(FACTS, STANDING, LIMITS, st.sampled_from(["shadow", "approve", "act"]))
def test_no_limit_is_ever_passed(facts: Any, standing: Any, limits: Budgets, mode: Mode) -> None:
    """Absolute, share, rack, leaf, hour: a decision only ever adds up to each, whatever stood before."""
    inputs = drawn(facts, standing)
    decision = decide(inputs, Policy(mode=mode, budgets=limits, breaker=Breaker(nodes=1000)))
    # A shadow hint holds nothing: it counts, now and within the hour, only where all hints are shadows.
    counted = [h for h in inputs.hints if h.action in HOLDS and (h.state != "shadow" or mode == "shadow")]
    held = {h.node for h in counted if h.state in OPEN_STATES}
    new = [h.node for h, _ in decision.changed if h.action in HOLDS and h.node not in held]
    share = max(1, int(len(inputs.nodes) * limits.percent_of_nodes / 100))
    if new:
        assert len(held) + len(new) <= min(limits.nodes, share)
        recent = [h for h in counted if (NOW - h.created).total_seconds() <= 3600]
        assert len(recent) + len(new) <= limits.per_hour
    place = {one.node: one for one in inputs.nodes}
    places = ((limits.per_rack, "rack"), (limits.per_leaf, "leaf"), (limits.per_nvlink_domain, "nvlink_domain"))
    for limit, of in places:
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
    policy = Policy(mode="act", budgets=Budgets(3, 50.0, 1, 2, 2), breaker=Breaker(nodes=6))
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
