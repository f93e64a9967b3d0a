"""POST /alerts: Alertmanager's webhook."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

REAL = Path(__file__).parents[3] / "shared" / "data" / "alertmanager" / "webhook.jsonl"


def alert(**changes: Any) -> dict[str, Any]:
    """A firing alert."""
    return {
        "status": "firing",
        "labels": {"alertname": "GpuXid", "gpu": "3", "instance": "gpu007:9400", "severity": "critical", "xid": "79"},
        "annotations": {"summary": "Xid 79 on gpu007 GPU 3"},
        "startsAt": "2025-03-01T04:05:06.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "37036cd9ece3543d",
    } | changes


def send(client: TestClient, *alerts: Any) -> dict[str, Any]:
    """Send a notification."""
    answer = client.post("/api/v1/alerts", json={"version": "4", "status": "firing", "alerts": list(alerts)})
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def test_a_firing_alert_is_an_event(client: TestClient) -> None:
    """Node, device, code and severity from its labels; never more than an error."""
    assert send(client, alert())["accepted"] == 1
    (event,) = client.get("/api/v1/events").json()["items"]
    assert (event["source"], event["kind"], event["node"], event["code"]) == ("alertmanager", "alert", "gpu007", 79)
    assert (event["severity"], event["device"]["index"]) == ("error", 3)
    assert event["time"] == "2025-03-01T04:05:06.123456Z"
    assert event["message"] == "Xid 79 on gpu007 GPU 3"


def test_the_same_alert_again_changes_nothing_but_its_end_does(client: TestClient) -> None:
    """Alertmanager may post one alert hundreds of times."""
    send(client, alert())
    assert send(client, alert(annotations={"summary": "another text"}))["known"] == 1
    resolved = alert(status="resolved", endsAt="2025-03-01T05:00:00Z")
    assert send(client, resolved)["accepted"] == 1
    ended = client.get("/api/v1/events", params={"kind": "alert_resolved"}).json()["items"]
    assert [(event["time"], event["severity"]) for event in ended] == [("2025-03-01T05:00:00.000000Z", "info")]


def test_a_bad_alert_leaves_the_others_alone(client: TestClient) -> None:
    """Its place in `alerts` is named."""
    bad = [{}, 17, alert(labels={}), alert(startsAt="soon"), alert(labels={str(n): "x" for n in range(100)})]
    taken = send(client, alert(), *bad)
    assert taken["accepted"] == 1
    assert [entry["line"] for entry in taken["rejected"]] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("body", [{}, {"alerts": None}, 17, "text", [{"version": "4"}]])
def test_what_is_no_notification_is_refused(client: TestClient, body: Any) -> None:
    """422, with what was expected."""
    assert client.post("/api/v1/alerts", json=body).status_code == 422


@pytest.mark.skipif(not REAL.exists(), reason="the real payloads (../shared/data/alertmanager) are not on this machine")
def test_real_payloads_are_taken(client: TestClient) -> None:
    """Every payload of a real Alertmanager, and again as repeats."""
    bodies = [json.loads(line)["body"] for line in REAL.read_text().splitlines()]
    for body in bodies:
        taken = client.post("/api/v1/alerts", json=body).json()
        assert taken["rejected"] == []
    assert sum(client.post("/api/v1/alerts", json=body).json()["accepted"] for body in bodies) == 0


def test_alerts_that_alertmanager_left_out_are_counted(client: TestClient) -> None:
    """Beyond its `max_alerts` it only says how many there were more."""
    body = {"version": "4", "status": "firing", "truncatedAlerts": 3, "alerts": [alert()]}
    assert client.post("/api/v1/alerts", json=body).json()["accepted"] == 1
    assert 'foreshock_records_rejected_total{resource="alerts"} 3.0' in client.get("/metrics").text
