"""Tickets: opened once for a case of repair, and what comes of it when one is closed."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.release import next_step
from schedulers.lifecycle.tickets import close_ticket
from schedulers.policy.settings import Release
from schedulers.reconcile.delivery import TICKET, delivery_of
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook
from store.database.connections import writing
from store.hints.hint_log import audit_page, close_hint, read_hint, save_hint
from store.hints.validations import Validation
from store.records.hint import Evidence, Hint, RepairCase, TicketClosing, evidence_of

from .cluster import HOUR, NOW, hint
from .http_receiver import receiving
from .receivers import BUSY, Scripted, put, turn

TESTED = Release(validate=("check", "{node}"), most_tries=1)
TEMPLATE = '{"summary": "$action $node", "text": "$reason", "key": "$ticket", "pack": "$rma", "done": "$close"}'


def drained(**changes: Any) -> Hint:
    """A drained node's hint, in force."""
    return replace(hint("a", action="drain", state="confirmed"), **changes)


def case(count: int = 0) -> Evidence:
    """The evidence of a node that failed its test, after some tickets."""
    closing = TicketClosing("t", NOW, count) if count else None
    return Evidence(repair=RepairCase(NOW + HOUR if count else NOW, 3), ticket=closing)


def close(engine: sa.Engine, ident: str, validates: bool = True) -> Hint:
    """A ticket system's word."""
    with writing(engine).begin() as connection:
        return close_ticket(connection, ident, ("HW-1", "done"), NOW, "tickets", validates=validates)


def test_a_case_of_repair_opens_one_ticket_however_often_its_hint_is_renewed(any_engine: sa.Engine) -> None:
    """A receiver of repairs is told of nothing else, not even of the end: a second message would be a second ticket."""
    put(any_engine, drained(), hint("b", action="cordon", state="confirmed"), drained(id="h-c", node="c", job="7"))
    desk = Scripted(states=("repair",))
    turn(any_engine, desk)
    put(any_engine, drained(valid_until=NOW + 48 * HOUR))
    turn(any_engine, desk, now=NOW + HOUR)
    with writing(any_engine).begin() as connection:
        held = read_hint(connection, "h-a")
        assert held is not None
        close_hint(connection, held, "released", NOW, "policy")
    turn(any_engine, desk, now=NOW + 2 * HOUR)
    (message,) = [delivery.payload for delivery in desk.got]
    told = message["data"]
    assert (message["type"], told["action"], told["asks"]) == ("foreshock.hint.ticket", "ticket", "drain")
    assert (told["node"], told["ticket"]) == ("a", "h-a.0")


def test_after_a_closed_ticket_only_a_node_that_fails_again_opens_another(any_engine: sa.Engine) -> None:
    """A drain does not; a new case of repair does, under another id. What was never opened cannot be closed."""
    put(any_engine, drained())
    desk = Scripted(states=("repair",))
    for unknown in ("h-a.0", "h-a.1", "h-a", "nobody.0", ".0", "h-a.-1", "h-a.00", "h-a.٠", "h-a." + "9" * 40):
        with pytest.raises(RequestRefusedError, match="was opened"):
            close(any_engine, unknown)
    turn(any_engine, desk)
    first = close(any_engine, "h-a.0")
    assert first.evidence.ticket == TicketClosing("tickets", NOW, 1, "HW-1", "done")
    turn(any_engine, desk, now=NOW + HOUR)
    assert len(desk.got) == 1
    put(any_engine, replace(first, evidence=replace(first.evidence, repair=RepairCase(NOW + HOUR, 3))))
    turn(any_engine, desk, now=NOW + 2 * HOUR)
    assert [one.payload["data"]["ticket"] for one in desk.got] == ["h-a.0", "h-a.1"]


def test_a_replayed_closing_changes_nothing(any_engine: sa.Engine) -> None:
    """Neither the case that came after it, nor the audit, nor a hint that has ended."""
    put(any_engine, drained(evidence=case(1)))
    turn(any_engine, Scripted(states=("repair",)))
    with any_engine.connect() as connection:
        before = len(audit_page(connection, 100, None, "h-a"))
    with pytest.raises(RequestRefusedError):
        close(any_engine, "h-a.0")  # another receiver's time: of this one nothing was opened under that id
    close(any_engine, "h-a.1")
    put(any_engine, drained(evidence=case(2)))
    again = close(any_engine, "h-a.1")
    assert again.evidence.repair is not None
    with any_engine.connect() as connection:
        assert len(audit_page(connection, 100, None, "h-a")) == before + 2  # the closing, and what `put` wrote


def test_tests_of_before_a_repair_do_not_count() -> None:
    """A node that failed is tested anew; one that passed is, too. Where we have no test, nothing is changed by it."""
    failed = Validation(1, "h-a", "a", "check a", NOW - HOUR, NOW - HOUR, False, 1)
    for before in (failed, replace(failed, passed=True, exit_code=0)):
        assert next_step(drained(evidence=case(1)), [before], None, TESTED, NOW) == "test"
    assert next_step(drained(evidence=case()), [failed], None, TESTED, NOW) == "repair"
    again = replace(failed, started=NOW, ended=NOW)
    assert next_step(drained(evidence=case(1)), [failed, again], None, TESTED, NOW + HOUR) == "repair"
    assert next_step(drained(evidence=case(1)), [failed], None, Release(), NOW) == "repair"


def test_a_case_stands_where_nothing_would_test_the_node(any_engine: sa.Engine) -> None:
    """Else a ticket system could have a node released that failed another's test."""
    put(any_engine, drained(evidence=case()))
    desk = Scripted(states=("repair",))
    turn(any_engine, desk)
    assert close(any_engine, "h-a.0", validates=False).evidence.repair is not None
    turn(any_engine, desk, now=NOW + HOUR)
    assert len(desk.got) == 1  # the same case opens no second ticket


def test_a_policy_that_read_a_hint_before_its_ticket_was_closed_does_not_write_over_that(
    any_engine: sa.Engine,
) -> None:
    """The ticket system had its answer and will not say it again."""
    put(any_engine, drained(evidence=case()))
    turn(any_engine, Scripted(states=("repair",)))
    with writing(any_engine).begin() as connection:
        read = read_hint(connection, "h-a")
    assert read is not None
    close(any_engine, "h-a.0")
    renewed = replace(read, valid_until=NOW + 48 * HOUR)
    with writing(any_engine).begin() as connection:
        assert not save_hint(connection, renewed, NOW, {"change": "renewed"}, read)
        kept = read_hint(connection, "h-a")
        assert kept is not None
        assert kept.evidence.ticket is not None
        assert save_hint(connection, replace(kept, valid_until=NOW + 48 * HOUR), NOW, {"change": "renewed"}, kept)


def test_a_ticket_that_could_not_be_sent_is_sent_though_its_hint_lapsed_in_between(any_engine: sa.Engine) -> None:
    """Its id is the same after the renewal: given up, it would never be owed again."""
    put(any_engine, drained())
    away = Scripted(states=("repair",), answers=[BUSY])
    turn(any_engine, away)
    desk = Scripted(states=("repair",))
    turn(any_engine, desk, now=NOW + 30 * HOUR)
    assert [one.payload["data"]["ticket"] for one in desk.got] == ["h-a.0"]


def test_a_closing_is_read_as_it_was_written() -> None:
    """Also by way of JSON."""
    kept = case(2)
    assert evidence_of(json.loads(json.dumps(kept.to_json()))) == kept


def test_a_template_has_the_ticket_and_its_links_and_hostile_text_stays_text(tmp_path: Path) -> None:
    """Signed as every message; the node's name can leave neither its place in the address nor its string."""
    file = tmp_path / "ticket.json"
    file.write_text(TEMPLATE)
    evil = '../../tickets/x?a=1#"}\n$close'
    with receiving() as desk:
        settings = WebhookSettings("desk", desk.url, format="template", template_file=str(file), states=("repair",),
                                   server="https://foreshock.example/")  # fmt: skip
        made = delivery_of(drained(node=evil, reason=evil), TICKET, "desk", "act", NOW)
        assert Webhook(settings).send(made, datetime.now(UTC)).result == "delivered"
        told = json.loads(desk.got[0][1])
    base = "https://foreshock.example/api/v1"
    assert told["pack"] == f"{base}/nodes/..%2F..%2Ftickets%2Fx%3Fa%3D1%23%22%7D%0A%24close/rma"
    assert (told["key"], told["done"]) == ("h-a.0", f"{base}/tickets/h-a.0/close")
    assert told["text"].startswith('../../tickets/x?a=1#"}')
