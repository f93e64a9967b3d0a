"""`foreshock rules`, and the option --rules of other commands."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import foreshock
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events
from store.hints.policy_history import note_rules
from store.records.event import Event

RULES = "faults: [{kind: xid, code: 79, severity: warning}]\npatterns: [{name: stall, match: 'stall on (?P<name>.*)'}]"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rules file."""
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def url_with_an_event(tmp_path: Path, time: datetime | None = None) -> str:
    """A database in which an Xid 79 happened, just now where nothing else is said."""
    url = f"sqlite:///{tmp_path / 'f.db'}"
    engine = open_database(url)
    migrate(engine)
    now = datetime.now(UTC)
    with writing(engine).begin() as connection:
        fault = Event(time or now, "n", "kernel", "xid", 79, "fatal", "hardware", "reboot_node")
        append_events(connection, [fault], received=now)
        note_rules(connection, "v1", "a\nb\n", datetime(2026, 3, 1, tzinfo=UTC))
    engine.dispose()
    return url


def run(*arguments: str, text: str | None = None) -> tuple[int, str]:
    """The exit code and what was printed."""
    done = CliRunner().invoke(foreshock, arguments, input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_a_file_is_checked_and_its_effect_is_told(tmp_path: Path, rules: Path) -> None:
    """Before it is in force."""
    code, out = run("rules", "check", str(rules), "--db", url_with_an_event(tmp_path))
    assert code == 0
    assert "1 fault, 1 pattern" in out
    assert "fatal hardware reboot_node" in out
    assert "warning hardware reboot_node" in out
    found = json.loads(run("rules", "check", str(rules), "--json")[1])
    assert (found["faults"], found["patterns"], found["changes"]) == (1, 1, [])


def test_the_days_looked_at_end_with_the_newest_event(tmp_path: Path, rules: Path) -> None:
    """An archive's last days may be long past; since when was looked is told."""
    url = url_with_an_event(tmp_path, datetime(2024, 3, 30, tzinfo=UTC))
    out = run("rules", "check", str(rules), "--db", url)[1]
    assert "events of the last 28 days, since 2024-03-02 00:00Z, that it judges otherwise: 1\n" in out
    found = json.loads(run("rules", "check", str(rules), "--db", url, "--json")[1])
    assert (found["since"], len(found["changes"])) == ("2024-03-02T00:00:00Z", 1)


def test_a_kind_that_no_event_has_is_told(tmp_path: Path) -> None:
    """A rule for it would hold and never judge anything; the kinds of the site's own patterns are known."""
    path = tmp_path / "rules.yaml"
    path.write_text(
        "faults: [{kind: xidd, severity: info}, {kind: stall, severity: info}, {kind: fabricmanager_nvswitch,"
        " severity: info}]\npatterns: [{name: stall, match: stalled}]"
    )
    found = CliRunner().invoke(foreshock, ["rules", "check", str(path)])
    assert found.exit_code == 0
    assert found.stderr == (
        f"Doubtful: {path}: faults: no event that is known here is of the kind 'xidd': did you mean 'xid'?\n"
    )


def test_a_file_that_does_not_hold_is_refused_in_one_sentence(rules: Path) -> None:
    """With its line."""
    rules.write_text("faults:\n  - {kind: xid, severity: bad}\n")
    for arguments in (("rules", "check", str(rules)), ("parse", "kernel", "--rules", str(rules))):
        code, out = run(*arguments)
        assert code == 2
        assert f"{rules}, line 2: " in out


def test_the_history_shows_what_was_in_force(tmp_path: Path) -> None:
    """As a table and as JSON."""
    url = url_with_an_event(tmp_path)
    assert "v1" in run("rules", "history", "--db", url)[1]
    code, out = run("rules", "history", "--db", url, "--json")
    assert code == 0, out
    (row,) = json.loads(out)
    assert (row["version"], row["text"], row["time"]) == ("v1", "a\nb\n", "2026-03-01T00:00:00.000000Z")


def test_parse_reads_by_the_rules(tmp_path: Path, rules: Path) -> None:
    """Judged anew, and found by a pattern."""
    lines = "kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nkernel: stall on fs7\n"
    (log := tmp_path / "kern.log").write_text(lines)
    code, out = run("parse", "kernel", "--rules", str(rules), str(log))
    first, second = map(json.loads, out.splitlines())
    assert code == 0
    assert (first["kind"], first["severity"]) == ("xid", "warning")
    assert (second["kind"], second["attributes"]["name"], second["line"]) == ("stall", "fs7", 2)


def test_ingest_reads_by_the_rules(tmp_path: Path, rules: Path) -> None:
    """An archive's kernel log."""
    folder = tmp_path / "archive" / "kernel"
    folder.mkdir(parents=True)
    lines = ("NVRM: Xid (PCI:0000:3b:00): 79, x", "stall on fs7")
    (folder / "n.log").write_text("".join(f"2025-03-01T04:05:06Z n kernel: {line}\n" for line in lines))
    url = f"sqlite:///{tmp_path / 'f.db'}"
    assert run("ingest", str(folder.parent), "--db", url, "--rules", str(rules))[0] == 0
    engine = open_database(url)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("select kind, severity from events order by kind").all()
    engine.dispose()
    assert rows == [("stall", "warning"), ("xid", "warning")]
