"""The breaker: what trips it, what it blocks, and what a person's reset makes of those that had called."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from schedulers.policy.breaker import HoldCalls, groups, in_force, tripped
from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.settings import Breaker, Budgets, Mode, Policy
from store.hints.stops import Trip
from store.records.hint import Evidence, Hint, RefusedHold

from .cluster import HOUR, NOW, fault, hint, nodes

OPEN = Budgets(1000, 100.0, 1000, 1000, 1000, 1000)
ACT = Policy(mode="act", budgets=OPEN, breaker=Breaker(nodes=4, cluster_nodes=4))


def called(facts: list[NodeFacts], hours_ago: float = 0) -> HoldCalls:
    """Nodes that call since then."""
    return HoldCalls({one.node: one for one in facts}, {one.node: NOW - hours_ago * HOUR for one in facts})


def sick(facts: list[NodeFacts], hours_ago: float = 0.1, code: int = 79) -> list[NodeFacts]:
    """The same nodes, each with a confirmed fault."""
    return [replace(one, fault=replace(fault(one.node, hours_ago), code=code)) for one in facts]


def trip(kind: str, name: str, hours_ago: float = 1, reset: float | None = None, backlog: Any = None) -> Trip:
    """A trip of a while ago, reset `reset` hours ago."""
    ended = None if reset is None else NOW - reset * HOUR
    return Trip(1, NOW - hours_ago * HOUR, kind, name, "breaker: test", 4, ended, ended and "alice", backlog)


def decided(facts: list[NodeFacts], *hints: Hint, policy: Policy = ACT, **more: Any) -> Decision:
    """The decision of noon."""
    return decide(Inputs(NOW, facts, hints, **more), policy)


def actions(decision: Decision) -> dict[str, str]:
    """What is asked, by node."""
    return {made.node: made.action for made, _ in decision.changed}


def test_it_trips_at_its_number_and_not_before() -> None:
    """Three calls of one leaf pass, four do not."""
    facts = nodes(300, leaf="leaf-1")
    assert tripped(Inputs(NOW, facts), called(facts[:3]), ACT) == []
    (found,) = (one for one in tripped(Inputs(NOW, facts[:20]), called(facts[:4]), ACT) if one.group[0] == "leaf")
    assert (found.group, found.count) == (("leaf", "leaf-1"), 4)
    assert "4 nodes of leaf leaf-1" in found.why


@pytest.mark.parametrize(
    ("shared", "group"),
    [
        ({"leaf": "x"}, ("leaf", "x")),
        ({"rack": "x"}, ("rack", "x")),
        ({"nvlink_domain": "x"}, ("nvlink_domain", "x")),
        ({"driver": "550"}, ("driver", "550")),
    ],
)
def test_each_group_that_nodes_may_fail_together_for(shared: dict[str, Any], group: tuple[str, str]) -> None:
    """Of 400 nodes the four that share nothing else trip their group alone, and it is blocked for others' faults."""
    facts = nodes(400)
    facts[:5] = [replace(one, **shared) for one in facts[:5]]
    some = [*sick(facts[:2], code=79), *sick(facts[2:3], code=48), *sick(facts[3:4], code=94), *facts[4:]]
    assert [one.group for one in decided(some).tripped] == [group]
    assert set(actions(decided(some)).values()) == {"avoid"}
    other = [*facts[:4], *sick(facts[4:5], code=74), *sick(facts[5:6]), *facts[6:]]
    assert actions(decided(other, trips=(trip(*group),))) == {"n004": "avoid", "n005": "cordon"}


def test_the_same_fault_and_the_whole_cluster_are_groups_of_all_nodes() -> None:
    """Two percent of 400 are eight: seven Xid 79 pass, eight do not, of two kinds it is the cluster that trips."""
    facts = nodes(400)
    assert decided([*sick(facts[:7]), *facts[7:]]).tripped == ()
    assert {one.group for one in decided([*sick(facts[:8]), *facts[8:]]).tripped} == {
        ("code", "xid 79"),
        ("cluster", "all"),
    }
    mixed = [*sick(facts[:4]), *sick(facts[4:8], code=48), *facts[8:]]
    assert [one.group for one in decided(mixed).tripped] == [("cluster", "all")]


def test_a_small_cluster_s_leaf_does_not_take_the_cluster_with_it() -> None:
    """By default it takes four of a leaf, eight of one fault or of the cluster; `nodes` alone can put all three up."""
    facts = [*sick(nodes(5, leaf="leaf-7")), *nodes(50)[5:]]
    default = replace(ACT, breaker=Breaker())
    assert [one.group for one in decided(facts, policy=default).tripped] == [("leaf", "leaf-7")]
    many = [*sick(nodes(50)[:8]), *nodes(50)[8:]]
    assert {one.group[0] for one in decided(many, policy=default).tripped} == {"code", "cluster"}
    assert decided(many, policy=replace(ACT, breaker=Breaker(nodes=9))).tripped == ()


def test_a_node_that_calls_and_was_cordoned_within_the_window_counts_once() -> None:
    """It is one node."""
    facts = nodes(20, leaf="leaf-1")
    recent = tuple(hint(one.node, hours_ago=0.5) for one in facts[:3])
    assert tripped(Inputs(NOW, facts, recent), called(facts[:3]), ACT) == []
    assert tripped(Inputs(NOW, facts, recent), called(facts[2:4]), ACT) != []


def test_a_hold_counts_under_its_fault_after_the_fault_is_over() -> None:
    """Four nodes of one fault, of which three were repaired within the hour."""
    facts = nodes(100)
    recent = tuple(hint(one.node, state="released", hours_ago=0.5, code="xid 79") for one in facts[:3])
    decision = decided([*facts[:3], *sick(facts[3:4]), *facts[4:]], *recent)
    assert ("code", "xid 79") in {one.group for one in decision.tripped}


def test_the_window_is_its_own() -> None:
    """A cordon of half an hour ago is outside a window of ten minutes."""
    facts = nodes(20, leaf="leaf-1")
    recent = tuple(hint(one.node, hours_ago=0.5) for one in facts[:3])
    short = replace(ACT, breaker=Breaker(nodes=4, window_s=600.0))
    assert tripped(Inputs(NOW, facts, recent), called(facts[3:4]), short) == []


def test_who_waits_for_room_does_not_call_anew_every_turn() -> None:
    """A backlog of hours is no spike; the same nodes with new faults are."""
    facts = sick(nodes(20, leaf="leaf-1"), 5)
    since = NOW - 5 * HOUR
    calls = {one.node: RefusedHold(one.fault.id, since) for one in facts if one.fault is not None}
    waiting = [hint(node, "avoid", "approved", 5, held="budget: full", call=call) for node, call in calls.items()][:4]
    full = replace(ACT, budgets=replace(OPEN, nodes=0))
    assert decided(facts[:4], *waiting, policy=full).tripped == ()
    assert decided(sick(facts[:4], 0.1), *waiting, policy=full).tripped != ()


def test_a_call_that_is_held_back_says_since_when_it_calls() -> None:
    """For the next turns; another ground is another call."""
    (one,) = sick(nodes(1))
    full = replace(ACT, budgets=replace(OPEN, nodes=0))
    ((made, _),) = decided([one], policy=full).changed
    assert made.evidence.call == RefusedHold("i-n000-0.1", NOW)
    assert decide(Inputs(NOW + HOUR, [one], (made,)), full) == Decision()
    (again,) = sick([one], -0.5)
    ((told, word),) = decide(Inputs(NOW + HOUR, [again], (made,)), full).changed
    assert (word, told.evidence.call) == ("held back", RefusedHold("i-n000--0.5", NOW + HOUR))


def test_a_trip_stays_until_a_person_resets_it() -> None:
    """However long ago it was; nothing is told of it twice."""
    facts = sick(nodes(2, leaf="leaf-1"))
    decision = decided(facts, trips=(trip("leaf", "leaf-1", hours_ago=300),))
    assert set(actions(decision).values()) == {"avoid"}
    assert [made.evidence.held for made, _ in decision.changed] == ["breaker: test"] * 2
    assert decision.tripped == ()
    many = sick(nodes(20, leaf="leaf-1"))
    found = decided(many, trips=(trip("leaf", "leaf-1"),)).tripped
    assert ("leaf", "leaf-1") not in {one.group for one in found}


def test_it_never_holds_back_a_release() -> None:
    """Nor touches what is held."""
    facts = nodes(2, leaf="leaf-1")
    standing = [hint(one.node) for one in facts]
    decision = decided([facts[0], *sick(facts[1:])], *standing, trips=(trip("leaf", "leaf-1"),))
    assert [one.node for one in decision.released] == ["n000"]
    assert decision.changed == ()


def test_after_a_reset_the_count_begins_anew() -> None:
    """What called and what was held before it counts no more for the group."""
    facts = nodes(20, leaf="leaf-1")
    recent = tuple(hint(one.node, hours_ago=0.5) for one in facts[:3])
    cluster = trip("cluster", "all", 1, 0.25, "drop")
    past = Inputs(NOW, facts, recent, trips=(trip("leaf", "leaf-1", 1, 0.25, "drop"), cluster))
    assert tripped(past, called(facts[3:6]), ACT) == []
    assert {one.group for one in tripped(past, called(facts[3:7]), ACT)} == {("leaf", "leaf-1"), ("cluster", "all")}
    assert in_force(past.trips, []) == {}


def test_drop_lets_go_of_what_had_called_and_hears_what_is_new() -> None:
    """And keeps what is held."""
    facts = nodes(4, leaf="leaf-1")
    known = [*sick(facts[:2], 0.5), *sick(facts[2:3], 0.1), *sick([replace(facts[3], leaf="leaf-2")], 0.5)]
    gone = (trip("leaf", "leaf-1", 1, 0.25, "drop"),)
    decision = decided(known, hint("n000"), hint("n001", "avoid", "approved", held="x", incident="i"), trips=gone)
    assert actions(decision) == {"n002": "cordon", "n003": "cordon"}
    assert [one.node for one in decision.released] == ["n001"]


def test_what_was_dropped_makes_no_spare() -> None:
    """A node whose fault a person let go of is not fit to take over the work of another (the state machine's find)."""
    idle = [replace(facts, idle=True) for facts in sick(nodes(1, leaf="leaf-1"), 0.5)]
    busy = [replace(facts, node="n001", idle=False) for facts in sick(nodes(1, leaf="leaf-2"), 0.5)]
    policy = replace(ACT, budgets=replace(ACT.budgets, keep_spares=0))
    gone = (trip("leaf", "leaf-1", 1, 0.25, "drop"),)
    assert actions(decided([*idle, *busy], policy=policy, trips=gone)) == {"n001": "cordon"}
    spare = replace(policy, budgets=replace(ACT.budgets, keep_spares=1))
    well = replace(nodes(1)[0], node="n002", idle=True)
    held = decided([*idle, *busy, well], policy=spare, trips=gone)
    assert actions(held) == {"n001": "avoid"}


@pytest.mark.parametrize(("mode", "state"), [("act", "proposed"), ("approve", "proposed"), ("shadow", "shadow")])
def test_review_has_each_wait_for_a_person(mode: Mode, state: str) -> None:
    """What is new does not."""
    facts = nodes(2, leaf="leaf-1")
    known = [*sick(facts[:1], 0.5), *sick(facts[1:], 0.1)]
    asked = (trip("leaf", "leaf-1", 1, 0.25, "review"),)
    first = "shadow" if mode == "shadow" else "approved"
    standing = hint("n000", "avoid", first, held="breaker: test", incident="i")
    decision = decided(known, standing, policy=replace(ACT, mode=mode), trips=asked)
    found = {made.node: (made.action, made.state) for made, _ in decision.changed}
    new = {"act": "approved", "approve": "proposed", "shadow": "shadow"}[mode]
    assert found == {"n000": ("cordon", state), "n001": ("cordon", new)}


def test_what_waits_for_review_stays_so_turn_by_turn() -> None:
    """It is not approved by being renewed or looked at again."""
    facts = sick(nodes(1, leaf="leaf-1"), 0.5)
    asked = (trip("leaf", "leaf-1", 1, 0.25, "review"),)
    ((made, _),) = decided(facts, trips=asked).changed
    for hours in (0, 1, 13, 20):
        decision = decide(Inputs(NOW + hours * HOUR, facts, (made,), trips=asked), ACT)
        made = decision.changed[0][0] if decision.changed else made
        assert made.state == "proposed"


@pytest.mark.parametrize("backlog", ["drop", "review"])
def test_what_was_approved_and_has_not_gone_out_is_backlog_too(backlog: Any) -> None:
    """The scheduler was away when the breaker tripped; what it holds already is none of it."""
    facts = sick(nodes(3, leaf="leaf-1"), 0.5)
    waiting = [hint(one.node, state="approved") for one in facts[:2]]
    asked = (trip("leaf", "leaf-1", 1, 0.25, backlog),)
    decision = decided(facts, *waiting, hint("n002"), trips=asked, still_held=frozenset({"n001"}))
    if backlog == "drop":
        assert ([one.node for one in decision.released], decision.changed) == (["n000"], ())
    else:
        ((made, word),) = decision.changed
        assert (made.node, made.state, word, decision.released) == ("n000", "proposed", "for review", ())
        said_yes = replace(made, state="approved")
        assert decided(facts[:1], said_yes, trips=asked).changed == ()


def test_a_reset_concerns_its_own_group() -> None:
    """A drop of one leaf is none of another; where two groups of a node were reset, drop holds."""
    facts = sick(nodes(1, leaf="leaf-1", driver="550"), 0.5)
    assert actions(decided(facts, trips=(trip("leaf", "leaf-2", 1, 0.25, "drop"),))) == {"n000": "cordon"}
    both = (trip("leaf", "leaf-1", 1, 0.25, "review"), trip("driver", "550", 1, 0.25, "drop"))
    assert actions(decided(facts, trips=both)) == {}


def test_a_node_belongs_to_the_groups_it_names() -> None:
    """And to the cluster; nothing where a place is not known."""
    one = NodeFacts("a", "r", "l", "550", nvlink_domain="d", fault=fault("a"))
    assert groups(one) == [
        ("leaf", "l"),
        ("rack", "r"),
        ("nvlink_domain", "d"),
        ("driver", "550"),
        ("code", "xid 79"),
        ("cluster", "all"),
    ]
    assert groups(NodeFacts("a")) == [("cluster", "all")]
    assert groups(one, "xid 48")[-2] == ("code", "xid 48")


def test_while_stopped_calls_are_counted_and_nothing_is_asked() -> None:
    """Releases and renewals go on; what is only written down, too."""
    facts = sick(nodes(20, leaf="leaf-1"))
    decision = decided(facts, stop="holds")
    assert (decision.changed, len(decision.tripped) > 0) == ((), True)
    well = decided(nodes(1), hint("n000"), stop="holds")
    assert [one.node for one in well.released] == ["n000"]
    due = replace(hint("n000", hours_ago=20), valid_until=NOW + timedelta(hours=4))
    assert [word for _, word in decided(facts[:1], due, stop="all").changed] == ["renewed"]
    assert actions(decided(facts[:1], stop="all", policy=replace(ACT, mode="shadow"))) == {"n000": "cordon"}


def test_a_stop_forbids_raising_and_leaving_the_shadow() -> None:
    """Both ask more than what stands."""
    (one,) = sick(nodes(1))
    for standing in (hint("n000", "avoid"), hint("n000", "cordon", "shadow")):
        assert decided([one], standing, stop="holds").changed == ()
        assert actions(decided([one], standing)) == {"n000": "cordon"}


def test_control_is_neither_counted_nor_held_back() -> None:
    """A node that is left alone costs nothing; one with a confirmed fault is not left alone."""
    alone = [replace(one, score=0.5, control=True) for one in nodes(8, leaf="leaf-1")]
    decision = decided(alone, policy=replace(ACT, budgets=replace(OPEN, nodes=0)))
    assert {(made.state, made.is_control) for made, _ in decision.changed} == {("shadow", True)}
    assert (decision.tripped, [made for made, _ in decision.changed if made.evidence.held is not None]) == ((), [])
    ((made, _),) = decided(sick(alone[:1])).changed
    assert (made.action, made.state, made.is_control) == ("cordon", "approved", False)


def test_a_call_of_tomorrow_counts() -> None:
    """A clock that was set back makes no room."""
    facts = nodes(20, leaf="leaf-1")
    ahead: datetime = NOW + 5 * HOUR
    recent = tuple(replace(hint(one.node), evidence=Evidence(acted=ahead)) for one in facts[:4])
    assert tripped(Inputs(NOW, facts, recent), called([]), ACT) != []
