"""POST /logs: the bodies that real log shippers post, as they were recorded (fixtures/shippers/ORIGIN.md)."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

FOLDER = Path(__file__).parents[2] / "fixtures" / "shippers"
BODIES = sorted(path.name for path in FOLDER.iterdir() if path.name != "ORIGIN.md")

TIMES = {79: "04:05:06", 48: "04:05:08"}
# `single` is one record of three. Of the plain lines the first lacks the colon behind `kernel`: rsyslog's tag of a
# message in RFC 5424 has none, and so that line is no kernel's (docs/api.md: use a JSON template).
ONE_XID = {"rsyslog_single.body": {79}, "rsyslog_newline_line.body": {48}}


def post(client: TestClient, body: bytes, **headers: str) -> dict[str, Any]:
    """What became of a body."""
    answer = client.post("/api/v1/logs", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def stored(client: TestClient) -> list[tuple[str, int, str]]:
    """Node, code and time of every event."""
    items = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return sorted((item["node"], item["code"], item["time"][11:19]) for item in items)


@pytest.mark.parametrize("name", BODIES)
def test_what_a_shipper_posts_is_read_and_a_retry_changes_nothing(client: TestClient, name: str) -> None:
    """Both Xids with host and time; nothing is refused; the body again, after an answer that was lost, is known."""
    body = (FOLDER / name).read_bytes()
    headers = {"content-encoding": "gzip"} if name.endswith(".gz") else {"content-type": "text/plain"}
    taken = post(client, body, **headers)
    codes = ONE_XID.get(name, {79, 48})
    assert (taken["accepted"], taken["rejected"]) == (len(codes), [])
    found = stored(client)
    assert {(code, time) for _, code, time in found} == {(code, TIMES[code]) for code in codes}
    one_host = name.startswith("syslogng")
    assert {node for node, _, _ in found} == {"gpu-017" if one_host or code == 79 else "gpu-018" for code in codes}
    again = post(client, body, **headers)
    assert (again["accepted"], again["known"]) == (0, taken["accepted"])


def test_two_equal_lines_of_one_body_are_two_or_one_as_their_identity_says(client: TestClient) -> None:
    """The same content at the same time of the same host is one: a retry may cut bodies anew."""
    line = b"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU is gone.\n"
    assert post(client, line + line)["accepted"] == 1
    assert post(client, line)["known"] == 1


def test_a_stream_that_breaks_off_keeps_what_went_before(client: TestClient) -> None:
    """And names the rest."""
    body = (FOLDER / "fluentbit_json_stream_epoch.body").read_bytes()
    taken = post(client, body[:-20])
    assert taken["accepted"] == 1
    assert [entry["line"] for entry in taken["rejected"]] == [1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"records": [17, {"value": 5}, {"value": {"host": "n1"}}]}',
        b'{"streams": [5, {"values": [7]}, {"stream": {"host": "n1"}, "values": [["x", "y"], ["1"]]}]}',
        b'{"a": 1}{"b"',
    ],
)
def test_wrappings_that_hold_no_records_are_named(client: TestClient, body: bytes) -> None:
    """Nothing is stored, nothing crashes."""
    taken = post(client, body)
    assert taken["accepted"] == 0
    assert taken["rejected"]
