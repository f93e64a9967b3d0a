"""Whether hints were right: pure judgements, and over a real database."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.hindsight import (
    HintCase,
    JobStay,
    basis_of,
    false_holds_per_1000_node_days,
    hindsight,
    judge,
    judge_due,
    tallies,
    wilson,
)
from store.database.connections import writing
from store.events.append import append_jobs, append_nodes, append_outages
from store.hints.hint_log import change_state, close_hint, save_hint
from store.hints.outcomes import HintOutcome, judged_hints
from store.records.hint import Evidence, Hint, StateChange
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.runs.losses import Loss, write_losses

from .cluster import HOUR, NOW, hint

LATER = NOW + 48 * HOUR


def made(action: Any = "cordon", **evidence: Any) -> Hint:
    """A shadow that was made at noon and ended a day later."""
    closed = StateChange("policy", NOW + 24 * HOUR)
    return hint("a", action, "expired", hours_ago=0, closed=closed, **evidence)


def outage(hours: float, reason: str = "xid 79", planned: bool = False) -> Outage:
    """Out of service, so many hours after the hint, for two."""
    start = NOW + hours * HOUR
    return Outage("a", start, start + 2 * HOUR, "DOWN", reason, None, planned, "hardware")


def loss(hours: float, gpu_h: float | None = 100.0, work: int = 3, restart: int = 1) -> Loss:
    """A run that was stopped by the node; three quarters of it is lost work."""
    gpu_ms = None if gpu_h is None else round(gpu_h * 3_600_000)
    moment = NOW + hours * HOUR
    return Loss("llm", 0, moment, "hardware", "xid:79", "a", None, None, None, "i", work, restart, gpu_ms)


def judged(one: Hint, *outages: Outage, basis: Any = "shadow", **known: Any) -> HintOutcome:
    """What came of a hint of a node with eight GPUs."""
    return judge(HintCase(one, basis, outages, **({"gpus": 8} | known)), LATER)


@pytest.mark.parametrize(
    ("hours", "reason", "planned", "by_score", "by_fault"),
    [
        (1, "xid 79", False, True, True),
        (23.9, "xid 79", False, True, True),
        (24.1, "xid 79", False, False, False),
        (-0.1, "xid 79", False, False, True),
        (-0.5, "xid 79", False, False, False),
        (1, "maintenance", True, False, True),
        (1, "foreshock: xid 79 id=h", True, False, False),
    ],
)
def test_an_outage_within_a_day_proves_a_hint_right(
    hours: float, reason: str, planned: bool, by_score: bool, by_fault: bool
) -> None:
    """Unplanned; a fault's also where people took the node out for it. What we drained ourselves proves nothing."""
    one = outage(hours, reason, planned)
    assert judged(made(), one).right is by_score
    assert judged(made(incident="i"), one).right is by_fault


def test_the_lead_is_to_the_first_of_what_came() -> None:
    """An outage, or a run that was stopped by the node."""
    found = judged(made(), outage(5), outage(3))
    assert (found.outage_start, found.lead_s) == (NOW + 3 * HOUR, 3 * 3600.0)
    found = judged(made(), outage(5), losses=[loss(2)])
    assert (found.right, found.outage_start, found.lead_s) == (True, NOW + 5 * HOUR, 2 * 3600.0)
    assert judged(made(), losses=[loss(2)]).right
    assert not judged(made(), losses=[loss(25)]).right
    assert judged(made()) == HintOutcome("h-a", LATER, False, None, None, 192.0, 0.0)


def stay(begin: float, end: float | None) -> JobStay:
    """A job's time on the node, hours after the hint."""
    return JobStay("llm", NOW + begin * HOUR, None if end is None else NOW + end * HOUR)


@pytest.mark.parametrize(
    ("stays", "held"),
    [((), 192.0), ([stay(-5, 4)], 160.0), ([stay(-5, None)], 0.0), ([stay(1, 4)], 192.0), ([stay(-5, -1)], 192.0)],
)
def test_a_hold_costs_the_node_once_its_job_has_ended(stays: Any, held: float) -> None:
    """A cordon lets it end; what comes later would not have come."""
    assert judged(made(), stays=stays).held_gpu_h == held


def test_a_hold_costs_nothing_once_the_node_is_out_by_itself() -> None:
    """Nor is it known where the GPUs are not; and a soft hint's cost is not known at all."""
    assert judged(made(), outage(3)).held_gpu_h == 24.0
    assert judged(made(), gpus=None).held_gpu_h is None
    assert judged(made("avoid")).held_gpu_h is None
    lapsed = replace(hint("a", state="confirmed", hours_ago=0), valid_until=NOW + 12 * HOUR)
    assert judged(lapsed).held_gpu_h == 96.0


def test_a_hold_saves_what_came_to_the_node_after_it() -> None:
    """A run that was there already would have been lost anyhow."""
    later, before = [stay(1, 2)], [stay(-1, 2)]
    assert judged(made(), losses=[loss(2)], stays=later).saved_gpu_h == 100.0
    assert judged(made("avoid"), losses=[loss(2)], stays=later).saved_gpu_h == 100.0
    assert judged(made(), losses=[loss(2)], stays=before).saved_gpu_h == 0.0
    assert judged(made(), losses=[loss(2)]).saved_gpu_h == 0.0
    assert judged(made(), losses=[loss(2)], stays=[*before, *[stay(3, 4)]]).saved_gpu_h == 0.0
    assert judged(made(), losses=[loss(2, None)], stays=later).saved_gpu_h is None


def test_a_checkpoint_or_a_swap_saves_lost_work() -> None:
    """Not the restart; of a requeue and of `watch` nobody knows."""
    for action in ("checkpoint", "swap"):
        assert judged(made(action), losses=[loss(2)], stays=[stay(-1, 2)]).saved_gpu_h == 75.0
    assert judged(made("checkpoint"), losses=[loss(2, work=0, restart=0)]).saved_gpu_h == 0.0
    for action in ("watch", "requeue"):
        assert judged(made(action), losses=[loss(2)]).saved_gpu_h is None


def test_what_was_acted_on_cannot_show_what_it_saved() -> None:
    """What it cost is known."""
    found = judged(made(), losses=[loss(2)], stays=[stay(1, 2)], basis="acted")
    assert (found.saved_gpu_h, found.held_gpu_h) == (None, 192.0)


def test_the_basis_follows_from_what_became_of_a_hint() -> None:
    """By the audit: a shadow that has expired is a shadow."""
    assert basis_of(False, {"shadow", "expired"}) == "shadow"
    assert basis_of(False, {"shadow", "proposed", "withdrawn"}) == "asked"
    assert basis_of(False, {"approved", "sent", "released"}) == "acted"
    assert basis_of(True, {"shadow"}) == "control"


def test_the_sum_keeps_what_was_acted_on_out_of_the_precision() -> None:
    """And out of the false holds."""
    right = HintOutcome("h", LATER, True, NOW, 7200.0, 10.0, 50.0)
    wrong = HintOutcome("h", LATER, False, None, None, 30.0, None)
    found = tallies(
        [
            ("cordon", "shadow", right),
            ("cordon", "shadow", wrong),
            ("cordon", "acted", wrong),
            ("avoid", "shadow", wrong),
        ]
    )
    avoid, shadow, acted = found
    assert (avoid.action, shadow.basis, acted.basis) == ("avoid", "shadow", "acted")
    assert (shadow.judged, shadow.right, shadow.precision, shadow.lead_s) == (2, 1, 0.5, 7200.0)
    assert (shadow.held_gpu_h, shadow.saved_gpu_h, shadow.unknown_held, shadow.unknown_saved) == (40.0, 50.0, 0, 1)
    assert (acted.precision, acted.low, acted.high, acted.judged) == (None, None, None, 1)
    assert false_holds_per_1000_node_days(found, 500.0) == 2.0
    assert false_holds_per_1000_node_days(found, 0.0) is None


def test_the_interval_is_wilson_s() -> None:
    """Against the published example of 81 of 263 (Newcombe 1998, method 3), and at the ends."""
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 10)[0] == 0.0
    assert math.isclose(wilson(0, 10)[1], 0.2775, abs_tol=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def put(engine: sa.Engine, one: Hint, *states: Any) -> None:
    """Store a hint and let it go through states; the last may be an end."""
    with writing(engine).begin() as connection:
        save_hint(connection, one, one.created, {"change": "made"})
        for state in states:
            end = close_hint if state in ("expired", "released", "withdrawn") else change_state
            one = end(connection, one, state, one.created + 20 * HOUR, "policy")


def test_hints_are_judged_from_the_store_once_their_time_is_over(any_engine: sa.Engine) -> None:
    """Each once; what is open, or younger than a day, waits; an open one no longer than a week."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("a", gpus=8), Node("b", gpus=4), Node("new", in_service_since=NOW)])
        append_outages(connection, [outage(-70)])
        begin, end = NOW - 80 * HOUR, NOW - 70 * HOUR
        append_jobs(connection, [Job("1", "llm", "NODE_FAIL", begin, begin, end, 2, "a,b")])
        write_losses(connection, {"llm": ([loss(-70)], [])})
    put(any_engine, replace(hint("a", state="shadow", hours_ago=90), id="h1"), "expired")
    put(any_engine, replace(hint("b", state="approved", hours_ago=90), id="h2"), "sent", "released")
    put(any_engine, replace(hint("b", state="shadow", hours_ago=23), id="young"), "expired")
    put(any_engine, replace(hint("b", state="approved", hours_ago=90), id="open"), "sent")
    put(any_engine, replace(hint("b", state="shadow", hours_ago=170), id="old"))
    raised = hint("b", state="shadow", hours_ago=90)
    put(any_engine, replace(raised, id="raised", evidence=Evidence(acted=NOW - HOUR)), "expired")
    assert judge_due(any_engine, NOW) == 3
    assert judge_due(any_engine, NOW) == 0
    with any_engine.connect() as connection:
        found = {one.id: outcome for one, outcome in judged_hints(connection, NOW - 400 * HOUR, NOW)}
        assert found.keys() == {"h1", "h2", "old"}
        assert (found["h1"].right, found["h1"].lead_s, found["h1"].saved_gpu_h) == (True, 20 * 3600.0, 100.0)
        # Of twenty hours its job came to it after ten, and would not have: it would have been held for all of them.
        assert found["h1"].held_gpu_h == 160.0
        assert (found["h2"].right, found["h2"].saved_gpu_h) == (False, None)
        summary = hindsight(connection, NOW - timedelta(days=30), NOW)
    assert [(one.action, one.basis, one.judged, one.right) for one in summary.tallies] == [
        ("cordon", "shadow", 2, 1),
        ("cordon", "acted", 1, 0),
    ]
    # Two nodes from the first hint on until a day ago; the third came into service today.
    assert summary.node_days == pytest.approx(2 * 146 / 24)
    assert summary.false_holds_per_1000_node_days == pytest.approx(1000 / (2 * 146 / 24))


@pytest.mark.parametrize(
    ("states", "control", "found"),
    [
        (("expired",), False, "shadow"),
        (("expired",), True, "control"),
        (("approved", "expired"), False, "asked"),
        (("proposed", "withdrawn"), False, "asked"),
        (("approved", "sent", "expired"), False, "acted"),
        (("approved", "confirmed", "released"), True, "acted"),
    ],
)
def test_the_sums_go_by_what_the_audit_has_seen(
    any_engine: sa.Engine, states: tuple[str, ...], control: bool, found: str
) -> None:
    """The same basis as of one hint alone."""
    made = hint("a", state="shadow", hours_ago=90, control=control)
    put(any_engine, made, *states)
    assert judge_due(any_engine, NOW) == 1
    with any_engine.connect() as connection:
        assert [one.basis for one in hindsight(connection, NOW - timedelta(days=30), NOW).tallies] == [found]


def test_an_empty_store_has_no_hindsight(engine: sa.Engine) -> None:
    """Nor does it divide by nothing."""
    assert judge_due(engine, NOW) == 0
    with engine.connect() as connection:
        found = hindsight(connection, NOW - timedelta(days=30), NOW)
    assert (found.tallies, found.node_days, found.false_holds_per_1000_node_days) == ((), 0.0, None)
