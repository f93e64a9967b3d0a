"""POST and GET /events."""

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
import zstandard
from fastapi.testclient import TestClient
from wire_check import check_answer

from store.records.event import format_time
from wire.events import BatchResultJson, EventJson
from wire.message import Page

from .conftest import NOW


def record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """An Xid of a node, `number` seconds before noon."""
    return {
        "time": format_time(NOW - timedelta(seconds=number)),
        "node": "gpu-001",
        "source": "kernel",
        "kind": "xid",
        "code": 79,
        "severity": "fatal",
        "cause": "hardware",
        "device": {"type": "gpu", "pci": "0000:0f:00.0"},
        "message": f"line {number}",
        "attributes": {"pid": number},
        "id": f"e{number:04}",
    } | changes


def post(client: TestClient, body: bytes | list[dict[str, Any]], **headers: str) -> dict[str, Any]:
    """Send a body; the answer must be 200 and of the published shape."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/api/v1/events", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    check_answer(BatchResultJson, answer.json())
    taken: dict[str, Any] = answer.json()
    return taken


def listed(client: TestClient, **query: Any) -> dict[str, Any]:
    """One page of events; must be of the published shape."""
    answer = client.get("/api/v1/events", params=query)
    assert answer.status_code == 200, answer.text
    check_answer(Page[EventJson], answer.json())
    shown: dict[str, Any] = answer.json()
    return shown


def ids(shown: dict[str, Any]) -> list[str]:
    """The ids of a page, in its order."""
    return [item["id"] for item in shown["items"]]


def test_an_event_comes_back_as_it_was_sent(client: TestClient) -> None:
    """Every field survives, and `received` is added."""
    assert post(client, [record(1)]) == {"accepted": 1, "known": 0, "rejected": []}
    (item,) = listed(client)["items"]
    expected = record(1)
    assert {key: item[key] for key in expected if key != "device"} == {
        k: v for k, v in expected.items() if k != "device"
    }
    assert item["device"] == {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    assert item["received"] == format_time(NOW)


def test_sending_again_changes_nothing(client: TestClient) -> None:
    """Appends are idempotent by id, and by content where there is no id."""
    anonymous = {key: value for key, value in record(2).items() if key != "id"}
    post(client, [record(1), anonymous])
    assert post(client, [record(1), anonymous, record(3)]) == {"accepted": 1, "known": 2, "rejected": []}
    assert len(listed(client)["items"]) == 3


def test_a_bad_line_leaves_its_neighbours_alone(client: TestClient) -> None:
    """Each bad line is named with its number and reason; blank lines are nothing."""
    lines = [json.dumps(record(1)), "{broken", "", '"a string"', json.dumps(record(2, severity="dreadful"))]
    lines += [json.dumps(record(3, node="n" * 256)), json.dumps(record(4, kind=None)), json.dumps(record(5))]
    lines += [json.dumps(record(6, time="yesterday")), json.dumps(record(7, time="0001-01-01T00:00:00Z"))]
    taken = post(client, "\n".join(lines).encode())
    assert taken["accepted"] == 2
    assert [entry["line"] for entry in taken["rejected"]] == [2, 4, 5, 6, 7, 9, 10]
    assert all(entry["detail"] for entry in taken["rejected"])
    assert ids(listed(client)) == ["e0005", "e0001"]


def test_an_array_names_the_place_of_a_bad_record(client: TestClient) -> None:
    """In an array the place counts, from 1."""
    taken = post(client, json.dumps([record(1), 17, record(2)]).encode())
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (2, [2])


def test_a_broken_array_is_refused_whole(client: TestClient) -> None:
    """Nothing in it can be told apart: 400, with the remedy."""
    answer = client.post("/api/v1/events", content=b'[{"kind": ')
    assert answer.status_code == 400
    assert "one object a line" in answer.json()["detail"]


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_packed_bodies_are_unpacked(client: TestClient, encoding: str, pack: Any) -> None:
    """gzip is what the sidecar sends; zstd is there for others."""
    body = "\n".join(json.dumps(record(n)) for n in range(50)).encode()
    assert post(client, pack(body), **{"content-encoding": encoding})["accepted"] == 50


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_not_packed_as_it_says_is_refused(client: TestClient, encoding: str) -> None:
    """400, and the sentence names the encoding."""
    answer = client.post("/api/v1/events", content=b"plainly not", headers={"content-encoding": encoding})
    assert answer.status_code == 400
    assert encoding in answer.json()["detail"]


def test_a_truncated_gzip_is_refused(client: TestClient) -> None:
    """Half a gzip stream is an error of the sender, not ours."""
    packed = gzip.compress(json.dumps([record(n) for n in range(50)]).encode())
    answer = client.post("/api/v1/events", content=packed[:-20], headers={"content-encoding": "gzip"})
    assert answer.status_code == 400


def test_an_unknown_encoding_is_refused(client: TestClient) -> None:
    """415 for what nobody can unpack."""
    assert client.post("/api/v1/events", content=b"x", headers={"content-encoding": "br"}).status_code == 415


def test_nul_characters_are_taken_out(client: TestClient) -> None:
    """PostgreSQL would refuse the whole batch for one."""
    body = json.dumps(record(1, message="a\x00b", attributes={"pro\x00cess": "x\x00"})).encode()
    assert post(client, body)["accepted"] == 1
    (item,) = listed(client)["items"]
    assert (item["message"], item["attributes"]) == ("ab", {"process": "x"})


def test_a_pretty_printed_object_is_one_record(client: TestClient) -> None:
    """As a person sends it with curl."""
    assert post(client, json.dumps(record(1), indent=2).encode())["accepted"] == 1


def test_an_empty_body_is_no_record(client: TestClient) -> None:
    """Nothing in, nothing out."""
    for body in (b"", b"\n\n", b"[]"):
        assert post(client, body) == {"accepted": 0, "known": 0, "rejected": []}


def test_without_since_the_newest_come_oldest_first(client: TestClient) -> None:
    """The cursor then leads back to the older ones."""
    post(client, [record(n) for n in range(7)])
    first = listed(client, limit=3)
    assert ids(first) == ["e0002", "e0001", "e0000"]
    second = listed(client, limit=3, cursor=first["next_cursor"])
    assert ids(second) == ["e0005", "e0004", "e0003"]
    third = listed(client, limit=3, cursor=second["next_cursor"])
    assert (ids(third), third["next_cursor"]) == (["e0006"], None)


def test_with_since_pages_go_onward(client: TestClient) -> None:
    """Every event of the window exactly once, in order; until is exclusive."""
    post(client, [record(n) for n in range(10)])
    query = {"since": format_time(NOW - timedelta(seconds=8)), "until": format_time(NOW - timedelta(seconds=1))}
    found, cursor = [], None
    for _ in range(10):
        shown = listed(client, limit=2, **query, **({"cursor": cursor} if cursor else {}))
        found += ids(shown)
        cursor = shown["next_cursor"]
        if cursor is None:
            break
    assert found == [f"e{n:04}" for n in range(8, 1, -1)]


def test_events_of_one_moment_are_told_apart_by_id(client: TestClient) -> None:
    """A page boundary within one moment loses none."""
    post(client, [record(0, id=f"x{n}") for n in range(5)])
    first = listed(client, limit=2, since="2025-01-01T00:00:00Z")
    second = listed(client, limit=10, since="2025-01-01T00:00:00Z", cursor=first["next_cursor"])
    assert ids(first) + ids(second) == [f"x{n}" for n in range(5)]


def test_node_and_kind_narrow_the_list(client: TestClient) -> None:
    """Both at once."""
    post(client, [record(1), record(2, node="gpu-002"), record(3, node="gpu-002", kind="sxid")])
    assert ids(listed(client, node="gpu-002", kind="xid")) == ["e0002"]
    assert ids(listed(client, node="gpu-00")) == []


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 1001},
        {"limit": "many"},
        {"since": "soon"},
        {"until": "9999-12-31T23:59:59Z"},
        {"cursor": "bm90IG91cnM"},
        {"cursor": "!!"},
        {"node": ""},
    ],
)
def test_a_query_that_does_not_fit_is_refused(client: TestClient, query: dict[str, Any]) -> None:
    """422 as a problem, never a crash."""
    answer = client.get("/api/v1/events", params=query)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_plus_that_nobody_escaped_is_understood(client: TestClient) -> None:
    """`since=2025-03-01T13:00:00+01:00` typed into an address bar."""
    post(client, [record(1)])
    answer = client.get("/api/v1/events?since=2025-03-01T12:59:00+01:00")
    assert [item["id"] for item in answer.json()["items"]] == ["e0001"]


def test_an_event_without_a_time_happened_when_it_came(client: TestClient) -> None:
    """The time of receipt stands in."""
    post(client, [record(1, time=None)])
    assert listed(client)["items"][0]["time"] == format_time(NOW)
