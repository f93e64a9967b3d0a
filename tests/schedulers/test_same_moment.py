"""A person, or a scheduler, says a word on a hint at the moment in which the policy writes it: neither word is lost."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from approvers import ALICE
from real.patience import patience

from schedulers.lifecycle.approval import RequestRefusedError, approve
from schedulers.lifecycle.operator_actions import acknowledge, release_node, withdraw
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.hints.hint_log import audit_page, close_hint, read_hint, save_hint
from store.records.hint import Hint

from .cluster import HOUR, NOW, hint
from .receivers import put, state_of
from .test_turn import incident, nodes

pytestmark = pytest.mark.integration
WAITING = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
Word = Callable[[sa.Connection], Any]


def second(engine: sa.Engine, first: Word, then: Callable[[], Any]) -> Any:
    """What `then` returns, of two at the same moment: it waits for the row of the first, which is then committed."""
    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(then())
        except RequestRefusedError as error:
            answers.append(error)

    thread = threading.Thread(target=work)
    with writing(engine).begin() as connection:
        first(connection)
        thread.start()
        until = time.monotonic() + patience(60)
        while time.monotonic() < until and thread.is_alive():
            with engine.connect() as other:
                if other.scalar(WAITING):
                    break
            time.sleep(0.01)
    thread.join(patience(60))
    assert not thread.is_alive()
    return answers[0]


def said(engine: sa.Engine, word: Word) -> Callable[[], Any]:
    """A word in a transaction of its own."""

    def say() -> Any:
        with writing(engine).begin() as connection:
            return word(connection)

    return say


def known(connection: sa.Connection) -> Hint:
    """The hint."""
    found = read_hint(connection, "h-a")
    assert found is not None
    return found


def end_by_person(connection: sa.Connection) -> Any:
    """Alice says no."""
    return withdraw(connection, "h-a", NOW, "alice")


def release_by_person(connection: sa.Connection) -> Any:
    """Alice says that the node is well."""
    return release_node(connection, "a", NOW, "alice")


def let_go_by_scheduler(connection: sa.Connection) -> Any:
    """A scheduler that pulls has taken the node, and let it go."""
    acknowledge(connection, "h-a", ("taken", "flux", ""), NOW, "flux")
    return acknowledge(connection, "h-a", ("released", "flux", ""), NOW, "flux")


def yes_by_person(connection: sa.Connection) -> Any:
    """Alice says yes."""
    return approve(connection, "h-a", NOW, ALICE, Policy(mode="approve"))


def renew(connection: sa.Connection) -> bool:
    """The policy lets the hint stand for longer."""
    was = known(connection)
    return save_hint(connection, replace(was, valid_until=NOW + 48 * HOUR), NOW, {"change": "renewed"}, was)


WORDS = [
    (end_by_person, "sent", "withdrawn"),
    (release_by_person, "sent", "released"),
    (let_go_by_scheduler, "sent", "withdrawn"),
    (yes_by_person, "proposed", "approved"),
]


@pytest.mark.parametrize(("word", "state", "becomes"), WORDS)
def test_what_is_said_first_is_not_written_over(
    postgres_engine: sa.Engine, word: Word, state: Any, becomes: str
) -> None:
    """By a whole turn of the policy that has read the hint before the word was committed."""
    nodes(postgres_engine, "a", "b")
    incident(postgres_engine, "a")
    lasts = NOW + timedelta(minutes=5)
    put(postgres_engine, replace(hint("a", state=state, hours_ago=30), valid_until=lasts))
    mode: Any = "approve" if state == "proposed" else "act"
    decision = second(postgres_engine, word, lambda: run_policy(postgres_engine, Policy(mode=mode), NOW))
    assert decision.changed == ()
    with postgres_engine.connect() as connection:
        found = known(connection)
        changes = [row["detail"].get("change") for row in audit_page(connection, 100, None, "h-a")]
    assert (found.state, found.valid_until) == (becomes, lasts)
    assert "renewed" not in changes


@pytest.mark.parametrize(("word", "state", "becomes"), WORDS)
def test_what_is_said_while_the_policy_renews_is_not_lost(
    postgres_engine: sa.Engine, word: Word, state: Any, becomes: str
) -> None:
    """It is said to the hint as the policy leaves it."""
    put(postgres_engine, hint("a", state=state))
    second(postgres_engine, renew, said(postgres_engine, word))
    with postgres_engine.connect() as connection:
        assert (known(connection).state, known(connection).valid_until) == (becomes, NOW + 48 * HOUR)


def test_yes_to_what_was_withdrawn_meanwhile_is_refused(postgres_engine: sa.Engine) -> None:
    """Of two people the first is heard, and the second is told."""
    put(postgres_engine, hint("a", state="proposed"))
    error = second(postgres_engine, end_by_person, said(postgres_engine, yes_by_person))
    assert isinstance(error, RequestRefusedError)
    assert "has ended" in str(error)
    assert state_of(postgres_engine) == "withdrawn"


def test_the_end_keeps_what_the_policy_has_said_of_the_hint_meanwhile(postgres_engine: sa.Engine) -> None:
    """Its evidence is the newest one, and says who ended it."""
    put(postgres_engine, hint("a"))

    def say_more(connection: sa.Connection) -> None:
        was = known(connection)
        save_hint(connection, replace(was, evidence=replace(was.evidence, held="more")), NOW, {}, was)

    second(postgres_engine, say_more, said(postgres_engine, end_by_person))
    with postgres_engine.connect() as connection:
        found = known(connection)
    assert found.evidence.held == "more"
    assert found.evidence.closed and found.evidence.closed.by == "alice"


def test_what_was_renewed_meanwhile_does_not_lapse(postgres_engine: sa.Engine) -> None:
    """The policy's own end of a hint goes by what it read."""
    put(postgres_engine, hint("a"))
    old = hint("a")

    def lapse(connection: sa.Connection) -> Hint:
        return close_hint(connection, old, "expired", NOW, "policy")

    assert second(postgres_engine, renew, said(postgres_engine, lapse)).state == "sent"
    assert state_of(postgres_engine) == "sent"
