"""`foreshock hints`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.hints import hints
from store.database import writing
from store.hint import Hint
from store.hint_log import audit_page, read_hint, save_hint

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
            hint = Hint(ident, node, "cordon", state, "foreshock: test", "foreshock", NOW, until, {"score": 0.5})  # type: ignore[arg-type]
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


def test_a_proposed_hint_is_approved_once(url: str, engine: sa.Engine) -> None:
    """Again is no error; who did it is in the audit."""
    for _ in range(2):
        result = run("approve", "h1", "--db", url)
        assert result.output == "hint h1 of node gpu-001 (cordon) is approved\n"
    with engine.connect() as connection:
        entries = audit_page(connection, 10, None, "h1")
    assert [entry["action"] for entry in entries] == ["approved", "proposed"]
    assert entries[0]["actor"] not in ("policy", "")


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
    assert ended.evidence["closed"].keys() == {"by", "time"}


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Nothing is made by asking."""
    result = run("list", "--db", f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    assert result.exit_code == 2
