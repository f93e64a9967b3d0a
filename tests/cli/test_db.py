"""`foreshock db`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.db import db
from store import schema
from store.append import append_events, append_outages, append_rollups
from store.database import newest_revision, writing
from store.event import Device, Event
from store.outage import Outage
from store.telemetry import Rollup, hour_of

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
    """Outages stay: they are the labels."""
    fill(engine, 30)
    result = run("prune", "--db", engine.url.render_as_string(), "--keep-days", "10", "--json")
    assert result.exit_code == 0, repr(result.exception)
    assert json.loads(result.output) == {"events": 20, "telemetry": 20, "scores": 20}
    with engine.connect() as connection:
        left = {
            t.name: connection.scalar(sa.select(sa.func.count()).select_from(t)) for t in schema.metadata.sorted_tables
        }
    assert (left["events"], left["telemetry"], left["scores"], left["outages"]) == (10, 10, 10, 30)
    again = run("prune", "--db", engine.url.render_as_string(), "--keep-days", "10")
    assert "DELETED" in again.output


def test_prune_keeps_what_features_look_back_on(engine: sa.Engine) -> None:
    """Fewer than eight days would blind the model."""
    assert run("prune", "--db", engine.url.render_as_string(), "--keep-days", "7").exit_code == 2


def test_export_writes_every_table(engine: sa.Engine, tmp_path: Path) -> None:
    """With times as times, JSON as text, and missing values missing."""
    fill(engine, 3)
    folder = tmp_path / "out" / "parquet"
    result = run("export", "--db", engine.url.render_as_string(), str(folder), "--json")
    assert result.exit_code == 0, repr(result.exception)
    assert json.loads(result.output)["events"] == 3
    events = pq.read_table(folder / "events.parquet").to_pylist()
    assert len(events) == 3
    assert events[0]["time"].utcoffset() == timedelta(0)
    assert json.loads(events[0]["attributes"]) == {"pid": 1}
    assert pq.read_table(folder / "telemetry.parquet").to_pylist()[0]["power_max_w"] is None
    assert pq.read_table(folder / "hints.parquet").num_rows == 0
    assert not list(folder.glob("*.part"))


def test_export_into_a_file_is_refused(engine: sa.Engine, tmp_path: Path) -> None:
    """Exit 2, and the path is named."""
    (tmp_path / "file").write_text("x")
    result = run("export", "--db", engine.url.render_as_string(), str(tmp_path / "file" / "sub"))
    assert result.exit_code == 2
    assert "file" in result.output
