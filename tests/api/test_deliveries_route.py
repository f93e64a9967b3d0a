"""GET /hints/{id}/deliveries, POST /deliveries/{id}/replay, POST /hints/{id}/ack."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from api.server.settings import SCOPES, Token
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.hints.hint_log import audit_page, save_hint
from store.hints.holds import holds_of
from store.hints.outbox import Delivery, DeliveryAttempt, log_attempt, queue_deliveries
from store.nodes.tokens import digest_of
from store.records.hint import Hint
from wire.hints import DeliveryJson, HintJson
from wire.message import Page

from .conftest import NOW, QUIET, Clock

HOUR = timedelta(hours=1)


@pytest.fixture
def acting(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server that acts, with a token of a name."""
    token = Token("alice", digest_of("alice-secret"), frozenset(SCOPES) - {"on_behalf"})
    settings = replace(QUIET, tokens=(token,), policy=Policy(mode="act"))
    with TestClient(create_app(settings, engine, clock), headers={"authorization": "Bearer alice-secret"}) as client:
        yield client


def put(engine: sa.Engine, state: Any = "approved", action: Any = "cordon") -> Hint:
    """A hint."""
    hint = Hint("h1", "n1", action, state, "foreshock: t", "foreshock", NOW - HOUR, NOW + 23 * HOUR)
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {})
    return hint


def put_delivery(engine: sa.Engine, hint: Hint, action: str = "cordon", state: str = "failed") -> str:
    """A delivery of it that was tried once."""
    ident = f"h1.{action}.{int(hint.valid_until.timestamp())}.ops"
    payload = {"type": f"foreshock.hint.{action}", "data": {"action": action, "mode": "act", "node": "n1"}}
    with writing(engine).begin() as connection:
        queue_deliveries(connection, [Delivery(ident, "h1", "ops", payload, 1, NOW, state, "HTTP 500")])
        log_attempt(connection, DeliveryAttempt(ident, "h1", "ops", NOW, "retry", 500, 0.25, "HTTP 500"))
    return ident


def test_a_hint_s_deliveries_are_listed_with_their_attempts(acting: TestClient, engine: sa.Engine) -> None:
    """Without the payload, which the hint tells better."""
    ident = put_delivery(engine, put(engine))
    answer = acting.get("/api/v1/hints/h1/deliveries")
    check_answer(Page[DeliveryJson], answer.json())
    (item,) = answer.json()["items"]
    assert (item["id"], item["action"], item["state"], item["last_error"]) == (ident, "cordon", "failed", "HTTP 500")
    assert item["log"] == [
        {
            "time": "2025-03-01T12:00:00.000000Z",
            "outcome": "retry",
            "status": 500,
            "duration_s": 0.25,
            "detail": "HTTP 500",
        }
    ]
    assert "payload" not in item
    assert acting.get("/api/v1/hints/h2/deliveries").status_code == 404


def test_a_replay_is_owed_at_once(acting: TestClient, engine: sa.Engine) -> None:
    """The audit names who asked."""
    ident = put_delivery(engine, put(engine))
    answer = acting.post(f"/api/v1/deliveries/{ident}/replay")
    assert answer.status_code == 200, answer.text
    check_answer(DeliveryJson, answer.json())
    assert (answer.json()["state"], len(answer.json()["log"])) == ("owed", 1)
    assert acting.get("/api/v1/hints/h1/deliveries").json()["items"][0]["state"] == "owed"
    with engine.connect() as connection:
        entry = audit_page(connection, 1, None, "h1")[0]
    assert (entry["actor"], entry["detail"]["outcome"], entry["detail"]["delivery"]) == ("alice", "replayed", ident)


def test_what_has_ended_is_not_replayed_but_its_release_is(acting: TestClient, engine: sa.Engine, clock: Clock) -> None:
    """409 with the reason; 404 for what is not there."""
    hint = put(engine)
    order, release = put_delivery(engine, hint), put_delivery(engine, hint, "release")
    clock.forward(hours=24)
    answer = acting.post(f"/api/v1/deliveries/{order}/replay")
    assert (answer.status_code, "has ended" in answer.json()["detail"]) == (409, True)
    assert acting.post(f"/api/v1/deliveries/{release}/replay").status_code == 200
    assert acting.post("/api/v1/deliveries/nobody/replay").status_code == 404


def test_in_shadow_mode_nothing_is_replayed(client: TestClient, engine: sa.Engine) -> None:
    """It would not be sent."""
    answer = client.post(f"/api/v1/deliveries/{put_delivery(engine, put(engine))}/replay")
    assert (answer.status_code, "shadow mode" in answer.json()["detail"]) == (409, True)


def ack(client: TestClient, result: str, **more: Any) -> Any:
    """A scheduler's word."""
    return client.post("/api/v1/hints/h1/ack", json={"scheduler": "volcano", "result": result, **more})


def placement(engine: sa.Engine) -> Any:
    """What is written down of it."""
    with engine.connect() as connection:
        (found,) = holds_of(connection, ["h1"])["h1"]
    return found


def test_a_scheduler_that_pulls_says_how_far_it_is(acting: TestClient, engine: sa.Engine) -> None:
    """Taken, confirmed; each once in the audit, however often it is said."""
    put(engine)
    words = (("taken", "sent"), ("taken", "sent"), ("confirmed", "confirmed"), ("confirmed", "confirmed"))
    for word, state in (*words, ("taken", "confirmed")):
        answer = ack(acting, word)
        assert answer.status_code == 200, answer.text
        check_answer(HintJson, answer.json())
        assert answer.json()["state"] == state
    found = placement(engine)
    assert (found.scheduler, found.node, found.state, found.action) == ("pull:volcano", "n1", "confirmed", "cordon")
    with engine.connect() as connection:
        entries = [entry for entry in audit_page(connection, 99, None, "h1") if "ack" in entry["detail"]]
    assert [(entry["actor"], entry["detail"]["ack"]) for entry in entries] == [
        ("scheduler:pull:volcano", "confirmed"),
        ("scheduler:pull:volcano", "taken"),
    ]


def test_a_node_that_a_person_took_back_there_withdraws_the_hint(acting: TestClient, engine: sa.Engine) -> None:
    """As if the hold had been found gone; it is not asked again for nothing."""
    put(engine)
    ack(acting, "confirmed")
    answer = ack(acting, "released", detail="bob resumed it")
    assert (answer.json()["state"], answer.json()["evidence"]["closed"]["by"]) == (
        "withdrawn",
        "scheduler:pull:volcano",
    )
    assert (placement(engine).state, placement(engine).detail) == ("undone", "bob resumed it")
    assert ack(acting, "released").json()["state"] == "withdrawn"
    assert placement(engine).state == "undone"


def test_the_release_of_an_ended_hint_is_written_down(acting: TestClient, engine: sa.Engine) -> None:
    """Then nothing of ours is left there."""
    put(engine)
    ack(acting, "confirmed")
    acting.post("/api/v1/hints/h1/withdraw")
    assert ack(acting, "released").status_code == 200
    assert (placement(engine).state, placement(engine).action) == ("released", "release")


def test_a_refusal_changes_no_hint(acting: TestClient, engine: sa.Engine) -> None:
    """Others may still take it."""
    put(engine)
    assert ack(acting, "refused", detail="no such node").json()["state"] == "approved"
    assert (placement(engine).state, placement(engine).detail) == ("refused", "no such node")


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("shadow", "leave the node"),
        ("proposed", "leave the node"),
        ("withdrawn", "release the node"),
        ("expired", "release"),
    ],
)
def test_what_is_not_to_be_acted_upon_is_refused(acting: TestClient, engine: sa.Engine, state: Any, word: str) -> None:
    """With what to do instead."""
    put(engine, state)
    answer = ack(acting, "taken")
    assert answer.status_code == 409
    assert word in answer.json()["detail"]


def test_a_hint_that_has_lapsed_is_not_taken(acting: TestClient, engine: sa.Engine, clock: Clock) -> None:
    """Its time is over though nobody has closed it yet."""
    put(engine)
    clock.forward(hours=24)
    assert "release the node" in ack(acting, "taken").json()["detail"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "scheduler"),
        (b"nonsense", "JSON"),
        (b'{"scheduler": "a", "result": "done"}', "result: Invalid enum value 'done': use confirmed, "),
        (b'{"scheduler": "a", "result": 1}', "use confirmed, refused, released or taken"),
        (b'{"scheduler": "", "result": "taken"}', "scheduler"),
        (b'{"scheduler": "a\\u0000", "result": "taken"}', "scheduler"),
        (b"[]", "object"),
    ],
)
def test_an_ack_that_cannot_be_read_is_told_why(acting: TestClient, engine: sa.Engine, body: bytes, word: str) -> None:
    """422, and nothing is written."""
    put(engine)
    answer = acting.post("/api/v1/hints/h1/ack", content=body)
    assert answer.status_code == 422
    assert word in answer.json()["detail"]


def test_an_ack_of_nothing_is_404(acting: TestClient) -> None:
    """No such hint."""
    assert ack(acting, "taken").status_code == 404
