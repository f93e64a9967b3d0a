"""POST /logs: hosts, times and formats of records as shippers wrap them."""

from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from api.intake.entries import MAX_NAME

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=python, GPU has fallen off the bus."
LINE = f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: {XID}"
RECEIVED = "2025-03-01T12:00:00.000000Z"


def post(client: TestClient, body: Any, **query: str) -> dict[str, Any]:
    """What became of a body."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    answer = client.post("/api/v1/logs", content=content, params=query)
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def stored(client: TestClient) -> list[dict[str, Any]]:
    """Every event, oldest first."""
    items: list[dict[str, Any]] = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return items


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE", "msg"])
@pytest.mark.parametrize("host", ["host", "hostname", "_HOSTNAME", "HOSTNAME", "fromhost"])
def test_text_and_host_are_found_under_their_usual_names(client: TestClient, key: str, host: str) -> None:
    """Fluent Bit, rsyslog, journald and Vector each have their own."""
    assert post(client, [{key: XID, host: "n9"}])["accepted"] == 1
    (event,) = stored(client)
    assert (event["node"], event["code"]) == ("n9", 79)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"date": 1740801906.789}, "2025-03-01T04:05:06.789000Z"),
        ({"date": 1740801906}, "2025-03-01T04:05:06.000000Z"),
        ({"@timestamp": "2025-03-01T05:05:06+01:00"}, "2025-03-01T04:05:06.000000Z"),
        ({"timereported": "2025-03-01T04:05:06Z"}, "2025-03-01T04:05:06.000000Z"),
        ({"__REALTIME_TIMESTAMP": "1740801906789000"}, "2025-03-01T04:05:06.789000Z"),
        ({"__REALTIME_TIMESTAMP": "soon", "date": 1740801906}, "2025-03-01T04:05:06.000000Z"),
        ({"date": "yesterday", "time": "2025-03-01T04:05:06Z"}, "2025-03-01T04:05:06.000000Z"),
        ({"date": True}, RECEIVED),
        ({"date": None}, RECEIVED),
        ({"date": 1e300}, RECEIVED),
        ({"__REALTIME_TIMESTAMP": "9" * 40}, RECEIVED),
        ({"date": -1e9}, None),
        ({}, RECEIVED),
    ],
)
def test_the_record_s_time_is_the_event_s(client: TestClient, times: dict[str, Any], expected: str | None) -> None:
    """In every usual form; one that makes no sense is as good as none; a year that no log bears is left out."""
    post(client, [{"log": XID, "host": "n1", **times}])
    assert [event["time"] for event in stored(client)] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, "a record is a JSON object"),
        ({"host": "n1"}, "needs one of log, message, MESSAGE, msg"),
        ({"log": 5}, "needs one of"),
        ({"MESSAGE": [1, 2, 300]}, "needs one of"),
        ({"MESSAGE": None}, "needs one of"),
    ],
)
def test_a_record_without_text_is_named_and_its_neighbours_are_taken(
    client: TestClient, value: Any, words: str
) -> None:
    """By its line."""
    good = {"log": XID, "host": "n1"}
    taken = post(client, b"\n".join(map(orjson.dumps, (good, value, {**good, "host": "n2"}))))
    assert taken["accepted"] == 2
    assert [(entry["line"], words in entry["detail"]) for entry in taken["rejected"]] == [(2, True)]


def test_a_message_of_bytes_is_decoded(client: TestClient) -> None:
    """As journald writes what is no clean text; what is no UTF-8 is replaced."""
    assert post(client, [{"MESSAGE": [*XID.encode(), 255], "_HOSTNAME": "n1"}])["accepted"] == 1
    assert stored(client)[0]["code"] == 79


def test_a_record_of_several_lines_gives_each_its_event(client: TestClient) -> None:
    """A container's log may come in one piece."""
    other = XID.replace("79", "48")
    assert post(client, [{"log": f"{XID}\nnothing here\n{other}\n", "host": "n1"}])["accepted"] == 2
    assert sorted(event["code"] for event in stored(client)) == [48, 79]


def test_the_address_s_host_stands_in_only_where_nothing_names_one(client: TestClient) -> None:
    """The line's own goes first, then the record's, then the address's."""
    post(client, LINE.encode(), node="asked")
    post(client, [{"log": XID, "host": "record"}], node="asked")
    post(client, [{"log": XID, "host": ""}], node="asked")
    post(client, [{"log": LINE.replace(":06.", ":07."), "host": "record"}], node="asked")
    assert sorted(str(event["node"]) for event in stored(client)) == ["asked", "gpu-017", "gpu-017", "record"]


def test_a_host_that_no_index_holds_is_left_out(client: TestClient) -> None:
    """The events around it are stored."""
    assert post(client, [{"log": XID, "host": "n" * (MAX_NAME + 1)}, {"log": XID, "host": "n1"}])["accepted"] == 1
    assert [event["node"] for event in stored(client)] == ["n1"]


@pytest.mark.parametrize("name", ["dcgm", "kernels", "KERNEL", "../kernel"])
def test_a_format_that_is_none_is_refused_with_those_that_are(client: TestClient, name: str) -> None:
    """Samples have their own address."""
    answer = client.post("/api/v1/logs", content=LINE, params={"format": name})
    assert answer.status_code == 422
    assert "kernel" in answer.json()["detail"]
    assert "dcgm," not in answer.json()["detail"]


def test_lines_of_bytes_that_are_no_text_lose_only_themselves(client: TestClient) -> None:
    """A crashed node writes rubbish into its log before it goes."""
    body = b"\x00\xff\xfe rubbish \x80\n" + LINE.encode() + b"\n\x00\x00\x00\n"
    assert post(client, body)["accepted"] == 1
    assert stored(client)[0]["node"] == "gpu-017"


def test_a_line_of_a_megabyte_does_not_hide_the_one_behind_it(client: TestClient) -> None:
    """It says nothing of a fault."""
    assert post(client, b"x" * 1_000_000 + b"\n" + LINE.encode())["accepted"] == 1
