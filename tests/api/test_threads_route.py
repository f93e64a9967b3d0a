"""The life of an incident or a verdict: acknowledged, noted, silenced, closed; by whom, and until what undoes it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all
from wire_check import check_answer

from api.app import create_app
from api.loops.verdicts import VerdictTurns
from api.routes import threads
from api.server.settings import Token
from schedulers.webhooks.settings import WebhookSettings
from store.database.connections import writing
from store.database.retention import RetentionPeriods, prune
from store.nodes.tokens import digest_of
from store.records.event import format_time
from store.records.hostlist import NodePattern
from store.records.verdict import VerdictEvidence
from store.tables import hint_tables
from store.tables.verdict_tables import thread_entries
from store.verdicts.verdict_log import VerdictChange
from wire.events import IncidentJson, LifeJson
from wire.message import Page
from wire.verdicts import VerdictJson

from .conftest import NOW, QUIET, Clock
from .test_events_route import record
from .test_verdicts_route import GPU, LEAF, save


def event(number: int, at_s: float = 0.0, node: str = "gpu-001", **fields: Any) -> dict[str, Any]:
    """An Xid 79, so many seconds after noon."""
    return record(number, time=format_time(NOW + timedelta(seconds=at_s)), node=node, **fields)


def sent(client: TestClient, engine: sa.Engine, *events: dict[str, Any]) -> str:
    """Events that have become an incident; the id of the newest."""
    assert client.post("/api/v1/events", json=list(events)).status_code == 200
    fold_all(engine)
    page = client.get("/api/v1/incidents").json()
    check_answer(Page[IncidentJson], page)
    found: str = page["items"][-1]["id"]
    return found


def step(client: TestClient, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    """The answer to a step: `incidents/e1/ack`."""
    reply = client.post(f"/api/v1/{path}", json=body) if body else client.post(f"/api/v1/{path}")
    assert reply.status_code == status, reply.text
    if status == 200:
        check_answer(LifeJson, reply.json())
    found: dict[str, Any] = reply.json()
    return found


def shown(client: TestClient, incident: str) -> dict[str, Any]:
    """One incident with its thread."""
    found: dict[str, Any] = client.get(f"/api/v1/incidents/{incident}").json()
    check_answer(IncidentJson, found)
    return found


def test_an_incident_is_followed_to_its_end(any_client: TestClient, any_engine: sa.Engine, clock: Clock) -> None:
    """Each step is kept with who and when, in the thread and in the audit; the last one counts."""
    ident = sent(any_client, any_engine, event(1))
    assert shown(any_client, ident)["life"]["state"] == "open"
    taken = step(any_client, f"incidents/{ident}/ack")
    assert (taken["state"], taken["owner"], taken["by"]) == ("acknowledged", "loopback", "loopback")
    clock.forward(minutes=5)
    step(any_client, f"incidents/{ident}/note", text="riser reseated")
    handed = step(any_client, f"incidents/{ident}/repair", owner="bob", text="RMA 4711")
    assert (handed["state"], handed["owner"]) == ("in_repair", "bob")
    assert step(any_client, f"incidents/{ident}/validate")["state"] == "validated"
    closed = step(any_client, f"incidents/{ident}/close")
    assert (closed["state"], closed["owner"], closed["entries"]) == ("closed", "bob", 5)
    assert step(any_client, f"incidents/{ident}/reopen")["state"] == "open"
    thread = shown(any_client, ident)["thread"]
    assert [one["step"] for one in thread] == ["ack", "note", "repair", "validate", "close", "reopen"]
    assert (thread[1]["text"], thread[1]["time"]) == ("riser reseated", "2025-03-01T12:05:00.000000Z")
    audit = any_client.get("/api/v1/audit", params={"hint": ident}).json()["items"]
    assert [(row["actor"], row["action"]) for row in audit[::-1]][:3] == [
        ("loopback", "ack"),
        ("loopback", "note"),
        ("loopback", "repair"),
    ]
    assert audit[3]["detail"] == {"node": "gpu-001", "reason": "RMA 4711", "owner": "bob"}


def test_saying_the_same_again_changes_nothing(client: TestClient, engine: sa.Engine) -> None:
    """Two people click, or one twice."""
    ident = sent(client, engine, event(1))
    for _ in range(3):
        assert step(client, f"incidents/{ident}/ack")["entries"] == 1
    assert step(client, f"incidents/{ident}/ack", owner="bob")["entries"] == 2


def test_a_thread_stays_when_an_earlier_event_changes_the_id(any_client: TestClient, any_engine: sa.Engine) -> None:
    """An incident is known by its first event; a late one that came before it takes that place."""
    old = sent(any_client, any_engine, event(1, 30))
    step(any_client, f"incidents/{old}/ack", text="on it")
    new = sent(any_client, any_engine, event(2, 0))
    assert new != old
    found = shown(any_client, new)
    assert (found["life"]["state"], found["thread"][0]["text"]) == ("acknowledged", "on it")
    assert shown(any_client, old)["id"] == new  # an old link leads there
    (listed,) = any_client.get("/api/v1/incidents").json()["items"]
    assert listed["life"]["state"] == "acknowledged"


def test_two_incidents_that_grow_together_share_their_threads(client: TestClient, engine: sa.Engine) -> None:
    """Two minutes apart they are two; what lies between makes them one."""
    first = sent(client, engine, event(1, 0))
    second = sent(client, engine, event(2, 110))
    assert first != second
    step(client, f"incidents/{first}/note", text="one")
    step(client, f"incidents/{second}/note", text="two")
    whole = sent(client, engine, event(3, 55))
    assert [one["text"] for one in shown(client, whole)["thread"]] == ["one", "two"]


def test_what_becomes_worse_is_open_again(client: TestClient, engine: sa.Engine, clock: Clock) -> None:
    """Nobody has said a word about the fatal fault that a warning grew into."""
    ident = sent(client, engine, event(1, 0, severity="warning", code=31))
    step(client, f"incidents/{ident}/ack")
    step(client, f"incidents/{ident}/silence", hours=2)
    assert shown(client, ident)["life"]["silenced_until"] == "2025-03-01T14:00:00.000000Z"
    sent(client, engine, event(2, 5, severity="fatal"))
    life = shown(client, ident)["life"]
    assert (life["state"], life["silenced_until"]) == ("open", None)
    assert "worse than when loopback saw it" in life["again"]
    assert step(client, f"incidents/{ident}/ack")["again"] is not None  # the silence is not renewed by that
    step(client, f"incidents/{ident}/silence", hours=1)
    assert shown(client, ident)["life"]["again"] is None
    clock.forward(hours=1)
    assert shown(client, ident)["life"]["silenced_until"] is None


def test_what_is_closed_and_shows_again_is_open(client: TestClient, engine: sa.Engine) -> None:
    """But not what only came late, and not what is acknowledged."""
    ident = sent(client, engine, event(1, 10))
    step(client, f"incidents/{ident}/close")
    late = sent(client, engine, event(2, 5))
    assert shown(client, late)["life"]["state"] == "closed"
    sent(client, engine, event(3, 40))
    assert "shown again" in shown(client, late)["life"]["again"]
    step(client, f"incidents/{late}/ack")
    sent(client, engine, event(4, 70))
    assert shown(client, late)["life"]["state"] == "acknowledged"


def test_another_node_has_a_thread_of_its_own(client: TestClient, engine: sa.Engine) -> None:
    """At the same time, with the same fault."""
    sent(client, engine, event(1), event(2, node="gpu-002"))
    one, other = client.get("/api/v1/incidents").json()["items"]
    step(client, f"incidents/{one['id']}/close")
    assert [each["life"]["state"] for each in client.get("/api/v1/incidents").json()["items"]] == ["closed", "open"]
    assert shown(client, other["id"])["thread"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("incidents/none/ack", {}, 404, "no incident 'none'"),
        ("verdicts/none/close", {}, 404, "no verdict 'none'"),
        ("incidents/{}/note", {}, 422, "a note says something"),
        ("incidents/{}/note", {"text": " \n"}, 422, "a note says something"),
        ("incidents/{}/silence", {"hours": 721}, 422, "hours"),
        ("incidents/{}/silence", {"until": "2025-03-01T11:00:00Z"}, 422, "a silence ends within 720 hours"),
        ("incidents/{}/silence", {"until": "2026-03-01T11:00:00Z"}, 422, "a silence ends within 720 hours"),
        ("incidents/{}/ack", {"text": "x" * 2001}, 422, "text"),
        ("incidents/{}/ack", {"owner": "a\x00b"}, 422, "owner"),
        ("incidents/{}/burn", {}, 422, "ack"),
    ],
)
def test_what_cannot_be_done_is_told(
    client: TestClient, engine: sa.Engine, path: str, body: dict[str, Any], status: int, says: str
) -> None:
    """In a sentence, and nothing is written."""
    ident = sent(client, engine, event(1))
    assert says in step(client, path.format(ident), status, **body)["detail"]
    assert shown(client, ident)["thread"] == []


def test_a_thread_has_an_end(client: TestClient, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that notes each minute fills no table."""
    monkeypatch.setattr(threads, "MOST_ENTRIES", 3)
    ident = sent(client, engine, event(1))
    for number in range(3):
        step(client, f"incidents/{ident}/note", text=str(number))
    assert "write on in a ticket" in step(client, f"incidents/{ident}/note", 409, text="more")["detail"]


def test_a_verdicts_step_is_one_of_its_incidents(client: TestClient, engine: sa.Engine) -> None:
    """But for a note, which is its own."""
    ident = sent(client, engine, event(1))
    its = replace(GPU, node="gpu-001", nodes=("gpu-001",), incidents=(ident,))
    save(engine, VerdictChange(its, "opened"))
    assert step(client, "verdicts/v2/ack", text="on it")["state"] == "acknowledged"
    step(client, "verdicts/v2/note", text="of the verdict")
    assert [one["text"] for one in shown(client, ident)["thread"]] == ["on it"]
    assert shown(client, ident)["life"]["state"] == "acknowledged"
    found = client.get("/api/v1/verdicts/v2").json()
    check_answer(VerdictJson, found)
    assert [one["step"] for one in found["thread"]] == ["ack", "note"]
    listed = next(one for one in client.get("/api/v1/verdicts").json()["items"] if one["id"] == "v2")
    assert listed["life"]["owner"] == "loopback"
    assert "v2" in shown(client, ident)["verdicts"]


def test_an_incident_that_comes_after_its_verdict_is_one_of_it(client: TestClient, engine: sa.Engine) -> None:
    """The verdict was made before the event was part of an incident: it names the event alone."""
    ident = sent(client, engine, event(1))
    sign = VerdictEvidence("a GPU is gone", (ident,))
    its = replace(GPU, node="gpu-001", nodes=("gpu-001",), incidents=(), evidence_for=(sign,))
    save(engine, VerdictChange(its, "opened"))
    step(client, "verdicts/v2/ack")
    assert shown(client, ident)["life"]["state"] == "acknowledged"
    assert "v2" in shown(client, ident)["verdicts"]
    step(client, f"incidents/{ident}/silence")
    assert client.get("/api/v1/verdicts/v2").json()["life"]["silenced_until"] is not None


def test_an_incident_of_a_verdicts_id_has_no_part_in_its_thread(client: TestClient, engine: sa.Engine) -> None:
    """A sender chooses the ids of events, and so of incidents: nothing is silenced or undone under another's name."""
    assert sent(client, engine, event(1) | {"id": "v2"}) == "v2"
    save(engine, VerdictChange(GPU, "opened"))
    until = step(client, "verdicts/v2/silence")["silenced_until"]
    step(client, "incidents/v2/close", text="mine")
    found = client.get("/api/v1/verdicts/v2").json()
    assert (found["life"]["state"], found["life"]["silenced_until"]) == ("open", until)
    assert [one["step"] for one in found["thread"]] == ["silence"]
    assert [one["step"] for one in shown(client, "v2")["thread"]] == ["close"]


@pytest.mark.parametrize(
    "change",
    [
        {"action": "drain_node"},
        {"name": "gpu-009/1"},
        {"cause_class": "nvlink"},
        {"nodes": ("gpu-009", "gpu-010")},
    ],
)
def test_a_silence_ends_where_the_verdict_says_something_else(
    client: TestClient, engine: sa.Engine, change: dict[str, Any]
) -> None:
    """Nobody has silenced another cause, another action or more nodes; another probability is the same verdict."""
    save(engine, VerdictChange(GPU, "opened"))
    assert step(client, "verdicts/v2/silence")["silenced_until"] == "2025-03-01T16:00:00.000000Z"
    surer = replace(GPU, state="revised", revision=1, probability=0.99)
    save(engine, VerdictChange(surer, "surer", GPU))
    assert client.get("/api/v1/verdicts/v2").json()["life"]["silenced_until"] is not None
    other = replace(surer, revision=2, **change)
    save(engine, VerdictChange(other, "other", surer))
    life = client.get("/api/v1/verdicts/v2").json()["life"]
    assert life["silenced_until"] is None
    assert "silenced it" in life["again"]


def test_a_token_of_some_nodes_decides_about_those_alone(engine: sa.Engine, clock: Clock) -> None:
    """It silences no verdict that names another node, though its own node's incident is a part of it."""
    tokens = (
        Token("all", digest_of("all"), frozenset({"read", "ingest:fleet", "act:approve"})),
        Token("one", digest_of("one"), frozenset({"read", "act:approve"}), NodePattern.of("gpu-001")),
        Token("reader", digest_of("reader"), frozenset({"read"})),
    )
    with TestClient(create_app(replace(QUIET, tokens=tokens), engine, clock)) as client:
        client.headers["Authorization"] = "Bearer all"
        other = sent(client, engine, event(2, node="gpu-002"))
        sent(client, engine, event(1))
        found = {one["node"]: one["id"] for one in client.get("/api/v1/incidents").json()["items"]}
        ident = found["gpu-001"]
        save(engine, VerdictChange(replace(LEAF, incidents=(ident, other)), "opened"))
        save(engine, VerdictChange(replace(GPU, node="gpu-001", nodes=("gpu-001",), incidents=(ident,)), "opened"))
        client.headers["Authorization"] = "Bearer one"
        assert "concerns other nodes" in step(client, f"incidents/{other}/ack", 403)["detail"]
        assert "concerns other nodes" in step(client, "verdicts/v1/silence", 403)["detail"]
        step(client, f"incidents/{ident}/silence")
        lives = {one["id"]: one["life"] for one in client.get("/api/v1/verdicts").json()["items"]}
        assert lives["v1"]["silenced_until"] is None
        assert lives["v2"]["silenced_until"] is not None
        client.headers["Authorization"] = "Bearer reader"
        step(client, f"incidents/{ident}/ack", 403)


def test_an_alertmanager_is_told_again_of_what_nobody_has_silenced(engine: sa.Engine, clock: Clock) -> None:
    """Each quarter of an hour; of the silenced one again when its silence is over."""
    alerts = WebhookSettings("alerts", "http://127.0.0.1:9/", format="alertmanager")
    app = create_app(replace(QUIET, webhooks=(alerts,)), engine, clock)
    client, turns = TestClient(app), VerdictTurns(app.state.foreshock)  # not entered: its loops do not run
    save(engine, VerdictChange(LEAF, "opened"), VerdictChange(GPU, "opened"))
    step(client, "verdicts/v1/silence", hours=1)
    told = []
    for _ in range(5):
        turns._renew()
        with writing(engine).begin() as connection:
            told.append(sorted(connection.scalars(sa.delete(hint_tables.outbox).returning(hint_tables.outbox.c.hint))))
        clock.forward(minutes=15)
    assert told == [["v2"], ["v2"], ["v2"], ["v2"], ["v1", "v2"]]


def test_threads_go_with_their_incidents_and_verdicts(client: TestClient, engine: sa.Engine) -> None:
    """When those are pruned, and not before."""
    ident = sent(client, engine, event(1))
    step(client, f"incidents/{ident}/note", text="kept")

    def kept() -> int | None:
        with engine.connect() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(thread_entries))

    keep = RetentionPeriods(incidents_days=91)
    prune(engine, keep.before(NOW + timedelta(days=90)))
    assert kept() == 1
    prune(engine, keep.before(NOW + timedelta(days=92)))
    assert kept() == 0


def test_every_device_that_fell_off_is_named(any_client: TestClient, any_engine: sa.Engine) -> None:
    """Three GPUs of one node are one incident; a warning of a fourth is none of its devices."""
    gpus = [{"type": "gpu", "pci": f"0000:{bus}:00.0"} for bus in ("0f", "10", "11")]
    lost = [event(at, at, device=gpu) for at, gpu in enumerate(gpus)]
    sent(
        any_client,
        any_engine,
        *lost,
        event(9, 9, code=31, severity="warning", device={"type": "gpu", "pci": "0000:12:00.0"}),
    )
    (listed,) = any_client.get("/api/v1/incidents").json()["items"]
    for found in (
        listed,
        shown(any_client, listed["id"]),
        any_client.get("/api/v1/nodes/gpu-001").json()["incidents"][0],
    ):
        assert [one["pci"] for one in found["devices"]] == ["0000:0f:00.0", "0000:10:00.0", "0000:11:00.0"]
        assert found["device"] == found["devices"][0]


def test_an_incident_of_no_node_has_a_thread_too(any_client: TestClient, any_engine: sa.Engine) -> None:
    """A port of a switch; that of another port is another."""
    ports = [{"type": "port", "uuid": "0xb83fd203001000c0", "port": number} for number in (3, 4)]
    for number, port in enumerate(ports):
        down = event(number, number * 60, node=None, kind="link_down", code=None, source="opensm", device=port)
        sent(any_client, any_engine, down)
    one, other = any_client.get("/api/v1/incidents").json()["items"]
    step(any_client, f"incidents/{one['id']}/close", text="cable changed")
    assert shown(any_client, one["id"])["life"]["state"] == "closed"
    assert shown(any_client, other["id"])["thread"] == []
