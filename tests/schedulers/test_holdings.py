"""How much of the budget is used, by the count that the policy goes by."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.policy.budget import Holdings, holdings
from schedulers.policy.settings import Budgets, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.holds import SchedulerHold, save_holds
from store.records.node import Node
from store.tables.bulk_rows import upsert_last_seen

from .cluster import NOW, hint
from .receivers import put

ACT = Policy(mode="act", budgets=Budgets(nodes=8, percent_of_nodes=10.0, per_hour=3))


def used(engine: sa.Engine, policy: Policy = ACT) -> Holdings:
    """As of now, of a cluster of forty nodes."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i:02}") for i in range(40)])
    with engine.connect() as connection:
        return holdings(connection, policy, NOW)


def test_an_empty_cluster_may_hold_one_node(engine: sa.Engine) -> None:
    """As the budget itself says."""
    with engine.connect() as connection:
        assert holdings(connection, ACT, NOW) == Holdings(0, 1, 0, 3, 0)


@pytest.mark.parametrize(("nodes", "most"), [(3, 3), (8, 4)])
def test_the_tightest_of_number_and_share_is_told(any_engine: sa.Engine, nodes: int, most: int) -> None:
    """Ten per cent of forty are four."""
    policy = replace(ACT, budgets=replace(ACT.budgets, nodes=nodes))
    assert used(any_engine, policy).most == most


@pytest.mark.parametrize(
    ("told", "held", "hour"),
    [
        ({"hours_ago": 0.5}, 1, 1),
        ({"hours_ago": 2}, 1, 0),
        ({"action": "avoid", "hours_ago": 0.5}, 0, 0),
        ({"state": "shadow", "hours_ago": 0.5}, 0, 0),
        ({"state": "confirmed", "action": "drain"}, 1, 0),
        ({"state": "released", "hours_ago": 0.5}, 0, 1),
        ({"hours_ago": 0.5, "control": True}, 0, 0),
    ],
)
def test_holds_of_ours_alone_are_counted(engine: sa.Engine, told: dict[str, Any], held: int, hour: int) -> None:
    """Cordons and drains that stand; within the hour those that were begun, whatever became of them."""
    put(engine, hint("n00", **told))
    found = used(engine)
    assert (found.held, found.held_within_hour, found.nodes) == (held, hour, 40)


def test_a_shadow_counts_where_all_are_shadows(engine: sa.Engine) -> None:
    """What would be held."""
    put(engine, hint("n00", state="shadow"))
    assert used(engine, replace(ACT, mode="shadow")).held == 1


def test_what_a_scheduler_has_not_let_go_of_is_still_held(engine: sa.Engine) -> None:
    """Though its hint has ended."""
    put(engine, hint("n00", state="released"))
    with writing(engine).begin() as connection:
        save_holds(connection, [SchedulerHold("h-n00", "slurm", "n00", "release", "asked", 1, NOW)])
    assert used(engine).held == 1


def test_a_hint_on_a_node_that_the_inventory_does_not_know_costs_nothing(any_engine: sa.Engine) -> None:
    """A ghost takes no other node's place in the budget, nor in the hour."""
    put(any_engine, hint("ghost", hours_ago=0.5))
    found = used(any_engine)
    assert (found.held, found.held_within_hour) == (0, 0)


@pytest.mark.parametrize(("states", "held"), [(["absent"], 0), (["absent", "absent"], 0), (["absent", "confirmed"], 1)])
def test_a_hold_that_no_scheduler_knows_costs_nothing(any_engine: sa.Engine, states: list[str], held: int) -> None:
    """One that any of them has is held."""
    put(any_engine, hint("n00", hours_ago=0.5))
    holds = [SchedulerHold("h-n00", f"s{i}", "n00", "cordon", state, 1, NOW) for i, state in enumerate(states)]  # type: ignore[arg-type]
    with writing(any_engine).begin() as connection:
        save_holds(connection, holds)
    found = used(any_engine)
    assert (found.held, found.held_within_hour) == (held, held)


def test_nodes_that_only_name_themselves_lift_no_share(any_engine: sa.Engine) -> None:
    """Twenty thousand names in heartbeats and events leave ten per cent of forty where it was."""
    with writing(any_engine).begin() as connection:
        upsert_last_seen(connection, {f"made-up-{i}": NOW for i in range(20_000)})
    found = used(any_engine)
    assert (found.most, found.nodes) == (4, 40)
