"""The delivery log, replays by hand, receivers that want less, notices, and the kill switch."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from approvers import ALICE

from schedulers.lifecycle.approval import RequestRefusedError, approve
from schedulers.lifecycle.operator_actions import redeliver, withdraw
from schedulers.policy.settings import Policy
from schedulers.reconcile.delivery import DeliveryOutcome
from schedulers.reconcile.dispatch import RETRY_S, Dispatch, run_dispatch
from store.database.connections import writing
from store.hints.hint_log import audit_page
from store.hints.outbox import attempts_of, delivery_history

from .cluster import HOUR, NOW, hint
from .receivers import BUSY, Scripted, outcomes_of, put, rows_of, state_of, turn

SLOW = DeliveryOutcome("retry", "HTTP 429", retry_after_s=120.0, status=429, slow=True)


def again(engine: sa.Engine, ident: str, now: datetime = NOW, mode: Any = "act") -> None:
    """A person replays a delivery."""
    with writing(engine).begin() as connection:
        redeliver(connection, ident, now, "alice", mode)


def end(engine: sa.Engine, ident: str = "h-a") -> None:
    """A person withdraws a hint."""
    with writing(engine).begin() as connection:
        withdraw(connection, ident, NOW, "alice")


def test_every_attempt_is_logged(any_engine: sa.Engine) -> None:
    """With its status, how long it took, and what came of it."""
    told = Scripted(
        answers=[DeliveryOutcome("retry", "HTTP 503", status=503), DeliveryOutcome("delivered", "HTTP 204", status=204)]
    )
    put(any_engine, hint("a", state="approved"))
    turn(any_engine, told)
    turn(any_engine, told, now=NOW + timedelta(seconds=RETRY_S[0]))
    with any_engine.connect() as connection:
        first, second = attempts_of(connection, "h-a")
        ((delivery, attempts),) = delivery_history(connection, "h-a")
    assert (first.outcome, first.status, first.time, first.detail) == ("retry", 503, NOW, "HTTP 503")
    assert (second.outcome, second.status) == ("delivered", 204)
    assert second.time == NOW + timedelta(seconds=RETRY_S[0])
    assert first.delivery == delivery.id == told.got[0].id
    assert 0.0 <= first.duration_s < 60.0
    assert (delivery.state, list(attempts)) == ("delivered", [first, second])


def test_a_replay_is_made_at_once_under_the_same_id(engine: sa.Engine) -> None:
    """The receiver that lost it can tell that it is the same; the audit says who asked."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    again(engine, told.got[0].id)
    assert turn(engine, told) == ["delivered"]
    assert told.got[0].id == told.got[1].id
    assert told.got[0].payload == told.got[1].payload
    assert outcomes_of(engine) == ["delivered", "replayed", "delivered"]
    with engine.connect() as connection:
        asked = [entry for entry in audit_page(connection, 9, None, "h-a") if entry["actor"] == "alice"]
    assert asked[0]["detail"]["was"] == "delivered"


def test_a_replay_reaches_a_receiver_that_had_gone(engine: sa.Engine) -> None:
    """A person knows better: from then on it gets all the rest, too."""
    told = Scripted(answers=[DeliveryOutcome("gone", "HTTP 410", status=410)])
    put(engine, hint("a", state="approved"), hint("b", state="approved"))
    turn(engine, told)
    assert turn(engine, told) == []
    again(engine, told.got[0].id)
    assert turn(engine, told) == ["delivered"]
    put(engine, hint("c", state="approved"))
    assert turn(engine, told) == ["delivered"]


@pytest.mark.parametrize("what", ["lapsed", "withdrawn", "raised", "unknown", "shadow mode"])
def test_what_is_over_is_not_replayed(engine: sa.Engine, what: str) -> None:
    """An old order must not come back by hand, either."""
    told, now, mode = Scripted(), NOW, "act"
    put(engine, hint("a", "avoid", state="approved"))
    turn(engine, told)
    if what == "lapsed":
        now += 23 * HOUR
    elif what == "withdrawn":
        end(engine)
    elif what == "raised":
        put(engine, hint("a", "cordon", state="approved"))
    elif what == "shadow mode":
        mode = "shadow"
    ident = "nobody" if what == "unknown" else told.got[0].id
    with pytest.raises(RequestRefusedError) as caught:
        again(engine, ident, now, mode)
    assert caught.value.known is (what != "unknown")
    assert rows_of(engine)[0].state == "delivered"


def test_a_release_may_always_be_replayed(engine: sa.Engine) -> None:
    """However old its hint."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    end(engine)
    turn(engine, told)
    again(engine, told.got[1].id, NOW + 30 * HOUR)
    assert turn(engine, told, now=NOW + 30 * HOUR) == ["delivered"]
    assert told.actions() == ["cordon", "release", "release"]


def test_a_receiver_that_wants_less_is_left_alone_for_a_while(engine: sa.Engine) -> None:
    """All that it is owed waits as long as it says; the other receiver gets its own."""
    busy, well = Scripted("busy", answers=[SLOW]), Scripted("well")
    put(engine, *(hint(f"n{i}", state="approved") for i in range(5)))
    assert sorted(turn(engine, busy, well)) == ["delivered"] * 5 + ["retry"]
    assert turn(engine, busy, well, now=NOW + timedelta(seconds=119)) == []
    assert turn(engine, busy, well, now=NOW + timedelta(seconds=120)) == ["delivered"] * 5
    assert (len(busy.got), len(well.got)) == (6, 5)


def test_many_deliveries_to_one_that_is_away_do_not_keep_another_waiting(engine: sa.Engine) -> None:
    """More than a turn takes: those to the other get their place."""
    away = Scripted("away", answers=[replace(SLOW, retry_after_s=0.0)] * 1000)
    put(engine, *(hint(f"n{i:03}", state="approved") for i in range(60)))
    turn(engine, away)
    well = Scripted("well")
    turn(engine, away, well)
    turn(engine, away, well)
    assert len(well.got) == 60
    assert len(away.got) <= 3


def test_no_attempt_is_made_after_the_hint_has_lapsed_within_a_turn(engine: sa.Engine) -> None:
    """Receivers that do not answer make a turn long; the clock runs on."""
    until = hint("x").valid_until
    now = until - timedelta(seconds=10)
    ticks: Iterator[datetime] = iter([now + timedelta(seconds=6 * i) for i in range(20)])
    told = Scripted(answers=[BUSY] * 9)
    put(engine, *(hint(f"n{i}", state="approved") for i in range(5)))
    means = Dispatch(engine, [told], "act", jitter=lambda: 0.0, wall=lambda: next(ticks))
    run_dispatch(means, now, lambda: True)
    with engine.connect() as connection:
        times = [one.time for i in range(5) for one in attempts_of(connection, f"h-n{i}")]
    assert times == [now + timedelta(seconds=6)], "the second would have gone out 18 s after the turn began"
    assert len(told.got) == 1


def test_a_proposal_is_told_to_those_who_asked_and_is_no_order(engine: sa.Engine) -> None:
    """Its action is `proposed`; once a person has approved it the order follows, and the word is not repeated."""
    chat, ops = Scripted("chat", states=("proposed", "approved"), is_notice=True), Scripted("ops")
    put(engine, hint("a", state="proposed"))
    turn(engine, chat, ops, mode="approve")
    assert (chat.actions(), ops.actions()) == (["proposed"], [])
    assert chat.got[0].payload["data"]["asks"] == "cordon"
    assert state_of(engine) == "proposed"
    with writing(engine).begin() as connection:
        approve(connection, "h-a", NOW, ALICE, Policy(mode="approve"))
    turn(engine, chat, mode="approve")
    assert (chat.actions(), state_of(engine)) == (["proposed", "cordon"], "approved"), "people read it: nobody took it"
    turn(engine, chat, ops, mode="approve")
    assert (ops.actions(), state_of(engine)) == (["cordon"], "sent")


def test_a_proposal_that_was_not_told_in_time_is_not_told_late(engine: sa.Engine) -> None:
    """Approved in between: the word that it waits would be wrong."""
    chat = Scripted("chat", states=("proposed",), is_notice=True, answers=[BUSY])
    put(engine, hint("a", state="proposed"))
    turn(engine, chat, mode="approve")
    with writing(engine).begin() as connection:
        approve(connection, "h-a", NOW, ALICE, Policy(mode="approve"))
    assert turn(engine, chat, mode="approve", now=NOW + timedelta(seconds=RETRY_S[0])) == []
    assert rows_of(engine)[0].last_error == "the hint was raised or renewed since"


def test_people_are_told_that_a_job_s_hint_is_over(engine: sa.Engine) -> None:
    """A scheduler is not: a release would speak of the node."""
    chat, ops = Scripted("chat", is_notice=True), Scripted("ops")
    put(engine, replace(hint("a", "requeue", state="approved"), job="77"))
    turn(engine, chat, ops)
    end(engine)
    turn(engine, chat, ops)
    assert (chat.actions(), ops.actions()) == (["requeue", "release"], ["requeue"])


def test_what_is_stopped_does_not_stand_before_a_release(engine: sa.Engine) -> None:
    """More holds wait than a turn takes."""
    told = Scripted()
    put(engine, hint("z", state="approved"))
    turn(engine, told)
    put(engine, *(hint(f"n{i:03}", state="approved") for i in range(60)))
    end(engine, "h-z")
    for second in range(2):
        means = Dispatch(engine, [told], "act", lambda: 0.0, lambda: NOW, lambda _connection: "holds")
        run_dispatch(means, NOW + timedelta(seconds=second), lambda: True)
    assert told.actions() == ["cordon", "release"]


@pytest.mark.parametrize(("stop", "expected"), [("holds", ["release"]), ("all", []), ("none", ["cordon", "release"])])
def test_the_kill_switch_holds_deliveries_up(engine: sa.Engine, stop: Any, expected: list[str]) -> None:
    """It is asked before each; what it held up goes out once it is lifted."""
    before, told = Scripted(), Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, before)
    end(engine)
    put(engine, hint("b", state="approved"))

    def run(word: Any, now: datetime) -> None:
        means = Dispatch(engine, [told], "act", lambda: 0.0, lambda: now, lambda _connection: word)
        run_dispatch(means, now, lambda: True)

    run(stop, NOW)
    assert sorted(told.actions()) == expected
    run("none", NOW + timedelta(seconds=RETRY_S[0]))
    assert sorted(told.actions()) == ["cordon", "release"]
