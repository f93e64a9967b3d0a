"""What is asked of a job that runs on a culprit: pure decisions."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from schedulers.policy.facts import NodeFacts, corroborated
from schedulers.policy.job_hints import JobDecision, JobInputs, RunningJob, watch
from schedulers.policy.settings import JobWatch, Mode, Policy, Validity
from store.nodes.node_states import FaultSign
from store.records.hint import Evidence, Hint

from .cluster import HOUR, NOW, fault
from .cluster import hint as node_hint

POLICY = Policy(mode="act")
JOB = RunningJob("7", "llm", ("n0", "n1"))


def facts(node: str, leaf: str | None = "l1", rack: str | None = "r1", **more: Any) -> NodeFacts:
    """A node that no job runs on, with eight GPUs and hardly a risk."""
    return NodeFacts(node, rack, leaf, **({"idle": True, "gpus": 8, "score": 0.001} | more))


CULPRIT = facts("n0", fault=fault("n0"), idle=False)
SPARES = (facts("s1"), facts("s2"), facts("s3"))


def asked(
    *nodes: NodeFacts, hints: Any = (), policy: Policy = POLICY, jobs: Any = (JOB,), now: Any = NOW, **more: Any
) -> JobDecision:
    """The decision; a checkpoint pays from 10 %."""
    known = {one.node: one for one in (facts("n1", idle=False), *nodes)}
    held = {node: node_hint(node, state="confirmed") for node, one in known.items() if one.is_confirmed}
    more["open_hints"] = held | more.pop("open_hints", {})
    return watch(JobInputs(now, jobs, known, hints, **more), policy, lambda _one: 0.1)


def made(*nodes: NodeFacts, **more: Any) -> list[tuple[str, str, str, Any]]:
    """What is made: job, node, action, spare."""
    return [(str(one.job), one.node, one.action, one.evidence.spare) for one in asked(*nodes, **more).made]


def test_a_job_on_a_culprit_is_offered_a_spare() -> None:
    """With what is wrong, for a quarter of an hour."""
    (hint,) = asked(CULPRIT, *SPARES).made
    assert (hint.job, hint.node, hint.action, hint.state) == ("7", "n0", "swap", "approved")
    assert hint.reason == "foreshock: xid 79 on gpu 0000:0f:00.0: go on with s1 instead of n0"
    assert hint.valid_until == NOW + timedelta(seconds=Validity().job_s)
    assert (hint.evidence.run, hint.evidence.incident) == ("llm", CULPRIT.fault.id if CULPRIT.fault else "")
    assert hint.policy
    assert made(CULPRIT, *SPARES, jobs=()) == []
    assert made(*SPARES) == []


def test_two_detectors_are_as_good_as_a_fault() -> None:
    """The hint says who they are."""
    signs = [
        FaultSign(f"i{i}", source, kind, None, "error", "hardware", NOW - HOUR, NOW - HOUR)
        for i, (source, kind) in enumerate((("kernel", "nvlink_error"), ("dcgm", "row_remap_failure")))
    ]
    pair = corroborated(signs, 3600.0)
    assert pair is not None
    (hint,) = asked(replace(CULPRIT, fault=None, witnesses=pair), *SPARES).made
    assert "both saw it fail" in hint.reason


@pytest.mark.parametrize(
    ("spares", "best"),
    [
        ((facts("s1", "l2", "r2"), facts("s2", "l2", "r1"), facts("s3", "l1", "r2")), "s3"),
        ((facts("s1", "l2", "r2"), facts("s2", "l2", "r1")), "s2"),
        ((facts("s1", "l2", "r2"), facts("s0", "l3", "r3")), "s0"),
        ((facts("s1", score=0.01), facts("s2", score=0.005)), "s2"),
        ((facts("s1", score=None),), "s1"),
        ((facts("s1", idle=False), facts("s2", idle=None)), "s2"),
        ((facts("s1", out=True),), None),
        ((facts("s1", silent=True),), None),
        ((facts("s1", score=0.02),), None),
        ((facts("s1", fault=fault("s1")),), None),
        ((facts("s1", gpus=4),), None),
        ((), None),
    ],
)
def test_the_best_spare_is_near_and_well(spares: tuple[NodeFacts, ...], best: str | None) -> None:
    """Of the same leaf, else rack, else any; idle, of the same size, at no risk, heard of."""
    assert made(CULPRIT, *spares) == ([] if best is None else [("7", "n0", "swap", best)])


def test_a_place_that_is_not_known_is_near_nothing() -> None:
    """Two nodes without a leaf are not under one; nor without a rack in one."""
    lost = replace(CULPRIT, leaf=None)
    assert made(lost, facts("s1", None, "r2"), facts("s2", "l9", "r1"))[0][3] == "s2"
    lost = replace(CULPRIT, leaf=None, rack=None)
    assert made(lost, facts("s1", None, None, score=0.01), facts("s2", "l9", "r9"))[0][3] == "s2"


def test_a_spare_is_no_node_that_is_held_or_out_of_service_or_at_work() -> None:
    """By its hint, its record, the jobs."""
    jobs = (JOB, RunningJob("8", "x", ("s3",)))
    spares, policy = (*SPARES, facts("s4"), facts("s5")), replace(POLICY, opt_out=("s5",))
    open_hints = {"s4": node_hint("s4", "watch")}
    assert made(CULPRIT, *spares, held={"s1"}, unfit={"s2"}, jobs=jobs, open_hints=open_hints, policy=policy) == []
    assert made(CULPRIT, *spares, held={"s1"}, unfit={"s2"}, jobs=jobs, open_hints=open_hints)[0][3] == "s5"


@pytest.mark.parametrize(
    ("backing", "asks"),
    [
        (node_hint("n0", "avoid", held="budget: 8 nodes are held already, 8 may be"), True),
        (node_hint("n0", "avoid", held="breaker: 4 nodes of leaf l1 call at once"), False),
        (node_hint("n0", "avoid", held="quorum: 1 of 9 nodes report"), False),
        (node_hint("n0", "watch"), False),
        (node_hint("n0", "drain", state="shadow"), True),
        (None, False),
    ],
)
def test_a_job_is_moved_only_off_what_its_own_hint_calls_a_culprit(backing: Hint | None, asks: bool) -> None:
    """Not where many fail at once, little is seen, or a person has said no."""
    known = {one.node: one for one in (CULPRIT, *SPARES)}
    open_hints = {} if backing is None else {"n0": backing}
    found = watch(JobInputs(NOW, (JOB,), known, open_hints=open_hints), POLICY, lambda _one: 0.1)
    assert bool(found.made) is asks


def test_what_waits_for_a_person_lets_its_job_wait_too() -> None:
    """In quiet hours, or after a reset of the breaker."""
    (hint,) = asked(CULPRIT, *SPARES, open_hints={"n0": node_hint("n0", state="proposed")}).made
    assert hint.state == "proposed"
    shadow = replace(POLICY, mode="shadow")
    (hint,) = asked(CULPRIT, *SPARES, open_hints={"n0": node_hint("n0", state="proposed")}, policy=shadow).made
    assert hint.state == "shadow"


def test_a_spare_is_named_once() -> None:
    """Among two culprits, and by a hint that is still valid."""
    other = facts("n1", fault=fault("n1"), idle=False)
    assert made(CULPRIT, other, facts("s1")) == [("7", "n0", "swap", "s1")]
    assert [one[3] for one in made(CULPRIT, other, *SPARES)] == ["s1", "s2"]
    (hint,) = asked(CULPRIT, facts("s1")).made
    taken = replace(hint, job="9", node="n9", state="expired")
    assert made(CULPRIT, facts("s1"), hints=[taken]) == []
    assert made(CULPRIT, facts("s1"), hints=[replace(taken, valid_until=NOW)]) == [("7", "n0", "swap", "s1")]


def test_a_job_is_asked_once_for_each_fault() -> None:
    """Open or lapsed; a new fault, or another job, is asked anew."""
    (hint,) = asked(CULPRIT, *SPARES).made
    for before in (hint, replace(hint, state="expired"), replace(hint, state="withdrawn")):
        assert made(CULPRIT, *SPARES, hints=[before]) == []
    again = replace(CULPRIT, fault=fault("n0", 0.05))
    assert len(made(again, *SPARES, hints=[replace(hint, state="expired")])) == 1
    assert len(made(CULPRIT, *SPARES, hints=[hint], jobs=(RunningJob("8", "llm", ("n0",)),))) == 1


def test_without_a_spare_a_requeue_is_asked_where_it_is_allowed() -> None:
    """Once for all culprits of a job, which it is to leave out."""
    assert made(CULPRIT) == []
    policy = replace(POLICY, job_watch=JobWatch(requeue=True))
    other = facts("n1", fault=fault("n1"), idle=False)
    (hint,) = asked(CULPRIT, other, policy=policy).made
    assert (hint.action, hint.evidence.exclude) == ("requeue", ("n0", "n1"))
    assert made(CULPRIT, *SPARES, policy=replace(policy, job_watch=JobWatch(requeue=True, swap=False))) == [
        ("7", "n0", "requeue", None)
    ]


def test_a_job_is_not_moved_node_by_node_while_a_shared_cause_strikes() -> None:
    """So many swaps of one job within an hour; then neither a swap nor a requeue, until the hour is over."""
    policy = replace(POLICY, job_watch=JobWatch(requeue=True, most_swaps=2))
    (hint,) = asked(CULPRIT, *SPARES, policy=policy).made
    minute = timedelta(minutes=1)
    past = [
        replace(hint, id=f"h{i}", node=f"x{i}", state="expired", created=NOW - i * minute, evidence=Evidence())
        for i in (1, 59)
    ]
    assert made(CULPRIT, *SPARES, policy=policy, hints=past) == []
    assert len(made(CULPRIT, *SPARES, policy=policy, hints=past[:1])) == 1
    old = replace(past[1], created=NOW - HOUR)
    assert [action for _job, _node, action, _spare in made(CULPRIT, *SPARES, policy=policy, hints=[past[0], old])] == [
        "swap"
    ]
    assert len(made(CULPRIT, *SPARES, policy=policy, hints=[replace(one, job="8") for one in past])) == 1


def test_a_crash_loop_is_not_requeued_for_ever() -> None:
    """So often a day for a run, whatever its jobs are called."""
    policy = replace(POLICY, job_watch=JobWatch(requeue=True, most_requeues=2))
    (hint,) = asked(CULPRIT, policy=policy).made
    past = [replace(hint, id=f"h{i}", job=f"{i}", state="expired", created=NOW - i * HOUR) for i in (1, 2)]
    assert made(CULPRIT, policy=policy, hints=past) == []
    assert made(CULPRIT, policy=policy, hints=past[:1]) == [("7", "n0", "requeue", None)]
    assert len(made(CULPRIT, policy=policy, hints=[past[0], replace(past[1], created=NOW - 25 * HOUR)])) == 1
    other = [replace(one, evidence=replace(one.evidence, run="other")) for one in past]
    assert len(made(CULPRIT, policy=policy, hints=other)) == 1


def test_a_risk_past_the_break_even_asks_for_a_checkpoint() -> None:
    """The node still works; one a job at a time, and one a day for each node."""
    risky = facts("n0", score=0.3, idle=False, reasons=("3 row remaps",))
    (hint,) = asked(risky).made
    assert (hint.action, hint.evidence.threshold, hint.evidence.reasons) == ("checkpoint", 0.1, ("3 row remaps",))
    assert hint.reason == "foreshock: risk 30 % within 24 h, on n0: save now"
    assert made(replace(risky, score=0.09)) == []
    assert len(made(replace(risky, score=0.1))) == 1
    assert made(replace(risky, out=True, is_shown_out=True)) == []
    assert len(made(replace(risky, out=True))) == 1  # who reports an outage cannot hide a risk
    assert len(made(risky, facts("n1", score=0.3))) == 1
    over = replace(hint, state="expired")
    assert made(risky, hints=[over]) == []
    assert made(risky, facts("n1", score=0.3), hints=[over]) == [("7", "n1", "checkpoint", None)]
    assert made(risky, facts("n1", score=0.3), hints=[hint]) == []
    assert len(made(risky, hints=[over], now=NOW + 25 * HOUR)) == 1
    assert made(risky, policy=replace(POLICY, job_watch=JobWatch(checkpoint=False))) == []
    assert made(risky, policy=replace(POLICY, opt_out=("n*",))) == []


def test_a_node_of_the_control_group_asks_nothing_for_its_score() -> None:
    """It is written down, in every mode; a confirmed fault is acted on everywhere."""
    (hint,) = asked(facts("n0", score=0.3, control=True)).made
    assert (hint.state, hint.is_control) == ("shadow", True)
    (hint,) = asked(replace(CULPRIT, control=True), *SPARES).made
    assert hint.state == "approved"


@pytest.mark.parametrize(("mode", "state"), [("shadow", "shadow"), ("approve", "proposed"), ("act", "approved")])
def test_the_mode_holds_for_jobs_too(mode: Mode, state: str) -> None:
    """As for nodes."""
    (hint,) = asked(CULPRIT, *SPARES, policy=replace(POLICY, mode=mode)).made
    assert hint.state == state


def test_what_was_asked_in_the_shadow_is_asked_in_earnest_once_that_ends() -> None:
    """Nobody was told of it."""
    (hint,) = asked(CULPRIT, *SPARES, policy=replace(POLICY, mode="shadow")).made
    assert len(made(CULPRIT, *SPARES, hints=[hint])) == 1
    assert made(CULPRIT, *SPARES, hints=[hint], policy=replace(POLICY, mode="shadow")) == []


def test_a_hint_ends_with_its_job() -> None:
    """Or when the job has left the node; not before."""
    (hint,) = asked(CULPRIT, *SPARES).made
    over: list[tuple[Hint, str]] = [*asked(CULPRIT, hints=[hint], jobs=()).over]
    assert over == [(hint, "job 7 has ended")]
    moved = RunningJob("7", "llm", ("s1", "n1"))
    assert asked(CULPRIT, hints=[hint], jobs=(moved,)).over == ((hint, "job 7 runs on n0 no more"),)
    assert asked(CULPRIT, hints=[hint]).over == ()
    assert asked(CULPRIT, hints=[replace(hint, state="expired")], jobs=()).over == ()
