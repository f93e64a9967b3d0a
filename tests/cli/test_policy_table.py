"""A policy out of keys and values: what is checked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.config.policy_table import POLICY_KEYS, check_policy_file, policy_of, read_yaml
from cli.console.errors import Failure
from schedulers.policy.settings import Policy

EXAMPLE = Path(__file__).parents[2] / "deploy" / "policy.example.yaml"


def read(text: str) -> Policy:
    """The policy of a text."""
    return policy_of(yaml.safe_load(text) or {}, "p.yaml")


def test_the_example_shows_every_key_and_the_defaults() -> None:
    """It is the documentation: it must hold, leave out nothing, and lie about nothing."""
    table = dict(read_yaml(EXAMPLE))
    check_policy_file(table, "p.yaml")
    assert policy_of(table, "p.yaml") == Policy()
    assert list(table) == list(POLICY_KEYS), "in the order of the record, so that a missing one is seen"
    for key, found in table.items():
        inner = getattr(getattr(Policy(), key), "__dataclass_fields__", None)
        assert inner is None or set(found) == set(inner), key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("thresholds: {watch: 0.5, avoid: 0.4}", "thresholds: watch <= avoid"),
        ("thresholds: {checkpoint: 0.01}", "checkpoint <= 1"),
        ("thresholds: {watch: 1.1}", "probabilities"),
        ("thresholds: {release_ratio: 1}", "release_ratio: must be under 1"),
        ("thresholds: {avoid: high}", "thresholds, avoid: expected a finite number"),
        ("quorum: 1.5", "quorum: a share"),
        ("costs: {averted: 2}", "averted: a share"),
        ("costs: {job_gpus: 0}", "job_gpus: at least 1"),
        ("costs: {node_gpus: 0}", "node_gpus: at least 1"),
        ("validity: {avoid_s: 0}", "validity, avoid_s: a hint must be valid"),
        ("validity: {avoid_s: -1}", "validity, avoid_s: expected a finite number"),
        ("thresholds: {cordon: 0.2}", "thresholds: unknown key 'cordon'"),
        ("control: {percent: 51}", "control, percent: at most 50"),
        ("quiet_hours: ['22-6']", "quiet_hours: '22-6' is not HH:MM-HH:MM"),
        ("quiet_hours: ['22:00-06:00 Mars/Base']", "no such time or zone"),
        ("quiet_hours: 22:00-06:00", "quiet_hours: expected a list"),
        ("opt_out: ['']", "opt_out: an empty pattern"),
        ("opt_out: [7]", "opt_out: expected a list of texts"),
        ("version: 2", "version: this program reads policies of form 1"),
    ],
)
def test_what_contradicts_itself_is_named_with_its_key(text: str, words: str) -> None:
    """One sentence."""
    with pytest.raises(Failure) as caught:
        read(text)
    assert caught.value.message.startswith("p.yaml, ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    "table", [{"quiet_hours": ["22:00-06:00", "12:00-13:00 Asia/Shanghai"]}, {"opt_out": ["login-*"]}, {"quorum": 0}]
)
def test_lists_and_bounds_are_read(table: dict[str, Any]) -> None:
    """As they stand."""
    ((key, found),) = table.items()
    expected = tuple(found) if isinstance(found, list) else found
    assert getattr(policy_of(table, "p.yaml"), key) == expected
