"""A server under a site's rules: judged as events come in, changed without a restart, written down."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.patience import patience

from api.app import create_app
from parsers.site_rules import rules as rules_file
from parsers.site_rules.rules import RulesError

from .conftest import QUIET, Clock

XID = {"source": "kernel", "kind": "xid", "code": 79, "severity": "fatal", "node": "n", "message": "lost"}
LINE = "kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nkernel: stall on fs7\n"
FIRST = (
    "faults: [{kind: xid, code: 79, severity: warning}]\npatterns: [{name: stall, match: 'stall on (?P<name>.*)'}]\n"
)
SECOND = "faults: [{kind: xid, code: 79, severity: info}]\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rules file."""
    path = tmp_path / "rules.yaml"
    path.write_text(FIRST)
    return path


@pytest.fixture
def ruled(engine: sa.Engine, clock: Clock, rules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A server that follows the file, and looks at it each time."""
    monkeypatch.setattr(rules_file, "CHECK_S", 0.0)
    with TestClient(create_app(replace(QUIET, rules=rules), engine, clock)) as client:
        yield client


def put(rules: Path, text: str) -> None:
    """Replace the file in one go; it is older than the one before."""
    new = rules.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (1, 1))
    new.replace(rules)


def severities(client: TestClient) -> list[str]:
    """Of the stored Xids, in the order of their times."""
    return [item["severity"] for item in client.get("/api/v1/events", params={"kind": "xid"}).json()["items"]]


def versions(client: TestClient, count: int) -> list[dict[str, str]]:
    """The rules written down, once there are so many: a loop does it."""
    deadline = time.monotonic() + patience(20)
    while time.monotonic() < deadline:
        items: list[dict[str, str]] = client.get("/api/v1/rules").json()["items"]
        if len(items) >= count:
            return items
        time.sleep(0.05)
    raise AssertionError(f"no {count} versions were written down")


def test_events_are_judged_as_they_come_in(ruled: TestClient) -> None:
    """Records and raw lines alike; a pattern finds its own."""
    assert ruled.post("/api/v1/events", json=[XID]).json()["accepted"] == 1
    assert ruled.post("/api/v1/logs", content=LINE, params={"node": "m"}).json()["accepted"] == 2
    assert severities(ruled) == ["warning", "warning"]
    (stall,) = ruled.get("/api/v1/events", params={"kind": "stall"}).json()["items"]
    assert stall["attributes"]["name"] == "fs7"


def test_a_changed_file_holds_without_a_restart_and_every_version_is_kept(
    ruled: TestClient, rules: Path, clock: Clock
) -> None:
    """One that does not hold changes nothing, and is counted."""
    assert [item["text"] for item in versions(ruled, 1)] == [FIRST]
    put(rules, "faults: 7\n")
    ruled.post("/api/v1/events", json=[XID])
    assert "foreshock_rules_errors 1.0" in ruled.get("/metrics").text
    put(rules, SECOND)
    clock.forward(minutes=1)
    ruled.post("/api/v1/events", json=[XID | {"message": "lost again"}])
    assert severities(ruled) == ["warning", "info"]
    assert [item["text"] for item in versions(ruled, 2)] == [SECOND, FIRST]
    page = ruled.get("/api/v1/rules", params={"limit": 1}).json()
    older = ruled.get("/api/v1/rules", params={"limit": 1, "cursor": page["next_cursor"]}).json()
    assert [page["items"][0]["text"], older["items"][0]["text"]] == [SECOND, FIRST]


def test_a_server_without_rules_lists_none(client: TestClient) -> None:
    """Nothing is judged anew."""
    client.post("/api/v1/events", json=[XID])
    assert severities(client) == ["fatal"]
    assert client.get("/api/v1/rules").json() == {"items": [], "next_cursor": None}


def test_a_server_does_not_start_on_rules_that_do_not_hold(engine: sa.Engine, clock: Clock, rules: Path) -> None:
    """It says why instead."""
    rules.write_text("faults: 7\n")
    with pytest.raises(RulesError, match="line 1"):
        create_app(replace(QUIET, rules=rules), engine, clock)
