"""POST /logs: raw lines in every wrapping that shippers use."""

import json
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.server.settings import Token
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern

from .conftest import QUIET, Clock

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
SYSLOG = f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: {XID}"
OPENSM = (
    "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [17, 17] of node:gpu007 mlx5_0"
)


def send(client: TestClient, body: Any, **query: str) -> dict[str, Any]:
    """Send lines (text) or records (JSON)."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    answer = client.post("/api/v1/logs", content=content, params=query)
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def events(client: TestClient) -> list[dict[str, Any]]:
    """All events."""
    items: list[dict[str, Any]] = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return items


def test_plain_lines_are_decoded(client: TestClient) -> None:
    """Lines that say nothing of a fault are passed over."""
    taken = send(client, f"{SYSLOG}\nMar  1 04:05:06 gpu-017 sshd[1]: hello\n\n")
    assert taken == {"accepted": 1, "known": 0, "rejected": []}
    (event,) = events(client)
    assert (event["node"], event["code"], event["time"]) == ("gpu-017", 79, "2025-03-01T04:05:06.789000Z")
    assert event["device"]["pci"] == "0000:0f:00.0"


@pytest.mark.parametrize(
    ("record", "time"),
    [
        ({"date": 1740801906.789, "host": "gpu-017", "log": XID}, "2025-03-01T04:05:06.789000Z"),
        (
            {"@timestamp": "2025-03-01T04:05:06.789Z", "hostname": "gpu-017", "message": XID},
            "2025-03-01T04:05:06.789000Z",
        ),
        (
            {"__REALTIME_TIMESTAMP": "1740801906789000", "_HOSTNAME": "gpu-017", "MESSAGE": XID},
            "2025-03-01T04:05:06.789000Z",
        ),
        ({"host": "gpu-017", "MESSAGE": list(XID.encode())}, "2025-03-01T12:00:00.000000Z"),
        ({"host": "gpu-017", "log": XID, "date": 1e300, "time": "later"}, "2025-03-01T12:00:00.000000Z"),
        ({"log": SYSLOG, "host": "relay", "date": 1}, "2025-03-01T04:05:06.789000Z"),
    ],
)
def test_every_wrapping_gives_host_and_time(client: TestClient, record: dict[str, Any], time: str) -> None:
    """Fluent Bit, rsyslog, journald; the line's own host and time go first, the moment of receipt comes last."""
    assert send(client, [record])["accepted"] == 1
    (event,) = events(client)
    assert (event["node"], event["code"], event["time"]) == ("gpu-017", 79, time)


def test_records_may_come_one_a_line(client: TestClient) -> None:
    """NDJSON, with a broken line among them."""
    lines = [json.dumps({"host": f"n{i}", "log": XID}) for i in range(3)]
    taken = send(client, "\n".join([lines[0], '{"host": ', lines[1], '{"host": "x"}', "17", lines[2]]))
    assert taken["accepted"] == 3
    assert [entry["line"] for entry in taken["rejected"]] == [2, 4, 5]


def test_a_line_that_begins_with_a_bracket_is_no_json(client: TestClient) -> None:
    """As dmesg prints it."""
    assert send(client, f"[12345.678901] {XID}", node="gpu-003")["accepted"] == 1
    assert events(client)[0]["node"] == "gpu-003"


def test_other_formats_are_found_out(client: TestClient) -> None:
    """A subnet manager's log, as lines and in records beside a kernel's."""
    assert send(client, OPENSM)["accepted"] == 1
    records = [{"host": "ufm", "log": OPENSM.replace("gpu007", "gpu008")}, {"host": "gpu-1", "log": XID}]
    assert send(client, records)["accepted"] == 2
    assert sorted(event["source"] for event in events(client)) == ["kernel", "opensm", "opensm"]


def test_a_format_that_is_named_is_used(client: TestClient) -> None:
    """And one that does not exist is refused with those that do."""
    assert send(client, SYSLOG, format="opensm")["accepted"] == 0
    answer = client.post("/api/v1/logs", params={"format": "tarot"}, content=b"x")
    assert answer.status_code == 422
    assert "kernel" in answer.json()["detail"]
    assert client.post("/api/v1/logs", params={"format": "dcgm"}, content=b"x").status_code == 422


def test_a_management_controller_posts_of_its_own_node_alone(engine: sa.Engine, clock: Clock) -> None:
    """By a token of that node, to the address that its subscription names."""
    token = Token("bmc", digest_of("bmc-secret"), frozenset({"ingest"}), nodes=NodePattern.of("gpu-017"))
    leak = {"MessageId": "Environmental.1.1.0.LeakDetectedCritical", "MessageSeverity": "Critical", "Message": "Leak"}
    body = {"@odata.type": "#Event.v1_7_0.Event", "Id": "1", "Context": "gpu-018", "Events": [leak]}
    reader = Token("reader", digest_of("reader-secret"), frozenset({"read"}))
    with TestClient(create_app(replace(QUIET, tokens=(token, reader)), engine, clock)) as client:
        for node, accepted in (("gpu-017", 1), ("gpu-018", 0)):
            taken = client.post(
                "/api/v1/logs",
                params={"format": "redfish", "node": node},
                json=body,
                headers={"authorization": "Bearer bmc-secret"},
            )
            assert (taken.status_code, taken.json()["accepted"]) == (200, accepted), taken.text
        said = client.get("/api/v1/events", headers={"authorization": "Bearer reader-secret"}).json()["items"]
    assert [(one["node"], one["kind"], one["severity"]) for one in said] == [("gpu-017", "coolant_leak", "fatal")]


def test_the_same_line_again_is_a_repeat_only_if_it_bears_a_time(client: TestClient, clock: Clock) -> None:
    """One without a time is another fault: losing a real one would be worse than counting it twice."""
    send(client, SYSLOG)
    assert send(client, SYSLOG)["known"] == 1
    bare = {"host": "gpu-1", "log": XID}
    send(client, [bare])
    clock.forward(hours=1)
    assert send(client, [bare])["accepted"] == 1


def test_a_page_of_samples_makes_no_events(client: TestClient) -> None:
    """Samples become roll-ups at the sidecar; the events table never sees them."""
    page = 'DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-1",Hostname="gpu-017"} 61 1740801906000\n'
    assert send(client, page)["accepted"] == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(body=st.binary(max_size=300) | st.text(max_size=200).map(lambda text: f"{text}{XID}{text}".encode()))
def test_no_body_is_a_crash(client: TestClient, body: bytes) -> None:
    """Whatever comes is taken or refused with a reason."""
    answer = client.post("/api/v1/logs", content=body)
    assert answer.status_code in (200, 400), answer.text
