"""Bodies that are made to cost more than they weigh: each is refused or read in time linear to its size."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real.patience import patience

from api.app import create_app
from api.batches import NoBatchError, unpack
from api.edge import work_budget
from api.server.settings import SCOPES, ApiSettings, Intervals, RequestLimits, Token
from parsers.registry import PARSERS
from parsers.text.packed import unzipped, unzstd
from store.database.connections import migrate, open_database
from store.events.event_json import MAX_ATTRIBUTE_CHARS, MAX_ATTRIBUTES
from store.nodes.tokens import digest_of
from store.records.event import RecordError
from store.records.hostlist import expand

from .cost import CostSite, step_s

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
QUIET = ApiSettings(intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0))
FIXTURES = Path(__file__).parents[2] / "fixtures"
KB = 1024


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """One database for all: what is measured does not depend on what it holds."""
    made = open_database(f"sqlite:///{tmp_path_factory.mktemp('cost')}/foreshock.db")
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CostSite]:
    """The API without loops, over a database of its own, and who may do everything.

    One without tokens has some as soon as a body happens to enrol a node, and lets nobody in from then on.
    """
    made = open_database(f"sqlite:///{tmp_path_factory.mktemp('site')}/foreshock.db")
    migrate(made)
    everyone = Token("all", digest_of("secret"), frozenset(SCOPES) - {"on_behalf"})
    app = create_app(replace(QUIET, tokens=(everyone,)), made, lambda: NOW)
    with TestClient(app, raise_server_exceptions=False, headers={"authorization": "Bearer secret"}) as client:
        yield CostSite(client, min(step_s() for _ in range(5)))
    made.dispose()


def repeated(piece: bytes, head: bytes = b"", tail: bytes = b"") -> Callable[[int], bytes]:
    """Bodies of one piece again and again."""
    return lambda size: head + piece * (size // len(piece)) + tail


def numbered(piece: str, joint: str = "\n", head: str = "", tail: str = "") -> Callable[[int], bytes]:
    """The same, with each piece's number in it."""
    return lambda size: (head + joint.join(piece % n for n in range(size // len(piece))) + tail).encode()


def event(**fields: Any) -> bytes:
    """One event of a body."""
    return json.dumps({"source": "kernel", "kind": "xid", "node": "gpu-017", **fields}).encode()


SPAN = (
    '{"name": "%s", "spanId": "s%%d", "parentSpanId": "p%%d", "startTimeUnixNano": "1740801906000000000",'
    ' "endTimeUnixNano": "1740801907000000000",'
    ' "attributes": [{"key": "iteration", "value": {"intValue": "%%d"}}]}'
)


def spans(*names: str) -> Callable[[int], bytes]:
    """Spans of these names in turn, each with an iteration of its own."""

    def make(size: int) -> bytes:
        made = [SPAN % names[n % len(names)] % (n, n, n) for n in range(size // 200)]
        return f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{",".join(made)}]}}]}}]}}'.encode()

    return make


def points(time: str, gpu: str, host: str) -> Callable[[int], bytes]:
    """Points of one counter; `%d` in a part of them is each one's number."""

    def make(size: int) -> bytes:
        found = []
        for n in range(size // 150):
            attributes = [{"key": "gpu", "value": {"stringValue": gpu.replace("%d", str(n))}}]
            attributes.append({"key": "Hostname", "value": {"stringValue": host.replace("%d", str(n))}})
            found.append({"timeUnixNano": time.replace("%d", f"{n:06d}"), "asInt": str(n), "attributes": attributes})
        metric = {"name": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gauge": {"dataPoints": found}}
        return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()

    return make


NOON = "1740830000000000000"
ATTACKS: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
    "objects behind each other in many lines": ("logs", 512 * KB, repeated(b'{"log":"a"}{"log":"b"}\n')),
    "objects behind each other in one line": ("logs", 512 * KB, repeated(b'{"log":"a"}')),
    "a record of many lines": ("logs", 256 * KB, repeated(b"a\\n", b'{"log":"', b'"}')),
    "lines of one letter": ("logs", 2048 * KB, repeated(b"a\n")),
    "lines of one letter to a parser that reads all": ("logs?format=training", 512 * KB, repeated(b"a\n")),
    "many hosts": ("logs", 256 * KB, numbered('{"log":"NVRM: Xid","host":"h%d"}')),
    "many formats at once": (
        "logs",
        64 * KB,
        lambda size: b"\n".join(entry.sample.encode() for entry in PARSERS.values()) + b"\na" * (size // 2),
    ),
    "a list of records in a record": ("logs", 512 * KB, repeated(b'{"value":{}},', b'{"records":[', b"{}]}")),
    "deep nesting": ("logs", 512 * KB, repeated(b"[", b'{"log":"a","b":')),
    "deep nesting twice": ("logs", 512 * KB, repeated(b'{"log":"a","b":' + b"[" * 700 + b"]" * 700 + b"}")),
    "no UTF-8": ("logs", 1024 * KB, repeated(b"\xff\xfe")),
    "no UTF-8 in many lines": ("events", 256 * KB, repeated(b"\xff\xfe\n")),
    "records of one letter": ("events", 256 * KB, repeated(b"a\n")),
    "an escaped NUL behind many records": ("events", 512 * KB, repeated(b"{},", b"[", b'{"a":"\\u0000"}]')),
    "a whole number of many digits": ("events", 1024 * KB, repeated(b"1", b'{"source":"a","kind":"b","code":', b"}")),
    "many keys": ("events", 1024 * KB, numbered('"k%d":1', ",", '{"source":"a","kind":"b","attributes":{', "}}")),
    "one key again and again": ("events", 1024 * KB, repeated(b'"k":1,', b'{"attributes":{', b'"k":2}}')),
    "one text": ("events", 4096 * KB, repeated(b"x", b'{"source":"a","kind":"b","message":"', b'"}')),
    "measures of devices": ("telemetry", 512 * KB, numbered('"gpu:%d":{"a":[1,1,1,1,1]}', ",", '{"devices":{', "}}")),
    "labels of an alert": ("alerts", 512 * KB, numbered('"l%d":"v"', ",", '{"alerts":[{"labels":{', "}}]}")),
    "notifications without alerts": ("alerts", 256 * KB, repeated(b'{"alerts":[],"truncatedAlerts":1}\n')),
    "outages": ("outages", 256 * KB, numbered('{"node":"n%d","start":"2025-03-01T00:00:00Z"}')),
    "a reason without end": (
        "outages",
        1024 * KB,
        repeated(b"a ", b'{"node":"n","start":"2025-03-01T00:00:00Z","reason":"', b'"}'),
    ),
    "sources of a heartbeat": ("heartbeats", 1024 * KB, repeated(b'{"source":"a"},', b'{"sources":[', b"{}]}")),
    "a heartbeat within a heartbeat": ("heartbeats", 512 * KB, repeated(b"[", b'{"node":"a","x":', b"")),
    "waits for data that no iteration takes up": ("traces", 1024 * KB, spans("data_loading")),
    "saves that end out of order": (
        "traces",
        3072 * KB,
        lambda size: spans(*["checkpoint_save_async"] * 4096, *["checkpoint_save_finalization"] * 8192)(size),
    ),
    "a counter of many GPUs": ("metrics", 256 * KB, points(NOON, "%d", "gpu-017")),
    "a counter at many moments": ("metrics", 256 * KB, points("1740830%d000000", "0", "gpu-017")),
    "a counter of many nodes": ("metrics", 256 * KB, points(NOON, "0", "n%d")),
    "broken spans behind each other": ("traces", 512 * KB, repeated(b'{"a":]')),
    "tabs in a job of Slurm's": (
        "logs?format=squeue",
        128 * KB,
        repeated(b"JobId=4711 " + b"\t" * 15_000 + b"JobName=a\n"),
    ),
    "blanks in a journal's field": (
        "logs?format=kernel",
        128 * KB,
        repeated(b'{\n"__REALTIME_TIMESTAMP" : ' + b" " * 15_000 + b"1\n}\n"),
    ),
    "saves in one folder": ("logs?format=checkpoints", 512 * KB, numbered("1740802109.5 50 f /c/run/checkpoint-%d")),
    "nodes of a placement": ("placement", 512 * KB, numbered('"n%d"', ",", '{"nodes":[', "]}")),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_body_costs_no_more_than_it_weighs(site: CostSite, name: str) -> None:
    """Eight times the body is some eight times the cost, and a byte costs no more than a real one's bound."""
    path, size, make = ATTACKS[name]
    site.linear(path, make, size)


PACKED: dict[str, tuple[str, bytes]] = {
    "zstd": ("zstd", zstandard.ZstdCompressor().compress(b"")),
    "gzip": ("gzip", gzip.compress(b"")),
    "skippable frames of zstd": ("zstd", b"\x50\x2a\x4d\x18" + bytes(4)),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("path", ["events", "logs", "heartbeats", "telemetry"])
def test_a_million_empty_frames_are_refused_in_linear_time(site: CostSite, name: str, path: str) -> None:
    """With what to do; a quarter of a megabyte has tens of thousands."""
    encoding, piece = PACKED[name]
    headers = {"content-encoding": encoding}
    site.linear(path, repeated(piece), 2048 * KB, headers)
    if name != "skippable frames of zstd":
        answer = site.post(path, piece * 20_000, headers)
        assert (answer.status_code, "pack it as one" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize(("pack", "take_apart"), [(gzip.compress, unzipped), (zstandard.compress, unzstd)])
def test_any_number_of_members_of_a_file_is_read_in_linear_time(
    pack: Callable[[bytes], bytes], take_apart: Callable[[list[bytes]], Iterator[bytes]]
) -> None:
    """The sidecar and `ingest` read files that are put together of others: each piece is handed over once."""
    members = 40_000
    data = pack(b"") * members + pack(b"the end")
    assert b"".join(take_apart([data])) == b"the end"
    handed = 0

    class Counted(bytes):
        """Counts what is cut out of it."""

        def __getitem__(self, part: Any) -> Any:
            nonlocal handed
            found = super().__getitem__(part)
            handed += len(found) if isinstance(found, bytes) else 1
            return found

    assert b"".join(take_apart([Counted(data)])) == b"the end"
    assert handed == len(data)


def test_a_queues_message_of_empty_frames_is_no_batch() -> None:
    """The consumer reads with the same means."""
    with pytest.raises(NoBatchError, match="pack it as one"):
        unpack(zstandard.compress(b"") * 20_000, "zstd", 1024)
    with pytest.raises(NoBatchError, match="over 1024 bytes"):
        unpack(zstandard.compress(bytes(10_000_000)), "zstd", 1024)
    with pytest.raises(NoBatchError, match="cut short"):
        unpack(zstandard.compress(b"[]" * 100)[:-3], "zstd", 1024)


def test_a_small_heartbeat_that_unpacks_large_is_not_read_in_the_event_loop(
    site: CostSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other requests would stand still meanwhile."""
    import api.routes.heartbeats as route

    threads: list[str] = []
    read = route.records

    def noted(body: bytes) -> Any:
        import threading

        threads.append(threading.current_thread().name)
        return read(body)

    monkeypatch.setattr(route, "records", noted)
    beat = b'{"node": "gpu-017"}'
    for body in (beat, beat + b" " * 10_000_000):
        site.post("heartbeats", as_sent(body), {"content-encoding": "zstd"})
    assert len(as_sent(body)) < 16 * KB
    assert threads[0] != threads[1]
    assert threads[1].startswith("AnyIO worker")


def as_sent(body: bytes) -> bytes:
    """Packed as a sidecar does."""
    return zstandard.ZstdCompressor(level=1).compress(body)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"attributes": {"a": "x" * 20_000_000}}, f"{MAX_ATTRIBUTE_CHARS} are the most"),
        ({"attributes": {f"k{n}": 1 for n in range(MAX_ATTRIBUTES + 1)}}, f"{MAX_ATTRIBUTES} are the most"),
        ({"attributes": {"k" * 70_000: 1}}, f"{MAX_ATTRIBUTE_CHARS} are the most"),
        ({"attributes": {"a": {"b": 1}}}, "flatten what is nested"),
        ({"device": {"type": "gpu", "uuid": "x" * 256}}, "'uuid' of over 255 characters"),
        ({"file": "x" * 5000}, "'file' is over 4096 characters"),
    ],
)
def test_an_event_that_is_larger_than_any_real_one_is_rejected_by_its_line(
    site: CostSite, fields: dict[str, Any], why: str
) -> None:
    """Its neighbours are taken."""
    neighbour = event(time="2025-03-01T11:00:00Z", message=f"beside {len(repr(fields))}")
    taken = site.post("events", b"\n".join((neighbour, event(**fields)))).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (1, [2])
    assert why in taken["rejected"][0]["detail"]


def test_the_largest_event_that_may_be_is_taken(site: CostSite) -> None:
    """Bounds are what they say."""
    fields = {f"k{n:03}": "x" * (MAX_ATTRIBUTE_CHARS // MAX_ATTRIBUTES - 4) for n in range(MAX_ATTRIBUTES)}
    taken = site.post("events", event(attributes=fields, device={"type": "gpu", "uuid": "x" * 255})).json()
    assert (taken["accepted"], taken["rejected"]) == (1, [])


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("events", b"{}\n" * (work_budget.MOST_RECORDS + 1), "records"),
        ("events", b"\n" * (work_budget.MOST_LINES + 1) + b"a", "lines"),
        ("logs", b"\n" * (work_budget.MOST_LINES + 1), "lines"),
        ("logs", b'{"log":"' + b"\\n" * work_budget.MOST_LINES + b'"}', "lines"),
        ("logs", b"[" + b"[]," * work_budget.MOST_CONTAINERS + b"{}]", "objects and lists"),
        ("events", b"[" + b"[]," * work_budget.MOST_CONTAINERS + b"{}]", "objects and lists"),
        ("telemetry", b"[" + b"[]," * work_budget.MOST_CONTAINERS + b"{}]", "objects and lists"),
        ("traces", b"[" + b"[]," * work_budget.MOST_CONTAINERS + b"{}]", "objects and lists"),
        ("logs", numbered('{"log":"a","host":"h%d"}')(24 * (work_budget.MOST_HOSTS + 10)), "hosts"),
    ],
)
def test_more_of_anything_than_a_real_body_has_is_a_413(site: CostSite, path: str, body: bytes, why: str) -> None:
    """It says what is too much, and to send it in parts."""
    answer = site.post(path, body)
    assert answer.status_code == 413, answer.text
    assert why in answer.json()["detail"]
    assert "in parts" in answer.json()["detail"]


@pytest.fixture
def stingy(engine: sa.Engine) -> FastAPI:
    """A server that works a hundredth of a second on a body."""
    limits = RequestLimits(work_s=0.01)
    return create_app(replace(QUIET, limits=limits), engine, lambda: NOW)


@pytest.mark.parametrize(
    "path", ["events", "logs", "telemetry", "outages", "heartbeats", "alerts", "traces", "metrics"]
)
def test_work_on_a_body_ends_when_its_budget_is_spent(stingy: FastAPI, path: str) -> None:
    """With a 413, and the slot is free again."""
    when, lost = "2025-03-01T04:05:06Z", {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0}
    beat = {"node": "a", "time": when, "version": "1", "started": when, "interval_s": 60, "sources": [], "lost": lost}
    record = {
        "heartbeats": (json.dumps(beat).encode() + b"\n") * 40_000,
        "alerts": b'{"alerts":[' + b"{}," * 40_000 + b"{}]}",
        "traces": spans("step")(4_000_000),
        "metrics": points(NOON, "%d", "gpu-017")(4_000_000),
    }
    body = record.get(path, b'{"log":"NVRM: Xid (PCI:0000:0f:00): 79","host":"a"}\n' * 40_000)
    with TestClient(stingy, raise_server_exceptions=False) as client:
        answer = client.post(f"/api/v1/{path}", content=body)
        assert answer.status_code == 413, answer.text[:300]
        assert "more than 0.01 s of processor time" in answer.json()["detail"]
        assert stingy.state.foreshock.metrics.in_flight.labels("write")._value.get() == 0


def test_work_that_is_answered_meanwhile_ends_and_frees_its_slot(engine: sa.Engine) -> None:
    """The sender has had its 503: the thread stops at the next record, not at the last."""
    import threading

    app = create_app(replace(QUIET, limits=RequestLimits(answer_s=0.2, work_s=0.0)), engine, lambda: NOW)
    in_flight = app.state.foreshock.metrics.in_flight.labels("write")._value
    read, go_on = 0, threading.Event()

    def slow(value: Any, *_rest: Any) -> Any:
        nonlocal read
        read += 1
        go_on.wait(patience(30))  # the answer is given while the first record is read
        raise RecordError("it does not fit")

    import api.routes.outages as route

    with pytest.MonkeyPatch.context() as patch, TestClient(app, raise_server_exceptions=False) as client:
        patch.setattr(route, "read_outage", slow)
        answer = client.post("/api/v1/outages", content=b"{}\n" * 10_000)
        assert (answer.status_code, in_flight.get()) == (503, 1)
        go_on.set()
        deadline = patience(30)
        while in_flight.get() and deadline > 0:
            threading.Event().wait(0.01)
            deadline -= 0.01
    assert in_flight.get() == 0
    assert read <= 64


@pytest.mark.parametrize(
    "text",
    [
        "a[0-199999]" + "[0]" * 5000,
        "x" * 50_000 + "[0-199999]",
        "[0-199999]" * 4,
        ",".join(["[0-199999]"] * 2),
        "[0-1]" * 10_000,
    ],
)
def test_a_short_hostlist_makes_no_long_work(site: CostSite, text: str) -> None:
    """It is refused before it is written out."""
    with pytest.raises(RecordError):
        expand(text)
    answer = site.client.get("/api/v1/placement", params={"nodes": text[:20_000]})
    assert answer.status_code == 422, answer.text[:200]


# Any body, to every route that takes one: no byte costs more than it may.

BODIES: dict[str, bytes] = {
    "post_events": event(time="2025-03-01T11:00:00Z", attributes={"pid": 1, "process": "python"}),
    "post_telemetry": json.dumps(
        {
            "node": "gpu-017",
            "time": "2025-03-01T04:00:00Z",
            "samples": 960,
            "gpus_seen": 8,
            "devices": {"gpu:3": {"gpu_temp_c": [52, 71, 60.8, 66, 41]}},
        }
    ).encode(),
    "post_outages": b'{"node": "gpu-017", "start": "2025-03-01T04:05:06Z", "end": null, "reason": "Xid 79"}',
    "post_alerts": b'{"version": "4", "alerts": [{"status": "firing", "labels": {"alertname": "a", "node": "gpu-017"},'
    b' "startsAt": "2025-03-01T04:05:06Z", "fingerprint": "74d5"}]}',
    "post_heartbeats": b'{"node": "gpu-017", "time": "2025-03-01T04:05:06Z", "version": "0.1.0", "sources": []}',
    "post_logs": b'{"date": 1740801906.789, "host": "gpu-017", "log": "NVRM: Xid (PCI:0000:0f:00): 79, pid=1"}',
    "post_traces": spans("step")(200),
    "post_metrics": points(NOON, "3", "gpu-017")(150),
    "ask_placement": b'{"nodes": ["gpu-001", "gpu-002"], "count": 2, "gpus_per_node": 8}',
    "ack_hint": b'{"scheduler": "volcano", "result": "confirmed"}',
    "post_stop": b'{"reason": "a rack is being moved"}',
    "reset_breaker": b'{"note": "it was the power"}',
    "enroll": b'{"node": "gpu-017"}',
    "post_topology": b'{"switch": "leaf04", "port": 12, "peer": "gpu-017", "peer_port": 1, "peer_type": "hca",'
    b' "hca": "mlx5_3"}',
    "close_ticket": b'{"reference": "HW-1234", "text": "GPU 3 replaced"}',
    "step_incident": b'{"text": "riser ordered", "owner": "ann", "hours": 4}',
    "step_verdict": b'{"text": "riser ordered", "until": "2025-03-01T16:05:06Z"}',
    "report_validation": b'{"passed": false, "detail": "nccl-tests: 12 GB/s"}',
}


def routes_with_bodies(app: FastAPI) -> dict[str, str]:
    """The paths of every route that takes a body, by operation."""
    return {
        operation["operationId"]: path.removeprefix("/api/v1/").format(
            hint="h", incident="i", verdict="v", step="ack", seq=1, ticket="h.0"
        )
        for path, methods in app.openapi()["paths"].items()
        for operation in methods.values()
        if "requestBody" in operation
    }


def test_every_route_that_takes_a_body_is_attacked_here(site: CostSite) -> None:
    """A new one needs a body above."""
    assert set(BODIES) >= set(routes_with_bodies(site.client.app))  # type: ignore[arg-type]  # it is FastAPI's


SIZE = 96 * KB
_PIECES = (*(bytes([letter]) for letter in b'{["\\,:\n \t1a\xff'), b"}{", b"{}", b"[]", b"\\u0000")


@st.composite
def inflated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A real body, a piece of which is there many times over, or another in its place."""
    seed = draw(st.sampled_from(seeds))[:4096]
    start = draw(st.integers(0, len(seed)))
    end = draw(st.integers(start, min(len(seed), start + 200)))
    piece = draw(st.sampled_from((*_PIECES, seed, seed[start:end], seed + b"\n", seed[:end]))) or b"a"
    return seed[:start] + piece * (SIZE // len(piece)) + seed[draw(st.sampled_from((start, end))) :]


@pytest.mark.parametrize("operation", sorted(BODIES))
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_any_body_costs_more_than_it_may(site: CostSite, operation: str, data: st.DataObject) -> None:
    """Whatever is repeated in it: brackets, quotes, lines, whole records."""
    path = routes_with_bodies(site.client.app).get(operation)  # type: ignore[arg-type]  # it is FastAPI's
    if path is None:
        pytest.skip(f"{operation} takes no body")
    site.check(path, data.draw(inflated([BODIES[operation]])))


@pytest.mark.parametrize("name", sorted(name for name, entry in PARSERS.items() if entry.shape != "page"))
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_any_log_costs_more_than_it_may(site: CostSite, name: str, data: st.DataObject) -> None:
    """Of every format that POST /logs reads."""
    files = [
        path
        for path in sorted((FIXTURES / name).iterdir())
        if path.is_file() and path.suffix not in (".jsonl", ".md", ".gz", ".zst")
    ]
    lines = [line for path in files for line in path.read_bytes().split(b"\n")[:2000] if line]
    site.check(f"logs?format={name}", data.draw(inflated(lines)))


def test_damaged_gzip_is_named(site: CostSite) -> None:
    """What follows the last member must be one, or zeros."""
    whole = gzip.compress(event(time="2025-03-01T11:00:00Z", message="whole"))
    headers = {"content-encoding": "gzip"}
    assert site.post("events", whole + bytes(100), headers).status_code == 200
    for broken in (whole + b"rest", whole[:-4], b"\x1f\x8b" + b"\xff" * 50, whole + whole[:20]):
        assert site.post("events", broken, headers).status_code == 400
