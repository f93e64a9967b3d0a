"""What a policy is held against: doing nothing, the habit of a cordon at every fatal Xid, itself without limits."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from schedulers.facts import Inputs, NodeFacts
from schedulers.policy import Decision
from schedulers.settings import Breaker, Budgets, Policy
from store.event import format_time
from store.hint import Hint

_HABIT = "habit"
_NO_LIMIT = 10**9


def no_action(_inputs: Inputs) -> Decision:
    """Nothing is ever asked."""
    return Decision()


def cordon_on_fatal_xid(inputs: Inputs) -> Decision:
    """Every node with a fatal Xid is cordoned at once, without budget or breaker, until it is over or repaired."""
    standing = inputs.open_by_node()
    made = tuple((hint, "made") for hint in _cordons(inputs) if hint.node not in standing)
    well = tuple(
        standing[facts.node]
        for facts in inputs.nodes
        if facts.node in standing and not _is_struck(facts) and not facts.out
    )
    return Decision(made, well)


def without_limits(policy: Policy) -> Policy:
    """The same policy without budgets, breaker and quorum: what they cost, and what they spare."""
    wide = Budgets(_NO_LIMIT, 100.0, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT, _NO_LIMIT, 0)
    return replace(policy, budgets=wide, breaker=Breaker(_NO_LIMIT, _NO_LIMIT), quorum=0.0)


def _is_struck(facts: NodeFacts) -> bool:
    return facts.fault is not None and facts.fault.kind == "xid"


def _cordons(inputs: Inputs) -> Iterator[Hint]:
    for facts in inputs.nodes:
        if facts.fault is not None and _is_struck(facts) and not facts.out:
            ident = hashlib.blake2b(f"{_HABIT} {facts.node} {format_time(inputs.now)}".encode(), digest_size=8)
            reason = f"foreshock: xid {facts.fault.code}"
            # It ends with its ground, not by the clock.
            until = inputs.now + timedelta(days=3650)
            yield Hint(ident.hexdigest(), facts.node, "cordon", "approved", reason, _HABIT, inputs.now, until)
