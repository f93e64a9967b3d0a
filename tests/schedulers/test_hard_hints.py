"""What a hold takes, and what keeps it back: no score, no quorum, quiet hours, opt-out; and that nothing flaps."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import HOLDING, Inputs, JobFacts, NodeFacts, Reporting
from schedulers.policy.settings import Breaker, Budgets, Policy, Thresholds, Validity, version_of
from store.records.hint import Hint, JobOnNode

from .cluster import HOUR, NOW, PAIR, fault, hint, sick

WIDE = Policy(
    mode="act",
    budgets=Budgets(1000, 100.0, 1000, 1000, 1000, 1000),
    breaker=Breaker(nodes=1000, percent_of_group=100.0),
)
BIG = JobFacts("1", "llm", 1250, 10_000)
SMALL = JobFacts("2", "tiny", 1, 8)


def decided(facts: list[NodeFacts], *hints: Hint, policy: Policy = WIDE, **more: Any) -> Decision:
    """The decision at noon."""
    return decide(Inputs(more.pop("now", NOW), facts, hints, **more), policy)


def asked(decision: Decision) -> dict[str, str]:
    """What is asked, by node."""
    return {made.node: made.action for made, _ in decision.changed}


def test_two_detectors_cordon_and_are_named() -> None:
    """With what each said, and when."""
    ((made, _),) = decided([NodeFacts("a", witnesses=PAIR)]).changed
    assert (made.action, made.state) == ("cordon", "approved")
    assert made.reason == "foreshock: two detectors: kernel: nvlink_error and dcgm: row_remap_failure"
    assert [witness.source for witness in made.evidence.witnesses or ()] == ["kernel", "dcgm"]
    assert made.evidence.incident == PAIR[1].incident
    ((worse, _),) = decided([sick(NodeFacts("a", witnesses=PAIR))]).changed
    assert worse.evidence.witnesses is None, "the confirmed fault says enough"


FACTS = st.builds(
    NodeFacts,
    node=st.sampled_from([f"n{i}" for i in range(8)]),
    score=st.none() | st.floats(0, 1),
    fault=st.none() | st.just(fault("n")),
    out=st.booleans(),
    control=st.booleans(),
    job=st.sampled_from([None, BIG, SMALL]),
    witnesses=st.sampled_from([None, PAIR]),
    silent=st.booleans(),
)


@given(
    facts=st.lists(FACTS, max_size=8, unique_by=lambda facts: facts.node),
    before=st.lists(st.sampled_from(["watch", "avoid"]), max_size=8),
    mode=st.sampled_from(["shadow", "approve", "act"]),
    avoid=st.none() | st.floats(0.02, 1),
)
def test_no_hold_without_a_confirmed_fault_or_two_detectors(
    facts: list[NodeFacts], before: list[Any], mode: Any, avoid: float | None
) -> None:
    """Whatever the scores, the jobs and what stands."""
    standing = [hint(f"n{i}", action, "shadow") for i, action in enumerate(before)]
    policy = replace(WIDE, mode=mode, thresholds=Thresholds(avoid=avoid))
    known = {one.node: one for one in facts}
    for made, _ in decided(facts, *standing, policy=policy).changed:
        ground = known[made.node]
        if made.action in HOLDING:
            assert ground.fault is not None or ground.witnesses is not None
            assert not made.is_control


@given(
    score=st.floats(0, 1),
    later=st.lists(st.tuples(st.floats(0, 1), st.sampled_from([None, BIG, SMALL])), max_size=12),
    ratio=st.floats(0, 0.99),
)
def test_what_is_released_is_not_asked_again_on_the_same_ground(
    score: float, later: list[tuple[float, JobFacts | None]], ratio: float
) -> None:
    """Scores move and jobs come and go: after each turn a second one on the same facts changes nothing but a lower
    step that is asked after a release; and a score that stays over the share of its threshold changes nothing.
    """
    policy = replace(WIDE, thresholds=Thresholds(release_ratio=ratio))
    standing: list[Hint] = []
    for moved, job in [(score, None), *later]:
        facts = NodeFacts("a", score=moved, job=job)
        ranks = []
        for _ in range(3):
            decision = decided([facts], *standing, policy=policy)
            ended = {one.id for one in decision.released}
            made = {one.id: one for one, _ in decision.changed}
            assert not ended & set(made)
            kept = {one.id: one for one in standing if one.id not in ended} | made
            standing = list(kept.values())
            ranks.append([one.action for one in standing])
        assert ranks[1] == ranks[2], "the third turn changes nothing"
        last = decided([facts], *standing, policy=policy)
        assert last == Decision()


@given(st.lists(st.floats(0.035, 1.0), min_size=1, max_size=20))
def test_an_avoid_stands_while_the_score_stays_over_half_its_threshold(scores: list[float]) -> None:
    """Up and down around the line: not one change."""
    ((made, _),) = decided([NodeFacts("a", score=0.08)]).changed
    for score in scores:
        assert decided([NodeFacts("a", score=score)], made) == Decision()


def test_a_hint_goes_by_the_threshold_that_raised_it_or_the_lower_one() -> None:
    """A large job ends, then a small one begins: the hint neither falls at once nor flaps."""
    ((made, _),) = decided([NodeFacts("a", score=0.03, job=BIG)]).changed
    assert (made.action, made.evidence.threshold) == ("avoid", 0.02)
    assert made.evidence.job == JobOnNode("1", "llm", 10_000)
    assert decided([NodeFacts("a", score=0.03)], made) == Decision()
    ((other, _),) = decided([NodeFacts("a", score=0.08)]).changed
    assert other.evidence.threshold == pytest.approx(0.06875)
    assert decided([NodeFacts("a", score=0.03, job=BIG)], other) == Decision()


def test_without_a_job_on_it_a_node_goes_by_the_largest_that_runs() -> None:
    """It may be placed there next; without any, by the size that the policy names."""
    idle = [NodeFacts("a", score=0.03)]
    assert asked(decided(idle)) == {"a": "watch"}
    assert asked(decided(idle, largest_job_gpus=10_000)) == {"a": "avoid"}
    assert asked(decided([replace(idle[0], job=SMALL)], largest_job_gpus=10_000)) == {"a": "watch"}


@pytest.mark.parametrize(("heard", "action"), [(49, "avoid"), (50, "cordon"), (100, "cordon"), (0, "avoid")])
def test_without_a_quorum_no_node_is_held_anew(heard: int, action: str) -> None:
    """What is held stays so, what is well again is released, soft hints are made."""
    facts = [sick(NodeFacts("a")), sick(NodeFacts("b")), NodeFacts("c"), NodeFacts("d", score=0.1)]
    decision = decided(facts, hint("b"), hint("c"), reporting=Reporting(100, heard))
    assert asked(decision) == {"a": action, "d": "avoid"}
    assert [one.node for one in decision.released] == ["c"]
    ((held, _), *_) = decision.changed
    if action == "avoid":
        assert held.evidence.held == f"quorum: {heard} of 100 nodes with a sidecar report, 50 % must"


def test_where_no_node_has_a_sidecar_there_is_no_quorum_to_miss() -> None:
    """Logs alone say nothing of who is there; nor does a quorum of nothing hold anything back."""
    assert asked(decided([sick(NodeFacts("a"))], reporting=Reporting(0, 0))) == {"a": "cordon"}
    policy = replace(WIDE, quorum=0.0)
    assert asked(decided([sick(NodeFacts("a"))], reporting=Reporting(100, 0), policy=policy)) == {"a": "cordon"}


def test_in_quiet_hours_a_new_hold_waits_for_a_person() -> None:
    """Soft hints do not; releases go on; when the hours are over the hold is approved."""
    quiet = replace(WIDE, quiet_hours=("11:00-13:00",))
    facts = [sick(NodeFacts("a")), NodeFacts("b", score=0.1), NodeFacts("c")]
    decision = decided(facts, hint("c"), policy=quiet)
    made = {one.node: one for one, _ in decision.changed}
    assert (made["a"].state, made["a"].evidence.quiet) == ("proposed", "11:00-13:00")
    assert made["b"].state == "approved"
    assert [one.node for one in decision.released] == ["c"]
    assert decided(facts[:1], made["a"], policy=quiet) == Decision()
    ((after, word),) = decided(facts[:1], made["a"], policy=quiet, now=NOW + HOUR).changed
    assert (after.id, after.state, word) == (made["a"].id, "approved", "after quiet hours")
    assert after.evidence.quiet is None
    ((proposed, _),) = decided(facts[:1], policy=replace(quiet, mode="approve")).changed
    assert decided(facts[:1], proposed, policy=quiet, now=NOW + HOUR) == Decision(), "a person was asked, not the clock"


def test_of_a_node_that_is_opted_out_nothing_is_asked() -> None:
    """Neither for its score nor for its fault; what stood is released."""
    policy = replace(WIDE, opt_out=("login-*", "x"))
    facts = [sick(NodeFacts("login-1", score=0.9)), NodeFacts("x", score=0.9), NodeFacts("xy", score=0.9)]
    standing = hint("login-1")
    decision = decided(facts, standing, policy=policy)
    assert (asked(decision), decision.released) == ({"xy": "avoid"}, (standing,))


@pytest.mark.parametrize(("action", "lasts_s"), [("watch", 100), ("avoid", 200), ("cordon", 300), ("drain", 400)])
def test_each_action_has_its_own_validity(action: str, lasts_s: float) -> None:
    """And is renewed in the second half of it."""
    policy = replace(WIDE, validity=Validity(100, 200, 300, 400))
    broken = fault("a", action="replace_part" if action == "drain" else "reset_gpu")
    facts = {"watch": NodeFacts("a", score=0.05), "avoid": NodeFacts("a", score=0.5)}.get(
        action, NodeFacts("a", fault=broken)
    )
    ((made, _),) = decided([facts], policy=policy).changed
    assert (made.action, made.valid_until) == (action, NOW + timedelta(seconds=lasts_s))
    half = NOW + timedelta(seconds=lasts_s / 2)
    assert decided([facts], made, policy=policy, now=half) == Decision()
    later = half + timedelta(seconds=1)
    ((again, word),) = decided([facts], made, policy=policy, now=later).changed
    assert (word, again.valid_until) == ("renewed", later + timedelta(seconds=lasts_s))


def test_each_hint_bears_the_version_of_the_policy_that_asked_last() -> None:
    """Made by one, escalated by another."""
    ((made, _),) = decided([NodeFacts("a", score=0.5)]).changed
    assert made.policy == version_of(WIDE)
    other = replace(WIDE, quorum=0.4)
    assert decided([NodeFacts("a", score=0.5)], made, policy=other) == Decision(), "a new policy alone rewrites nothing"
    ((raised, _),) = decided([sick(NodeFacts("a"))], made, policy=other).changed
    assert raised.policy == version_of(other)
