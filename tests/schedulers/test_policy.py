"""The policy: what is asked of a scheduler, and what is not."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts, acted_within
from schedulers.policy.settings import Breaker, Budgets, Policy, Thresholds
from store.records.hint import Evidence, Hint, StateChange

from .cluster import HOUR, NOW, PAIR, fault, hint, nodes, sick

WIDE = Policy(mode="act", budgets=Budgets(1000, 100.0, 1000, 1000, 1000), breaker=Breaker(nodes=1000))


def decided(facts: list[NodeFacts], hints: list[Hint] | None = None, policy: Policy = WIDE) -> Decision:
    """The decision at noon."""
    return decide(Inputs(NOW, facts, tuple(hints or ())), policy)


def actions(decision: Decision) -> dict[str, str]:
    """What is asked, by node."""
    return {made.node: made.action for made, _ in decision.changed}


@pytest.mark.parametrize(
    ("score", "action"),
    [
        (None, None),
        (0.0, None),
        (0.019, None),
        (0.02, "watch"),
        (0.0687, "watch"),
        (17.6 / 256, "avoid"),
        (1.0, "avoid"),
    ],
)
def test_a_score_asks_for_the_step_that_it_reaches(score: float | None, action: str | None) -> None:
    """A missing score asks for nothing, and none for a hold; without a job that of 1,024 GPUs is taken: 6.9 %."""
    decision = decided([NodeFacts("a", score=score)])
    assert actions(decision) == ({} if action is None else {"a": action})


@pytest.mark.parametrize(
    ("asked", "action"),
    [("reset_gpu", "cordon"), ("reboot_node", "cordon"), ("drain_node", "drain"), ("replace_part", "drain")],
)
def test_a_confirmed_fault_cordons_or_drains_as_the_catalogue_says(asked: str, action: str) -> None:
    """Whatever the score."""
    decision = decided([NodeFacts("a", score=0.0, fault=fault("a", action=asked))])
    assert actions(decision) == {"a": action}


@pytest.mark.parametrize(("mode", "state"), [("shadow", "shadow"), ("approve", "proposed"), ("act", "approved")])
def test_the_mode_decides_the_state(mode: Any, state: str) -> None:
    """shadow never sends, approve asks a person, act acts."""
    ((made, word),) = decided([sick(NodeFacts("a"))], policy=replace(WIDE, mode=mode)).changed
    assert (made.state, word) == (state, "made")


def test_a_hint_says_who_why_and_until_when() -> None:
    """Owner, reason with our prefix, evidence, validity."""
    facts = NodeFacts("a", score=0.5, reasons=("3 row remaps",), fault=fault("a"))
    ((made, _),) = decided([facts]).changed
    assert made.owner == "foreshock"
    assert made.reason == "foreshock: xid 79 on gpu 0000:0f:00.0: GPU has fallen off the bus."
    assert made.evidence.incident == "i-a-0.1"
    assert (made.evidence.score, made.evidence.reasons) == (0.5, ("3 row remaps",))
    assert (made.created, made.valid_until) == (NOW, NOW + 24 * HOUR)
    ((by_score, _),) = decided([replace(facts, fault=None, scored=NOW - HOUR)]).changed
    assert by_score.reason == f"foreshock: risk 50 % within 24 h, as of {NOW - HOUR:%Y-%m-%d %H:%M} UTC: 3 row remaps"
    assert by_score.evidence.scored == NOW - HOUR


def test_a_node_that_is_out_is_left_to_those_who_took_it_out() -> None:
    """No new hint, and no release of the old one."""
    assert decided([NodeFacts("a", score=0.0, out=True)], [hint("a"), hint("b", "avoid")]) == Decision()
    decision = decided([NodeFacts("a", score=0.0, fault=fault("a"), out=True)], [hint("a")])
    assert decision == Decision()


def test_one_open_hint_a_node_is_escalated_in_place() -> None:
    """The same id, the higher action, to be sent anew."""
    decision = decided([sick(NodeFacts("a", score=0.5))], [hint("a", "avoid")])
    ((made, word),) = decision.changed
    assert (made.id, made.action, made.state, word) == ("h-a", "cordon", "approved", "escalated")
    assert made.evidence.acted == NOW


def test_a_hint_that_stands_is_not_made_again() -> None:
    """Nothing new, nothing written."""
    assert decided([sick(NodeFacts("a"))], [hint("a")]) == Decision()
    assert decided([NodeFacts("a", score=0.5)], [hint("a", "avoid")]) == Decision()


def test_a_hint_is_renewed_in_the_second_half_of_its_life() -> None:
    """And sent again, with the new end."""
    ((made, word),) = decided([NodeFacts("a", score=0.5)], [hint("a", "avoid", hours_ago=13)]).changed
    assert (word, made.state, made.valid_until) == ("renewed", "approved", NOW + 24 * HOUR)
    shadow = hint("a", state="shadow", hours_ago=13)
    ((made, _),) = decided([sick(NodeFacts("a"))], [shadow], replace(WIDE, mode="shadow")).changed
    assert made.state == "shadow"


def test_a_hint_is_released_when_the_score_has_fallen_well_below() -> None:
    """Half the threshold that raised it: no flapping around the line. Then the lower step is asked anew."""
    for action, stays, falls in (("avoid", 0.035, 0.034), ("watch", 0.01, 0.009)):
        standing = hint("a", action)
        assert decided([NodeFacts("a", score=stays)], [standing]) == Decision()
        decision = decided([NodeFacts("a", score=falls)], [standing])
        assert (decision.released, decision.changed) == ((standing,), ())
    assert actions(decided([NodeFacts("a", score=0.034)])) == {"a": "watch"}


def test_a_missing_score_releases_nothing() -> None:
    """Vanished telemetry is itself a precursor; the hint lapses by itself."""
    assert decided([NodeFacts("a", score=None)], [hint("a", "avoid")]) == Decision()


def test_a_hold_goes_with_its_fault_whatever_the_score() -> None:
    """A score holds nothing; it may ask for an avoid at the next turn."""
    raised = hint("a", incident="i-1")
    assert decided([sick(NodeFacts("a"))], [raised]).released == ()
    assert decided([NodeFacts("a", witnesses=PAIR)], [raised]).released == ()
    for score in (None, 0.0, 0.5):
        decision = decided([NodeFacts("a", score=score)], [raised])
        assert (decision.released, decision.changed) == ((raised,), ())


def test_of_a_silent_node_nobody_knows_that_it_is_well() -> None:
    """Neither a hold nor a soft hint is released, nor is a hold renewed on the ground of a score."""
    silent = NodeFacts("a", score=0.0, silent=True)
    for action in ("cordon", "avoid", "watch"):
        assert decided([silent], [hint("a", action)]) == Decision()
        assert decided([replace(silent, silent=False)], [hint("a", action)]).released != ()
    assert decided([replace(silent, score=0.5)], [hint("a", hours_ago=13)]) == Decision()


def test_a_hint_of_a_node_that_is_not_known_is_left_alone() -> None:
    """It lapses by itself."""
    assert decided([], [hint("gone")]) == Decision()


def test_a_person_who_said_no_is_not_asked_again() -> None:
    """Until the refused hint would have ended, or something new and worse happens."""
    closed = StateChange("alice", NOW - HOUR)
    refused = hint("a", state="withdrawn", closed=closed)
    assert decided([NodeFacts("a", score=0.5)], [refused]) == Decision()
    assert decided([NodeFacts("a", score=0.5, fault=fault("a", hours_ago=2))], [refused]) == Decision()
    assert decided([NodeFacts("a", fault=fault("a", hours_ago=1))], [refused]) == Decision(), "seen when it was said"
    assert actions(decided([NodeFacts("a", witnesses=PAIR)], [refused])) == {"a": "cordon"}
    before = StateChange("alice", NOW - 0.05 * HOUR)
    assert decided([NodeFacts("a", witnesses=PAIR)], [replace(refused, evidence=Evidence(closed=before))]) == Decision()
    assert actions(decided([NodeFacts("a", fault=fault("a", hours_ago=0.5))], [refused])) == {"a": "cordon"}
    drain = fault("a", hours_ago=2, action="replace_part")
    assert actions(decided([NodeFacts("a", fault=drain)], [refused])) == {"a": "drain"}
    lapsed = replace(refused, valid_until=NOW)
    assert actions(decided([NodeFacts("a", score=0.5)], [lapsed])) == {"a": "avoid"}


def test_who_ends_what_a_limit_had_lowered_says_no_to_what_was_called_for() -> None:
    """A cordon that the budget made an avoid: released, it does not come back as the cordon a second later."""
    node, other = NodeFacts("a", fault=fault("a", hours_ago=2)), fault("a", hours_ago=0.5)
    full = replace(WIDE, budgets=Budgets(1, 100.0, 1000, 1000, 1000))
    ((lowered, _),) = decided([node, sick(NodeFacts("b"))], [hint("b", state="confirmed")], full).changed
    assert (lowered.action, lowered.evidence.held is not None) == ("avoid", True)
    for state in ("released", "withdrawn"):
        closed = StateChange("alice", NOW - HOUR)
        ended = replace(lowered, state=state, evidence=replace(lowered.evidence, closed=closed))
        assert decided([node], [ended]) == Decision(), state
        assert actions(decided([replace(node, fault=other)], [ended])) == {"a": "cordon"}, "a new fault"
    asked = replace(lowered, state="withdrawn", evidence=Evidence(score=0.5, closed=StateChange("alice", NOW - HOUR)))
    assert actions(decided([node], [asked])) == {"a": "cordon"}, "an avoid by score: more is called for"


def test_a_release_of_our_own_does_not_count_as_a_no() -> None:
    """The node may fall ill again."""
    ended = hint("a", state="released", closed=StateChange("policy", NOW - HOUR))
    assert actions(decided([NodeFacts("a", score=0.5)], [ended])) == {"a": "avoid"}


@pytest.mark.parametrize(
    ("budgets", "places", "word"),
    [
        (Budgets(2, 100.0, 99, 99, 99), {}, "2 may be"),
        (Budgets(99, 20.0, 99, 99, 99), {}, "20 % of the nodes"),
        (Budgets(99, 100.0, 2, 99, 99), {"rack": "r"}, "rack r"),
        (Budgets(99, 100.0, 99, 2, 99), {"leaf": "l"}, "leaf l"),
        (Budgets(99, 100.0, 99, 99, 2), {}, "within the hour"),
    ],
)
def test_each_budget_holds_cordons_back(budgets: Budgets, places: dict[str, str], word: str) -> None:
    """Two of ten may be cordoned; the others are to be avoided, and their evidence says why."""
    facts = [sick(f) for f in nodes(10, **places)]
    decision = decided(facts, policy=replace(WIDE, budgets=budgets))
    cordoned = [made for made, _ in decision.changed if made.action == "cordon"]
    held = [(made, said) for made, said in decision.changed if made.action == "avoid"]
    assert (len(cordoned), len(held)) == (2, 8)
    assert all(word in (made.evidence.held or "") and said == "held back" for made, said in held)


def test_a_small_cluster_may_always_hold_one_node() -> None:
    """Two percent of ten nodes is none, and none would be useless."""
    facts = [sick(f) for f in nodes(10)]
    policy = replace(WIDE, budgets=Budgets(99, 2.0, 99, 99, 99))
    assert list(actions(decided(facts, policy=policy)).values()).count("cordon") == 1


def test_confirmed_faults_come_before_two_detectors() -> None:
    """And higher scores before lower ones."""
    two = [NodeFacts(name, score=score, witnesses=PAIR) for name, score in (("a", 0.6), ("b", 0.9))]
    facts = [*two, NodeFacts("c", score=0.0, fault=fault("c")), NodeFacts("d", score=1.0)]
    policy = replace(WIDE, budgets=Budgets(2, 100.0, 9, 9, 9))
    assert actions(decided(facts, policy=policy)) == {"c": "cordon", "b": "cordon", "a": "avoid", "d": "avoid"}


def test_a_cordon_that_was_held_back_is_made_when_there_is_room() -> None:
    """The avoid of before is escalated; while there is none, nothing is written again."""
    policy = replace(WIDE, budgets=Budgets(1, 100.0, 9, 9, 9))
    both = [sick(NodeFacts("a")), sick(NodeFacts("b"))]
    ((waiting, word),) = decided(both, [hint("a")], policy).changed
    assert (waiting.node, waiting.action, word) == ("b", "avoid", "held back")
    assert decided(both, [hint("a"), waiting], policy) == Decision()
    ((made, word),) = decided([NodeFacts("a", out=True), both[1]], [waiting], policy).changed
    assert (made.id, made.action, word) == (waiting.id, "cordon", "escalated")
    assert made.evidence.held is None


def test_an_avoid_that_turns_into_a_held_back_cordon_says_so_once() -> None:
    """The evidence is amended, with its audit row; the hint stays what it is."""
    policy = replace(WIDE, budgets=Budgets(0, 100.0, 9, 9, 9))
    ((made, word),) = decided([sick(NodeFacts("a"))], [hint("a", "avoid")], policy).changed
    assert (made.id, made.action, made.state, word) == ("h-a", "avoid", "sent", "held back")
    assert decided([sick(NodeFacts("a"))], [made], policy) == Decision()


def test_the_breaker_holds_back_a_leaf_that_falls_ill_at_once() -> None:
    """A shared cause is to be looked at first; other leaves are served."""
    sick = [replace(f, fault=fault(f.node)) for f in nodes(5, leaf="leaf-7")]
    alone = NodeFacts("z", leaf="leaf-8", fault=fault("z"))
    decision = decided([*sick, alone, *nodes(50)[10:]], policy=replace(WIDE, breaker=Breaker(nodes=4)))
    asked = actions(decision)
    assert asked.pop("z") == "cordon"
    assert set(asked.values()) == {"avoid"}
    assert all("leaf leaf-7" in (m.evidence.held or "") for m, _ in decision.changed if m.node != "z")


def test_the_breaker_remembers_the_cordons_of_the_window() -> None:
    """Three cordoned within the hour and one more call: tripped; three of yesterday: not."""
    facts = [sick(f) for f in nodes(4, leaf="l")]
    policy = replace(WIDE, breaker=Breaker(nodes=4))
    recent = [hint(f.node, hours_ago=0.5) for f in facts[:3]]
    assert actions(decided(facts, recent, policy)) == {"n003": "avoid"}
    old = [hint(f.node, hours_ago=5) for f in facts[:3]]
    assert actions(decided(facts, old, policy)) == {"n003": "cordon"}


def test_a_driver_that_everybody_has_trips_at_a_share_of_its_nodes() -> None:
    """Four of 400 nodes with one driver are no spike; twenty are."""
    policy = replace(WIDE, breaker=Breaker(nodes=4, percent_of_group=2.0))
    many = nodes(400, driver="550")
    few = [sick(f) if i < 4 else f for i, f in enumerate(many)]
    assert set(actions(decided(few, policy=policy)).values()) == {"cordon"}
    spike = [sick(f) if i < 20 else f for i, f in enumerate(many)]
    assert set(actions(decided(spike, policy=policy)).values()) == {"avoid"}


def test_leaving_the_shadow_asks_anew_under_the_budgets() -> None:
    """A shadow hint holds nothing, so it is charged when it becomes real."""
    facts = [sick(f) for f in nodes(3)]
    shadows = [hint(f.node, state="shadow") for f in facts]
    policy = replace(WIDE, mode="approve", budgets=Budgets(2, 100.0, 9, 9, 9))
    decision = decided(facts, shadows, policy)
    assert sorted(actions(decision).values()) == ["avoid", "cordon", "cordon"]
    assert {made.state for made, _ in decision.changed} == {"proposed"}
    assert {made.id for made, _ in decision.changed} == {"h-n000", "h-n001", "h-n002"}


@given(
    scores=st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=40),
    faults=st.sets(st.integers(0, 39)),
    held=st.sets(st.integers(0, 39), max_size=6),
    mode=st.sampled_from(["shadow", "approve", "act"]),
)
def test_budgets_hold_whatever_comes(scores: list[float | None], faults: set[int], held: set[int], mode: Any) -> None:
    """Never more new cordons than the budgets leave, never two hints for a node; a second turn adds none."""
    facts = [
        NodeFacts(f"n{i:03}", f"r{i % 7}", f"l{i % 3}", "d", score, (), fault(f"n{i:03}") if i in faults else None)
        for i, score in enumerate(scores)
    ]
    standing = [hint(f"n{i:03}", state="shadow" if mode == "shadow" else "sent") for i in held]
    policy = Policy(mode=mode, thresholds=Thresholds(), budgets=Budgets(8, 50.0, 2, 4, 3), breaker=Breaker(nodes=30))
    decision = decided(facts, standing, policy)
    stands = {h.node for h in standing}
    new = [made for made, _ in decision.changed if made.action in ("cordon", "drain") and made.node not in stands]
    assert len(new) <= 3
    assert len(new) + len(standing) <= max(8, len(standing))
    changed = [made.node for made, _ in decision.changed]
    assert len(changed) == len(set(changed))
    assert not {h.node for h in decision.released} & set(changed)
    after = {h.id: h for h in standing} | {made.id: made for made, _ in decision.changed}
    ended = {h.id for h in decision.released}
    again = [h for h in after.values() if h.id not in ended]
    cordons = {h.node for h in again if h.action in ("cordon", "drain")}
    second = decided(facts, again, policy)
    grown = [m for m, _ in second.changed if m.node not in cordons and m.action in ("cordon", "drain")]
    assert not grown or ended, "only a release makes room"


def test_a_cordon_without_its_time_counts_from_when_it_was_made() -> None:
    """A hint of an older release, say."""
    old = replace(hint("a", hours_ago=0.5), evidence=Evidence())
    assert acted_within([old], NOW, 3600) == [old]
    assert acted_within([old], NOW + timedelta(hours=1), 3600) == []
