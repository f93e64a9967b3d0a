"""`foreshock hints`."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.commands.hints import hints
from schedulers.reconcile.delivery import delivery_of
from store.database.connections import open_database, writing
from store.hints.hint_log import audit_page, read_hint, save_hint
from store.hints.holds import SchedulerHold, save_holds
from store.hints.outbox import DeliveryAttempt, log_attempt, queue_deliveries
from store.records.hint import Evidence, Hint

# The command takes the real time, so the hints here are of today.
NOW = datetime.now(UTC)


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A database with a hint of each kind."""
    with writing(engine).begin() as connection:
        for ident, node, state in (
            ("h1", "gpu-001", "proposed"),
            ("h2", "gpu-002", "sent"),
            ("h3", "gpu-003", "expired"),
        ):
            until = NOW + timedelta(hours=5)
            hint = Hint(ident, node, "cordon", state, "foreshock: test", "foreshock", NOW, until, Evidence(score=0.5))  # type: ignore[arg-type]
            save_hint(connection, hint, NOW, {})
    return engine.url.render_as_string()


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(hints, list(arguments))


def listed(*arguments: str) -> list[dict[str, Any]]:
    """The hints as JSON."""
    result = run("list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.output)
    return found


def test_the_list_shows_open_hints(url: str) -> None:
    """Unless others are asked for."""
    assert [hint["id"] for hint in listed("--db", url)] == ["h1", "h2"]
    assert [hint["id"] for hint in listed("--db", url, "--state", "all")] == ["h1", "h2", "h3"]
    assert [hint["id"] for hint in listed("--db", url, "--state", "expired")] == ["h3"]
    assert listed("--db", url, "--node", "gpu-002")[0]["evidence"] == {"score": 0.5}


def test_the_table_is_for_people(url: str) -> None:
    """Names over columns; a sentence where there is nothing."""
    assert "VALID UNTIL" in run("list", "--db", url).output
    assert "no hints (shadow)" in run("list", "--db", url, "--state", "shadow").output
    assert run("list", "--db", url, "--state", "all", "--node", "x").output == "no hints\n"


def test_what_each_scheduler_has_of_a_hint_is_told(url: str, engine: sa.Engine) -> None:
    """In a word each; nothing of a hint that none was asked of."""
    with writing(engine).begin() as connection:
        rows = [
            SchedulerHold("h2", "slurm", "gpu-002", "cordon", "confirmed", 1, NOW, NOW, NOW),
            SchedulerHold("h2", "kube", "gpu-002", "cordon", "foreign", 2, NOW, NOW, NOW, "maintenance"),
        ]
        save_holds(connection, rows)
    lines = run("list", "--db", url).output.splitlines()
    assert "SCHEDULERS" in lines[0]
    assert "kube: foreign, slurm: confirmed" in lines[2]
    assert "slurm" not in lines[1]
    first, second = listed("--db", url)
    assert first["placements"] == []
    assert [(each["scheduler"], each["state"], each["detail"]) for each in second["placements"]] == [
        ("kube", "foreign", "maintenance"),
        ("slurm", "confirmed", None),
    ]


def test_a_proposed_hint_is_approved_once(url: str, engine: sa.Engine) -> None:
    """Again is no error; who did it is in the audit."""
    for _ in range(2):
        result = run("approve", "h1", "--db", url)
        assert result.output == "hint h1 of node gpu-001 (cordon) is approved\n"
    with engine.connect() as connection:
        entries = audit_page(connection, 10, None, "h1")
    assert [entry["action"] for entry in entries] == ["approved", "proposed"]
    assert entries[0]["actor"] not in ("policy", "")


def test_an_approval_that_a_stop_holds_back_says_so(url: str) -> None:
    """It is approved, and it is not sent."""
    assert run("stop", "--reason", "test", "--db", url).exit_code == 0
    said = (
        "hint h1 of node gpu-001 (cordon) is approved, held back by the stop: `foreshock hints resume` lets it go on\n"
    )
    assert run("approve", "h1", "--db", url).output == said


def test_what_cannot_be_done_is_said(url: str) -> None:
    """Exit 2 with the reason."""
    for arguments, words in (
        (("approve", "h3"), "has ended"),
        (("approve", "nope"), "no hint has the id 'nope'"),
        (("withdraw", "h3"), "has ended already"),
        (("release", "gpu-009"), "no open hint of ours"),
    ):
        result = run(*arguments, "--db", url)
        assert result.exit_code == 2
        assert words in result.output


def test_withdraw_and_release_end_a_hint(url: str, engine: sa.Engine) -> None:
    """The evidence says who and when."""
    assert "is withdrawn" in run("withdraw", "h1", "--db", url).output
    assert "is withdrawn" in run("withdraw", "h1", "--db", url).output
    assert "is released" in run("release", "gpu-002", "--db", url).output
    with engine.connect() as connection:
        ended = read_hint(connection, "h2")
    assert ended is not None
    assert ended.state == "released"
    assert ended.evidence.to_json()["closed"].keys() == {"by", "time"}


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Nothing is made by asking."""
    result = run("list", "--db", f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    assert result.exit_code == 2


def tried(url: str, state: str = "failed", hint: str = "h2") -> str:
    """A delivery of a hint that was tried once."""
    engine = open_database(url)
    with writing(engine).begin() as connection:
        found = read_hint(connection, hint)
        assert found is not None
        delivery = delivery_of(found, "cordon", "ops", "act", NOW)
        queue_deliveries(connection, [replace(delivery, attempts=1, state=state, last_error="HTTP 500")])
        log_attempt(connection, DeliveryAttempt(delivery.id, hint, "ops", NOW, "retry", 500, 0.25, "HTTP 500"))
    engine.dispose()
    return delivery.id


def test_the_attempts_at_deliveries_are_shown(url: str) -> None:
    """Of one hint, or the last ones of all; as JSON, too."""
    ident = tried(url)
    for arguments in (["h2"], []):
        result = run("deliveries", *arguments, "--db", url)
        assert result.exit_code == 0, result.output
        assert ident in result.output
        assert "HTTP 500" in result.output
        assert "owed" not in result.output
    (row,) = json.loads(run("deliveries", "h2", "--db", url, "--json").output)
    assert (row["outcome"], row["status"], row["duration_s"]) == ("retry", 500, 0.25)
    assert "no attempts" in run("deliveries", "h1", "--db", url).output
    assert "no hint has the id" in run("deliveries", "h9", "--db", url).output


def test_a_delivery_is_replayed_by_hand(url: str) -> None:
    """It is owed again; the audit names the user."""
    ident = tried(url)
    result = run("replay", ident, "--db", url)
    assert result.exit_code == 0, result.output
    assert f"{ident} is owed to ops again" in result.output
    assert f"owed to ops: {ident}" in run("deliveries", "h2", "--db", url).output
    engine = open_database(url)
    with engine.connect() as connection:
        assert audit_page(connection, 1, None, "h2")[0]["detail"]["outcome"] == "replayed"
    engine.dispose()


def test_what_has_ended_is_not_replayed(url: str) -> None:
    """With the reason; nor what is not there."""
    result = run("replay", tried(url, hint="h3"), "--db", url)
    assert (result.exit_code, "has ended" in result.output) == (2, True)
    assert "hints deliveries" in run("replay", "nobody", "--db", url).output
