"""Evidence of hints: a record in the program, the same JSON at rest and on the wire as ever."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.records.hint import (
    Evidence,
    HintCost,
    HintWitness,
    JobOnNode,
    RefusedHold,
    ReleaseWait,
    RepairCase,
    StateChange,
    evidence_of,
)

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
AT = "2025-03-01T12:00:00.000000Z"
RISK = {"score": 0.31, "horizon_h": 24, "reasons": ["3 row remaps"]}
# What the policy wrote of each kind of hint before the record was: the very keys.
WRITTEN: list[tuple[dict[str, Any], Evidence]] = [
    ({}, Evidence()),
    (
        {
            **RISK,
            "incident": "i-1",
            "cost": {"held_gpu_h": 192.0, "failure_gpu_h": 128.0, "run": None}
            | {"node_gpus": 8, "job_gpus": 512, "assumed": ["job_gpus"]},
            "acted": AT,
        },
        Evidence(
            0.31,
            24,
            ("3 row remaps",),
            incident="i-1",
            cost=HintCost(192.0, 128.0, None, 8, 512, ("job_gpus",)),
            acted=NOON,
        ),
    ),
    (
        {
            "score": None,
            "horizon_h": 24,
            "reasons": [],
            "incident": "i-2",
            "witnesses": [{"incident": "i-2", "source": "dcgm", "kind": "row_remap_failure", "code": None, "time": AT}],
        },
        Evidence(None, 24, (), "i-2", (HintWitness("i-2", "dcgm", "row_remap_failure", None, NOON),)),
    ),
    (
        {**RISK, "threshold": 0.02, "job": {"job": "77", "run": "llm", "gpus": 512}, "control": True},
        Evidence(0.31, 24, ("3 row remaps",), threshold=0.02, job=JobOnNode("77", "llm", 512), control=True),
    ),
    (
        {"review": True, "held": "budget: full", "call": {"for": "score", "since": AT}, "quiet": "22:00-06:00"},
        Evidence(held="budget: full", call=RefusedHold("score", NOON), quiet="22:00-06:00", review=True),
    ),
    (
        {"incident": "i-3", "what": "xid 79", "spare": "n9", "spare_leaf": None, "spare_score": None, "run": "llm"},
        Evidence(incident="i-3", what="xid 79", spare="n9", run="llm"),
    ),
    (
        {"exclude": ["n1", "n2"], "job_nodes": 64, "code": "xid 79"},
        Evidence(exclude=("n1", "n2"), job_nodes=64, code="xid 79"),
    ),
    (
        {
            "release": {"since": AT, "waits": "for its test"},
            "repair": {"since": AT, "tries": 3, "detail": "row remap failed"},
            "approved": {"by": "alice", "time": AT},
            "closed": {"by": "policy", "time": AT},
        },
        Evidence(
            release=ReleaseWait(NOON, "for its test"),
            repair=RepairCase(NOON, 3, "row remap failed"),
            approved=StateChange("alice", NOON),
            closed=StateChange("policy", NOON),
        ),
    ),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(sorted(Evidence.__dataclass_fields__))


def test_a_cost_of_before_says_nothing_of_what_it_was_reckoned_with() -> None:
    """It is read all the same."""
    former = evidence_of({"cost": {"held_gpu_h": 192.0, "failure_gpu_h": 128.0, "run": None}})
    assert former.cost == HintCost(192.0, 128.0)


@pytest.mark.parametrize(("written", "record"), WRITTEN)
def test_each_kind_of_evidence_is_a_record_and_the_same_json(written: dict[str, Any], record: Evidence) -> None:
    """Key by key; a key without a value is left out, and null where it was null."""
    assert evidence_of(written) == record
    assert record.to_json() == written
    assert list(record.to_json()) == list(written)


def test_what_the_record_does_not_know_survives() -> None:
    """A plug-in's key, and a known key whose value has another shape."""
    foreign = {"nvsentinel": {"check": "GpuXid", "runs": [1, None]}, "score": "high", "closed": "yesterday", "other": 1}
    found = evidence_of(foreign)
    assert (found.score, found.closed, found.to_json()) == (None, None, foreign)


@given(st.dictionaries(st.text(max_size=8) | KEYS, JSON, max_size=6))
def test_any_object_is_read_and_loses_no_value(found: dict[str, Any]) -> None:
    """Whatever is stored: what is read and written once more stays so, and unknown keys are as they were."""
    once = evidence_of(found)
    text = once.to_json()
    assert evidence_of(text) == once
    assert orjson.loads(orjson.dumps(text)) == text
    unknown = found.keys() - Evidence.__dataclass_fields__.keys()
    assert {key: text[key] for key in unknown} == {key: found[key] for key in unknown}
