"""When a delivery is tried again, how long, and what each kind of answer does to the others."""

from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schedulers.reconcile.delivery import MAX_PAYLOAD_BYTES, DeliveryOutcome, payload
from schedulers.reconcile.dispatch import RETRY_S, Dispatch, run_dispatch
from store.database.connections import writing
from store.hints.outbox import (
    Delivery,
    due_deliveries,
    has_error,
    queue_deliveries,
    save_attempt_result,
)

from .cluster import HOUR, NOW, hint
from .receivers import BUSY, Scripted, outcomes_of, put, rows_of, state_of, turn


def test_each_wait_is_the_next_of_the_schedule(engine: sa.Engine) -> None:
    """Counted from the attempt, not from the first one."""
    told = Scripted(answers=[BUSY] * len(RETRY_S))
    put(engine, replace(hint("a", state="approved"), valid_until=NOW + timedelta(days=30)))
    now = NOW
    for attempt, wait_s in enumerate(RETRY_S, start=1):
        assert turn(engine, told, now=now) == ["retry"]
        (row,) = rows_of(engine)
        assert (row.attempts, row.state, row.due) == (attempt, "owed", now + timedelta(seconds=wait_s))
        now = row.due
    assert turn(engine, told, now=now) == ["delivered"]
    (row,) = rows_of(engine)
    assert (row.state, row.attempts, row.last_error) == ("delivered", len(RETRY_S) + 1, None)


def test_the_schedule_only_grows() -> None:
    """Nobody is hammered."""
    assert list(RETRY_S) == sorted(set(RETRY_S))
    assert sum(RETRY_S) < timedelta(days=4).total_seconds()


@pytest.mark.parametrize(("asked_s", "waits_s"), [(0.0, 5.0), (4.0, 5.0), (60.0, 60.0), (86_400.0, 86_400.0)])
def test_a_retry_after_may_only_lengthen_the_wait(engine: sa.Engine, asked_s: float, waits_s: float) -> None:
    """The receiver knows better when it will be back, not how eager we should be."""
    told = Scripted(answers=[DeliveryOutcome("retry", "HTTP 429", retry_after_s=asked_s)])
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    assert rows_of(engine)[0].due == NOW + timedelta(seconds=waits_s)


def test_a_retry_after_beyond_the_hint_s_end_lets_it_lapse(engine: sa.Engine) -> None:
    """A day of waiting for a hint of 22 h: it is dropped when its turn comes, and nobody is told."""
    told = Scripted(answers=[DeliveryOutcome("retry", "HTTP 429", retry_after_s=86_400.0)])
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    assert turn(engine, told, now=NOW + 24 * HOUR) == []
    assert [row.state for row in rows_of(engine)] == ["expired"]
    assert outcomes_of(engine) == ["retry", "expired"]


@given(jitter=st.floats(0, 1), retry_after_s=st.floats(0, 86_400), attempts=st.integers(0, len(RETRY_S) - 1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_wait_is_shorter_than_asked_or_longer_than_a_fifth_more(
    engine: sa.Engine, jitter: float, retry_after_s: float, attempts: int
) -> None:
    """Whatever the jitter, the attempt and the receiver's wish."""
    put(engine, replace(hint("a", state="approved"), valid_until=NOW + timedelta(days=90)))
    told = Scripted(answers=[DeliveryOutcome("retry", "x", retry_after_s)])
    means = Dispatch(engine, [told], "act", lambda: jitter, lambda: NOW)
    run_dispatch(means, NOW, lambda: False)
    with writing(engine).begin() as connection:
        save_attempt_result(connection, replace(rows_of(engine)[0], attempts=attempts, due=NOW))
    run_dispatch(means, NOW, lambda: True)
    (row,) = rows_of(engine)
    floor_s = max(RETRY_S[attempts], retry_after_s)
    waited_s = (row.due - NOW).total_seconds()
    assert floor_s - 1e-5 <= waited_s <= floor_s * 1.2 + 1e-5
    with writing(engine).begin() as connection:
        connection.execute(sa.text("DELETE FROM outbox"))


def test_what_is_refused_is_not_tried_again_and_nothing_else_suffers(engine: sa.Engine) -> None:
    """Refused is about one message; gone is about the receiver."""
    told = Scripted(answers=[DeliveryOutcome("refused", "HTTP 422")])
    put(engine, hint("a", state="approved"), hint("b", state="approved"))
    assert turn(engine, told) == ["refused", "delivered"]
    assert [row.state for row in rows_of(engine)] == ["failed"]
    assert turn(engine, told, now=NOW + HOUR) == []
    assert (state_of(engine, "h-a"), state_of(engine, "h-b")) == ("approved", "sent")


def test_a_410_stops_the_rest_of_the_same_turn(engine: sa.Engine) -> None:
    """Three were due; the first answer settles all, with the reason in the audit."""
    told = Scripted(answers=[DeliveryOutcome("gone", "HTTP 410")])
    put(engine, *(hint(node, state="approved") for node in "abc"))
    assert turn(engine, told) == ["gone"]
    assert len(told.got) == 1
    assert {row.state for node in "abc" for row in rows_of(engine, f"h-{node}")} == {"failed"}
    assert sorted(outcomes_of(engine, "h-a") + outcomes_of(engine, "h-b")) == ["failed", "gone"]


def test_a_410_of_one_receiver_is_no_matter_of_another(engine: sa.Engine) -> None:
    """Not even of one at the same address under another name."""
    gone, well = Scripted("one", answers=[DeliveryOutcome("gone", "HTTP 410")]), Scripted("two")
    put(engine, hint("a", state="approved"))
    assert sorted(turn(engine, gone, well)) == ["delivered", "gone"]
    put(engine, hint("b", state="approved"))
    assert turn(engine, gone, well) == ["delivered"]
    assert (len(gone.got), len(well.got)) == (1, 2)


def test_the_turn_ends_early_when_the_lease_is_lost(engine: sa.Engine) -> None:
    """Asked before each delivery; the rest stays owed for the next holder."""
    put(engine, *(hint(node, state="approved") for node in "abc"))
    told, left = Scripted(), [True, False]
    means = Dispatch(engine, [told], "act", lambda: 0.0, lambda: NOW)
    assert len(run_dispatch(means, NOW, lambda: left.pop(0))) == 1
    assert sorted(row.state for node in "abc" for row in rows_of(engine, f"h-{node}")) == ["delivered", "owed", "owed"]
    assert turn(engine, told) == ["delivered", "delivered"]


def test_a_turn_takes_a_bounded_number_and_the_longest_due_first(engine: sa.Engine) -> None:
    """Fifty; a long queue does not hold up the next turn's new hints for ever."""
    with writing(engine).begin() as connection:
        queue_deliveries(connection, [delivery(i) for i in range(60)])
        due = due_deliveries(connection, NOW, 50)
        assert [row.id for row in due[:2]] == ["d59", "d58"]
        assert len(due) == 50
        assert due_deliveries(connection, NOW - HOUR, 50) == []


def delivery(number: int) -> Delivery:
    """A row of its own; the higher the number, the longer it is due."""
    data = {"action": "cordon", "mode": "act"}
    return Delivery(f"d{number:02}", "h-a", "ops", {"data": data}, 0, NOW - timedelta(seconds=number))


def test_what_is_owed_already_is_left_as_it_is(engine: sa.Engine) -> None:
    """Its attempts and its time are not forgotten by the next turn."""
    with writing(engine).begin() as connection:
        queue_deliveries(connection, [delivery(1)])
        save_attempt_result(connection, replace(delivery(1), attempts=3, due=NOW + HOUR, last_error="HTTP 503"))
        queue_deliveries(connection, [delivery(1), delivery(2)])
        queue_deliveries(connection, [])
        assert [row.id for row in due_deliveries(connection, NOW, 10)] == ["d02"]
        assert due_deliveries(connection, NOW + HOUR, 10)[1].attempts == 3


def test_an_error_is_remembered_by_receiver_and_only_when_final(engine: sa.Engine) -> None:
    """A retry's error is none, another receiver's neither."""
    with writing(engine).begin() as connection:
        queue_deliveries(connection, [delivery(1)])
        save_attempt_result(connection, replace(delivery(1), last_error="HTTP 410 from http://x"))
        assert not has_error(connection, "ops", "HTTP 410 from http://x")
        save_attempt_result(connection, replace(delivery(1), state="failed", last_error="HTTP 410 from http://x"))
        assert has_error(connection, "ops", "HTTP 410 from http://x")
        assert not has_error(connection, "other", "HTTP 410 from http://x")
        assert not has_error(connection, "ops", "HTTP 410 from http://y")


def test_a_settled_delivery_is_never_due_again(engine: sa.Engine) -> None:
    """Nor can a late word change what became of it."""
    with writing(engine).begin() as connection:
        for number, state in enumerate(("delivered", "failed", "expired")):
            queue_deliveries(connection, [delivery(number)])
            save_attempt_result(connection, replace(delivery(number), state=state, attempts=1))
            save_attempt_result(connection, replace(delivery(number), state="owed", attempts=9))
        assert due_deliveries(connection, NOW, 10) == []


def test_a_payload_with_short_evidence_is_sent_whole() -> None:
    """With every field that the documentation names, times as text."""
    document = payload(hint("a", score=0.5), "drain", "approve", NOW)
    assert document["type"] == "foreshock.hint.drain"
    assert document["timestamp"] == "2025-03-01T12:00:00.000000Z"
    assert document["data"] == {
        "id": "h-a",
        "node": "a",
        "action": "drain",
        "state": "sent",
        "reason": "foreshock: test",
        "owner": "foreshock",
        "created": "2025-03-01T10:00:00.000000Z",
        "valid_until": "2025-03-02T10:00:00.000000Z",
        "evidence": {"acted": "2025-03-01T10:00:00.000000Z", "score": 0.5},
        "mode": "approve",
        "job": None,
        "policy": None,
    }


@given(st.integers(0, 40_000))
@example(9_801)
@settings(max_examples=30)
def test_no_payload_is_over_the_limit(length: int) -> None:
    """Counted in bytes as sent: the standard asks for under 20 kB. Nothing is left out that had room."""
    import orjson

    around = len(orjson.dumps(payload(hint("a", other={"text": ""}), "cordon", "act", NOW)))
    document = payload(hint("a", other={"text": "ü" * length}), "cordon", "act", NOW)
    assert len(orjson.dumps(document)) <= MAX_PAYLOAD_BYTES
    assert ("left_out" in document["data"]["evidence"]) == (around + 2 * length > MAX_PAYLOAD_BYTES)
