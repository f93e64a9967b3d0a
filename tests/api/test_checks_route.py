"""`GET /checks`, the loop that keeps the records, and `foreshock models checks`."""

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fastapi.testclient import TestClient
from wire_check import check_answer

from api.loops.turns import Turns
from api.server.state import State
from cli.main import foreshock
from store.database.connections import writing
from store.events.append import append_events, append_outages
from store.records.event import Event
from store.records.outage import Outage
from wire.models import ChecksJson

from .conftest import NOW

DAY = timedelta(days=1)


@pytest.fixture
def kept(engine: sa.Engine, client: TestClient) -> sa.Engine:
    """Two checks of the kernel and one of an alert, as the loop has judged them."""
    said = [
        *(Event(NOW - 30 * DAY, f"n{i}", "kernel", "xid", code=79, severity="fatal", message=f"{i}") for i in range(4)),
        *(Event(NOW - 30 * DAY, f"n{i}", "dcgm", "nvlink_crc", severity="warning", message=f"{i}") for i in range(60)),
        Event(NOW - DAY, "n1", "alertmanager", "alert", severity="error", attributes={"check": "GpuXid"}),
    ]
    with writing(engine).begin() as connection:
        append_events(connection, said, received=NOW)
        down = [Outage(f"n{i}", NOW - 28 * DAY, None, "DOWN", "xid", None, False, "hardware") for i in range(3)]
        append_outages(connection, down)
    state: State = client.app.state.foreshock  # type: ignore[attr-defined]
    Turns(state, lambda: 0.5).checks(lambda: True)
    return engine


def test_the_record_of_each_check_is_listed(client: TestClient, kept: sa.Engine) -> None:
    """Those of the most nodes first; of one source where that is asked for; with what each weighs."""
    assert kept is not None
    found = client.get("/api/v1/checks").json()
    check_answer(ChecksJson, found)
    assert [(item["source"], item["name"]) for item in found["items"]] == [
        ("dcgm", "nvlink_crc"),
        ("kernel", "xid 79"),
        ("alertmanager", "GpuXid"),
    ]
    crc, xid, alert = found["items"]
    assert (crc["followed"], crc["cleared"], crc["nodes"]) == (3, 57, 60)
    assert (xid["followed"], xid["cleared"], xid["said"]) == (3, 1, 4)
    assert (alert["waiting"], alert["precision"], alert["weight"]) == (1, 0.5, 1.0)
    assert crc["weight"] < 1.0 == xid["weight"]
    assert (found["horizon_h"], found["enough"]) == (168, 0.25)
    assert [item["name"] for item in client.get("/api/v1/checks?source=kernel").json()["items"]] == ["xid 79"]
    assert client.get("/api/v1/checks?source=nobody").json()["items"] == []


def test_without_a_history_there_is_none(client: TestClient) -> None:
    """An empty list."""
    assert client.get("/api/v1/checks").json()["items"] == []


def test_the_command_prints_the_same(kept: sa.Engine) -> None:
    """A table, JSON, or one sentence where there is nothing."""
    url = kept.url.render_as_string(hide_password=False)
    shown = CliRunner().invoke(foreshock, ["models", "checks", "--db", url])
    assert shown.exit_code == 0, shown.output
    assert "xid 79" in shown.output
    found = json.loads(
        CliRunner().invoke(foreshock, ["models", "checks", "--db", url, "--source", "kernel", "--json"]).output
    )
    assert [(one["name"], one["followed"], one["last"]) for one in found] == [
        ("xid 79", 3, "2025-01-30T12:00:00.000000Z")
    ]
    nothing = CliRunner().invoke(foreshock, ["models", "checks", "--db", url, "--source", "x"])
    assert "no check has a record yet" in nothing.output
