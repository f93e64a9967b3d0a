"""Verdicts over HTTP: what is sent becomes one by itself, is listed, shown with its changes, and streamed."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.foreshock import Running, serve
from real.patience import patience
from real.postgres import Postgres
from real.programs import wait_for
from wire_check import check_answer

from api.app import create_app
from api.server import verdict_feed
from api.server.settings import Token
from schedulers.policy.settings import CheckSettings
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_jobs, append_nodes
from store.nodes.tokens import digest_of
from store.records.event import Event, format_time, with_id
from store.records.hostlist import NodePattern
from store.records.job import Job
from store.records.node import Node
from store.records.verdict import Verdict, VerdictEvidence
from store.verdicts.verdict_log import VerdictChange, closed, save_changes
from wire.message import Page
from wire.verdicts import VerdictCheckJson, VerdictJson

from .conftest import NOW, QUIET
from .test_events_route import post, record

LEAF = Verdict(
    "switch",
    "leaf004",
    0.93,
    "fabric",
    "run_diagnostics",
    NOW,
    "8 of its 8 nodes lost a rail",
    nodes=("gpu-001", "gpu-002"),
    jobs=("llm-70b",),
    evidence_for=(VerdictEvidence("8 of 8", ("e1",), 3.5),),
    id="v1",
)
GPU = replace(LEAF, cause_class="gpu", name="gpu-009/0", node="gpu-009", nodes=("gpu-009",), id="v2", probability=0.97)


def save(engine: sa.Engine, *changes: VerdictChange) -> None:
    """Write changes, as the engine does."""
    with writing(engine).begin() as connection:
        save_changes(connection, changes, NOW)


def listed(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """The verdicts of a page, of the published shape."""
    reply = client.get("/api/v1/verdicts", params=query)
    assert reply.status_code == 200, reply.text
    check_answer(Page[VerdictJson], reply.json())
    items: list[dict[str, Any]] = reply.json()["items"]
    return items


def test_a_fault_that_is_sent_becomes_a_verdict_by_itself(any_client: TestClient) -> None:
    """Nobody asks for it; it names the node, the class and its evidence, and the gauges count it."""
    post(any_client, [record(1)])
    wait_for("a verdict stands", lambda: any(one["node"] == "gpu-001" for one in listed(any_client, state="open")))
    found = next(one for one in listed(any_client) if one["node"] == "gpu-001")
    assert (found["state"], found["rank"], found["revision"]) == ("open", 1, 0)
    assert found["class"] in ("gpu", "node")
    assert found["score"] == found["probability"] > 0.5
    assert found["evidence_for"][0]["events"] == ["e0001"]
    counted = (
        f'foreshock_verdicts_open{{class="{found["class"]}"}} 1.0',
        'foreshock_verdict_changes_total{state="open"}',
        "foreshock_symptom_events_waiting 0.0",
    )
    # The turn that wrote the verdict counts it when it ends.
    wait_for("the gauges count it", lambda: all(line in any_client.get("/metrics").text for line in counted))


def test_verdicts_are_found_by_what_they_name(any_client: TestClient, any_engine: sa.Engine) -> None:
    """State, class, node and run; a rank is that of all that stand, and one that ended has none."""
    save(any_engine, VerdictChange(LEAF, "opened"), VerdictChange(GPU, "opened"))
    assert {one["id"]: one["rank"] for one in listed(any_client)} == {"v1": 2, "v2": 1}
    assert [one["id"] for one in listed(any_client, **{"class": "switch"})] == ["v1"]
    assert [one["id"] for one in listed(any_client, node="gpu-002")] == ["v1"]
    assert [one["id"] for one in listed(any_client, run="llm-70b", node="gpu-009")] == ["v2"]
    assert listed(any_client, since=format_time(NOW + timedelta(seconds=1))) == []
    save(any_engine, VerdictChange(closed(GPU), "cured", GPU))
    assert [one["id"] for one in listed(any_client, state="open")] == ["v1"]
    (ended,) = listed(any_client, state="closed")
    assert (ended["rank"], ended["why"], ended["revision"]) == (0, "cured", 1)


def test_pages_lead_on_to_older_ones(client: TestClient, engine: sa.Engine) -> None:
    """As every list does."""
    made = [replace(GPU, id=f"n{n}", name=f"n{n}", since=NOW + timedelta(seconds=n)) for n in range(5)]
    save(engine, *(VerdictChange(one, "opened") for one in made))
    first = client.get("/api/v1/verdicts", params={"limit": 2}).json()
    second = client.get("/api/v1/verdicts", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [one["id"] for one in (*second["items"], *first["items"])] == [f"n{n}" for n in range(5)]
    assert second["next_cursor"] is None


def test_a_verdict_is_shown_with_every_change(client: TestClient, engine: sa.Engine) -> None:
    """And one that is not there is a problem, not a crash."""
    save(engine, VerdictChange(LEAF, "opened"))
    more = replace(LEAF, state="revised", revision=1, probability=0.99)
    save(engine, VerdictChange(more, "probability 0.93 to 0.99", LEAF))
    found = client.get("/api/v1/verdicts/v1").json()
    check_answer(VerdictJson, found)
    assert [(one["revision"], one["state"], one["what"]) for one in found["revisions"]] == [
        (0, "open", "opened"),
        (1, "revised", "probability 0.93 to 0.99"),
    ]
    assert client.get("/api/v1/verdicts/v9").status_code == 404


@pytest.mark.parametrize("text", ["x", "-1", "9" * 30])
def test_a_place_in_the_stream_that_is_none_is_refused(client: TestClient, text: str) -> None:
    """It says what to do."""
    reply = client.get("/api/v1/verdicts/stream", headers={"Last-Event-ID": text})
    assert reply.status_code == 422


class Listener:
    """A client of the stream that reads what came so far."""

    def __init__(self, server: Running, last: str | None = None) -> None:
        address = urlsplit(server.url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=patience(20))
        after = f"Last-Event-ID: {last}\r\n" if last is not None else ""
        asked = f"GET /api/v1/verdicts/stream HTTP/1.1\r\nHost: {address.netloc}\r\n{after}\r\n"
        self.socket.sendall(asked.encode())
        self._text = b""

    def next(self) -> dict[str, Any]:
        """The next event: its id, its name, its verdict."""
        while True:
            head, end, rest = self._text.partition(b"\n\n")
            if not end:
                part = self.socket.recv(65_536)
                if not part:
                    raise EOFError(self._text)
                self._text += part
                continue
            self._text = rest
            lines = [line for line in head.split(b"\n") if line.startswith((b"id: ", b"event: ", b"data: "))]
            if len(lines) == 3:
                found = dict(line.decode().split(": ", 1) for line in lines)
                return {"id": found["id"], "event": found["event"], "data": json.loads(found["data"])}


@contextmanager
def listening(server: Running, last: str | None = None) -> Iterator[Listener]:
    """A listener that hangs up at the end."""
    listener = Listener(server, last)
    with closing(listener.socket):
        yield listener


def send(server: Running, *nodes: str) -> None:
    """An Xid of each node, now."""
    now = format_time(datetime.now(UTC))
    lines = [json.dumps(record(time=now, node=node, id=f"{node} {now}")) for node in nodes]
    server.post("/api/v1/events", "\n".join(lines).encode())


@pytest.mark.integration
def test_who_listens_is_told_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """What stands comes first, then each change; a restart of either side loses nothing."""
    database = f"sqlite:///{tmp_path / 'x.db'}"
    with serve(database, tmp_path) as server:
        send(server, "gpu-001")
        wait_for("a verdict stands", lambda: server.get("/api/v1/verdicts?node=gpu-001")["items"])
        with listening(server) as listener:
            first = listener.next()
            while first["data"]["node"] != "gpu-001":
                first = listener.next()
            assert first["event"] == "open"
            send(server, "gpu-070")
            second = listener.next()
            while second["data"]["node"] != "gpu-070":
                second = listener.next()
            assert (second["event"], second["data"]["what"]) == ("open", "opened")
        assert int(second["id"]) > int(first["id"])
    with serve(database, tmp_path) as server:
        send(server, "gpu-140")
        with listening(server, second["id"]) as listener:
            third = listener.next()
            while third["data"]["node"] != "gpu-140":
                third = listener.next()
            assert int(third["id"]) > int(second["id"])
        with listening(server, first["id"]) as listener:
            assert int(listener.next()["id"]) > int(first["id"])
        stands = {one["node"] for one in server.get("/api/v1/verdicts?state=open")["items"]}
        assert {"gpu-001", "gpu-070", "gpu-140"} <= stands


@pytest.mark.integration
def test_of_two_servers_on_one_database_each_tells_what_the_other_took_in(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    """One has the engine; no verdict comes twice, whichever takes the events."""
    url = postgres_server.new_database()
    engine = open_database(url)
    migrate(engine)
    engine.dispose()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with serve(url, tmp_path / "a") as one, serve(url, tmp_path / "b") as other:
        with listening(one) as listener, listening(other) as second:
            send(one, "gpu-001")
            send(other, "gpu-090")
            for stream in (listener, second):
                named: set[str] = set()
                while not {"gpu-001", "gpu-090"} <= named:
                    named.add(str(stream.next()["data"]["node"]))
        for server in (one, other):
            found = server.get("/api/v1/verdicts?state=open")["items"]
            nodes = [item["node"] for item in found if item["class"] != "unknown"]
            assert sorted(nodes) == ["gpu-001", "gpu-090"]


def test_open_streams_have_a_limit(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when all places are taken is told when to come again."""
    monkeypatch.setattr(verdict_feed, "MOST_STREAMS", 0)
    reply = client.get("/api/v1/verdicts/stream")
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "10"


def test_an_operator_has_suspects_tried_within_the_budget_of_an_hour(any_engine: sa.Engine) -> None:
    """What the site's command says revises the verdict; who asked is in the audit, and what began counts at once."""
    checks = CheckSettings(dcgmi="sh -c 'echo ECC of {node}; exit 9'", per_hour=1)
    may = frozenset({"act:approve", "read"})
    tokens = (
        Token("ann", digest_of("ann"), may),
        Token("eve", digest_of("eve"), frozenset({"read"})),
        Token("bob", digest_of("bob"), may, NodePattern.of("gpu-00[1-8]")),
    )
    settings = replace(QUIET, tokens=tokens, checks=checks)
    with TestClient(create_app(settings, any_engine, lambda: NOW), headers={"Authorization": "Bearer ann"}) as client:
        with writing(any_engine).begin() as connection:
            append_nodes(connection, [Node("gpu-009", gpus=8)])
        save(any_engine, VerdictChange(GPU, "opened"))
        url = "/api/v1/verdicts/v2/check"
        for other in ("eve", "bob"):
            assert client.post(url, headers={"Authorization": f"Bearer {other}"}).status_code == 403
        assert client.post("/api/v1/verdicts/v9/check").status_code == 404
        assert client.post(url, params={"check": "rm"}).status_code == 422
        assert client.post(url, params={"check": "ping"}).status_code == 409
        reply = client.post(url)
        check_answer(VerdictCheckJson, reply.json())
        assert reply.json() == {"begun": [{"node": "gpu-009", "check": "dcgmi", "peer": None}], "left_out": []}
        refused = client.post(url)
        assert (refused.status_code, "1 checks began within the hour" in refused.json()["detail"]) == (409, True)
        wait_for("what it said is kept", lambda: client.get("/api/v1/events?kind=check_failed").json()["items"])
        (event,) = client.get("/api/v1/events?kind=check_failed").json()["items"]
        assert (event["node"], event["message"]) == ("gpu-009", "dcgmi: failed: ECC of gpu-009")
        rows = client.get("/api/v1/audit?subject=v2").json()["items"]
        assert {(row["actor"], row["action"]) for row in rows} == {("ann", "check begun"), ("ann", "check failed")}


def test_what_is_at_stake_is_that_of_now(client: TestClient, engine: sa.Engine) -> None:
    """No revision tells of a save: whoever asks is told what would be lost since."""
    job = Job("1", "llm-70b", "RUNNING", None, NOW - timedelta(hours=10), None, 2, "gpu-[001-002]", None)
    save(engine, VerdictChange(replace(LEAF, gpu_hours_at_stake=160.0), "opened"))
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-00{n}", None, None, None, 8, None) for n in (1, 2)])
        append_jobs(connection, [job])
        said = {"run": "llm-70b", "iteration": 7}
        at = NOW - timedelta(minutes=30)
        saved = Event(at, None, "training", "checkpoint_save", None, "info", "application", "none", attributes=said)
        append_events(connection, [with_id(saved)], NOW)
    assert [one["gpu_hours_at_stake"] for one in listed(client)] == pytest.approx([8.0], abs=0.2)
    assert client.get("/api/v1/verdicts/v1").json()["gpu_hours_at_stake"] == pytest.approx(8.0, abs=0.2)
    save(engine, VerdictChange(closed(LEAF), "over", LEAF))
    assert [one["gpu_hours_at_stake"] for one in listed(client)] == [LEAF.gpu_hours_at_stake]
