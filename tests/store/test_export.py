"""Export: what goes out is what is there."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from store.database import export as export_rows
from store.database.connections import writing
from store.database.export import DAILY, EXPORTED, ExportRange, arrow_type, export, exported_columns
from store.database.partitions import DIVIDED, ensure_days
from store.database.retention import prune
from store.events.append import (
    append_events,
    append_jobs,
    append_links,
    append_nodes,
    append_outages,
)
from store.events.incident_thread import add_entries
from store.hints.hint_log import save_hint
from store.hints.policy_history import note_rules
from store.models.scores import LinkScore, save_link_scores, save_scores
from store.records.event import Device, Event
from store.records.hint import Evidence, Hint
from store.records.incident import ThreadEntry, ThreadWord, verdict_subject
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Reason, Score
from store.records.telemetry import Rollup, hour_of
from store.records.verdict import Verdict
from store.tables import hint_tables, schema, topology_tables
from store.telemetry.hours import append_rollups
from store.verdicts.verdict_log import VerdictChange, save_changes

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
        link = LinkScore("s/1", ("s/1", "n2"), 24, NOW, 0.2, (Reason("why", 0.05, ("e1",)),), "m")
        save_link_scores(connection, 24, [link])
        note_rules(connection, "v1", "faults: []", NOW)
        hint = Hint("h", "n2", "watch", "shadow", "r", "o", NOW, NOW + DAY, Evidence(score=0.5))
        save_hint(connection, hint, NOW, {})
        row = {"id": "i", "node": "n2", "start": NOW, "end": NOW, "kind": "xid", "code": None, "severity": "fatal"}
        row |= {"cause": "hardware", "action": "none", "device": {"type": "gpu"}, "message": "m", "count": 2**40}
        connection.execute(schema.incidents.insert().values(**row, kinds={"xid:79": 2}, blast_radius=None))
        day = {"node": "n2", "day": NOW - 40 * DAY}
        said = {"node": "n2", "received": NOW, "time": NOW, "version": "1", "started": NOW, "troubled": True}
        connection.execute(schema.sidecars.insert().values(**said, report={"lost": {}}))
        kind = {"source": "kernel", "kind": "xid", "code": 79, "severity": "fatal"}
        connection.execute(schema.event_days.insert().values(**day, **kind, count=2**40))
        connection.execute(schema.telemetry_days.insert().values(**day, hours=2, samples=9, gpus_seen=8))
        fill_hint_tables(connection)
        former = {"switch": "s", "port": 1, "until": NOW, "peer": "ü", "peer_type": "hca", "peer_lid": 7}
        connection.execute(topology_tables.former_links.insert().values(former))
        named = {"class": "nic", "device": "n2/mlx5_0", "kind": "guid", "name": "0x1", "since": NOW}
        connection.execute(topology_tables.device_names.insert().values(named))
        shared = {"node": "n2", "class": "power", "name": "pdu-1", "since": NOW}
        connection.execute(topology_tables.node_groups.insert().values(shared))
        cause = Verdict("gpu", "n2/0", 0.9, "hardware", "reboot_node", NOW, "ü,\n'", node="n2", nodes=("n2",), id="v")
        save_changes(connection, [VerdictChange(cause, "opened")], NOW)
        word = ThreadWord("silence", "ann", "fabric work", until=NOW + timedelta(hours=2))
        add_entries(connection, [ThreadEntry(NOW, word, verdict_subject(cause))])


def fill_hint_tables(connection: sa.Connection) -> None:
    """What became of the hint `h`."""
    asked = {"hint": "h", "scheduler": "slurm"}
    placed = {"node": "n2", "action": "cordon", "state": "asked", "attempts": 1, "due": NOW, "detail": "ü"}
    connection.execute(hint_tables.placements.insert().values(**asked, **placed, asked=NOW, observed=None))
    attempt = {"delivery": "h.cordon.ops", "time": NOW, "outcome": "retry", "status": 503, "duration_s": 1 / 3}
    connection.execute(hint_tables.deliveries.insert().values(**asked, **attempt, detail="HTTP 503"))
    connection.execute(hint_tables.trips.insert().values(time=NOW, kind="leaf", name="l1", why="4 nodes", count=4))
    connection.execute(
        hint_tables.switches.insert().values(time=NOW, actor="ann", stop="holds", reason="driver update")
    )
    connection.execute(hint_tables.policies.insert().values(time=NOW, version="v1", text="mode: act"))
    test = {"hint": "h", "node": "n2", "command": "dcgmi diag", "started": NOW, "passed": False, "exit_code": 1}
    connection.execute(hint_tables.validations.insert().values(**test, ended=NOW, output="failed"))
    connection.execute(hint_tables.hint_outcomes.insert().values(hint="h", judged=NOW, right=True, lead_s=1 / 3))
    case = {"source": "kernel", "name": "xid 79", "node": "n2", "said": NOW, "last": NOW}
    connection.execute(hint_tables.check_cases.insert().values(**case, outcome="cleared"))


def stored(engine: sa.Engine, table: sa.Table) -> list[dict[str, Any]]:
    """The rows of a table, by its key."""
    with engine.connect() as connection:
        query = sa.select(*exported_columns(table)).order_by(*table.primary_key)
        return [dict(row) for row in connection.execute(query).mappings()]


def read_back(folder: Path, table: sa.Table) -> list[dict[str, Any]]:
    """The rows of an exported table as the store would give them."""
    texts = {column.name for column in table.columns if isinstance(column.type, sa.JSON)}
    file = folder / (table.name if table.name in DIVIDED else f"{table.name}.parquet")
    rows = pq.read_table(file).to_pylist()
    found = [
        {name: json.loads(value) if name in texts and value is not None else value for name, value in row.items()}
        for row in rows
    ]
    return sorted(found, key=lambda row: tuple(str(row[column.name]) for column in table.primary_key))


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
    assert names == {table.name if table.name in DIVIDED else f"{table.name}.parquet" for table in EXPORTED}
    left_out = {table.name for table in hint_tables.metadata.sorted_tables} - {table.name for table in EXPORTED}
    book_keeping = {
        "models",
        "outbox",
        "ingested",
        "histories",
        "leases",
        "intake",
        "scorings",
        "keys",
        "folded_logs",
        "log_news",
        "marks",
        "inventory",
        "scheduler_looks",
        "scheduler_nodes",
        "late_telemetry",
        "device_watches",
        "tokens",
        "symptom_news",
        "verdict_subjects",
        "node_releases",  # the audit has who let a node go
    }
    assert left_out == book_keeping | {
        "ledgers",
        "interruptions",
        "run_days",
        "cluster_days",
        "packed_days",
        "check_records",
        "run_stops",
    }  # made from the rest


def test_an_empty_table_is_a_file_with_its_columns(engine: sa.Engine, tmp_path: Path) -> None:
    """Readers need not ask whether it is there."""
    assert set(export(engine, tmp_path).values()) == {0}
    for table in EXPORTED:
        if table.name not in DIVIDED:
            assert pq.read_schema(tmp_path / f"{table.name}.parquet").names == [c.name for c in table.columns]
        else:
            assert list((tmp_path / table.name).iterdir()) == []


def test_an_export_replaces_the_one_before(engine: sa.Engine, tmp_path: Path) -> None:
    """It is no append."""
    fill(engine)
    first = export(engine, tmp_path)
    assert export(engine, tmp_path) == first
    assert pq.read_table(tmp_path / "events").num_rows == first["events"]


def test_batches_join_without_a_seam(any_engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are read at once: each is there once, in order."""
    monkeypatch.setattr(export_rows, "FETCH_ROWS", 7)
    monkeypatch.setattr(export_rows, "BLOCK_BYTES", 256)
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"n{i:03}") for i in range(50)])
    assert export(any_engine, tmp_path)["nodes"] == 50
    assert [row["node"] for row in read_back(tmp_path, schema.nodes)] == [f"n{i:03}" for i in range(50)]


def write_days(engine: sa.Engine, *days: int, kind: str = "note") -> None:
    """An event on each of so many days before noon of 1 March."""
    with writing(engine).begin() as connection:
        append_events(connection, [Event(NOW - day * DAY, "n", "kernel", kind) for day in days], NOW)


def files(folder: Path) -> list[str]:
    """The days of the events that are there."""
    return sorted(file.name.removeprefix("day=").removesuffix(".parquet") for file in (folder / "events").iterdir())


def test_a_day_is_a_file(any_engine: sa.Engine, tmp_path: Path) -> None:
    """Gaps are none; pandas reads one day or all, without further columns, and a range is one of days."""
    ensure_days(any_engine, [NOW - DAY], ("events",), NOW)
    write_days(any_engine, 0, 1, 1, 40, kind="a")
    write_days(any_engine, 1, kind="b")
    assert export(any_engine, tmp_path, ["events"]) == {"events": 4}
    assert files(tmp_path) == ["2025-01-20", "2025-02-28", "2025-03-01"]
    table = pandas.read_parquet(tmp_path / "events" / "day=2025-02-28.parquet")
    assert list(table.columns) == [column.name for column in schema.events.columns]
    assert sorted(table["kind"]) == ["a", "b"]
    assert len(pandas.read_parquet(tmp_path / "events")) == 4
    other = tmp_path / "other"
    other.mkdir()
    day = datetime(2025, 2, 28, tzinfo=UTC)
    assert export(any_engine, other, ["events"], ExportRange(day, day + DAY)) == {"events": 2}
    assert files(other) == ["2025-02-28"]


def test_a_whole_day_is_not_written_again(engine: sa.Engine, tmp_path: Path) -> None:
    """Unless it is forced to be; one that was not over when it was read, or is damaged, is written again."""
    write_days(engine, 0, 1, 2)
    export(engine, tmp_path)
    damaged = tmp_path / "events" / "day=2025-02-27.parquet"
    damaged.write_bytes(b"PAR1")
    early = pq.read_table(tmp_path / "events" / "day=2025-03-01.parquet")
    pq.write_table(
        early.replace_schema_metadata({b"foreshock.exported": b"2025-03-02T23:59:59+00:00"}),
        tmp_path / "events" / "day=2025-03-01.parquet",
    )
    write_days(engine, 0, 1, 2, kind="late")
    assert export(engine, tmp_path)["events"] == 5
    rows = {day: pq.read_metadata(tmp_path / "events" / f"day={day}.parquet").num_rows for day in files(tmp_path)}
    assert rows == {"2025-02-27": 2, "2025-02-28": 1, "2025-03-01": 2}
    assert export(engine, tmp_path, force=True)["events"] == 6


def test_what_was_pruned_stays_exported(engine: sa.Engine, tmp_path: Path) -> None:
    """Export, then prune: an archive."""
    write_days(engine, 0, 1)
    export(engine, tmp_path)
    prune(engine, {"events": NOW})
    assert export(engine, tmp_path)["events"] == 1
    assert files(tmp_path) == ["2025-02-28", "2025-03-01"]


def test_a_file_that_cannot_be_written_leaves_nothing_half(engine: sa.Engine, tmp_path: Path) -> None:
    """Neither it nor a part of it."""
    write_days(engine, 0)
    folder = tmp_path / "out"
    (folder / "nodes.parquet").mkdir(parents=True)
    with pytest.raises(OSError, match=r"nodes\.parquet"):
        export(engine, folder)
    assert [path.name for path in folder.iterdir()] == ["nodes.parquet"]


def test_odd_texts_come_through(any_engine: sa.Engine, tmp_path: Path) -> None:
    """Line breaks, quotes, commas, backslashes, empty texts, and a row larger than most."""
    odd = ['a\nb"c,d\\.', "", "\\.", "\r\n", " ", "x" * 100_000, "ü\u2028", "NULL", "t", '""']
    with writing(any_engine).begin() as connection:
        events = [Event(NOW, "n", "kernel", "note", message=text, id=str(i)) for i, text in enumerate(odd)]
        append_events(connection, events, NOW)
    export(any_engine, tmp_path, ["events"])
    assert read_back(tmp_path, schema.events) == stored(any_engine, schema.events)
    assert [row["message"] for row in read_back(tmp_path, schema.events)] == odd


def test_a_daily_export_is_read_back_by_duckdb(any_engine: sa.Engine, tmp_path: Path) -> None:
    """Five tables by the day; times, JSON and what is unknown come through, and days are folders' partitions."""
    fill(any_engine)
    tables = ("events", "incidents", "outages", "telemetry", "scores")
    counts = export(any_engine, tmp_path, tables, daily=True)
    with duckdb.connect() as lake:
        lake.execute("SET TimeZone = 'UTC'")
        for name in tables:
            table = next(one for one in EXPORTED if one.name == name)
            found = lake.sql(f"SELECT * FROM read_parquet('{tmp_path}/{name}/*.parquet')")  # noqa: S608
            assert (found.columns, len(found.fetchall())) == ([c.name for c in exported_columns(table)], counts[name])
            assert counts[name] == len(stored(any_engine, table)) > 0
        joined = lake.sql(
            f"SELECT e.node, e.time, e.attributes->>'pid', o.reason FROM '{tmp_path}/events/*.parquet' e "  # noqa: S608
            f"JOIN '{tmp_path}/outages/day=2025-02-28.parquet' o USING (node) WHERE e.code = 79"
        )
        assert joined.fetchall() == [("n2", NOW, "1", "x")]


def test_a_daily_export_writes_a_day_again_only_where_it_is_another(engine: sa.Engine, tmp_path: Path) -> None:
    """An outage that ends, an event that came late; what is as it was is not touched, and what was pruned stays."""

    def out(node: str, end: datetime | None) -> Outage:
        return Outage(node, NOW - 2 * DAY, end, "DOWN", "x", None, False, "hardware")

    with writing(engine).begin() as connection:
        append_outages(connection, [out("n1", None), replace(out("n2", None), start=NOW)])
    write_days(engine, 0, 2)
    tables = ("events", "outages")
    export(engine, tmp_path, tables, daily=True)
    first, second = (tmp_path / "outages" / f"day=2025-{day}.parquet" for day in ("02-27", "03-01"))
    before = (first.stat().st_ino, second.stat().st_ino)
    export(engine, tmp_path, tables, daily=True)
    assert (first.stat().st_ino, second.stat().st_ino) == before
    with writing(engine).begin() as connection:
        append_outages(connection, [out("n1", NOW)])
    write_days(engine, 2, kind="late")
    assert export(engine, tmp_path, tables, daily=True) == {"events": 3, "outages": 2}
    assert first.stat().st_ino != before[0]
    assert second.stat().st_ino == before[1]
    assert pq.read_table(first)["end"].to_pylist() == [NOW]
    assert pq.read_metadata(tmp_path / "events" / "day=2025-02-27.parquet").num_rows == 2
    with writing(engine).begin() as connection:
        append_outages(connection, [out("n3", NOW)])
    export(engine, tmp_path, tables, daily=True)
    with writing(engine).begin() as connection:
        connection.execute(sa.delete(schema.outages).where(schema.outages.c.node == "n3"))
    export(engine, tmp_path, tables, daily=True)
    assert pq.read_table(first).num_rows == 2
    assert list(tmp_path.glob("**/*.part")) == []


def test_the_columns_are_those_that_the_page_tells() -> None:
    """docs/store.md: who reads the files has no other place to look."""
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
    for table in EXPORTED:
        if table.name in (*DIVIDED, *DAILY):
            columns = [f"`{column.name}` {_WORDS[str(arrow_type(column.type))]}" for column in exported_columns(table)]
            assert f"| `{table.name}` | {', '.join(columns)} |" in page, ", ".join(columns)


_WORDS = {"string": "text", "int64": "whole", "double": "float", "bool": "bool", "timestamp[us, tz=UTC]": "moment"}
