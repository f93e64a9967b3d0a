"""`GET /nodes/{node}/days`: before and after pruning the answer is the same."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from store.database.connections import writing
from store.database.partitions import ensure_days
from store.database.retention import prune
from store.events.append import append_events
from store.nodes.node_history import join
from store.records.event import Event
from store.records.telemetry import Rollup
from store.telemetry.hours import append_rollups

from .conftest import NOW

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
MIDNIGHT = NOW.replace(hour=0)
PATH = "/api/v1/nodes/n1/days"


@pytest.fixture
def filled(any_engine: sa.Engine, any_client: TestClient) -> Iterator[TestClient]:
    """Three days of a node, and others that are not asked for."""
    ensure_days(any_engine, [NOW - DAY, NOW], now=NOW)
    moments = [NOW, NOW + HOUR, NOW - DAY, MIDNIGHT - timedelta(microseconds=1), NOW - 40 * DAY]
    events = [Event(moment, "n1", "kernel", "xid", 79, severity="fatal") for moment in moments]
    events += [
        Event(NOW, "n1", "dcgm", "xid", 13),
        Event(NOW, "n1", "kernel", "note"),
        Event(NOW, "n2", "kernel", "xid"),
    ]
    rollups = [
        Rollup("n1", MIDNIGHT + i * HOUR, 10 * (i + 1), 8, 40.0 + 10 * i, power_max_w=700.0 - i) for i in range(3)
    ]
    rollups += [Rollup("n1", MIDNIGHT - 3 * DAY, 1, 7), Rollup("n2", MIDNIGHT, 1, 7)]
    with writing(any_engine).begin() as connection:
        append_events(connection, events, NOW)
        append_rollups(connection, rollups)
    return any_client


def told(client: TestClient, **asked: str) -> list[dict[str, Any]]:
    """The days, by their date."""
    reply = client.get(PATH, params=asked)
    assert reply.status_code == 200, reply.text
    assert reply.json()["node"] == "n1"
    items: list[dict[str, Any]] = reply.json()["items"]
    return items


def test_days_say_what_was_there(filled: TestClient) -> None:
    """Of the last 30 days, the oldest first; days without anything are missing."""
    before, yesterday, today = told(filled)
    assert [datetime.fromisoformat(item["day"]) for item in (before, yesterday, today)] == [
        MIDNIGHT - 3 * DAY,
        MIDNIGHT - DAY,
        MIDNIGHT,
    ]
    assert (before["events"], before["telemetry"]["gpus_seen"]) == ({}, 7)
    assert before["telemetry"]["gpu_temp_mean_c"] is None
    assert (yesterday["events"], yesterday["telemetry"]) == ({"xid": 2}, None)
    assert today["events"] == {"note": 1, "xid": 3}
    assert today["telemetry"]["hours"] == 3
    assert today["telemetry"]["gpu_temp_mean_c"] == pytest.approx((10 * 40 + 20 * 50 + 30 * 60) / 60)
    assert today["telemetry"]["power_max_w"] == 700.0


@pytest.mark.parametrize("cut", [MIDNIGHT - DAY, NOW, MIDNIGHT + HOUR, MIDNIGHT + DAY])
def test_pruning_changes_no_answer(filled: TestClient, any_engine: sa.Engine, cut: datetime) -> None:
    """Wherever it ends, also within a day."""
    ends = {"since": "2025-01-01T00:00:00Z", "until": "2025-03-02T00:00:00Z"}
    before = told(filled, **ends)
    assert len(before) == 4
    prune(any_engine, {"events": cut, "telemetry": cut})
    after = told(filled, **ends)
    assert [(item["day"], item["events"]) for item in after] == [(item["day"], item["events"]) for item in before]
    for one, other in zip(before, after, strict=True):
        assert other["telemetry"] == (None if one["telemetry"] is None else pytest.approx(one["telemetry"]))


def test_a_range_is_one_of_whole_days(filled: TestClient) -> None:
    """Those that its ends fall on; a midnight's own day is not part of what ends there."""
    assert len(told(filled, since="2025-02-28T23:00:00Z", until="2025-02-28T23:30:00Z")) == 1
    assert len(told(filled, since="2025-02-28T00:00:00Z", until="2025-03-01T00:00:00Z")) == 1
    assert len(told(filled, since="2025-02-28T00:00:00Z", until="2025-03-01T00:00:01Z")) == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"since": "2025-03-02T00:00:00Z", "until": "2025-03-01T00:00:00Z"},
        {"since": "2023-01-01T00:00:00Z"},
        {"until": "0001-01-01T00:00:00Z"},
        {"until": "9999-12-31T23:00:00Z"},
        {"since": "yesterday"},
    ],
)
def test_a_range_that_is_none_is_refused(client: TestClient, asked: dict[str, str]) -> None:
    """With 422, and never more than 400 days."""
    assert client.get(PATH, params=asked).status_code == 422


def test_a_node_that_nobody_knows_has_no_days(client: TestClient) -> None:
    """Its name may have gone while its days stay: that is no error."""
    assert client.get(PATH).json() == {"node": "n1", "items": []}


def test_two_parts_of_a_day_are_joined_whatever_is_missing() -> None:
    """What one part does not know, the other tells."""
    one = {"hours": 1, "samples": 10, "gpus_seen": 8, "power_mean_w": None, "power_max_w": 5.0, "sm_clock_min_mhz": 3.0}
    other = {
        "hours": 2,
        "samples": 30,
        "gpus_seen": 7,
        "power_mean_w": 4.0,
        "power_max_w": 6.0,
        "sm_clock_min_mhz": 2.0,
    }
    both = {"hours": 3, "samples": 40, "gpus_seen": 8, "power_mean_w": 4.0, "power_max_w": 6.0, "sm_clock_min_mhz": 2.0}
    assert join(one, other) == join(other, one) == both
    nothing = {**one, "power_max_w": None, "samples": 0, "hours": 0}
    assert join(nothing, one)["power_mean_w"] is None
