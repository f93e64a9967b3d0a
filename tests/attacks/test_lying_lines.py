"""A shipper sends the lines of many programs and nodes in one body: one record that lies loses no other's fault."""

from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from tests.attacks.token_site import NOW, made_client

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
HONEST = {"date": NOW.timestamp() - 60, "host": "gpu-009", "log": XID}
# Digits to the eye, of which no number is made.
DIGITS = ("²", "①", "१²")


def resource(told: Any) -> dict[str, Any]:
    """A log record of OTLP below a resource."""
    record = {"timeUnixNano": f"{NOW.timestamp() * 1e9:.0f}", "body": {"stringValue": "hello"}}
    return {"resourceLogs": [{"resource": told, "scopeLogs": [{"logRecords": [record]}]}]}


LIES: list[Any] = [
    *({"__REALTIME_TIMESTAMP": digits, "_HOSTNAME": "gpu-001", "MESSAGE": "hello"} for digits in DIGITS),
    *({"streams": [{"stream": {"host": "gpu-001"}, "values": [[digits, "hello"]]}]} for digits in DIGITS),
    *(resource(told) for told in (1e308, "abc", [1], True, {"attributes": 5}, {"attributes": [{"value": "x"}]})),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_the_fault_beside_it_is_taken(engine: sa.Engine, lie: Any) -> None:
    """Its own record is read without it, or refused."""
    body = b"\n".join(map(orjson.dumps, (lie, HONEST)))
    with made_client(engine) as client:
        answer = client.post("/api/v1/logs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200, answer.text
        assert [one["node"] for one in client.get("/api/v1/events").json()["items"]] == ["gpu-009"]
