"""A person's word on a hint, on the store alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from approvers import ALICE, BOB

from schedulers.lifecycle.approval import RequestRefusedError, approve
from schedulers.lifecycle.operator_actions import release_node, withdraw
from schedulers.policy.decision import decide
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.hints.hint_log import approve_hint, audit_page, read_hint, recent_hints
from store.records.hint import StateChange

from .cluster import HOUR, NOW, fault, hint
from .receivers import put, state_of


def actors(engine: sa.Engine) -> list[str]:
    """Who is in the audit of h-a, oldest first."""
    with engine.connect() as connection:
        return [entry["actor"] for entry in reversed(audit_page(connection, 100, None, "h-a"))]


@pytest.mark.parametrize(
    ("state", "mode", "words"),
    [
        ("shadow", "act", "is a shadow"),
        ("expired", "act", "has ended"),
        ("withdrawn", "approve", "has ended"),
        ("released", "approve", "has ended"),
        ("proposed", "shadow", "shadow mode"),
    ],
)
def test_what_cannot_be_approved_is_said_and_left(engine: sa.Engine, state: Any, mode: Any, words: str) -> None:
    """The sentence names why; nothing is written."""
    put(engine, hint("a", state=state))
    with writing(engine).begin() as connection, pytest.raises(RequestRefusedError, match=words) as caught:
        approve(connection, "h-a", NOW, ALICE, Policy(mode=mode))
    assert caught.value.known
    assert (state_of(engine), actors(engine)) == (state, ["policy"])


def test_a_proposal_lapses_at_its_very_end(engine: sa.Engine) -> None:
    """A moment before it can be approved, at the end no more."""
    put(engine, hint("a", state="proposed"))
    end = hint("a").valid_until
    with writing(engine).begin() as connection:
        with pytest.raises(RequestRefusedError, match="has lapsed"):
            approve(connection, "h-a", end, ALICE, Policy(mode="approve"))
        assert approve(connection, "h-a", end - timedelta(seconds=1), ALICE, Policy(mode="approve")).state == "approved"


def test_a_hint_tells_who_said_yes(engine: sa.Engine) -> None:
    """And when; one that somebody else ended in between was approved by nobody."""
    put(engine, hint("a", state="proposed"))
    with writing(engine).begin() as connection:
        approved = approve(connection, "h-a", NOW, ALICE, Policy(mode="approve"))
        stored = read_hint(connection, "h-a")
        assert stored == approved
        assert approved.evidence.approved == StateChange("alice", NOW)
        ended = withdraw(connection, "h-a", NOW, "bob")
        assert approve_hint(connection, approved, NOW, "carol") == ended
        assert ended.evidence.approved == StateChange("alice", NOW)


@pytest.mark.parametrize("state", ["approved", "sent"])
def test_approving_again_writes_nothing(engine: sa.Engine, state: Any) -> None:
    """Idempotent, whoever asks."""
    put(engine, hint("a", state=state))
    with writing(engine).begin() as connection:
        assert approve(connection, "h-a", NOW, BOB, Policy(mode="approve")).state == state
    assert actors(engine) == ["policy"]


@pytest.mark.parametrize("state", ["shadow", "proposed", "approved", "sent"])
def test_every_open_hint_can_be_withdrawn_with_who_and_when(engine: sa.Engine, state: Any) -> None:
    """The evidence keeps what was there."""
    put(engine, hint("a", state=state))
    with writing(engine).begin() as connection:
        ended = withdraw(connection, "h-a", NOW, "alice")
    assert ended.state == "withdrawn"
    assert ended.evidence.closed == StateChange("alice", NOW)
    assert ended.evidence.score == 0.5
    assert actors(engine) == ["policy", "alice"]


def test_the_first_to_withdraw_is_the_one_who_did(engine: sa.Engine) -> None:
    """A second word changes neither name nor time, and fills no audit."""
    put(engine, hint("a"))
    with writing(engine).begin() as connection:
        withdraw(connection, "h-a", NOW, "alice")
        again = withdraw(connection, "h-a", NOW + HOUR, "bob")
    assert again.evidence.closed and again.evidence.closed.by == "alice"
    assert actors(engine) == ["policy", "alice"]


@pytest.mark.parametrize("verdict", [withdraw, lambda c, i, n, w: approve(c, i, n, ALICE, Policy(mode="act"))])
def test_an_id_that_nobody_gave_is_not_known(engine: sa.Engine, verdict: Any) -> None:
    """So that the API can answer 404, not 409."""
    with writing(engine).begin() as connection, pytest.raises(RequestRefusedError, match="'nope'") as caught:
        verdict(connection, "nope", NOW, "alice")
    assert not caught.value.known


def test_a_release_ends_what_is_open_of_the_node_and_nothing_else(engine: sa.Engine) -> None:
    """Neither another node's nor an old one."""
    older = replace(hint("a", state="expired"), id="h-old")
    put(engine, hint("a"), older, hint("b"))
    with writing(engine).begin() as connection:
        assert [one.id for one in release_node(connection, "a", NOW, "alice")] == ["h-a"]
        assert read_hint(connection, "h-old") == older
    assert state_of(engine, "h-b") == "sent"
    with writing(engine).begin() as connection, pytest.raises(RequestRefusedError, match="no open hint of ours"):
        release_node(connection, "a", NOW, "alice")


@pytest.mark.parametrize(
    "word", [lambda c: withdraw(c, "h-a", NOW, "alice"), lambda c: release_node(c, "a", NOW, "al")]
)
def test_the_policy_heeds_the_word_until_something_new_happens(engine: sa.Engine, word: Any) -> None:
    """Through the store: the no is found among the recent hints, and a newer fault overrides it."""
    put(engine, hint("a"))
    with writing(engine).begin() as connection:
        word(connection)
        hints = tuple(recent_hints(connection, NOW, HOUR))
    policy = Policy(mode="act")
    risky = NodeFacts("a", score=0.9)
    assert decide(Inputs(NOW, [risky], hints), policy).changed == ()
    later = NOW + 2 * HOUR
    newly_broken = replace(risky, fault=fault("a", hours_ago=-1))
    ((made, said),) = decide(Inputs(later, [newly_broken], hints), policy).changed
    assert (made.action, said) == ("cordon", "made")
    assert made.id != "h-a"
