"""Loading an archive into a database: what arrives, again and again, broken off, and with broken files."""

import gzip
import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from ingest.small_archive import KERNEL, build, write_day

from cli.archive import writer
from cli.commands.ingest import ArchiveOptions, Summary, ingest_archive
from store.events.append import read_ingested
from store.events.event_pages import EventWindow, read_events, read_incidents
from store.events.incident_intake import anything_waits
from store.nodes.inventory import read_nodes, read_outages
from store.runs.jobs import read_jobs
from store.tables import schema

FAULTS = Path(__file__).parents[2].parent / "shared/data/faults"
EVERY_TABLE = [
    schema.nodes,
    schema.events,
    schema.outages,
    schema.jobs,
    schema.telemetry,
    schema.links,
    schema.incidents,
]


def contents(engine: sa.Engine) -> dict[str, list[str]]:
    """Every row of every table that an ingest writes, but for when it was received."""
    with engine.begin() as connection:
        return {
            table.name: sorted(
                repr(sorted((k, v) for k, v in row.items() if k != "received"))
                for row in connection.execute(sa.select(table)).mappings()
            )
            for table in EVERY_TABLE
        }


def counts(summary: Summary) -> dict[str, tuple[int, int, int, int]]:
    """(records, new, known, skipped) by part."""
    return {name: (t.records, t.new, t.known, t.skipped) for name, t in summary.parts.items()}


def kinds(engine: sa.Engine) -> list[tuple[str, str, str | None]]:
    """(source, kind, node) of every stored event in order."""
    with engine.begin() as connection:
        return [(event.source, event.kind, event.node) for event in read_events(connection, EventWindow())]


def test_every_part_arrives_in_its_table(tmp_path: Path, engine: sa.Engine) -> None:
    """Nodes, cables, outages, jobs, events of each source, roll-ups, counters' rises and the vanished GPU."""
    summary = ingest_archive(engine, build(tmp_path / "a"))
    assert counts(summary) == {
        "nodes": (2, 2, 0, 0),
        "topology": (1, 1, 0, 0),
        "outages": (2, 2, 0, 0),
        "jobs": (2, 2, 0, 0),
        "kernel": (4, 4, 0, 0),
        "fabric": (1, 1, 0, 0),
        "training": (2, 2, 0, 0),
        "telemetry": (144, 144, 0, 0),
        "counters": (2, 2, 0, 0),
    }
    assert summary.total().records == 160
    assert summary.troubles == ()
    assert sorted(set(kinds(engine)), key=str) == [
        ("dcgm", "ecc_sbe", "gpu-001"),
        ("dcgm", "gpu_missing", "gpu-001"),
        ("kernel", "xid", "gpu-001"),
        ("kernel", "xid", "gpu-002"),
        ("opensm", "port_removed", "gpu-001"),
        ("sacct", "job", None),
        ("sacctmgr", "outage", "gpu-001"),
        ("sacctmgr", "outage", "gpu-002"),
        ("training", "iteration", None),
    ]
    with engine.begin() as connection:
        nodes, outages, jobs = read_nodes(connection), read_outages(connection), read_jobs(connection)
        link = connection.execute(sa.select(schema.links)).one()
    assert [(node.node, node.leaf, node.gpus) for node in nodes] == [
        ("gpu-001", "leaf-01", 8),
        ("gpu-002", "leaf-01", 8),
    ]
    assert [(outage.planned, outage.cause, outage.end is None) for outage in outages] == [
        (False, "hardware", False),
        (True, "unknown", True),
    ]
    assert [(job.run, job.state, job.end is None) for job in jobs] == [
        ("llm", "NODE_FAIL", False),
        ("llm", "RUNNING", True),
    ]
    assert tuple(link)[:5] == ("leaf-01", 1, "gpu-001", 1, "hca")


def test_an_ingest_makes_incidents_of_what_it_took(tmp_path: Path, engine: sa.Engine) -> None:
    """The GPU that fell off is one, and it is not made twice."""
    summary = ingest_archive(engine, build(tmp_path / "a"))
    assert summary.incidents > 0
    with engine.begin() as connection:
        since, until = (connection.scalar(sa.select(f(schema.events.c.time))) for f in (sa.func.min, sa.func.max))
        incidents = read_incidents(connection, since, until)
        assert not anything_waits(connection)
    assert any(incident.code == 79 and incident.node == "gpu-001" for incident in incidents)
    assert ingest_archive(engine, tmp_path / "a").incidents == 0


def test_a_second_ingest_reads_nothing_and_changes_nothing(tmp_path: Path, engine: sa.Engine) -> None:
    """All is known."""
    root = build(tmp_path / "a")
    ingest_archive(engine, root)
    before = contents(engine)
    told: list[tuple[int, int]] = []
    again = ingest_archive(engine, root, progress=lambda done, whole: told.append((done, whole)))
    assert contents(engine) == before
    assert told == []
    assert (again.total().new, again.total().known) == (0, 158)


def test_a_file_taken_without_being_noted_changes_nothing_when_read_again(tmp_path: Path, engine: sa.Engine) -> None:
    """As after an ingest by another program version: the events' ids decide."""
    root = build(tmp_path / "a")
    ingest_archive(engine, root)
    before = contents(engine)
    with engine.begin() as connection:
        connection.execute(sa.delete(schema.ingested))
    again = ingest_archive(engine, root)
    assert contents(engine) == before
    assert (again.total().new, again.total().known) == (0, 160)


def test_an_ingest_that_was_broken_off_goes_on_where_it_was(
    tmp_path: Path, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies in the middle of a file's transaction: that file is undone, the rest comes with the next ingest."""
    root = build(tmp_path / "a")
    whole = tmp_path / "whole.db"
    real = writer.note_ingested

    def dies(connection: sa.Connection, file: writer.IngestedFile) -> None:
        if file.path == "fabric/opensm.log":
            raise KeyboardInterrupt
        real(connection, file)

    monkeypatch.setattr(writer, "note_ingested", dies)
    with pytest.raises(KeyboardInterrupt):
        ingest_archive(engine, root)
    monkeypatch.undo()
    with engine.begin() as connection:
        assert len(read_ingested(connection)) == 6
        assert anything_waits(connection)
    assert ("opensm", "port_removed", "gpu-001") not in kinds(engine)
    second = ingest_archive(engine, root)
    assert second.total().known == 11
    assert second.incidents > 0
    from store.database.connections import migrate, open_database

    other = open_database(f"sqlite:///{whole}")
    migrate(other)
    ingest_archive(other, root)
    assert contents(other) == contents(engine)
    other.dispose()


def test_an_archive_that_grows_gives_only_what_is_new(tmp_path: Path, engine: sa.Engine) -> None:
    """A day of telemetry more and two lines more of a log, and the counter carries over from the days before."""
    root = build(tmp_path / "a")
    third = root / "telemetry/2025-03-03.parquet"
    shutil.move(third, tmp_path / "later")
    with (root / "kernel/gpu-001.log").open("a") as file:
        ingest_archive(engine, root)
        shutil.move(tmp_path / "later", third)
        file.write(KERNEL.format(node="gpu-001").replace("03-0", "04-0"))
    grown = ingest_archive(engine, root)
    assert counts(grown)["kernel"] == (6, 2, 4, 0)
    assert counts(grown)["telemetry"] == (144, 48, 96, 0)
    assert counts(grown)["counters"] == (1, 1, 0, 0)
    assert kinds(engine).count(("dcgm", "gpu_missing", "gpu-001")) == 1


def test_telemetry_is_followed_by_its_times_and_not_by_its_names(tmp_path: Path, engine: sa.Engine) -> None:
    """Files that are numbered from the newest."""
    root = build(tmp_path / "a")
    for number, path in enumerate(sorted((root / "telemetry").iterdir(), reverse=True)):
        path.rename(root / f"telemetry/{number}.parquet")
    ingest_archive(engine, root)
    assert [kind for source, kind, _ in kinds(engine) if source == "dcgm"] == ["ecc_sbe", "gpu_missing"]


@pytest.mark.parametrize("part", ["nodes.csv", "kernel", "fabric", "telemetry", "training", "jobs.csv", "outages.csv"])
def test_any_part_may_be_missing(tmp_path: Path, engine: sa.Engine, part: str) -> None:
    """The others arrive."""
    root = build(tmp_path / "a")
    path = root / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    summary = ingest_archive(engine, root)
    assert summary.troubles == ()
    assert summary.total().records > 0


def test_broken_files_are_named_and_the_rest_goes_on(tmp_path: Path, engine: sa.Engine) -> None:
    """A cut gzip, a corrupt table, a binary; they are read again next time, whole by then."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-003.log.gz").write_bytes(gzip.compress(KERNEL.format(node="gpu-003").encode())[:-12])
    (root / "kernel/gpu-004.log").write_bytes(os.urandom(4096))
    (root / "telemetry/2025-03-02.parquet").write_bytes(b"PAR1 and no more")
    summary = ingest_archive(engine, root)
    assert {trouble.file: trouble.broken for trouble in summary.troubles} == {
        "kernel/gpu-003.log.gz": True,
        "kernel/gpu-004.log": True,
        "telemetry/2025-03-02.parquet": True,
    }
    assert summary.total().broken == 3
    assert counts(summary)["telemetry"][0] == 96
    (root / "kernel/gpu-004.log").write_text(KERNEL.format(node="gpu-004"))
    write_day(root, 1)
    again = ingest_archive(engine, root)
    assert counts(again)["kernel"][1] == 2
    assert counts(again)["telemetry"][1] == 48
    assert again.total().broken == 1


def test_a_file_that_may_not_be_read_is_told_of(tmp_path: Path, engine: sa.Engine) -> None:
    """It vanishes between being found and being hashed: a dangling link stands for it."""
    root = build(tmp_path / "a")
    from cli.archive.parts import digest
    from collectors.files.archive import find_parts

    parts = find_parts(root)
    parts[0].path.unlink()
    assert "cannot be read" in (digest(parts[0]).broken or "")


def test_the_folder_above_an_archive_names_the_one_below(tmp_path: Path) -> None:
    """`foreshock simulate DIR` lays it into DIR/archive."""
    from collectors.files.archive import ArchiveError, find_parts

    build(tmp_path / "archive")
    with pytest.raises(ArchiveError, match=f"^{tmp_path} is no archive: give {tmp_path}/archive$"):
        find_parts(tmp_path)


def test_processes_give_what_one_gives(tmp_path: Path, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, in the same order of writing."""
    from store.database.connections import migrate, open_database

    root = build(tmp_path / "a")
    ingest_archive(engine, root)
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    migrate(other)
    monkeypatch.setattr("cli.commands.ingest.WORTH_WORKERS_BYTES", 0)
    told: list[tuple[int, int]] = []
    ingest_archive(other, root, workers=2, progress=lambda done, whole: told.append((done, whole)))
    assert contents(other) == contents(engine)
    assert told[-1][0] == told[-1][1]
    assert len(told) == 11
    other.dispose()


def test_the_year_of_the_fabric_s_log_is_the_archive_s(tmp_path: Path, engine: sa.Engine) -> None:
    """Or the one asked for."""
    root = build(tmp_path / "a")
    ingest_archive(engine, root)
    with engine.begin() as connection:
        moments = [e.time for e in read_events(connection, EventWindow(kind="port_removed"))]
    assert [moment.year for moment in moments if moment] == [2025]
    (root / "fabric/opensm.log").write_text((root / "fabric/opensm.log").read_text() + "\n")
    ingest_archive(engine, root, ArchiveOptions(year=2021))
    with engine.begin() as connection:
        moments = [e.time for e in read_events(connection, EventWindow(kind="port_removed"))]
    assert sorted(moment.year for moment in moments if moment) == [2021, 2025]


@pytest.mark.skipif(not FAULTS.exists(), reason="the shared data is not beside this repository")
def test_a_real_fault_trace_arrives_whole(engine: sa.Engine) -> None:
    """584 outages of 231 of 400 servers, 14 of no length: the counts that come with the trace."""
    summary = ingest_archive(engine, FAULTS)
    assert counts(summary) == {"nodes": (400, 400, 0, 0), "outages": (584, 584, 0, 0)}
    with engine.begin() as connection:
        nodes, outages = read_nodes(connection), read_outages(connection)
    assert len(nodes) == 400
    assert all(node.gpus is None and node.in_service_since is not None for node in nodes)
    assert len(outages) == 584
    assert len({outage.node for outage in outages}) == 231
    assert sum(outage.start == outage.end for outage in outages) == 14
    summed = sum((outage.end - outage.start).total_seconds() for outage in outages if outage.end) / 86400
    assert round(summed, 1) == 3232.4


def test_jobs_are_taken_before_the_logs(tmp_path: Path, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on the same database may make incidents meanwhile: they tell how large the job on their node was."""
    taken: list[str] = []
    monkeypatch.setattr(writer, "note_ingested", lambda _connection, file: taken.append(file.path))
    ingest_archive(engine, build(tmp_path / "a"))
    assert taken.index("jobs.csv") < min(place for place, path in enumerate(taken) if path.startswith("kernel/"))
