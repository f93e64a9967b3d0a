"""When a held node may take work again: pure decisions."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from schedulers.lifecycle.release import PUT_OFF, ReleaseInputs, ReleasePlan, is_held, next_step, plan
from schedulers.policy.facts import NodeFacts
from schedulers.policy.settings import Policy, Release
from store.hints.validations import Validation
from store.records.hint import Hint, HintWitness, ReleaseWait, RepairCase

from .cluster import HOUR, NOW, fault, hint

TESTED = Release(validate=("check", "{node}"), retry_s=3600.0, most_tries=3)
POLICY = Policy(mode="act", release=TESTED)


def said(
    hours_ago: float, passed: bool | None, exit_code: int | None = 1, ended: bool = True, output: str = ""
) -> Validation:
    """A test of a node that ended at once."""
    moment = NOW - hours_ago * HOUR
    return Validation(1, "h-a", "a", "check a", moment, moment if ended else None, passed, exit_code, output)


def step(*tests: Validation, last_fault: float | None = None, release: Release = TESTED, **evidence: Any) -> str:
    """What is to be done about a node that was held 20 hours ago."""
    broke = None if last_fault is None else NOW - last_fault * HOUR
    return next_step(hint("a", hours_ago=20, **evidence), tests, broke, release, NOW)


def test_without_a_test_the_healthy_time_is_enough() -> None:
    """As it was before there were tests."""
    assert step(release=Release()) == "release"


def test_with_a_test_nothing_is_released_before_it_was_passed() -> None:
    """It is begun, waited for, and then believed."""
    assert step() == "test"
    assert step(said(1, None, ended=False)) == "wait"
    assert step(said(1, True, 0)) == "release"


def test_a_failed_test_is_tried_again_later_and_not_for_ever() -> None:
    """After `retry_s`; after `most_tries` a person is asked."""
    assert step(said(0.5, False)) == "wait"
    assert step(said(1, False)) == "test"
    assert step(said(5, False), said(3, False)) == "test"
    assert step(said(5, False), said(3, False), said(1, False)) == "repair"
    assert step(*[said(5, False)] * 3, said(1, True)) == "release"


def test_the_newest_result_counts() -> None:
    """Another test system may say no after ours said yes; failures before a pass are no tries any more."""
    assert step(said(3, True), said(0.5, False)) == "wait"
    assert step(said(5, False), said(4, False), said(3, True), said(2, False)) == "test"


@pytest.mark.parametrize(("last_fault", "done"), [(None, "release"), (3, "release"), (1, "test")])
def test_a_test_from_before_the_last_fault_says_nothing(last_fault: float | None, done: str) -> None:
    """The node has failed since."""
    assert step(said(2, True, 0), last_fault=last_fault) == done


def test_a_test_from_before_the_hint_says_nothing() -> None:
    """It may have been another hold's; one that began with it counts."""
    assert step(said(21, True, 0)) == "test"
    assert step(said(20, True, 0)) == "release"


def test_a_test_that_said_nothing_of_the_node_is_no_try() -> None:
    """Cut off with its server: at once again. Put off, or not to be started: a while later."""
    assert step(*[said(0.001, None, None)] * 5) == "test"
    assert step(*[said(0.05, None, PUT_OFF)] * 5) == "wait"
    assert step(*[said(0.1, None, PUT_OFF)] * 5) == "test"
    assert step(said(0.05, None, 127)) == "wait"


def test_what_failed_another_s_test_is_not_released_for_want_of_one_of_ours() -> None:
    """Nor is a case for repair, should the setting be taken away."""
    assert step(said(2, False), release=Release()) == "repair"
    assert step(release=Release(), repair={"since": "x"}) == "repair"
    assert step(said(1, True), release=Release(), repair={"since": "x"}) == "release"


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (hint("a", state="confirmed"), True),
        (hint("a", "drain", state="sent"), True),
        (hint("a", state="approved"), False),
        (hint("a", state="shadow"), False),
        (hint("a", state="proposed"), False),
        (hint("a", "avoid", state="sent"), False),
        (hint("a", state="sent", control=True), False),
        (replace(hint("a", state="sent"), job="7"), False),
    ],
)
def test_only_what_a_scheduler_took_holds_a_node(made: Hint, held: bool) -> None:
    """No test is run for a shadow, or for what nobody has acted on."""
    assert is_held(made, frozenset()) is held
    assert is_held(hint("a", state="approved"), {"h-a"})


def planned(one: Hint, *tests: Validation, well: bool = True, lapsed: bool = False, **facts: Any) -> ReleasePlan:
    """The plan for one hint."""
    known = {"a": NodeFacts("a", **facts)}
    given = ReleaseInputs(NOW, known, [one], [one] * well, [one] * lapsed, {one.id}, {one.id: tests})
    return plan(given, POLICY)


def test_a_held_node_that_is_well_waits_for_its_test() -> None:
    """Its hint says so, once; and is released when that was passed."""
    one = hint("a", state="confirmed")
    ((kept, word),) = planned(one).kept
    assert word == "waits for its test"
    assert kept.evidence.release == ReleaseWait(NOW, "for its test")
    assert (kept.state, kept.valid_until) == ("confirmed", one.valid_until)
    assert planned(kept) == ReleasePlan()
    assert planned(kept, said(1, True)).released == (kept,)
    shadow = replace(kept, state="shadow")
    assert planned(shadow) == ReleasePlan(released=(shadow,))


def test_a_held_node_whose_hint_lapses_waits_too() -> None:
    """Nobody knows that it is well: it is not let go untested. What holds nothing simply ends."""
    one = replace(hint("a", state="sent"), valid_until=NOW)
    ((kept, _),) = planned(one, well=False, lapsed=True).kept
    assert (kept.state, kept.valid_until) == ("approved", NOW + timedelta(seconds=POLICY.validity.cordon_s))
    assert planned(kept, said(1, True), well=False).released == (kept,)
    assert planned(one, said(1, True), well=False, lapsed=True).released == (one,)
    shadow = replace(one, state="shadow")
    assert planned(shadow, well=False, lapsed=True).expired == (shadow,)
    untested = ReleaseInputs(NOW, {}, [one], lapsed=[one], taken={one.id})
    ((kept, word),) = plan(untested, Policy()).kept
    assert (kept.state, word) == ("approved", "waits for its healthy time with heartbeats, or a person")
    assert plan(replace(untested, vouched={"a"}), Policy()).expired == (one,)


def test_a_node_that_nobody_vouches_for_is_not_let_go_without_a_test() -> None:
    """Nor one whose last fault, or the word of a detector, is younger than the healthy time."""
    one = hint("a", state="confirmed", hours_ago=20)
    given = ReleaseInputs(NOW, {"a": NodeFacts("a")}, [one], well=[one], taken={one.id})
    assert plan(given, Policy()).released == ()
    assert plan(replace(given, vouched={"b"}), Policy()).released == ()
    vouched = replace(given, vouched={"a"})
    assert plan(vouched, Policy()).released == (one,)
    assert plan(replace(vouched, last_fault={"a": NOW - 25 * HOUR}), Policy()).released == (one,)
    assert plan(replace(vouched, last_fault={"a": NOW - 3 * HOUR}), Policy()).released == ()
    seen = replace(one, evidence=replace(one.evidence, witnesses=(HintWitness("i", "dcgm", "x", None, NOW - HOUR),)))
    assert plan(replace(vouched, hints=[seen], well=[seen]), Policy()).released == ()
    assert plan(replace(given, tests={"h-a": [said(1, True)]}), Policy()).released == (one,), "a test was reported"


def test_what_waits_is_renewed_before_it_lapses() -> None:
    """In the second half of its time."""
    waiting = hint("a", state="confirmed", hours_ago=10, release=ReleaseWait(NOW))
    assert planned(waiting) == ReleasePlan()
    waiting = hint("a", state="confirmed", hours_ago=13, release=ReleaseWait(NOW))
    ((kept, word),) = planned(waiting).kept
    assert (kept.valid_until, word) == (NOW + 24 * HOUR, "renewed")


def test_a_fault_that_comes_back_ends_the_waiting() -> None:
    """The hold stands on its ground again."""
    waiting = hint("a", state="confirmed", release=ReleaseWait(NOW))
    ((kept, word),) = planned(waiting, well=False, fault=fault("a")).kept
    assert (kept.evidence.release, word) == (None, "needed again")
    assert planned(kept, well=False, fault=fault("a")) == ReleasePlan()
    ((kept, word),) = planned(waiting, well=False, out=True).kept
    assert word == "needed again"


def test_a_node_that_fails_its_tests_is_a_case_for_repair() -> None:
    """Told once, with what the test said last; it stays held."""
    waiting = hint("a", state="confirmed", hours_ago=20, release=ReleaseWait(NOW))
    tests = [replace(said(5, False, output=f"ok\nline {i}\n")) for i in range(3)]
    ((kept, word),) = planned(waiting, *tests).kept
    assert word == "case for repair"
    assert kept.evidence.repair == RepairCase(NOW, 3, "line 2")
    assert planned(kept, *tests) == ReleasePlan()
    assert planned(kept, *tests, said(1, True)).released == (kept,)
