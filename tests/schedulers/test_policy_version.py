"""A policy's version: the same for the same content, another for any other."""

import json
from dataclasses import fields, replace
from pathlib import Path

from schedulers.policy.settings import Budgets, Policy, Thresholds, canonical, version_of


def test_the_version_is_a_digest_of_all_that_it_says() -> None:
    """Whoever wrote the same down has the same."""
    assert version_of(Policy()) == version_of(Policy(budgets=Budgets()))
    assert len(version_of(Policy())) == 12
    others = [
        Policy(mode="act"),
        Policy(budgets=Budgets(nodes=7)),
        Policy(thresholds=Thresholds(avoid=0.07)),
        Policy(opt_out=("a",)),
        Policy(quiet_hours=("22:00-06:00",)),
        Policy(stop_file=Path("/run/stop")),
    ]
    assert len({version_of(policy) for policy in [Policy(), *others]}) == len(others) + 1


def test_what_is_kept_has_every_key() -> None:
    """So that a policy of before can be read again."""
    kept = json.loads(canonical(replace(Policy(), stop_file=Path("/run/stop"))))
    assert set(kept) == {field.name for field in fields(Policy)}
    assert kept["stop_file"] == "/run/stop"
