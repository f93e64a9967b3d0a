"""A shipper sends the lines of many programs and nodes in one body: one record that lies loses no other's fault."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from store.runs.rank_set import numbers_of
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


FIXTURES = Path(__file__).parents[2] / "fixtures"
CHIP = "[INFO]     2025/03/01 04:05:06.000001 17      device/ascendcommon.go:812    receive devFaultInfo: "


def stuck_ranks() -> str:
    """A dump of PyTorch's flight recorder, with numbers of two signs."""
    text = (FIXTURES / "flight/stuck.json").read_text()
    return re.sub(r'("(?:last_\w+_collective|collective_seq_id)"\s*:\s*)"?-?\d+"?', r'\1"--5"', text)


def speeds() -> str:
    """A training log whose user prints a speed that is no number."""
    return (
        (FIXTURES / "training/deepspeed_timers.log").read_text().replace("CurrSamplesPerSec=", "CurrSamplesPerSec=1.")
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("ascend", CHIP + "{2162194440 ² 5 0 0 0 4 1 1740801906000}, hex code: 80e01808"),
        ("ascend", CHIP + "{2162194440 --3 5 0 0 0 4 1 1740801906000}, hex code: 80e01808"),
        ("kernel", f"Mar  1 04:05:06 gpu-001 kernel: {XID.replace('1234', '²')}"),
        ("flight", stuck_ranks()),
        ("training", speeds()),
    ],
)
def test_a_number_that_is_none_ends_no_reading(engine: sa.Engine, form: str, text: str) -> None:
    """Whoever writes the line: a program, or a job's user."""
    with made_client(engine) as client:
        answer = client.post(f"/api/v1/logs?format={form}&node=gpu-001&run=r", content=text.encode())
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("told", ["--5:0-3", "- 5:0", "²:0", "-:0", ":0", "9" * 30 + ":0"])
def test_a_number_of_ranks_that_is_none_ends_no_verdict(told: str) -> None:
    """A node's event tells of ranks in such texts; those of all runs are weighed in one turn."""
    assert numbers_of(told, [0]) == {}
    assert numbers_of(f"{told};-7:1", [0]) == {1: -7}
