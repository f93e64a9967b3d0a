"""`foreshock audit`: a whole chain is told with its head, a broken one with its first broken row and exit code 3."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.main import foreshock
from store.database.audit_chain import AuditEntry, append_audit, audit_head
from store.database.connections import open_database, writing

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


def run(*words: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, ["audit", *words])


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """Three rows."""
    with writing(engine).begin() as connection:
        append_audit(connection, [AuditEntry(NOW, "alice", "stop", f"s{i}", {"i": i}) for i in range(3)])
    engine.dispose()
    return str(engine.url)


def change(url: str, statement: str) -> str:
    """What somebody does to the database; the head's hash before."""
    engine = open_database(url)
    with writing(engine).begin() as connection:
        head = audit_head(connection).hash
        connection.execute(sa.text(statement))
    engine.dispose()
    return head


def test_a_whole_chain_is_told_with_its_head(url: str) -> None:
    """As words and as JSON."""
    done = run("verify", "--db", url)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "3 rows, each as it was written")
    found = json.loads(run("verify", "--db", url, "--json").stdout)
    assert (found["is_whole"], found["rows"], found["broken"]) == (True, 3, None)
    assert found["head"]["hash"] in done.stdout


def test_a_broken_chain_names_its_first_broken_row_and_fails(url: str) -> None:
    """Exit 3; the sentence says what was changed."""
    change(url, "UPDATE audit SET actor = 'bob' WHERE seq = 2")
    done = run("verify", "--db", url)
    assert done.exit_code == 3
    assert "place 2: the content of row 2 was changed" in done.stderr
    found = json.loads(run("verify", "--db", url, "--json").stdout)
    assert (found["is_whole"], found["broken"]["seq"]) == (False, 2)


def test_an_end_that_was_cut_off_shows_against_a_head(url: str) -> None:
    """Without one it does not."""
    head = change(url, "DELETE FROM audit WHERE seq = 3")
    assert run("verify", "--db", url).exit_code == 0
    done = run("verify", "--db", url, "--head", head[:13])
    assert done.exit_code == 3
    assert f"no row has the hash {head[:13]}" in done.stderr
    assert run("verify", "--db", url, "--head", "xyz").exit_code == 2


def test_an_export_is_verified_without_the_database(url: str, tmp_path: Path) -> None:
    """And a line that is changed, or none, is told with its number or place."""
    file = tmp_path / "audit.jsonl"
    assert run("export", "--db", url, "--out", str(file)).exit_code == 0
    assert file.read_text() == run("export", "--db", url).stdout
    assert file.stat().st_mode & 0o077 == 0
    assert run("verify", str(file)).exit_code == 0
    file.write_text(file.read_text().replace('"s1"', '"s7"'))
    done = run("verify", str(file))
    assert (done.exit_code, "place 2" in done.stderr) == (3, True)
    file.write_text("nothing\n")
    done = run("verify", str(file))
    assert (done.exit_code, "line 1: no JSON" in done.stderr) == (3, True)
    assert run("verify", str(tmp_path / "none")).exit_code == 2
    assert run("verify").exit_code == 2
