"""The short way of frequent requests answers as FastAPI's own way does; nobody's request is not worked on."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect

from api import app as building
from api.app import create_app
from api.edge.admission import BodyRoom, LoopPace
from api.edge.body import small_body
from api.edge.problem import Problem, answer
from api.server.metrics import Metrics
from api.server.settings import RequestLimits, Token
from store.nodes.tokens import digest_of
from store.tables import schema

from .conftest import QUIET, Clock
from .test_heartbeats import beat

SECRETS = {"sidecars": "ingest", "people": "read"}
TOKENS = tuple(Token(name, digest_of(name), frozenset({scope})) for name, scope in SECRETS.items())
SETTINGS = type(QUIET)(
    tokens=TOKENS,
    intervals=QUIET.intervals,
    body_limit_bytes=20_000,
    limits=RequestLimits(requests_per_s=30, burst_s=1),
)
INGEST = {"authorization": "Bearer sidecars"}
EVENT = {"time": "2025-03-01T11:00:00Z", "node": "n1", "source": "kernel", "kind": "xid", "severity": "fatal"}
ROLLUP = {"node": "n1", "time": "2025-03-01T11:00:00Z", "samples": 8, "gpus_seen": 8}
RECORDS = {"heartbeats": beat(), "events": EVENT, "telemetry": ROLLUP}
# What is sent in a record's place, with which headers.
TABLE: dict[str, dict[str, Any]] = {
    "good": {"headers": INGEST},
    "no token": {"headers": {}},
    "unknown token": {"headers": {"authorization": "Bearer other"}},
    "no bearer": {"headers": {"authorization": "Basic sidecars"}},
    "wrong scope": {"headers": {"authorization": "Bearer people"}},
    "no JSON": {"headers": INGEST, "content": b"{"},
    "broken array": {"headers": INGEST, "content": b"[{]"},
    "empty": {"headers": INGEST, "content": b""},
    "wrong record": {"headers": INGEST, "content": b'{"node": 7}'},
    "NUL": {"headers": INGEST, "content": b'{"node": "a\\u0000b"}'},
    "encoding": {"headers": {**INGEST, "content-encoding": "br"}},
    "no gzip": {"headers": {**INGEST, "content-encoding": "gzip"}},
    "too large": {"headers": INGEST, "content": b" " * 20_001},
    "too large in pieces": {"headers": INGEST, "content": "pieces"},
}


@pytest.fixture
def clients(engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TestClient, ...]]:
    """A server with the short way, and one without, each of a fresh limit."""
    lean = create_app(SETTINGS, engine, clock)
    monkeypatch.setattr(building, "_AT_ONCE", {})
    monkeypatch.setattr(building, "_WRITING", {})
    whole = create_app(SETTINGS, engine, clock)
    yield tuple(TestClient(app, raise_server_exceptions=False) for app in (lean, whole))


def ask(client: TestClient, path: str, how: dict[str, Any]) -> tuple[Any, ...]:
    """What is answered, with the headers that matter, and what was counted."""
    content = how.get("content", RECORDS[path])
    given = {"json": content} if isinstance(content, dict) else {"content": content}
    if content == "pieces":
        given = {"content": iter([b" " * 15_000, b" " * 15_000])}
    found = client.post(f"/api/v1/{path}", headers=how["headers"], **given)
    app: Any = client.app
    sample = {"method": "POST", "operation": f"post_{path}", "status": str(found.status_code)}
    counted = app.state.foreshock.metrics.registry.get_sample_value("foreshock_http_requests_total", sample)
    return found.status_code, found.json(), sorted(found.headers.items()), counted, app.state.edge.bodies.taken_bytes


@pytest.mark.parametrize("path", RECORDS)
@pytest.mark.parametrize("case", TABLE)
def test_both_ways_answer_alike(clients: tuple[TestClient, ...], path: str, case: str) -> None:
    """Status, document, headers, counters; what was taken of a body's room is given back."""
    lean, whole = (ask(client, path, TABLE[case]) for client in clients)
    if case == "good" and path == "events":  # the second sees what the first has written
        assert (lean[1]["accepted"], whole[1]["known"]) == (1, 1)
        lean, whole = lean[:1] + lean[3:], whole[:1] + whole[3:]
    assert lean == whole
    assert lean[-2:] == (1.0, 0)


@pytest.mark.parametrize("path", RECORDS)
def test_rates_hold_on_both_ways(clients: tuple[TestClient, ...], path: str) -> None:
    """Each has a burst of thirty, and no more while its clock stands."""
    for client in clients:
        app: Any = client.app
        app.state.edge.limiter.monotonic = lambda: 0.0
        told = [client.post(f"/api/v1/{path}", headers=INGEST, content=b"").status_code for _ in range(40)]
        assert told == [200] * 30 + [429] * 10


@pytest.mark.parametrize("path", RECORDS)
def test_other_methods_and_addresses_are_told_as_before(clients: tuple[TestClient, ...], path: str) -> None:
    """The short way is the exact address alone."""
    for method, address in (("DELETE", path), ("POST", f"{path}/"), ("POST", f"{path}/more")):
        lean, whole = (client.request(method, f"/api/v1/{address}", follow_redirects=False) for client in clients)
        assert (lean.status_code, lean.content, lean.headers) == (whole.status_code, whole.content, whole.headers)


@pytest.mark.parametrize("path", ["events", "telemetry", "outages"])
def test_a_request_whose_client_is_gone_never_reaches_the_database(engine: sa.Engine, clock: Clock, path: str) -> None:
    """It waited for its turn meanwhile; the one that waits still is served."""
    app = create_app(QUIET, engine, clock)
    record = RECORDS.get(path) or {"node": "n1", "start": "2025-03-01T11:00:00Z", "end": None, "cause": "hardware"}
    table = {"events": schema.events, "telemetry": schema.telemetry, "outages": schema.outages}[path]
    for gone in (True, False):
        asyncio.run(_post(app, f"/api/v1/{path}", record, gone))
        with engine.connect() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        assert count == (0 if gone else 1)


async def _post(app: FastAPI, path: str, record: dict[str, Any], gone: bool) -> None:
    messages = [{"type": "http.request", "body": orjson.dumps(record), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        if not gone:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        pass

    where = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app(
        {
            **where,
            "headers": [(b"host", b"127.0.0.1")],
            "server": ("x", 80),
            "client": None,
            "http_version": "1.1",
            "scheme": "http",
        },
        receive,
        send,
    )


def test_a_loop_that_is_behind_refuses_until_it_has_caught_up(app: FastAPI) -> None:
    """Also within one of its turns; probes are answered."""
    client, pace = TestClient(app), app.state.edge.pace
    assert client.post("/api/v1/heartbeats", json=beat()).status_code == 200
    pace._due = time.monotonic() - 3600
    told = client.post("/api/v1/heartbeats", json=beat())
    assert (told.status_code, told.headers["content-type"]) == (503, "application/problem+json")
    assert 1 <= int(told.headers["retry-after"]) <= 5
    assert client.get("/livez").status_code == 200
    pace._due = time.monotonic() + 3600
    assert client.post("/api/v1/heartbeats", json=beat()).status_code == 200


def test_the_pace_is_looked_at_until_it_is_cancelled() -> None:
    """A turn that takes long shows at once."""

    async def watched() -> tuple[bool, float]:
        pace = LoopPace()
        task = asyncio.create_task(pace.run())
        await asyncio.sleep(0)
        time.sleep(0.15)  # the event loop stands still, which is what is measured
        late = pace.behind_s() > 0
        task.cancel()
        await asyncio.wait([task])
        return late, pace.behind_s()

    assert asyncio.run(watched()) == (True, 0.0)


@pytest.mark.parametrize("path", ["events", "telemetry"])
def test_a_small_body_needs_no_slot_while_the_database_keeps_up(
    engine: sa.Engine, clock: Clock, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one does; and where the database is behind, so does any."""
    app = create_app(replace(QUIET, limits=RequestLimits(max_writes=1, slot_wait_s=0.01)), engine, clock)
    slot = app.state.edge.writes._turns
    record = RECORDS[path]
    with TestClient(app) as client:
        assert client.post(f"/api/v1/{path}", json=record).status_code == 200
        asyncio.run(slot.take("another"))
        assert client.post(f"/api/v1/{path}", json=record).status_code == 200
        assert client.post(f"/api/v1/{path}", json=[record] * 300).status_code == 503
        monkeypatch.setattr("api.edge.middleware.keeps_up", lambda *_: False)
        assert client.post(f"/api/v1/{path}", json=record).status_code == 503
        slot.give_back()
        assert client.post(f"/api/v1/{path}", json=[record] * 300).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"), [("events", [EVENT] * 300), ("alerts", {"alerts": []})], ids=["a large body", "another route"]
)
def test_whoever_writes_waits_longer_for_its_slot_while_the_database_keeps_up(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    """Who is sent away comes back with more, later: so where only the processor is short, nobody is."""
    given: list[float] = []
    slots = app.state.edge.writes
    held = slots.held
    monkeypatch.setattr(type(slots), "held", lambda _self, patience=1.0, whose="": given.append(patience) or held())
    with TestClient(app) as client:
        for keeps_up in (True, False):
            monkeypatch.setattr("api.edge.admission.keeps_up", lambda *_, keeps_up=keeps_up: keeps_up)
            client.post(f"/api/v1/{path}", json=body)
    assert given == [4.0, 1.0]


@pytest.mark.parametrize(
    "body",
    [b"[" + b"{}," * 400 + b"{}]", b"{}\n" * 400, b"[" + b"1," * 4000 + b"1]", b" " * 17_000],
    ids=["objects", "lines", "values", "bytes"],
)
def test_a_body_of_very_many_records_is_not_read_in_the_event_loop(body: bytes) -> None:
    """Refusing each of five thousand takes a tenth of a second, in which nobody else would be heard."""
    request = Request({"type": "http", "headers": []})
    assert small_body(request, body) is None
    assert small_body(request, b"[" + b",".join([orjson.dumps(EVENT)] * 40) + b"]") is not None


def test_bodies_share_one_room() -> None:
    """What finds none is refused, and counted."""
    metrics = Metrics()
    room = BodyRoom(100, metrics)
    room.take(60)
    with pytest.raises(Problem) as refused:
        room.take(41)
    assert refused.value.status_code == 503
    assert metrics.registry.get_sample_value("foreshock_shed_total", {"reason": "bodies"}) == 1.0
    room.take(40)
    room.give_back(60)
    assert room.taken_bytes == 40


def test_a_server_without_room_for_bodies_says_so(client: TestClient, app: FastAPI) -> None:
    """And takes them again."""
    room = app.state.edge.bodies
    room.take(room.limit_bytes)
    told = client.post("/api/v1/events", json=EVENT)
    assert (told.status_code, "Retry-After" in told.headers) == (503, True)
    room.give_back(room.limit_bytes)
    assert client.post("/api/v1/events", json=EVENT).status_code == 200
    assert room.taken_bytes == 0


def test_only_known_errors_are_answers() -> None:
    """A client that went away is none of the server's failures; a fault of ours is."""
    request = Request({"type": "http", "path": "/", "headers": []})
    gone: Response = asyncio.run(answer(request, ClientDisconnect()))
    assert gone.status_code == 499
    with pytest.raises(ZeroDivisionError):
        asyncio.run(answer(request, ZeroDivisionError()))
