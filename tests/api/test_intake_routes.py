"""POST /telemetry and POST /outages."""

from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from store.nodes.inventory import read_outages

ROLLUP = {"node": "n1", "time": "2025-03-01T04:30:00Z", "samples": 960, "gpus_seen": 8, "gpu_temp_mean_c": 58}
OUTAGE = {"node": "n1", "start": "2025-03-01T04:05:06Z", "end": None, "state": "DOWN", "reason": "Xid 79"}


def test_a_rollup_belongs_to_its_hour_and_may_be_corrected(client: TestClient) -> None:
    """The later one of a node and hour holds; what nobody measured is null."""
    assert client.post("/api/v1/telemetry", json=[ROLLUP]).json()["accepted"] == 1
    client.post("/api/v1/telemetry", json=[ROLLUP | {"samples": 970, "power_max_w": 700.5}])
    (rollup,) = client.get("/api/v1/nodes/n1").json()["telemetry"]
    assert (rollup["time"], rollup["samples"], rollup["power_max_w"]) == ("2025-03-01T04:00:00.000000Z", 970, 700.5)
    assert rollup["memory_temp_max_c"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"node": None},
        {"node": ""},
        {"time": 5},
        {"time": "noon"},
        {"time": "1969-01-01T00:00:00Z"},
        {"samples": -1},
        {"samples": 2**31},
        {"samples": 1.5},
        {"gpus_seen": True},
        {"power_max_w": "hot"},
        {"power_max_w": True},
    ],
)
def test_a_rollup_that_does_not_fit_is_named(client: TestClient, changes: dict[str, Any]) -> None:
    """And the one beside it is taken."""
    taken = client.post("/api/v1/telemetry", json=[ROLLUP | changes, ROLLUP, 5]).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (1, [1, 3])


def test_an_outage_is_closed_by_a_later_record(client: TestClient, engine: sa.Engine) -> None:
    """Its node is then known; whether it was planned follows from the reason."""
    client.post("/api/v1/outages", json=[OUTAGE])
    assert client.get("/api/v1/nodes/n1").json()["state"] == "out"
    client.post("/api/v1/outages", json=[OUTAGE | {"end": "2025-03-01T06:00:00Z"}])
    assert client.get("/api/v1/nodes/n1").json()["state"] == "silent", "no longer out; it said nothing of itself yet"
    with engine.connect() as connection:
        (outage,) = read_outages(connection)
    assert (outage.planned, outage.end is None) == (False, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"node": None},
        {"start": None},
        {"start": "x"},
        {"end": "2025-01-01T00:00:00Z"},
        {"reason": 5},
        {"end": "0001-01-01"},
    ],
)
def test_an_outage_that_does_not_fit_is_named(client: TestClient, changes: dict[str, Any]) -> None:
    """And the one beside it is taken."""
    taken = client.post("/api/v1/outages", json=[OUTAGE | changes, OUTAGE, "x"]).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (1, [1, 3])
