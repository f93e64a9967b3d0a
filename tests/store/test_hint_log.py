"""Hints and their audit in the store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from store.database.connections import writing
from store.hints.hint_log import (
    audit_page,
    change_state,
    close_hint,
    note,
    read_hint,
    read_hints,
    recent_hints,
    save_hint,
)
from store.records.hint import HINT_ACTIONS, OPEN_STATES, Evidence, Hint, StateChange, evidence_of
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hint(ident: str = "h1", node: str = "n1", state: Any = "proposed", hours_ago: float = 1, **changes: Any) -> Hint:
    """A cordon for a day."""
    made = NOW - hours_ago * HOUR
    found = Hint(ident, node, "cordon", state, "foreshock: t", "foreshock", made, made + 24 * HOUR, Evidence(score=0.5))
    return replace(found, **changes)


@pytest.fixture
def connection(any_engine: sa.Engine) -> Any:
    """A transaction on either kind of database."""
    with writing(any_engine).begin() as connection:
        yield connection


def test_a_hint_comes_back_as_it_was_saved(connection: sa.Connection) -> None:
    """Every action and state, evidence of any shape, times to the microsecond."""
    odd = {"list": [1, 2.5, None], "inner": {"ü": True}, "reasons": ["a", "b"]}
    for i, action in enumerate(HINT_ACTIONS):
        one = hint(f"h{i}", action=action, evidence=evidence_of(odd), valid_until=NOW + timedelta(microseconds=1))
        save_hint(connection, one, NOW, {})
        assert read_hint(connection, f"h{i}") == one
    assert read_hint(connection, "none") is None


def test_saving_again_replaces_all_but_who_and_since_when(connection: sa.Connection) -> None:
    """Id, node and creation are the hint's own."""
    save_hint(connection, hint(), NOW, {"change": "made"})
    later = hint(action="drain", state="approved", created=NOW, reason="foreshock: worse", evidence=Evidence(score=0.9))
    save_hint(connection, replace(later, node="other"), NOW, {"change": "escalated"})
    found = read_hint(connection, "h1")
    assert found == replace(later, created=hint().created, node="n1")
    entries = audit_page(connection, 10, None, "h1")
    assert [(e["action"], e["detail"]["hint"], e["detail"]["change"]) for e in entries] == [
        ("approved", "drain", "escalated"),
        ("proposed", "cordon", "made"),
    ]
    assert {e["actor"] for e in entries} == {"policy"}


def test_hints_are_read_by_state_and_node_in_the_order_they_were_made(connection: sa.Connection) -> None:
    """By id within one moment; no states asked for is none found, not all."""
    for ident, node, state, ago in (("b", "n1", "sent", 1), ("a", "n2", "sent", 1), ("c", "n1", "expired", 5)):
        save_hint(connection, hint(ident, node, state, ago), NOW, {})
    assert [one.id for one in read_hints(connection)] == ["c", "a", "b"]
    assert [one.id for one in read_hints(connection, states=OPEN_STATES)] == ["a", "b"]
    assert [one.id for one in read_hints(connection, node="n1")] == ["c", "b"]
    assert [one.id for one in read_hints(connection, states=("sent",), node="n2")] == ["a"]
    assert read_hints(connection, states=()) == []


def test_a_state_changes_only_from_what_the_caller_saw(connection: sa.Connection) -> None:
    """Somebody was quicker: nothing is written, and what is there is told."""
    seen = hint()
    save_hint(connection, seen, NOW, {})
    assert change_state(connection, seen, "approved", NOW, "alice").state == "approved"
    late = change_state(connection, seen, "withdrawn", NOW, "bob")
    assert late.state == "approved"
    assert [e["actor"] for e in audit_page(connection, 10, None, "h1")] == ["alice", "policy"]


@pytest.mark.parametrize("changes", [{"action": "drain"}, {"valid_until": NOW + 99 * HOUR}])
def test_a_hint_that_was_raised_meanwhile_is_not_taken_for_the_old_one(
    connection: sa.Connection, changes: dict[str, Any]
) -> None:
    """A dispatcher that delivered the old one must not mark the new one as sent."""
    seen = hint(state="approved")
    save_hint(connection, replace(seen, **changes), NOW, {})
    assert change_state(connection, seen, "sent", NOW, "dispatch").state == "approved"
    assert read_hint(connection, "h1") == replace(seen, **changes)


def test_a_hint_that_is_not_there_is_handed_back(connection: sa.Connection) -> None:
    """Nothing is written for it."""
    assert change_state(connection, hint(), "sent", NOW, "dispatch") == hint()
    assert close_hint(connection, hint(), "expired", NOW, "policy") == hint()
    assert audit_page(connection, 10, None, None) == []


def test_an_end_is_kept_with_its_author_and_the_evidence_stays(connection: sa.Connection) -> None:
    """Closing twice keeps the first."""
    save_hint(connection, hint(), NOW, {})
    ended = close_hint(connection, hint(), "withdrawn", NOW, "alice")
    assert ended.evidence == Evidence(score=0.5, closed=StateChange("alice", NOW))
    assert read_hint(connection, "h1") == ended
    assert close_hint(connection, ended, "withdrawn", NOW + HOUR, "bob") == ended


def test_what_the_policy_must_remember_is_found(connection: sa.Connection) -> None:
    """Open, valid within the window, or made within it; the rest is history."""
    rows = {
        "open-old": hint("open-old", state="sent", hours_ago=90),
        "valid": hint("valid", state="withdrawn", hours_ago=5),
        "young": hint("young", state="released", hours_ago=0.5, valid_until=NOW - timedelta(minutes=1)),
        "history": hint("history", state="expired", hours_ago=40),
        "edge": hint("edge", state="expired", hours_ago=1, valid_until=NOW),
    }
    for one in rows.values():
        save_hint(connection, one, NOW, {})
    assert {one.id for one in recent_hints(connection, NOW, HOUR)} == {"open-old", "valid", "young", "edge"}
    assert {one.id for one in recent_hints(connection, NOW, HOUR / 120)} == {"open-old", "valid", "edge"}


def test_the_audit_is_paged_by_its_number_and_never_rewritten(connection: sa.Connection) -> None:
    """The newest first; the detail names the node beside what is given."""
    for i in range(5):
        note(connection, NOW + i * HOUR, f"actor{i}", hint("h1" if i % 2 else "h2"), {"n": i})
    first = audit_page(connection, 2, None, None)
    second = audit_page(connection, 2, first[-1]["seq"], None)
    assert [e["actor"] for e in [*first, *second]] == ["actor4", "actor3", "actor2", "actor1"]
    assert first[0]["detail"] == {"node": "n1", "n": 4}
    assert [e["detail"]["n"] for e in audit_page(connection, 9, None, "h1")] == [3, 1]
    assert connection.scalar(sa.select(sa.func.count()).select_from(schema.audit)) == 5
