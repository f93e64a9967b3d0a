"""Request bodies as senders really make them: packed, cut short, broken in the middle, huge, empty, odd."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.edge.problem import Problem
from api.intake.entries import MAX_MESSAGE, MAX_NAME, MAX_REJECTED_SHOWN, records, without_nul

from .conftest import QUIET, Clock

SENDING = ("events", "telemetry", "outages", "alerts", "logs")
LIMIT = 64 * 1024


@pytest.fixture
def narrow(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server that takes 64 KiB at most."""
    app = create_app(replace(QUIET, body_limit_bytes=LIMIT), engine, clock)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def record(number: int = 1, **changes: Any) -> dict[str, Any]:
    """An event that is taken."""
    fields = {"time": "2025-03-01T11:00:00Z", "node": f"n{number}", "source": "kernel", "kind": "xid", "code": 79}
    return fields | changes


def ndjson(*values: Any) -> bytes:
    """One value a line; bytes go in as they are."""
    return b"\n".join(value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)


def post(client: TestClient, body: bytes, path: str = "events", **headers: str) -> dict[str, Any]:
    """The answer to a body that is taken, whole or in part."""
    sent = client.post(f"/api/v1/{path}", content=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert sent.status_code == 200, sent.text
    taken: dict[str, Any] = sent.json()
    return taken


def nodes(client: TestClient) -> set[str]:
    """The nodes whose events are stored."""
    return {event["node"] for event in client.get("/api/v1/events", params={"limit": 1000}).json()["items"]}


@pytest.mark.parametrize(
    "broken",
    [
        b'{"time": "2025-03-01T11:00:00Z", "node": "x", "source": "ker',
        b"not json at all",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"null",
        b'"text"',
        b'{"node": "x"}',
        b'{"time": 5, "node": "x", "source": "kernel", "kind": "xid"}',
        b'{"time": "2025-03-01T11:00:00Z", "node": "x", "source": "kernel", "kind": "xid", "code": 1e400}',
        b'{"time": "9999-12-31T23:59:59Z", "node": "x", "source": "kernel", "kind": "xid"}',
    ],
)
def test_one_broken_line_in_the_middle_costs_only_itself(client: TestClient, broken: bytes) -> None:
    """It is named by its number; those before and behind it are stored."""
    taken = post(client, ndjson(record(1), broken, record(3)))
    assert (taken["accepted"], taken["known"]) == (2, 0)
    ((line, detail),) = [(entry["line"], entry["detail"]) for entry in taken["rejected"]]
    assert line == 2
    assert detail
    assert nodes(client) == {"n1", "n3"}


def test_blank_lines_and_line_ends_of_other_systems_are_no_records(client: TestClient) -> None:
    """CRLF, empty lines, blanks, an end without a line feed; numbers count them all the same."""
    body = b"\r\n" + ndjson(record(1)) + b"\r\n\n   \t\n" + ndjson(record(2), b"oops") + b"\n\n"
    taken = post(client, body)
    assert taken["accepted"] == 2
    assert [entry["line"] for entry in taken["rejected"]] == [6]


@pytest.mark.parametrize("path", SENDING)
@pytest.mark.parametrize("body", [b"", b"\n\n", b"   ", gzip.compress(b"", mtime=0)])
def test_an_empty_body_is_nothing_taken(client: TestClient, path: str, body: bytes) -> None:
    """Everywhere, packed or not: a shipper with nothing to say is no error."""
    packed = body[:2] == b"\x1f\x8b"
    taken = post(client, body, path, **({"content_encoding": "gzip"} if packed else {}))
    assert taken == {"accepted": 0, "known": 0, "rejected": []}


def test_an_empty_list_is_nothing_taken(client: TestClient) -> None:
    """As a sender flushes an empty buffer."""
    assert post(client, b"[]") == {"accepted": 0, "known": 0, "rejected": []}


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/octet-stream", "application/json; charset=utf-16", "x"]
)
def test_the_content_type_is_not_looked_at(client: TestClient, kind: str) -> None:
    """Shippers send what they like; the body speaks for itself."""
    assert post(client, ndjson(record()), content_type=kind)["accepted"] == 1


@pytest.mark.parametrize("encoding", ["GZIP", " gzip ", "x-gzip"])
def test_the_name_of_an_encoding_is_taken_in_any_spelling(client: TestClient, encoding: str) -> None:
    """As the standard says: without regard to case."""
    assert post(client, gzip.compress(ndjson(record())), content_encoding=encoding)["accepted"] == 1


@pytest.mark.parametrize("encoding", ["br", "deflate", "compress", "gzip, gzip", "zstd, gzip", "\x80"])
def test_an_encoding_that_is_not_known_is_named_in_the_refusal(client: TestClient, encoding: str) -> None:
    """415 with those that are; also for two on top of each other."""
    headers = {"content-encoding": encoding.encode("latin-1")}
    answer = client.post("/api/v1/events", content=b"x", headers=headers)  # type: ignore[arg-type]  # bytes are fine
    assert answer.status_code == 415
    assert "gzip, zstd or identity" in answer.json()["detail"]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_a_packed_body_that_is_cut_short_is_refused_whole(client: TestClient, pack: Any, keep: float) -> None:
    """Half a batch must never pass for all of it: the sender would forget the other half."""
    lines = ndjson(*(record(i, message=str(i * 7919)) for i in range(500)))
    packed = pack(lines)
    encoding = "gzip" if pack is gzip.compress else "zstd"
    headers = {"content-encoding": encoding}
    answer = client.post("/api/v1/events", content=packed[: int(len(packed) * keep)], headers=headers)
    assert answer.status_code == 400
    assert f"the body is no {encoding}" in answer.json()["detail"]
    assert nodes(client) == set()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_body_of_several_parts_is_read_to_its_end(client: TestClient, pack: Any) -> None:
    """As `cat a.gz b.gz` and parallel packers make them."""
    encoding = "gzip" if pack is gzip.compress else "zstd"
    body = b"".join(pack(ndjson(record(i)) + b"\n") for i in range(3))
    assert post(client, body, content_encoding=encoding)["accepted"] == 3
    assert nodes(client) == {"n0", "n1", "n2"}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_garbage_behind_a_packed_body_is_refused(client: TestClient, pack: Any) -> None:
    """Something went wrong at the sender: better say so."""
    encoding = "gzip" if pack is gzip.compress else "zstd"
    packed = pack(ndjson(record())) + b"trailing garbage"
    assert client.post("/api/v1/events", content=packed, headers={"content-encoding": encoding}).status_code == 400


@pytest.mark.parametrize("body", [b"\x1f\x8b", b"\x1f\x8b\x08\x00" + b"\x00" * 30, zlib.compress(b"x"), b"[]"])
def test_what_is_no_gzip_is_refused(client: TestClient, body: bytes) -> None:
    """A bare header, a broken one, zlib instead, plain text."""
    assert client.post("/api/v1/events", content=body, headers={"content-encoding": "gzip"}).status_code == 400


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused_without_being_unpacked(narrow: TestClient, pack: Any) -> None:
    """A few KiB that would become 50 MB; just as one byte over the limit."""
    encoding = "gzip" if pack is gzip.compress else "zstd"
    for size, status in ((50_000_000, 413), (LIMIT + 1, 413), (LIMIT, 200)):
        packed = pack(b"\n" * size)
        assert len(packed) < LIMIT
        answer = narrow.post("/api/v1/events", content=packed, headers={"content-encoding": encoding})
        assert answer.status_code == status, (size, answer.text)


def test_a_length_that_lies_is_found_out(narrow: TestClient) -> None:
    """A number that is none is passed over; the stream itself is counted."""
    parts = iter([b"\n" * 40_000, b"\n" * 40_000])
    assert narrow.post("/api/v1/events", content=parts).status_code == 413
    assert narrow.post("/api/v1/events", content=b"\n", headers={"content-length": str(10**12)}).status_code == 413


def test_a_line_of_a_megabyte_is_refused_and_its_neighbours_are_not(client: TestClient) -> None:
    """A message has its limit; the sentence says which."""
    taken = post(client, ndjson(record(1), record(2, message="x" * 1_000_000), record(3)))
    assert taken["accepted"] == 2
    assert taken["rejected"] == [{"line": 2, "detail": f"'message' is over {MAX_MESSAGE} characters: cut it"}]


def test_names_and_messages_are_taken_up_to_their_limits(client: TestClient) -> None:
    """Not one character more, in any field that an index holds."""
    longest = record(1, id="i" * MAX_NAME, message="x" * MAX_MESSAGE)
    assert post(client, ndjson(longest))["accepted"] == 1
    for field in ("id", "source", "kind"):
        ((entry),) = post(client, ndjson(record(1, **{field: "n" * (MAX_NAME + 1)})))["rejected"]
        assert entry["detail"].startswith(f"'{field}' must have 1 to {MAX_NAME}")
    ((entry),) = post(client, ndjson(record(1, node="n" * (MAX_NAME + 1))))["rejected"]
    assert "node" in entry["detail"]
    (entry,) = post(client, ndjson(record(1, attributes={"run": "n" * (MAX_NAME + 1)})))["rejected"]
    assert "'run'" in entry["detail"]


def test_at_most_a_hundred_rejections_are_named_and_all_are_counted(client: TestClient) -> None:
    """A sender gone wild gets a short answer, the metrics have the number."""
    taken = post(client, ndjson(*[b"oops"] * 150, record(1)))
    assert (taken["accepted"], len(taken["rejected"])) == (1, MAX_REJECTED_SHOWN)
    assert 'foreshock_records_rejected_total{resource="events"} 150.0' in client.get("/metrics").text


@pytest.mark.parametrize("path", SENDING)
@pytest.mark.parametrize("depth", [400, 700, 1000])
@pytest.mark.parametrize("wrap", [b'{"a": %b}', b'[{"a": %b}]', b'{\n"a": %b}'])
def test_a_deep_body_is_no_crash(client: TestClient, path: str, depth: int, wrap: bytes) -> None:
    """A kilobyte of brackets around a NUL must not overflow the stack."""
    body = wrap % (b"[" * depth + b'"\\u0000"' + b"]" * depth)
    answer = client.post(f"/api/v1/{path}", content=body)
    assert answer.status_code in (200, 400, 422), answer.text


def test_a_deep_line_leaves_its_neighbours_alone(client: TestClient) -> None:
    """It is rejected by its number."""
    deep = b'{"a": ' + b"[" * 900 + b'"\\u0000"' + b"]" * 900 + b"}"
    taken = post(client, ndjson(record(1), deep, record(3)))
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (2, [2])
    assert "nested too deeply" in taken["rejected"][0]["detail"]


def test_nul_is_taken_out_wherever_it_stands(client: TestClient) -> None:
    """In values, keys and lists; an escaped backslash before `u0000` is no NUL."""
    odd = record(1, node="a\x00b", message="back\\u0000slash\x00", attributes={"k\x00": "v\x00"})
    assert post(client, ndjson(odd))["accepted"] == 1
    (event,) = client.get("/api/v1/events").json()["items"]
    assert (event["node"], event["message"], event["attributes"]) == ("ab", "back\\u0000slash", {"k": "v"})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=5))
def test_an_array_and_its_lines_hold_the_same_records(values: list[Any]) -> None:
    """One value, two ways to write it down; NUL is gone from both."""
    cleaned = [without_nul(value) for value in values]
    assert [entry.value for entry in records(json.dumps(values).encode())] == cleaned
    assert [entry.value for entry in records(ndjson(*values))] == cleaned
    assert "\\u0000" not in json.dumps(cleaned).replace("\\\\", "")


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_any_bytes_are_entries_or_one_refusal(body: bytes) -> None:
    """Each line is numbered within the body; only a broken array is refused as a whole."""
    try:
        found = list(records(body))
    except Problem as refused:
        assert refused.status_code == 400
        assert body.strip().startswith(b"[")
        return
    lines = body.count(b"\n") + 1
    for entry in found:
        assert entry.line >= 1
        assert (entry.error is None) or (entry.value is None and entry.line <= lines)
