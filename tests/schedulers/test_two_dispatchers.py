"""Two dispatchers on one outbox, and hints that change while a delivery is under way."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.operator_actions import withdraw
from schedulers.reconcile.dispatch import RETRY_S, Dispatch, run_dispatch
from store.database.connections import writing
from store.hints.hint_log import audit_page, close_hint, read_hint

from .cluster import HOUR, NOW, hint
from .receivers import BUSY, DELIVERED, Scripted, outcomes_of, put, rows_of, state_of, turn

AFTER_FIRST = NOW + timedelta(seconds=RETRY_S[0])


def end(engine: sa.Engine, ident: str = "h-a") -> None:
    """A person withdraws the hint."""
    with writing(engine).begin() as connection:
        withdraw(connection, ident, NOW, "alice")


def test_a_delivery_that_another_dispatcher_made_is_not_owed_again(engine: sa.Engine) -> None:
    """Both send, one is taken, the other fails later: what was taken stays taken."""
    put(engine, hint("a", state="approved"))
    fast = Scripted()
    slow = Scripted(answers=[BUSY], meanwhile=lambda: turn(engine, fast) and None)
    assert turn(engine, slow) == ["retry"]
    assert [row.state for row in rows_of(engine)] == ["delivered"]
    assert turn(engine, slow, now=AFTER_FIRST) == []
    assert (len(fast.got), len(slow.got)) == (1, 1)
    assert fast.got[0].id == slow.got[0].id, "the receiver can tell the repeat by its id"


def test_a_delivery_that_another_dispatcher_gave_up_stays_given_up(engine: sa.Engine) -> None:
    """A receiver that is gone for one is gone for all."""
    put(engine, hint("a", state="approved"))
    first = Scripted(answers=[replace(BUSY, result="gone", detail="HTTP 410")])
    second = Scripted(answers=[BUSY], meanwhile=lambda: turn(engine, first) and None)
    turn(engine, second)
    assert [row.state for row in rows_of(engine)] == ["failed"]
    assert turn(engine, second, now=AFTER_FIRST) == []


def test_of_many_dispatchers_at_once_the_outbox_has_one_row_a_receiver(any_engine: sa.Engine) -> None:
    """Each hint ends up sent, each row delivered, none twice in the book."""
    put(any_engine, *(hint(f"n{i}", state="approved") for i in range(6)))
    receivers = [Scripted() for _ in range(4)]
    failures: list[BaseException] = []

    def work(receiver: Scripted) -> None:
        try:
            turn(any_engine, receiver)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(receiver,)) for receiver in receivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for i in range(6):
        (row,) = rows_of(any_engine, f"h-n{i}")
        assert (row.state, row.attempts) == ("delivered", 1)
        assert state_of(any_engine, f"h-n{i}") == "sent"
    with any_engine.connect() as connection:
        became_sent = [e for e in audit_page(connection, 1000, None, None) if e["detail"].get("was") == "approved"]
    assert len(became_sent) == 6, "one of them moved each hint, whoever sent it"
    assert turn(any_engine, Scripted()) == []


def test_a_hint_withdrawn_while_it_is_sent_stays_withdrawn_and_is_released(engine: sa.Engine) -> None:
    """The person's word wins over the late `sent`, and the receiver is told to let go."""
    put(engine, hint("a", state="approved"))
    told = Scripted(meanwhile=lambda: end(engine))
    assert turn(engine, told) == ["delivered"]
    assert state_of(engine) == "withdrawn"
    assert turn(engine, told) == ["delivered"]
    assert told.actions() == ["cordon", "release"]
    assert turn(engine, told) == []


def test_a_hint_withdrawn_before_its_first_attempt_is_never_sent(engine: sa.Engine) -> None:
    """It was owed, and nobody was told: there is nothing to release either."""
    put(engine, hint("a", state="approved"))
    means = Dispatch(engine, [Scripted()], "act", lambda: 0.0, lambda: NOW)
    run_dispatch(means, NOW, lambda: False)
    end(engine)
    told = Scripted()
    assert turn(engine, told) == []
    assert told.got == []
    assert [row.state for row in rows_of(engine)] == ["expired"]
    assert outcomes_of(engine) == ["expired"]


def test_a_late_retry_does_not_undo_the_escalation_that_came_after(engine: sa.Engine) -> None:
    """The avoid failed, the cordon was taken: the avoid must not come once more behind it."""
    told = Scripted(answers=[BUSY])
    put(engine, hint("a", "avoid", state="approved"))
    turn(engine, told)
    put(engine, hint("a", "cordon", state="approved"))
    assert turn(engine, told) == ["delivered"]
    assert turn(engine, told, now=AFTER_FIRST) == []
    assert told.actions() == ["avoid", "cordon"]
    assert [(row.payload["data"]["action"], row.state) for row in rows_of(engine)] == [
        ("cordon", "delivered"),
        ("avoid", "expired"),
    ]
    assert outcomes_of(engine) == ["retry", "delivered", "superseded"]


def test_a_late_retry_does_not_shorten_a_hint_that_was_renewed(engine: sa.Engine) -> None:
    """The end that was sent last is the one that holds."""
    told = Scripted(answers=[BUSY])
    first = hint("a", state="approved")
    put(engine, first)
    turn(engine, told)
    put(engine, replace(first, valid_until=first.valid_until + 12 * HOUR))
    turn(engine, told, now=AFTER_FIRST)
    ends = [delivery.payload["data"]["valid_until"] for delivery in told.got]
    assert ends == ["2025-03-02T10:00:00.000000Z", "2025-03-02T22:00:00.000000Z"]


def test_an_approved_avoid_is_still_tried_while_its_escalation_waits_for_a_person(engine: sa.Engine) -> None:
    """Until somebody says yes to the cordon, the avoid is what was agreed upon."""
    told = Scripted(answers=[BUSY])
    put(engine, hint("a", "avoid", state="approved"))
    turn(engine, told, mode="approve")
    put(engine, hint("a", "cordon", state="proposed"))
    assert turn(engine, told, now=AFTER_FIRST, mode="approve") == ["delivered"]
    assert told.actions() == ["avoid", "avoid"]
    assert state_of(engine) == "proposed"


@pytest.mark.parametrize("ended", ["withdrawn", "expired", "released"])
def test_however_a_taken_hint_ends_it_is_released(engine: sa.Engine, ended: Any) -> None:
    """Once, whatever the number of turns after."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    with writing(engine).begin() as connection:
        found = read_hint(connection, "h-a")
        assert found is not None
        close_hint(connection, found, ended, NOW, "policy")
    for minute in range(3):
        turn(engine, told, now=NOW + timedelta(minutes=minute))
    assert told.actions() == ["cordon", "release"]


def test_a_release_is_tried_again_like_everything_else(engine: sa.Engine) -> None:
    """A node must not stay cordoned because one message was lost."""
    told = Scripted(answers=[DELIVERED, BUSY])
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    end(engine)
    assert turn(engine, told) == ["retry"]
    assert turn(engine, told, now=AFTER_FIRST) == ["delivered"]
    assert told.actions() == ["cordon", "release", "release"]


def test_a_release_is_sent_after_the_hint_itself_would_have_lapsed(engine: sa.Engine) -> None:
    """Its own validity does not end it; a week later it is history."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    end(engine)
    assert turn(engine, told, now=NOW + 48 * HOUR) == ["delivered"]
    assert told.actions()[-1] == "release"
    other = Scripted("other")
    put(engine, replace(hint("b", state="approved")))
    turn(engine, other)
    end(engine, "h-b")
    assert turn(engine, other, now=NOW + timedelta(days=9)) == []


def test_a_mode_set_back_to_shadow_holds_releases_too_until_it_is_set_forward(engine: sa.Engine) -> None:
    """Shadow sends nothing at all; what is owed waits."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    end(engine)
    assert turn(engine, told, mode="shadow") == []
    assert turn(engine, told, mode="act") == ["delivered"]
    assert told.actions() == ["cordon", "release"]


@pytest.mark.parametrize("state", ["sent", "confirmed"])
def test_a_hint_that_another_scheduler_took_first_is_sent_all_the_same(engine: sa.Engine, state: Any) -> None:
    """One that is read back is faster than an outbox; and a renewal of what it confirmed is told, too."""
    told = Scripted()
    put(engine, hint("a", state=state))
    assert turn(engine, told) == ["delivered"]
    assert turn(engine, told) == []
    assert state_of(engine) == state
    renewed = hint("a", state=state)
    put(engine, replace(renewed, valid_until=renewed.valid_until + HOUR))
    assert turn(engine, told) == ["delivered"]
    assert turn(engine, told) == []
