"""Alerts about targets that are no nodes make none."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from real.foreshock import serve

pytestmark = pytest.mark.integration
INSTANCES = ("127.0.0.1:9090", "localhost:9093", "[::1]:9100", "10.0.0.5:9400", "0.0.0.0:1", "prometheus:9090")


def alert(place: int, labels: dict[str, str]) -> dict[str, object]:
    """A firing alert."""
    named = {"alertname": "TargetDown", "severity": "critical", **labels}
    return {"status": "firing", "labels": named, "startsAt": "2026-03-01T04:05:06Z", "fingerprint": f"{place:016x}"}


def test_a_target_that_is_no_node_makes_none(tmp_path: Path) -> None:
    """Neither an address, nor localhost under any label, nor a host that the inventory does not know; a node does."""
    settings = tmp_path / "foreshock.yaml"
    settings.write_text("inventory: {nodes: 'gpu-[001-004]'}\n")
    labels = [{"instance": one} for one in INSTANCES] + [{"node": "localhost"}, {"Hostname": "127.0.0.1"}]
    labels += [{"instance": "gpu-002:9400"}]
    alerts = [alert(place, one) for place, one in enumerate(labels)]
    body = json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()
    with serve(f"sqlite:///{tmp_path}/site.db", tmp_path, "--config", str(settings)) as server:
        taken = server.post("/api/v1/alerts", body, {"Content-Type": "application/json"})
        assert (taken["accepted"], taken["rejected"]) == (len(labels), [])
        nodes = {one["node"] for one in server.get("/api/v1/nodes?limit=1000")["items"]}
        assert nodes == {f"gpu-00{number}" for number in range(1, 5)}
        events = server.get(f"/api/v1/events?limit=1000&since={quote('2026-02-01T00:00:00Z')}")["items"]
        assert sorted(str(event["node"]) for event in events) == ["None"] * (len(labels) - 1) + ["gpu-002"]
