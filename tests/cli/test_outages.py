"""`foreshock outages`, and `outage_reasons` of the configuration: in force for ingest and for the server."""

from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from api.app import create_app
from cli.config.server import load_settings
from cli.main import foreshock
from store.database.connections import migrate, open_database

OWN = """outage_reasons:
  - {pattern: 'Ops-Bot: \\w+', planned: true}
  - {pattern: 'Xid 13', planned: true, cause: application}
"""
ROWS = """NodeName|TimeStart|TimeEnd|State|Reason|User
a|2026-03-01T04:05:06|2026-03-01T06:00:00|DRAIN|ops-bot: rotation|root
b|2026-03-02T04:05:06|2026-03-02T06:00:00|DOWN|Xid 79|root
a|2026-03-03T04:05:06|2026-03-03T06:00:00|DOWN|?????|root
"""


def run(*arguments: str) -> Result:
    """Run the command."""
    result = CliRunner().invoke(foreshock, arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The server's file with rows of the site's own."""
    (tmp_path / "f.yaml").write_text(OWN)
    return str(tmp_path / "f.yaml")


def judged(*arguments: str) -> dict[str, tuple[bool, str, str, int]]:
    """What `foreshock outages` says of each reason."""
    told = orjson.loads(run("outages", *arguments, "--json").stdout)
    return {one["reason"]: (one["planned"], one["cause"], one["by"], one["stale"]) for one in told["reasons"]}


def test_ingest_follows_the_sites_rows_and_says_how_reasons_were_judged(tmp_path: Path, config: str) -> None:
    """Stored as the site reads them, in the label's own column; without the rows they are stale."""
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/outages.csv").write_text(ROWS)
    db = ("--db", f"sqlite:///{tmp_path}/x.db")
    told = run("ingest", str(tmp_path / "archive"), *db, "--config", config, "--workers", "1").stdout
    assert "3 outages of 3 reasons: 1 planned; 1 with a reason that no row names" in told
    mine = judged(*db, "--config", config)
    assert mine["ops-bot: rotation"] == (True, "unknown", "site", 0)
    assert mine["Xid 79"] == (False, "hardware", "table", 0)
    assert mine["?????"] == (False, "unknown", "nothing", 0)
    assert judged(*db)["ops-bot: rotation"] == (False, "unknown", "nothing", 1)
    assert "1 are stored as judged before" in run("outages", *db).stdout
    assert "1 outage is stored anew" in run("outages", *db, "--judge-again").stdout
    assert judged(*db)["ops-bot: rotation"] == (False, "unknown", "nothing", 0)


def test_the_server_follows_the_sites_rows(tmp_path: Path, config: str) -> None:
    """Of outages that are posted, and of those that come as a scheduler's events."""
    engine = open_database(f"sqlite:///{tmp_path}/x.db")
    migrate(engine)
    settings = load_settings(Path(config), {})
    posted = {"node": "a", "start": "2026-03-01T04:05:06Z", "state": "DRAIN", "reason": "OPS-BOT: rotation"}
    event = {
        "node": "b",
        "time": "2026-03-01T04:05:06Z",
        "source": "sacctmgr",
        "kind": "outage",
        "attributes": {"start": "2026-03-01T04:05:06Z", "state": "DOWN", "reason": "Xid 13"},
    }
    now = datetime(2026, 3, 2, tzinfo=UTC)
    with TestClient(create_app(settings, engine, lambda: now)) as client:
        assert client.post("/api/v1/outages", json=[posted]).json()["accepted"] == 1
        assert client.post("/api/v1/events", json=[event]).json()["accepted"] == 1
    found = judged("--db", f"sqlite:///{tmp_path}/x.db", "--config", config)
    assert found["OPS-BOT: rotation"] == (True, "unknown", "site", 0)
    assert found["Xid 13"] == (True, "application", "site", 0)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{pattern: 'a(', planned: true}", "outage_reasons[1], pattern: 'a(' is no pattern of RE2: missing ): a("),
        ("{pattern: '', planned: true}", "outage_reasons[1], pattern: expected 1 to 1000 characters"),
        ("{pattern: a}", "outage_reasons[1]: a key is missing (one of planned, cause)"),
        ("{pattern: a, planned: 'yes'}", "outage_reasons[1], planned: expected true or false, found 'yes'"),
        ("{pattern: a, planned: true, cause: gremlins}", "outage_reasons[1], cause: 'gremlins' is none of hardware"),
        ("{patern: a, planned: true}", "outage_reasons[1]: unknown key 'patern': did you mean 'pattern'?"),
    ],
)
def test_a_row_that_does_not_hold_is_refused_with_its_line(tmp_path: Path, row: str, told: str) -> None:
    """By the server and by the commands alike."""
    file = tmp_path / "f.yaml"
    file.write_text(f"silent_after_s: 900\noutage_reasons:\n  - {{pattern: fine, planned: false}}\n  - {row}\n")
    result = CliRunner().invoke(foreshock, ["outages", "--db", f"sqlite:///{tmp_path}/no.db", "--config", str(file)])
    assert result.exit_code == 2
    assert f"f.yaml:4, {told}" in " ".join(result.stderr.split())
