"""`foreshock db`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.commands.db import db
from store.database.connections import newest_revision, writing
from store.database.coordination import acquire
from store.database.partitions import ensure_days
from store.events.append import append_events, append_outages
from store.records.event import Device, Event
from store.records.outage import Outage
from store.records.telemetry import Rollup, hour_of
from store.tables import hint_tables, schema
from store.telemetry.hours import append_rollups

NOW = datetime.now(UTC)


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(db, list(arguments))


def fill(engine: sa.Engine, days: int) -> None:
    """An event, a roll-up, a score and an outage a day."""
    with writing(engine).begin() as connection:
        moments = [NOW - timedelta(days=day, minutes=1) for day in range(days)]
        append_events(
            connection,
            [Event(m, "n1", "kernel", "xid", 79, device=Device("gpu"), attributes={"pid": 1}) for m in moments],
            NOW,
        )
        append_rollups(connection, [Rollup("n1", hour_of(moment), 8, 8, 60.5) for moment in moments])
        append_outages(connection, [Outage("n1", m, None, "DOWN", "x", None, False, "hardware") for m in moments])
        rows = [{"node": "n1", "horizon_h": 24, "time": m, "score": 0.1, "reasons": [], "model": "m"} for m in moments]
        connection.execute(schema.scores.insert(), rows)


def test_migrate_makes_a_database_and_is_harmless_again(tmp_path: Path) -> None:
    """It says from where to where."""
    url = f"sqlite:///{tmp_path / 'new.db'}"
    first, second = run("migrate", "--db", url), run("migrate", "--db", url)
    assert first.output == f"the schema is at {newest_revision()}; it was at nothing\n"
    assert second.output == f"the schema is at {newest_revision()}\n"


def test_migrate_says_what_is_wrong(tmp_path: Path) -> None:
    """A folder that is not there, a file that is no database."""
    assert run("migrate", "--db", f"sqlite:///{tmp_path / 'a' / 'b.db'}").exit_code == 2
    (tmp_path / "text.db").write_text("this is no database, whatever its name says, and long enough to be seen")
    result = run("migrate", "--db", f"sqlite:///{tmp_path / 'text.db'}")
    assert result.exit_code == 2
    assert "cannot migrate" in result.output


def test_prune_deletes_what_is_old_and_only_that(engine: sa.Engine) -> None:
    """Outages stay: they are the labels; so do the counts by the day."""
    fill(engine, 50)
    url = engine.url.render_as_string()
    expected = {"events": 20, "telemetry": 20, "scores": 20, "incidents": 0, "deliveries": 0, "verdicts": 0}
    asked = run("prune", "--db", url, "--keep-days", "30", "--dry-run", "--json")
    assert json.loads(asked.output) == expected
    result = run("prune", "--db", url, "--keep-days", "30", "--json")
    assert result.exit_code == 0, repr(result.exception)
    assert json.loads(result.output) == expected
    with engine.connect() as connection:
        left = {
            t.name: connection.scalar(sa.select(sa.func.count()).select_from(t))
            for t in hint_tables.metadata.sorted_tables
        }
    assert (left["events"], left["telemetry"], left["scores"], left["outages"]) == (30, 30, 30, 50)
    assert left["event_days"] == 20
    again = run("prune", "--db", url, "--keep-days", "30")
    assert "DELETED" in again.output


def test_each_table_may_be_kept_for_its_own_time(engine: sa.Engine) -> None:
    """What no option names stays."""
    fill(engine, 50)
    url = engine.url.render_as_string()
    result = run("prune", "--db", url, "--telemetry-days", "20", "--scores-days", "5", "--json")
    assert json.loads(result.output) == {"telemetry": 30, "scores": 45}
    both = run("prune", "--db", url, "--keep-days", "40", "--events-days", "45", "--json")
    assert json.loads(both.output)["events"] == 5


def test_prune_keeps_what_features_look_back_on(engine: sa.Engine) -> None:
    """Fewer days would blind the model; and nobody prunes by leaving an option out."""
    url = engine.url.render_as_string()
    for options, words in (
        (["--keep-days", "28"], "--events-days must be at least 29"),
        (["--telemetry-days", "8"], "--telemetry-days must be at least 9"),
        (["--scores-days", "0"], "--scores-days must be at least 2"),
        ([], "say what to keep"),
    ):
        result = run("prune", "--db", url, *options)
        assert result.exit_code == 2
        assert words in result.output


def test_status_says_what_is_there(any_engine: sa.Engine) -> None:
    """By the table and for programs; on both databases."""
    fill(any_engine, 3)
    ensure_days(any_engine, [NOW])
    with writing(any_engine).begin() as connection:
        row = {"received": NOW, "events": b"", "count": 7}
        connection.execute(schema.intake.insert(), [{**row, "error": None}, {**row, "error": "odd"}])
    acquire(any_engine, "loops", "one", None, 600.0)
    acquire(any_engine, "old", "two", None, -1.0)
    url = any_engine.url.render_as_string(hide_password=False)
    told = json.loads(run("status", "--db", url, "--json").output)
    tables = {row["table"]: row for row in told["tables"]}
    assert set(tables) == set(hint_tables.metadata.tables)
    assert (tables["events"]["rows"], tables["outages"]["rows"], tables["hints"]["rows"]) == (3, 3, 0)
    assert datetime.fromisoformat(tables["events"]["newest"]) == NOW - timedelta(minutes=1)
    assert datetime.fromisoformat(tables["scores"]["oldest"]) == NOW - timedelta(days=2, minutes=1)
    is_postgres = any_engine.dialect.name == "postgresql"
    assert tables["events"]["partitions"] == (2 if is_postgres else None)
    assert told["bytes"] > 0
    assert told["revision"] == newest_revision()
    assert told["intake"] == {"batches": 1, "events": 7, "set_aside": 1}
    assert {row["name"]: row["is_held"] for row in told["leases"]} == {"loops": True, "old": False}
    shown = run("status", "--db", url).output
    assert "7 events wait to be counted in incidents, 1 batch is set aside" in shown
    assert "lease old: two (lapsed)" in shown


def test_export_writes_every_table(engine: sa.Engine, tmp_path: Path) -> None:
    """With times as times, JSON as text, and missing values missing."""
    fill(engine, 3)
    folder = tmp_path / "out" / "parquet"
    result = run("export", "--db", engine.url.render_as_string(), str(folder), "--json")
    assert result.exit_code == 0, repr(result.exception)
    assert json.loads(result.output)["events"] == 3
    events = pq.read_table(folder / "events").to_pylist()
    assert len(events) == 3
    assert events[0]["time"].utcoffset() == timedelta(0)
    assert json.loads(events[0]["attributes"]) == {"pid": 1}
    assert pq.read_table(folder / "telemetry").to_pylist()[0]["power_max_w"] is None
    assert pq.read_table(folder / "hints.parquet").num_rows == 0
    assert not list(folder.rglob("*.part"))


def test_export_takes_tables_and_days(engine: sa.Engine, tmp_path: Path) -> None:
    """What is no table or day is refused."""
    fill(engine, 5)
    url, folder = engine.url.render_as_string(), str(tmp_path / "out")
    day = (NOW - timedelta(days=2)).date()
    ends = ("--since", f"{day}", "--until", f"{day + timedelta(days=1)}")
    result = run("export", "--db", url, folder, "--table", "scores", "--table", "nodes", *ends, "--force", "--json")
    assert json.loads(result.output) == {"nodes": 1, "scores": 1}
    for options, words in (
        (["--table", "leases"], "--table leases: expected one of"),
        (["--since", "yesterday"], "--since yesterday: expected a day"),
        (["--until", "2025-03-01T01:00:00Z"], "expected a day"),
    ):
        refused = run("export", "--db", url, folder, *options)
        assert refused.exit_code == 2
        assert words in refused.output


def test_export_into_a_file_is_refused(engine: sa.Engine, tmp_path: Path) -> None:
    """Exit 2, and the path is named."""
    (tmp_path / "file").write_text("x")
    result = run("export", "--db", engine.url.render_as_string(), str(tmp_path / "file" / "sub"))
    assert result.exit_code == 2
    assert "file" in result.output


def test_status_sizes_every_table_of_sqlite(engine: sa.Engine) -> None:
    """By dbstat, its indexes among them: together no more than the file, and more where there are more rows."""
    fill(engine, 50)
    status = json.loads(run("status", "--db", engine.url.render_as_string(), "--json").output)
    found = {row["table"]: row for row in status["tables"]}
    assert found.keys() == {table.name for table in hint_tables.metadata.sorted_tables}
    assert all(row["bytes"] > 0 for row in found.values())
    assert sum(row["bytes"] for row in found.values()) <= status["bytes"]
