"""The dispatcher: what is owed to whom, when it is tried again, and when it is dropped."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from approvers import ALICE

from api.loops.verdicts import plain
from schedulers.lifecycle.approval import approve
from schedulers.lifecycle.operator_actions import release_node, withdraw
from schedulers.policy.settings import Policy
from schedulers.reconcile.delivery import MAX_PAYLOAD_BYTES, DeliveryOutcome, payload, verdict_delivery
from schedulers.reconcile.dispatch import RETRY_S, Dispatch, run_dispatch
from store.database.connections import writing
from store.events.incident_thread import add_entries
from store.hints.hint_log import audit_page
from store.hints.outbox import queue_deliveries
from store.records.incident import ThreadEntry, ThreadWord, verdict_subject
from store.records.verdict import Verdict
from store.verdicts.verdict_log import VerdictChange, save_changes

from .cluster import HOUR, NOW, hint
from .receivers import Scripted, put, rows_of, state_of


def turn(engine: sa.Engine, *told: Scripted, now: datetime = NOW, mode: Any = "act", keep_on: bool = True) -> list[str]:
    """One turn; returns the outcomes."""
    means = Dispatch(engine, told, mode, jitter=lambda: 0.0, wall=lambda: NOW)
    return [outcome.result for outcome in run_dispatch(means, now, lambda: keep_on)]


def test_an_approved_hint_is_sent_once(engine: sa.Engine) -> None:
    """With what a receiver must know; then it is `sent`, and the audit says so."""
    told = Scripted()
    put(engine, hint("a", state="approved"))
    assert turn(engine, told) == ["delivered"]
    assert turn(engine, told) == []
    assert state_of(engine) == "sent"
    document = told.got[0].payload
    assert document["type"] == "foreshock.hint.cordon"
    assert document["data"].items() >= {"id": "h-a", "node": "a", "action": "cordon", "mode": "act"}.items()
    assert document["data"]["valid_until"] == "2025-03-02T10:00:00.000000Z"
    with engine.connect() as connection:
        assert audit_page(connection, 1, None, "h-a")[0]["detail"]["outcome"] == "delivered"


def test_every_receiver_gets_it(engine: sa.Engine) -> None:
    """One that fails does not keep the other from it."""
    first, second = Scripted("one", answers=[DeliveryOutcome("retry", "HTTP 503")]), Scripted("two")
    put(engine, hint("a", state="approved"))
    assert sorted(turn(engine, first, second)) == ["delivered", "retry"]
    assert turn(engine, first, second, now=NOW + timedelta(seconds=RETRY_S[0])) == ["delivered"]
    assert (len(first.got), len(second.got)) == (2, 1)
    assert first.got[0].id == first.got[1].id


@pytest.mark.parametrize("asked", ["proposed", "withdrawn", "expired", "released"])
def test_only_what_is_approved_is_sent(engine: sa.Engine, asked: Any) -> None:
    """Nothing else is owed."""
    told = Scripted()
    put(engine, hint("a", state=asked))
    assert turn(engine, told) == []


def test_shadow_mode_sends_nothing(engine: sa.Engine) -> None:
    """Not even what was approved before the mode was changed."""
    told = Scripted()
    put(engine, hint("a", state="approved"), hint("b", state="shadow"))
    assert turn(engine, told, mode="shadow") == []
    assert turn(engine, told, mode="act", keep_on=False) == []
    assert turn(engine, told, mode="shadow") == []
    assert told.got == []
    assert state_of(engine) == "approved"


def test_an_observer_may_see_shadows(engine: sa.Engine) -> None:
    """Flagged, and the hint stays a shadow."""
    observer, scheduler = Scripted("observer", send_shadow=True), Scripted("ops")
    put(engine, hint("a", state="shadow"))
    assert turn(engine, observer, scheduler, mode="shadow") == ["delivered"]
    assert (observer.got[0].payload["data"]["mode"], scheduler.got) == ("shadow", [])
    assert state_of(engine) == "shadow"
    with writing(engine).begin() as connection:
        release_node(connection, "a", NOW, "policy")
    turn(engine, observer, scheduler, mode="shadow")
    assert observer.types() == ["foreshock.hint.cordon", "foreshock.hint.release"]
    assert observer.got[1].payload["data"]["mode"] == "shadow"


def test_a_failure_is_tried_again_ever_later(engine: sa.Engine) -> None:
    """By the schedule; Retry-After may only lengthen it."""
    answers = [DeliveryOutcome("retry", "HTTP 503"), DeliveryOutcome("retry", "HTTP 503", retry_after_s=900.0)]
    told = Scripted(answers=answers)
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    assert rows_of(engine)[0].due == NOW + timedelta(seconds=RETRY_S[0])
    assert turn(engine, told, now=NOW + timedelta(seconds=RETRY_S[0] - 1)) == []
    later = NOW + timedelta(seconds=RETRY_S[0])
    turn(engine, told, now=later)
    assert rows_of(engine)[0].due == later + timedelta(seconds=900)
    assert (rows_of(engine)[0].attempts, rows_of(engine)[0].last_error) == (2, "HTTP 503")


def test_jitter_spreads_what_failed_together(engine: sa.Engine) -> None:
    """A fifth at most."""
    put(engine, hint("a", state="approved"))
    told = Scripted(answers=[DeliveryOutcome("retry", "x")])
    run_dispatch(Dispatch(engine, [told], "act", jitter=lambda: 1.0, wall=lambda: NOW), NOW, lambda: True)
    assert rows_of(engine)[0].due == NOW + timedelta(seconds=RETRY_S[0] * 1.2)


def test_a_hint_that_has_lapsed_is_dropped_not_sent(engine: sa.Engine) -> None:
    """A cordon of yesterday must not come today."""
    told = Scripted(answers=[DeliveryOutcome("retry", "x")])
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    assert turn(engine, told, now=NOW + 23 * HOUR) == []
    assert rows_of(engine)[0].state == "expired"
    assert len(told.got) == 1


def test_after_the_last_attempt_it_is_given_up(engine: sa.Engine) -> None:
    """The schedule ends."""
    put(engine, replace(hint("a", state="approved"), valid_until=NOW + timedelta(days=30)))
    told = Scripted(answers=[DeliveryOutcome("retry", "x")] * 20)
    now = NOW
    for wait_s in (0, *RETRY_S, 0):
        now += timedelta(seconds=wait_s)
        turn(engine, told, now=now)
    assert (rows_of(engine)[0].state, len(told.got)) == ("failed", len(RETRY_S) + 1)


def test_a_receiver_that_is_gone_is_left_alone(engine: sa.Engine) -> None:
    """After a 410 nothing more goes to that address; a new address is tried."""
    told = Scripted(answers=[DeliveryOutcome("gone", "HTTP 410")])
    put(engine, hint("a", state="approved"), hint("b", state="approved"))
    assert turn(engine, told) == ["gone"]
    put(engine, hint("c", state="approved"))
    assert turn(engine, told) == []
    assert len(told.got) == 1
    put(engine, hint("d", state="approved"))
    assert turn(engine, replace(told, address="http://new")) == ["delivered"]


def test_a_receiver_that_is_no_longer_configured_is_owed_nothing(engine: sa.Engine) -> None:
    """Its deliveries are given up, with the reason."""
    put(engine, hint("a", state="approved"))
    turn(engine, Scripted("old", answers=[DeliveryOutcome("retry", "x")]))
    turn(engine, Scripted("new"), now=NOW + HOUR)
    states = {row.scheduler: row.state for row in rows_of(engine)}
    assert states == {"old": "failed", "new": "delivered"}


def test_a_hint_that_ends_is_released_where_it_was_taken(engine: sa.Engine) -> None:
    """Once, and not where it never arrived."""
    taken, never = Scripted("taken"), Scripted("never", send_shadow=False)
    put(engine, hint("a", state="approved"))
    turn(engine, taken)
    with writing(engine).begin() as connection:
        withdraw(connection, "h-a", NOW, "alice")
    for _ in range(2):
        turn(engine, taken, never)
    assert taken.types() == ["foreshock.hint.cordon", "foreshock.hint.release"]
    assert never.got == []
    assert state_of(engine) == "withdrawn"


def test_an_attempt_whose_answer_was_lost_is_released_too(engine: sa.Engine) -> None:
    """The receiver may have taken it all the same."""
    told = Scripted(answers=[DeliveryOutcome("retry", "ReadTimeout")])
    put(engine, hint("a", state="approved"))
    turn(engine, told)
    with writing(engine).begin() as connection:
        withdraw(connection, "h-a", NOW, "alice")
    turn(engine, told, now=NOW + timedelta(seconds=10))
    assert told.types() == ["foreshock.hint.cordon", "foreshock.hint.release"]


def test_an_escalated_hint_is_sent_anew(engine: sa.Engine) -> None:
    """Another action, another delivery."""
    told = Scripted()
    put(engine, hint("a", "avoid", state="approved"))
    turn(engine, told)
    put(engine, hint("a", "cordon", state="approved"))
    turn(engine, told)
    assert told.types() == ["foreshock.hint.avoid", "foreshock.hint.cordon"]
    assert told.got[0].id != told.got[1].id


def test_a_long_evidence_is_left_out_of_the_payload() -> None:
    """Under 20 kB; the API has the rest."""
    long = hint("a", reasons=["x" * 1000] * 50)
    document = payload(long, "cordon", "act", NOW)
    assert "left_out" in document["data"]["evidence"]
    assert len(str(document)) < MAX_PAYLOAD_BYTES


def test_a_person_approves_what_is_proposed_and_only_that(engine: sa.Engine) -> None:
    """Then it is sent."""
    put(engine, hint("a", state="proposed"))
    told = Scripted()
    assert turn(engine, told, mode="approve") == []
    with writing(engine).begin() as connection:
        approve(connection, "h-a", NOW, ALICE, Policy(mode="approve"))
    assert turn(engine, told, mode="approve") == ["delivered"]


STANDING = Verdict(
    *("gpu", "gpu-001 GPU 3", 0.9, "hardware", "drain_node", NOW, "it fell off the bus"), node="gpu-001", id="v1"
)


def tell(engine: sa.Engine, verdict: Verdict, before: Verdict | None = None) -> None:
    """Write a verdict and owe it to `ops`, as the engine's turn does."""
    with writing(engine).begin() as connection:
        save_changes(connection, [VerdictChange(verdict, "opened", before)], NOW)
        queue_deliveries(connection, [verdict_delivery(plain(verdict), "opened", "ops", NOW)])


def silence(engine: sa.Engine, verdict: Verdict, hours: float) -> None:
    """Somebody wants to hear nothing of it."""
    word = ThreadWord("silence", "ann", until=NOW + hours * HOUR)
    with writing(engine).begin() as connection:
        add_entries(connection, [ThreadEntry(NOW, word, verdict_subject(verdict))])


def test_a_silenced_verdict_waits_until_the_silence_ends(engine: sa.Engine) -> None:
    """It is owed all the time, and told then: nothing is lost."""
    told = Scripted()
    tell(engine, STANDING)
    silence(engine, STANDING, hours=2)
    for minutes in (0, 1, 60, 119):
        assert turn(engine, told, now=NOW + timedelta(minutes=minutes)) == []
    assert turn(engine, told, now=NOW + 2 * HOUR) == ["delivered"]


@pytest.mark.parametrize(
    "change",
    [{"nodes": ("gpu-001", "gpu-002")}, {"name": "gpu-001 GPU 5"}, {"state": "closed"}],
    ids=["more nodes", "another cause", "it has ended"],
)
def test_a_silence_hides_no_more_than_was_silenced(engine: sa.Engine, change: dict[str, Any]) -> None:
    """The earlier word is dropped, the newer one goes out at once."""
    told = Scripted()
    tell(engine, STANDING)
    silence(engine, STANDING, hours=2)
    tell(engine, replace(STANDING, **({"state": "revised"} | change), revision=1), STANDING)
    assert turn(engine, told) == ["delivered"]
    assert [one.payload["data"]["verdict"]["revision"] for one in told.got] == [1]
