"""An ingest into PostgreSQL gives what one into SQLite gives."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from ingest.small_archive import build

from cli.commands.ingest import ingest_archive
from store.tables import hint_tables, schema

pytestmark = pytest.mark.integration

TABLES = ["nodes", "events", "outages", "jobs", "telemetry", "links", "incidents", "ingested"]


def rows(engine: sa.Engine, name: str) -> list[str]:
    """Every row of a table, but for the moments of the ingest itself."""
    with engine.begin() as connection:
        found = connection.execute(sa.select(hint_tables.metadata.tables[name])).mappings().all()
    return sorted(repr(sorted((k, v) for k, v in row.items() if k not in ("received", "done"))) for row in found)


def test_both_databases_hold_the_same_afterwards(tmp_path: Path, engine: sa.Engine, postgres_engine: sa.Engine) -> None:
    """Row by row, after a first ingest and after a second of an archive that has grown."""
    root = build(tmp_path / "a")
    summaries = [ingest_archive(each, root) for each in (engine, postgres_engine)]
    assert summaries[0].parts == summaries[1].parts
    assert summaries[0].incidents == summaries[1].incidents > 0
    with (root / "kernel/gpu-002.log").open("a") as file:
        file.write("2025-03-02T02:00:00+00:00 gpu-002 kernel: NVRM: Xid (PCI:0000:0f:00): 48, pid=1, DBE\n")
    again = [ingest_archive(each, root) for each in (engine, postgres_engine)]
    assert again[0].total().new == again[1].total().new == 1
    for name in TABLES:
        assert rows(engine, name) == rows(postgres_engine, name), name


def test_telemetry_copied_twice_is_there_once(tmp_path: Path, postgres_engine: sa.Engine) -> None:
    """The temporary table of a COPY is empty again for the next file."""
    root = build(tmp_path / "a")
    ingest_archive(postgres_engine, root)
    with postgres_engine.begin() as connection:
        connection.execute(sa.delete(schema.ingested))
        before = connection.scalar(sa.select(sa.func.count()).select_from(schema.telemetry))
    ingest_archive(postgres_engine, root)
    with postgres_engine.begin() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.telemetry)) == before == 144
