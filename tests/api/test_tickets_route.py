"""`POST /tickets/{id}/close`, as a ticket system uses it, and as somebody with its token would abuse it."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.app import create_app
from api.routes import rma
from api.server.settings import Token
from schedulers.policy.settings import Policy, Release
from schedulers.reconcile.delivery import TICKET, delivery_of
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.hints.hint_log import audit_page, close_hint, read_hint, save_hint
from store.hints.outbox import queue_deliveries
from store.nodes.tokens import digest_of
from store.records.event import Event
from store.records.hint import Evidence, Hint, ReleaseWait, RepairCase
from store.records.hostlist import NodePattern
from store.records.node import Node
from wire.hints import TicketJson

from .conftest import NOW, QUIET, Clock

TOKENS = (
    Token("desk", digest_of("desk-secret"), frozenset({"ticket"}), NodePattern.of("n1")),
    Token("all", digest_of("all-secret"), frozenset({"ticket"})),
)
CASE = Evidence(release=ReleaseWait(NOW), repair=RepairCase(NOW, 3, "failed"))
EVIL = '<script>\u202e"; DROP TABLE hints; $close ${ticket} {node}'


def put(engine: sa.Engine, node: str, evidence: Evidence = CASE, opened: bool = True) -> Hint:
    """A drained node, about which a ticket was opened."""
    ends = NOW + timedelta(hours=24)
    hint = Hint(f"h-{node}", node, "drain", "confirmed", "foreshock: t", "foreshock", NOW, ends, evidence)
    with writing(engine).begin() as connection:
        save_hint(connection, hint, NOW, {"change": "made"})
        if opened:
            queue_deliveries(connection, [replace(delivery_of(hint, TICKET, "desk", "act", NOW), attempts=1)])
    return hint


def served(engine: sa.Engine, clock: Clock, validate: tuple[str, ...] = ("check", "{node}")) -> TestClient:
    """A server with a test for held nodes, unless it is to have none."""
    policy = Policy(mode="act", release=Release(validate=validate))
    return TestClient(create_app(replace(QUIET, tokens=TOKENS, policy=policy), engine, clock))


@pytest.fixture
def guarded(any_engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """The client of a server on either database."""
    with served(any_engine, clock) as client:
        yield client


def close(client: TestClient, ticket: str, who: str = "desk", **body: Any) -> Any:
    """The answer to a closing."""
    return client.post(f"/api/v1/tickets/{ticket}/close", json=body, headers={"authorization": f"Bearer {who}-secret"})


def stored(engine: sa.Engine, node: str = "n1") -> Hint:
    """The hint as it is."""
    with engine.connect() as connection:
        found = read_hint(connection, f"h-{node}")
    assert found is not None
    return found


def test_a_closed_ticket_has_its_node_tested_anew(guarded: TestClient, any_engine: sa.Engine) -> None:
    """It is written down with who said so, and holds its node still. Said again, nothing changes."""
    put(any_engine, "n1")
    answer = close(guarded, "h-n1.0", reference="HW-1", text="GPU 3 replaced")
    assert answer.status_code == 200, answer.text
    check_answer(TicketJson, answer.json())
    assert (answer.json()["validation"], answer.json()["state"]) == ("begins", "confirmed")
    kept = stored(any_engine)
    assert kept.evidence.repair is None
    assert kept.evidence.ticket is not None
    with any_engine.connect() as connection:
        log = audit_page(connection, 10, None, "h-n1")
    assert (log[0]["actor"], log[0]["detail"]["closed"], log[0]["detail"]["detail"]) == (
        "desk",
        "HW-1",
        "GPU 3 replaced",
    )
    assert close(guarded, "h-n1.0", reference="HW-2").json()["reference"] == "HW-1"
    with any_engine.connect() as connection:
        assert audit_page(connection, 10, None, "h-n1") == log
    assert stored(any_engine) == kept


def test_a_token_closes_the_tickets_of_its_own_nodes_alone(guarded: TestClient, any_engine: sa.Engine) -> None:
    """And does nothing else: it can neither read, report a passed test, nor end a hint."""
    put(any_engine, "n1")
    put(any_engine, "n2")
    before = stored(any_engine, "n2")
    for ticket in ("h-n2.0", "h-n2%2E0", "h-n2.1"):
        assert close(guarded, ticket).status_code == 403
    headers = {"authorization": "Bearer desk-secret"}
    for path, body in (("hints/h-n1/validation", {"passed": True}), ("hints/h-n1/withdraw", None),
                       ("hints/h-n1/ack", {"scheduler": "s", "result": "released"})):  # fmt: skip
        assert guarded.post(f"/api/v1/{path}", json=body, headers=headers).status_code == 403
    assert guarded.get("/api/v1/hints", headers=headers).status_code == 403
    assert stored(any_engine, "n2") == before


def test_a_ticket_that_was_never_opened_cannot_be_closed(guarded: TestClient, any_engine: sa.Engine) -> None:
    """However near its id is to one that was; nor one that is owed but that nobody was told of."""
    put(any_engine, "n1")
    put(any_engine, "n3", opened=False)
    for ticket in ("h-n1.1", "h-n1.00", "h-n1.-1", "h-n1", "h-n3.0", ".0", "h-n1.%D9%A0", "h-n1.9999999"):
        answer = close(guarded, ticket, who="all")
        assert answer.status_code == 404, (ticket, answer.text)
    assert stored(any_engine).evidence == CASE


def test_what_a_ticket_system_writes_is_text(guarded: TestClient, any_engine: sa.Engine) -> None:
    """Kept as it is, within bounds; a body that is none is refused before anything is written."""
    put(any_engine, "n1")
    for wrong in ({"reference": "x" * 256}, {"text": "\0"}, {"reference": 7}, {"text": "x" * 501}):
        assert close(guarded, "h-n1.0", **wrong).status_code == 422
    assert stored(any_engine).evidence == CASE
    assert close(guarded, "h-n1.0", reference=EVIL, text=EVIL).json()["reference"] == EVIL
    ticket = stored(any_engine).evidence.ticket
    assert ticket is not None
    assert (ticket.reference, ticket.text) == (EVIL, EVIL)


def test_a_hint_that_has_ended_is_not_begun_anew(guarded: TestClient, any_engine: sa.Engine) -> None:
    """A person may have been faster."""
    hint = put(any_engine, "n1")
    with writing(any_engine).begin() as connection:
        close_hint(connection, hint, "released", NOW, "ann")
    assert close(guarded, "h-n1.0").status_code == 409
    assert stored(any_engine).evidence.ticket is None


def test_a_server_without_a_test_of_its_own_says_that_none_begins(engine: sa.Engine, clock: Clock) -> None:
    """The case of repair stands; one whose fault is not over yet waits for that."""
    put(engine, "n1")
    with served(engine, clock, ()) as client:
        assert close(client, "h-n1.0").json()["validation"] == "none"
    assert stored(engine).evidence.repair is not None
    put(engine, "n1", Evidence())
    with served(engine, clock) as client:
        assert close(client, "h-n1.0").json()["validation"] == "waits"


def test_the_pack_that_a_ticket_links_to_checks_itself(
    client: TestClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the script that is in it, and it is bounded; of a node that nobody knows there is none."""
    monkeypatch.setattr(rma, "_MOST_ROWS", 2)
    faults = [Event(NOW - timedelta(minutes=n), "n1", "kernel", "xid", code=79, cause="hardware") for n in range(1, 5)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("n1", gpus=8)])
        append_events(connection, faults, NOW)
    answer = client.get("/api/v1/nodes/n1/rma", params={"days": 7})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''n1-rma.zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as pack:
        manifest = json.loads(pack.read("manifest.json"))
        assert {hashlib.sha256(pack.read(name)).hexdigest() for name in manifest["files"]} == {
            *manifest["files"].values()
        }
    assert (manifest["records"]["events"], manifest["older_left_out"]) == (2, ["events"])
    assert (manifest["node"], "manifest.sig" in pack.namelist()) == ("n1", False)
    assert client.get("/api/v1/nodes/n9/rma").status_code == 404
    assert client.get("/api/v1/nodes/n%001/rma").status_code == 404
