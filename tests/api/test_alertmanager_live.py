"""Alerts of a real Alertmanager: firing, repeated, resolved, kept while the server is away."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from real.foreshock import Running, free_port, serve
from real.patience import patience
from real.programs import wait_for
from real.prometheus import alertmanager

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("alertmanager")]
TOKEN = "secret-of-alertmanager-0123456789"


def configuration(port: int) -> str:
    """Notifications at once, and again and again."""
    return f"""
route: {{receiver: foreshock, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}}
receivers:
  - name: foreshock
    webhook_configs:
      - url: http://127.0.0.1:{port}/api/v1/alerts
        send_resolved: true
        max_alerts: 2
        http_config: {{authorization: {{type: Bearer, credentials: {TOKEN}}}}}
"""


def tell(url: str, node: str, started: datetime, ended: datetime | None = None) -> None:
    """Post an alert to Alertmanager, as Prometheus does."""
    labels = {"alertname": "GpuXid", "node": node, "gpu": "3", "xid": "79", "severity": "critical"}
    alert: dict[str, Any] = {"labels": labels, "annotations": {"summary": f"Xid 79 on {node}"}}
    alert["startsAt"] = started.isoformat()
    if ended is not None:
        alert["endsAt"] = ended.isoformat()
    request = Request(f"{url}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=patience(10)) as answer:
        assert answer.status == 200


def kinds(server: Running) -> list[tuple[str, str]]:
    """Node and kind of every event."""
    request = Request(f"{server.url}/api/v1/events?limit=1000", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=patience(30)) as answer:
        return sorted((item["node"], item["kind"]) for item in json.loads(answer.read())["items"])


def notified(server: Running) -> float:
    """How many notifications were answered with 200."""
    lines = [line for line in server.text("/metrics").splitlines() if 'operation="post_alerts",status="200"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_an_alert_is_one_event_however_often_it_is_told_and_none_is_lost(
    tmp_path: Path,
) -> None:
    """It fires, repeats, and fires for another node while the server is away; then it ends."""
    port = free_port()
    database = f"sqlite:///{tmp_path / 'x.db'}"
    began = datetime.now(UTC) - timedelta(minutes=1)
    with alertmanager(tmp_path, configuration(port)) as url:
        with serve(database, tmp_path, "--port", str(port), "--config", token_config(tmp_path)) as server:
            tell(url, "gpu-001", began)
            wait_for("it is told three times", lambda: notified(server) >= 3)
            assert kinds(server) == [("gpu-001", "alert")]
        for node in ("gpu-002", "gpu-003"):  # the server is away; with three, `max_alerts` leaves one out
            tell(url, node, began)
        with serve(database, tmp_path, "--port", str(port), "--config", token_config(tmp_path)) as server:
            wait_for("two are known", lambda: len(kinds(server)) >= 2)
            for node in ("gpu-001", "gpu-002", "gpu-003"):
                tell(url, node, began, datetime.now(UTC))
            wait_for("one has ended", lambda: any(kind == "alert_resolved" for _, kind in kinds(server)))
            found = kinds(server)
            assert len(found) == len(set(found))


def token_config(folder: Path) -> str:
    """A configuration whose one token may send and read."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    path = folder / "foreshock.yaml"
    path.write_text(f"tokens: [{{name: alerts, sha256: {digest}, scopes: ['ingest:fleet', read]}}]\n", encoding="utf-8")
    return str(path)
