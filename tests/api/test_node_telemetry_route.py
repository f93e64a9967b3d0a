"""POST /telemetry with devices, and GET /nodes/{node}/telemetry."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.loops.turns import Turns
from api.server.state import State
from store.records.telemetry import MAX_DEVICES, MAX_MEASURES
from store.tables import schema

HOT = [52, 71, 60.8, 66, 41]
ROLLUP = {"node": "n1", "time": "2025-03-01T04:30:00Z", "samples": 960, "gpus_seen": 8}
GPU = {"gpu:3": {"gpu_temp_c": HOT, "ecc_sbe": [0, 0, 0, 0, 0]}, "gpu:4": {"gpu_temp_c": HOT}}
NIC = {"nic:mlx5_0/1": {"symbol_error": [7, 9, 7.25, None, 2]}}


def send(client: TestClient, **changes: Any) -> dict[str, Any]:
    """One roll-up."""
    taken: dict[str, Any] = client.post("/api/v1/telemetry", json=[ROLLUP | changes]).json()
    return taken


def get(client: TestClient, **asked: Any) -> dict[str, Any]:
    """A page of the node's hours."""
    answer = client.get("/api/v1/nodes/n1/telemetry", params=asked)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def test_what_two_sources_tell_of_devices_is_read_back_together(any_client: TestClient) -> None:
    """The list of the node's own page stays without devices: it is for the eye."""
    assert send(any_client, devices=GPU, gpu_temp_max_c=71)["accepted"] == 1
    assert send(any_client, devices=NIC, samples=0, gpus_seen=0)["accepted"] == 1
    (hour,) = get(any_client)["items"]
    assert hour["devices"] == GPU | NIC
    assert (hour["time"], hour["samples"], hour["gpu_temp_max_c"]) == ("2025-03-01T04:00:00.000000Z", 960, 71.0)
    assert "node" not in hour
    assert "devices" not in any_client.get("/api/v1/nodes/n1").json()["telemetry"][0]


def test_an_answer_stays_as_it_is_when_its_day_is_closed(any_client: TestClient) -> None:
    """To the byte; of what comes late, too. The loop has something to do once."""
    state: State = any_client.app.state.foreshock  # type: ignore[attr-defined]
    long_ago = f"{state.clock() - timedelta(days=9):%Y-%m-%d}T04:00:00Z"
    send(any_client, devices=GPU, time=long_ago)
    paths = [f"/api/v1/nodes/n1/telemetry{asked}" for asked in ("", "?measure=ecc_sbe", "?device=gpu:4")]
    before = [any_client.get(path).content for path in paths]
    for _ in range(2):
        Turns(state, lambda: 0.5).closed_days(lambda: True)
        with state.engine.connect() as connection:
            assert connection.execute(sa.select(*_KEPT)).one() == (0, 1)
    assert [any_client.get(path).content for path in paths] == before
    send(any_client, devices=NIC, time=long_ago, samples=0, gpus_seen=0)
    assert get(any_client)["items"][0]["devices"] == GPU | NIC
    assert any_client.get(paths[1]).content == before[1]


_KEPT = (sa.func.count(schema.telemetry.c.devices), sa.func.count(schema.telemetry.c.packed))


def test_a_device_and_a_measure_can_be_asked_for(client: TestClient) -> None:
    """An hour without them is told all the same, with nothing in it."""
    send(client, devices=GPU)
    send(client, time="2025-03-01T05:00:00Z")
    assert [hour["devices"] for hour in get(client, measure="ecc_sbe")["items"]] == [
        {"gpu:3": {"ecc_sbe": [0, 0, 0, 0, 0]}},
        {},
    ]
    assert get(client, device="gpu:4", measure="gpu_temp_c")["items"][0]["devices"] == {"gpu:4": {"gpu_temp_c": HOT}}
    assert get(client, device="gpu:9")["items"][0]["devices"] == {}


def test_hours_come_in_pages_in_order_of_time(client: TestClient) -> None:
    """Since and until as everywhere; the cursor goes on after the last hour."""
    for hour in range(5):
        send(client, time=f"2025-03-01T0{hour}:10:00Z", samples=hour)
    asked = {"since": "2025-03-01T01:00:00Z", "until": "2025-03-01T04:00:00Z", "limit": 2}
    first = get(client, **asked)
    second = get(client, **asked, cursor=first["next_cursor"])
    assert [[hour["samples"] for hour in page["items"]] for page in (first, second)] == [[1, 2], [3]]
    assert second["next_cursor"] is None


def test_a_node_that_nobody_heard_of_is_not_found(client: TestClient) -> None:
    """And a page size beyond bounds is refused."""
    assert client.get("/api/v1/nodes/n9/telemetry").status_code == 404
    assert client.get("/api/v1/nodes/n%00/telemetry").status_code == 404
    send(client)
    assert client.get("/api/v1/nodes/n1/telemetry?limit=100000").status_code == 422
    assert client.get("/api/v1/nodes/n1/telemetry?cursor=x").status_code == 422


@pytest.mark.parametrize(
    "devices",
    [
        [],
        "gpu",
        {"gpu:0": []},
        {"": {}},
        {"x" * 65: {}},
        {"gpu\x01": {}},
        {"gpu:0": {"a\n": HOT}},
        {"gpu:0": {"a": HOT[:4]}},
        {"gpu:0": {"a": [*HOT, 1]}},
        {"gpu:0": {"a": 5}},
        {"gpu:0": {"a": ["1", 1, 1, 1, 1]}},
        {"gpu:0": {"a": [True, 1, 1, 1, 1]}},
        {"gpu:0": {"a": None}},
        {f"gpu:{number}": {} for number in range(MAX_DEVICES + 1)},
        {"gpu:0": {f"m{number}": HOT for number in range(MAX_MEASURES + 1)}},
    ],
    ids=range(15),
)
def test_devices_that_do_not_fit_are_refused_and_the_rest_is_taken(client: TestClient, devices: Any) -> None:
    """By their place, with a reason."""
    taken = client.post("/api/v1/telemetry", json=[ROLLUP | {"devices": devices}, ROLLUP]).json()
    assert (taken["accepted"], [entry["line"] for entry in taken["rejected"]]) == (1, [1])
    assert "devices" in taken["rejected"][0]["detail"]


def test_no_number_is_no_number(client: TestClient) -> None:
    """Infinity, as JSON can write it, breaks a column's mean for good."""
    for field in ('"gpu_temp_max_c": 1e999', '"devices": {"gpu:0": {"a": [1e999, 1, 1, 1, 1]}}'):
        body = '{"node": "n1", "time": "2025-03-01T04:30:00Z", "samples": 1, "gpus_seen": 1, ' + field + "}"
        taken = client.post("/api/v1/telemetry", content=body).json()
        assert taken.get("accepted", 0) == 0
