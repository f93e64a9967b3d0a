"""The life of a fault in a browser: acknowledged on the first screen, told on its own page, closed; in three clicks."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from real.chromium import opened
from real.foreshock import free_port, serve
from real.programs import wait_for

from cli.commands.dashboard import DashboardAddress, running
from store.records.event import format_time


@pytest.mark.integration
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="Debian's package chromium is not installed")
def test_a_fault_is_taken_on_the_first_screen_and_closed_on_its_page(tmp_path: Path) -> None:
    """What is visible, as a new user sees it; the audit has the steps."""
    lost = {"time": format_time(datetime.now(UTC)), "node": "gpu-042", "source": "kernel", "kind": "xid", "code": 79}
    lost |= {"severity": "fatal", "cause": "hardware", "message": "GPU has fallen off the bus.", "id": "e1"}
    gpus = [{"type": "gpu", "pci": f"0000:{bus}:00.0"} for bus in ("0f", "10")]
    lines = [json.dumps(lost | {"id": f"e{at}", "device": gpu}) for at, gpu in enumerate(gpus)]
    with serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path) as server:
        server.post("/api/v1/events", "\n".join(lines).encode())
        wait_for("the verdict stands", lambda: server.get("/api/v1/verdicts?state=open")["items"], 60)
        (incident,) = server.get("/api/v1/incidents")["items"]
        place = DashboardAddress(server.url, port=free_port())
        with running(place), opened(place.url) as page:
            page.wait_for(["Node gpu-042 is the cause", "Acknowledge"], 90)
            page.click("Acknowledge")
            page.wait_for(["acknowledged", "with loopback", "In repair"], 60)
            page.screenshot(tmp_path / "first.png")
            page.call("Input.dispatchKeyEvent", type="keyDown", key="/", text="/")
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Find"
        # A newer one that nobody has taken stands first in the list: the address opens the one that it names.
        other = lost | {"node": "gpu-043", "id": "other", "device": gpus[0]}
        server.post("/api/v1/events", json.dumps(other).encode())
        wait_for("it is an incident", lambda: len(server.get("/api/v1/incidents")["items"]) == 2, 60)
        with running(place), opened(f"{place.url}/incidents?incident={incident['id']}") as page:
            page.wait_for(["Acknowledged, with loopback.", "What is behind it"], 90)
            page.screenshot(tmp_path / "incident.png")
            page.click("Close")
            page.wait_for(["Closed, with loopback.", "Open again"], 60)
        steps = server.get(f"/api/v1/incidents/{incident['id']}")["thread"]
        assert [(one["step"], one["actor"]) for one in steps] == [("ack", "loopback"), ("close", "loopback")]
        told = [row["action"] for row in server.get(f"/api/v1/audit?hint={incident['id']}")["items"]]
        assert told == ["close", "ack"]
