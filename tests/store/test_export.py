"""Export: what goes out is what is there."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from store import export as export_module
from store import schema
from store.append import append_events, append_jobs, append_links, append_nodes, append_outages, append_rollups
from store.database import writing
from store.event import Device, Event
from store.export import EXPORTED, export
from store.hint import Hint
from store.hint_log import save_hint
from store.job import Job
from store.node import Node
from store.outage import Outage
from store.rules_log import note_rules
from store.save_scores import save_scores
from store.score import Reason, Score
from store.telemetry import Rollup, hour_of

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def fill(engine: sa.Engine) -> None:
    """A row of every table, with what is unknown left out and odd characters in."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("ü,\n'", "r1", None, "H100", 8), Node("n2")])
        event = Event(NOW, "n2", "kernel", "xid", 79, device=Device("gpu", index=0), attributes={"pid": 1, "ü": "\t"})
        append_events(connection, [event, Event(NOW - 5 * DAY, None, "opensm", "sm_state")], NOW)
        append_outages(connection, [Outage("n2", NOW - DAY, None, "DOWN", "x", None, False, "hardware")])
        append_jobs(connection, [Job("1", "run", "RUNNING", NOW - DAY, None, None, 2, "n[1-2]")])
        append_rollups(connection, [Rollup("n2", hour_of(NOW), 60, 8, 1 / 3)])
        append_links(connection, [{"switch": "s", "port": 1, "peer": "n2", "peer_port": None, "peer_type": "hca"}])
        save_scores(connection, [Score("n2", NOW, 24, 0.1, (Reason("why", 0.05, ("e1",)),), "m")])
        note_rules(connection, "v1", "faults: []", NOW)
        save_hint(connection, Hint("h", "n2", "watch", "shadow", "r", "o", NOW, NOW + DAY, {"a": [1]}), NOW, {})
        row = {"id": "i", "node": "n2", "start": NOW, "end": NOW, "kind": "xid", "code": None, "severity": "fatal"}
        row |= {"cause": "hardware", "action": "none", "device": {"type": "gpu"}, "message": "m", "count": 2**40}
        connection.execute(schema.incidents.insert().values(**row, kinds={"xid:79": 2}, blast_radius=None))
        day = {"node": "n2", "day": NOW - 40 * DAY}
        said = {"node": "n2", "received": NOW, "time": NOW, "version": "1", "started": NOW, "troubled": True}
        connection.execute(schema.sidecars.insert().values(**said, report={"lost": {}}))
        kind = {"source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
        connection.execute(schema.event_days.insert().values(**day, **kind, count=2**40))
        connection.execute(schema.telemetry_days.insert().values(**day, hours=2, samples=9, gpus_seen=8))


def stored(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    """The rows of a table, by its key."""
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()]


def read_back(folder: Path, table: sa.Table) -> list[dict[str, Any]]:
    """The rows of an exported file as the store would give them."""
    texts = {column.name for column in table.columns if isinstance(column.type, sa.JSON)}
    rows = pq.read_table(folder / f"{table.name}.parquet").to_pylist()
    return [
        {name: json.loads(value) if name in texts and value is not None else value for name, value in row.items()}
        for row in rows
    ]


def test_every_exported_value_is_the_stored_one(any_engine: sa.Engine, tmp_path: Path) -> None:
    """Of every table and column: times, JSON, missing values, large numbers."""
    fill(any_engine)
    counts = export(any_engine, tmp_path)
    for table in EXPORTED:
        rows = stored(any_engine, table)
        assert rows, f"{table.name} is tested with nothing in it"
        assert counts[table.name] == len(rows)
        assert read_back(tmp_path, table) == rows


def test_what_is_exported_can_be_put_into_a_new_database(engine: sa.Engine, tmp_path: Path) -> None:
    """A way out is a way back in."""
    fill(engine)
    export(engine, tmp_path)
    before = {table.name: stored(engine, table) for table in EXPORTED}
    with writing(engine).begin() as connection:
        for table in EXPORTED:
            connection.execute(sa.delete(table))
            connection.execute(table.insert(), read_back(tmp_path, table))
    assert {table.name: stored(engine, table) for table in EXPORTED} == before


def test_secrets_and_book_keeping_stay_inside(engine: sa.Engine, tmp_path: Path) -> None:
    """No payloads, models, leases; and no half-written file is left."""
    folder = tmp_path / "out"
    folder.mkdir()
    export(engine, folder)
    names = {file.name for file in folder.iterdir()}
    assert names == {f"{table.name}.parquet" for table in EXPORTED}
    left_out = {table.name for table in schema.metadata.sorted_tables} - {table.name for table in EXPORTED}
    assert left_out == {"models", "outbox", "ingested", "leases", "intake", "ledgers"}


def test_an_empty_table_is_a_file_with_its_columns(engine: sa.Engine, tmp_path: Path) -> None:
    """Readers need not ask whether it is there."""
    assert set(export(engine, tmp_path).values()) == {0}
    for table in EXPORTED:
        assert pq.read_schema(tmp_path / f"{table.name}.parquet").names == [c.name for c in table.columns]


def test_an_export_replaces_the_one_before(engine: sa.Engine, tmp_path: Path) -> None:
    """It is no append."""
    fill(engine)
    first = export(engine, tmp_path)
    assert export(engine, tmp_path) == first
    assert pq.read_table(tmp_path / "events.parquet").num_rows == first["events"]


def test_batches_join_without_a_seam(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are read at once: each is there once, in order."""
    monkeypatch.setattr(export_module, "_BATCH", 7)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i:03}") for i in range(50)])
    assert export(engine, tmp_path)["nodes"] == 50
    assert [row["node"] for row in read_back(tmp_path, schema.nodes)] == [f"n{i:03}" for i in range(50)]
