"""Where an `avoid` takes a node out of use it has budgets, and stands under breaker and quorum, as a hold does."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.policy.budget import HoldBudget
from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts, Reporting
from schedulers.policy.settings import Breaker, Budgets, Policy
from schedulers.reconcile.actuator import Hold
from schedulers.reconcile.gate import allowed_orders
from schedulers.reconcile.plan import HourBudget, ReconcileInputs, reconcile
from schedulers.registry import avoid_takers
from schedulers.slurm.commands import SlurmSettings
from schedulers.webhooks.settings import WebhookSettings
from store.database.connections import writing
from store.hints.holds import RecentHolds, SchedulerHold, nodes_still_avoided, recent_avoids, save_holds
from store.hints.stops import note_trip
from store.records.hint import Hint

from .cluster import HOUR, NOW, hint, nodes, sick
from .receivers import put
from .test_gate import order

ACT = Policy(mode="act", breaker=Breaker(nodes=1000, cluster_nodes=1000))


def risky(count: int, **facts: Any) -> list[NodeFacts]:
    """Nodes whose score asks for an `avoid`."""
    return nodes(count, score=0.9, **facts)


def asked(facts: list[NodeFacts], policy: Policy = ACT, hints: tuple[Hint, ...] = (), **more: Any) -> Decision:
    """The decision where an `avoid` takes."""
    return decide(Inputs(NOW, facts, hints, **{"avoid_takes": True} | more), policy)


def actions(decision: Decision) -> dict[str, list[str]]:
    """Which action was asked of which nodes."""
    found: dict[str, list[str]] = {}
    for made, _word in decision.changed:
        found.setdefault(made.action, []).append(made.node)
    return found


@pytest.mark.parametrize(
    ("limits", "facts", "avoided", "words"),
    [
        (Budgets(avoid_nodes=3), risky(200), 3, "avoid budget: 3 nodes are avoided already, 3 may be"),
        (Budgets(), risky(100), 4, "avoid budget: 4 nodes are avoided already, 4 % of the nodes may be"),
        (Budgets(avoid_percent=100), risky(100), 8, "avoid budget: 8 avoids within the hour, 8 may be"),
        (Budgets(), risky(300, rack="r"), 4, "avoid budget: rack r has 4 nodes avoided, 4 may be"),
        (Budgets(avoid_per_hour=50, avoid_per_rack=50), risky(300, leaf="l"), 8, "avoid budget: leaf l has 8"),
        (Budgets(), risky(300, nvlink_domain="d"), 4, "avoid budget: nvlink domain d has 4"),
        (Budgets(keep_spares=296), risky(300, idle=True), 4, "avoid budget: 296 nodes are known to be idle, 296 must"),
    ],
)
def test_each_limit_of_avoid_binds(limits: Budgets, facts: list[NodeFacts], avoided: int, words: str) -> None:
    """What does not fit is watched, and says which limit it was; without such a scheduler there is no limit."""
    policy = replace(ACT, budgets=limits)
    found = asked(facts, policy)
    assert len(actions(found)["avoid"]) == avoided
    held = {made.evidence.held for made, _ in found.changed if made.action == "watch"}
    assert held == {next(iter(held))}
    assert str(next(iter(held))).startswith(words)
    assert actions(asked(facts, policy, avoid_takes=False)) == {"avoid": [one.node for one in facts]}


def test_a_breaker_turns_no_hold_into_an_avoid_that_takes() -> None:
    """Nor does the quorum; an avoid by score of the same group waits, too."""
    faulty = [sick(one) for one in nodes(100)]
    tripped = asked(faulty, Policy(mode="act"))
    assert actions(tripped) == {"watch": [one.node for one in faulty]}
    assert {str(made.evidence.held).partition(":")[0] for made, _ in tripped.changed} == {"breaker"}
    assert actions(asked([*faulty, *risky(101)[100:]], Policy(mode="act"))).keys() == {"watch"}
    unseen = asked([*faulty[:1], *nodes(200)[1:]], reporting=Reporting(100, 1))
    assert actions(unseen) == {"watch": ["n000"]}


def test_what_a_hold_s_budget_refuses_is_avoided_while_there_is_room() -> None:
    """The gravest first; the evidence keeps the first limit."""
    policy = replace(ACT, budgets=Budgets(nodes=1, avoid_nodes=2))
    found = asked([sick(one) for one in nodes(200)][:5] + nodes(200)[5:], policy)
    assert {action: len(named) for action, named in actions(found).items()} == {"cordon": 1, "avoid": 2, "watch": 2}
    assert {made.evidence.held for made, _ in found.changed if made.action == "watch"} == {
        "budget: 1 node is held already, 1 may be"
    }


def test_what_is_avoided_already_costs_nothing_anew_and_stays() -> None:
    """Also under a trip; and there is room again when it is over."""
    policy = replace(ACT, budgets=Budgets(avoid_nodes=1))
    standing = hint("n000", "avoid", hours_ago=20, threshold=0.07)
    found = asked(risky(200)[:2] + nodes(200)[2:], policy, (standing,))
    assert [(made.node, made.action, word) for made, word in found.changed] == [
        ("n000", "avoid", "renewed"),
        ("n001", "watch", "held back"),
    ]
    watched = hint("n001", "watch", hours_ago=3, threshold=0.07, held="avoid budget: 1 nodes are avoided already")
    assert [word for _, word in asked(risky(2)[1:] + nodes(200)[2:], policy, (watched,)).changed] == ["escalated"]


def test_a_shadow_is_avoided_where_all_are_shadows() -> None:
    """And counts there alone."""
    shadow = hint("n000", "avoid", "shadow")
    inputs = Inputs(NOW, nodes(200), (shadow,), avoid_takes=True)
    limits = Budgets(avoid_nodes=1)
    assert HoldBudget(inputs, Policy(mode="act", budgets=limits)).refuse_avoid(nodes(3)[2]) is None
    assert HoldBudget(inputs, Policy(mode="shadow", budgets=limits)).refuse_avoid(nodes(3)[2]) is not None


def test_an_avoid_that_takes_goes_out_to_no_group_that_has_tripped(engine: sa.Engine) -> None:
    """What was decided before; one that the scheduler avoids or holds already may be confirmed."""
    with writing(engine).begin() as connection:
        note_trip(connection, ("cluster", "all"), "many", 8, NOW, "policy")
    with engine.connect() as connection:
        for held, takes, goes in (
            ((), True, 0),
            ((), False, 1),
            ((Hold("a", action="watch", hint="h-a"),), True, 0),
            ((Hold("a", action="avoid", hint="h-a"),), True, 1),
            ((Hold("a", action="cordon", hint="h-x"),), True, 1),
        ):
            assert len(allowed_orders(connection, "none", [order("avoid")], held, takes)) == goes


def test_no_more_are_ordered_within_the_hour_than_may_be() -> None:
    """The others wait, and say so."""
    made = [hint(f"n{i}", "avoid", "approved") for i in range(5)]
    hour = HourBudget(("avoid",), ("avoid", "cordon", "drain"), RecentHolds(lately=frozenset({"x"})), 3)
    holds = [Hold(one.node) for one in made]
    plan = reconcile(ReconcileInputs("slurm", NOW, holds, {one.id: one for one in made}, hours=(hour,)))
    assert len(plan.orders) == 2
    assert {one.detail for one in plan.placements if one.asked is None} == {
        "waits: budget: 3 nodes may be avoided within an hour"
    }


def test_what_a_scheduler_that_takes_has_not_let_go_of_is_still_avoided(any_engine: sa.Engine) -> None:
    """Though its hint has ended, until the release is seen; another scheduler's mark takes nothing."""
    for node, action, state in (("a", "avoid", "confirmed"), ("b", "release", "asked"), ("c", "avoid", "released")):
        put(any_engine, hint(node, "avoid", "released"))
        with writing(any_engine).begin() as connection:
            asked_at = NOW - 0.5 * HOUR
            rows = [SchedulerHold(f"h-{node}", name, node, action, state, 1, NOW, asked_at) for name in ("slurm", "k")]  # type: ignore[arg-type]
            save_holds(connection, rows)
    with any_engine.connect() as connection:
        assert nodes_still_avoided(connection, ["slurm"]) == {"a", "b"}
        assert nodes_still_avoided(connection, []) == frozenset()
        assert recent_avoids(connection, NOW - HOUR, "slurm").lately == {"a", "b", "c"}
        assert recent_avoids(connection, NOW + timedelta(seconds=1), "slurm").lately == frozenset()


def test_the_way_to_avoid_decides_who_takes() -> None:
    """A reservation does; weight, mark and a preferred taint do not; of a webhook its owner says so."""
    slurms = [SlurmSettings(soft, soft=soft) for soft in ("weight", "reservation", "mark", "none")]  # type: ignore[arg-type]
    webhooks = [WebhookSettings("chat", ""), WebhookSettings("own", "", avoid_takes=True)]
    assert avoid_takers([*slurms, KubernetesSettings("kube"), *webhooks]) == {"reservation", "own"}
