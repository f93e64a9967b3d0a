"""What must hold of nodes that are held for us: for the state machine of `test_state_machine.py`."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import sqlalchemy as sa

from schedulers.policy.breaker import Group
from schedulers.policy.budget import held_nodes, spare_cost, spares
from schedulers.policy.fact_queries import gather
from schedulers.policy.settings import Budgets, Policy
from store.records.hint import Hint

from .model_scheduler import Mark
from .model_world import NODES, PLACES, places_of


def within_budget(nodes: set[str], limits: Budgets) -> None:
    """Absolute, per cent, and of each place."""
    assert len(nodes) <= min(limits.nodes, max(1, int(len(NODES) * limits.percent_of_nodes / 100))), nodes
    for kind in ("rack", "leaf", "nvlink_domain"):
        for place in {getattr(PLACES[node], kind) for node in nodes} - {None}:
            inside = {node for node in nodes if getattr(PLACES[node], kind) == place}
            assert len(inside) <= getattr(limits, f"per_{kind}"), (kind, inside)


def within_hour(taken: list[tuple[datetime, str]], now: datetime, most: int) -> None:
    """No more nodes within the hour than may be."""
    lately = {node for time, node in taken if time >= now - timedelta(hours=1)}
    assert len(lately) <= most, lately


def spares_left(engine: sa.Engine, policy: Policy, now: datetime, new: list[Hint]) -> None:
    """Enough idle nodes are left after new holds, as far as is known."""
    with engine.connect() as connection:
        inputs = gather(connection, policy, now)
    facts = {one.node: one for one in inputs.nodes}
    left = spares(inputs.nodes, held_nodes(inputs, policy))
    if any(spare_cost(facts[hint.node]) for hint in new):
        assert left is not None
        assert left >= policy.budgets.keep_spares


def none_tripped(new: Mapping[tuple[str, str], Mark], tripped: set[Group], hints: Mapping[str, Hint]) -> None:
    """Nothing new is held of a group that has tripped."""
    for (_name, node), mark in new.items():
        hint = hints[mark.hint or ""]
        assert not tripped & places_of(node, hint.evidence.code), (node, tripped)
