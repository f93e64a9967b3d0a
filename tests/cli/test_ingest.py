"""`foreshock ingest` as an operator sees it."""

import os
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result
from ingest.small_archive import OPENSM, build

from cli.archive.parts import FileRecords
from cli.archive.writer import Writer
from cli.main import foreshock
from store.database.connections import open_database
from store.events.event_pages import EventWindow, read_events
from store.records.event import Event


def ingest(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(foreshock, ["ingest", *arguments])


def test_it_ends_with_a_line_that_sums_up(tmp_path: Path) -> None:
    """A table by part before it, nothing on stderr."""
    result = ingest(str(build(tmp_path / "a")), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["PART", "FILES", "BROKEN", "RECORDS", "NEW", "KNOWN", "SKIPPED"]
    assert lines[-1].startswith("160 records (160 new, 0 known, 0 skipped) of 11 files (0 broken); ")
    assert result.stderr == ""


def test_json_gives_the_same_to_programs(tmp_path: Path) -> None:
    """By part, in total, with the troubles."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-003.log").write_bytes(os.urandom(4096))
    result = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}", "--json", "--workers", "1")
    assert result.exit_code == 2
    assert result.stderr.endswith(
        "Error: 1 file is broken, as is said above: what was good is loaded; mend it and ingest again\n"
    )
    told = orjson.loads(result.stdout)
    assert told["total"] == {"files": 12, "broken": 1, "records": 160, "new": 160, "known": 0, "skipped": 0}
    assert [row["part"] for row in told["parts"]][:2] == ["nodes", "topology"]
    assert told["troubles"] == [
        {
            "file": "kernel/gpu-003.log",
            "detail": "it is no text: replace it with the log itself",
            "broken": True,
            "doubtful": False,
        }
    ]
    assert told["incidents"] > 0
    assert "Broken: kernel/gpu-003.log: it is no text" in result.stderr


def test_skipped_rows_are_told_of(tmp_path: Path) -> None:
    """With the first of them."""
    (tmp_path / "nodes.csv").write_text("node,gpus\na,8\nb,many\n")
    result = ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.exit_code == 0
    assert "Skipped: nodes.csv: 1 skipped, the first: line 3: gpus is 'many'" in result.stderr


def test_a_log_of_another_kind_is_told_of(tmp_path: Path) -> None:
    """It is loaded as it is; nothing of it is broken."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-003.log").write_text(OPENSM * 20)
    result = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.exit_code == 0
    told = "Skipped: kernel/gpu-003.log: no line of 20 is of the format kernel: it looks like opensm\n"
    assert result.stderr == told


def test_the_year_of_dates_without_one_is_told(tmp_path: Path) -> None:
    """With what it was taken from, unless it was asked for."""
    root = build(tmp_path / "a")
    told = "2025 is taken, by the newest date, which telemetry/2025-03-03.parquet bears (--year says another)"
    assert told in ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}").stdout
    assert "without a year" not in ingest(str(root), "--year", "2025", "--db", f"sqlite:///{tmp_path / 'y.db'}").stdout


def test_times_without_a_zone_are_of_the_zone_that_is_given(tmp_path: Path) -> None:
    """Slurm's tables and opensm's log print local time; a log that says its zone keeps it. UTC is taken aloud."""
    root, url = build(tmp_path / "a"), f"sqlite:///{tmp_path / 'x.db'}"
    assert (
        "jobs.csv may bear times without a zone: UTC is taken (--tz says another)"
        in ingest(str(root), "--db", url).stdout
    )
    local = f"sqlite:///{tmp_path / 'y.db'}"
    assert "without a zone" not in ingest(str(root), "--db", local, "--tz", "America/New_York").stdout
    times = [
        {event.source: event.time.hour for event in events_of(one) if event.kind in ("outage", "port_removed", "xid")}
        for one in (url, local)
    ]
    assert times[1] == {**times[0], "sacctmgr": times[0]["sacctmgr"] + 5, "opensm": times[0]["opensm"] + 5}


def test_a_zone_that_comes_too_late_is_told_of(tmp_path: Path) -> None:
    """What was taken as UTC is not read again: the same command with --tz would seem to have mended it."""
    root, url = build(tmp_path / "a"), f"sqlite:///{tmp_path / 'x.db'}"
    first = ingest(str(root), "--db", url, "--tz", "UTC").stdout
    assert "take a new database" not in first
    assert ingest(str(root), "--db", url, "--tz", "Europe/Berlin").stdout.endswith(
        "nothing was new, and what was taken before keeps its zone: for --tz to hold take a new database\n"
    )


def test_a_zone_that_is_none_is_bad_input(tmp_path: Path) -> None:
    """Exit 2 with what would do, and no database is made."""
    result = ingest(str(build(tmp_path / "a")), "--db", f"sqlite:///{tmp_path / 'x.db'}", "--tz", "Mars")
    assert result.exit_code == 2
    assert "no time zone 'Mars': use a name such as UTC or Europe/Berlin" in result.stderr
    assert not (tmp_path / "x.db").exists()


def test_a_log_without_times_is_told_of(tmp_path: Path) -> None:
    """What `dmesg` wrote a month ago would seem to have happened at the archive's end."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-002.log").write_text("[   77.1] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n")
    result = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.exit_code == 0
    assert result.stderr.startswith("Doubtful: kernel/gpu-002.log: none of its lines bears a time: its 1 event counts")
    assert "journalctl _TRANSPORT=kernel -o short-iso-precise" in result.stderr


def test_a_log_whose_xids_are_of_no_known_form_is_told_of(tmp_path: Path) -> None:
    """A site's own template of syslog: without a word the node would seem to be well."""
    root = build(tmp_path / "a")
    line = "@2025-03-01 04h05 kern gpu-002 NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    (root / "kernel/gpu-002.log").write_text(line * 3)
    result = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.stderr.startswith(
        "Doubtful: kernel/gpu-002.log: 3 of its lines hold 'NVRM: Xid' and none is read as the kernel's, the first is"
        " '@2025-03-01 04h05 kern gpu-002 NVRM: Xid"
    )


def test_a_log_of_another_host_is_told_of(tmp_path: Path) -> None:
    """Its lines name their host and count for that, not for the node that the file is named for."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-002.log").write_text((root / "kernel/gpu-001.log").read_text())
    told = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}").stderr
    assert told == (
        "Doubtful: kernel/gpu-002.log: it is named for gpu-002, and its lines are of gpu-001: they count for gpu-001\n"
    )


def test_a_host_under_two_names_is_told_of(tmp_path: Path) -> None:
    """Two nodes of one short name are never mixed up, so each would have half of the host's past."""
    root = build(tmp_path / "a")
    with (root / "nodes.csv").open("a") as file:
        file.write("gpu-002.cluster.local,r01,leaf-01,H100-SXM,8,550.90.07,,\n")
    told = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}").stderr
    assert told.startswith("Doubtful: nodes.csv: gpu-002 and gpu-002.cluster.local count as two nodes")


def test_a_node_of_two_rows_is_told_of(tmp_path: Path) -> None:
    """The last one counts: a rack that was right would be gone without a word."""
    (tmp_path / "nodes.csv").write_text("node,rack\na,r1\na,r2\n")
    told = ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'x.db'}").stderr
    assert told == "Doubtful: nodes.csv: a has several rows, of which the last counts: leave the others out\n"


def test_outages_that_end_before_they_begin_are_told_of(tmp_path: Path) -> None:
    """Somebody's columns are the wrong way round: such outages have no length, and nothing else shows it."""
    times = (
        "2025-03-01T04:05:06Z|2025-03-01T06:00:00Z",
        "2025-03-02T06:00:00Z|2025-03-02T04:05:06Z",
        "2025-03-03T06:00:00Z|",
    )
    rows = "".join(f"gpu-{place:03}|{span}|DOWN|Xid 79|root\n" for place, span in enumerate(times))
    (tmp_path / "outages.csv").write_text(f"NodeName|TimeStart|TimeEnd|State|Reason|User\n{rows}")
    told = ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'x.db'}").stderr
    assert told.startswith("Doubtful: outages.csv: 1 of its 3 outages end before they begin, the first in line 3: ")


def test_a_table_of_steps_alone_is_told_of_and_one_of_no_jobs_is_not(tmp_path: Path) -> None:
    """A `sacct` that was asked for steps gives a large file and no job; a quiet week gives the header."""
    head = "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode\n"
    step = "1.0|python|COMPLETED|2025-03-01T04:05:06|2025-03-01T04:05:06|2025-03-01T05:05:06|1|gpu-001|0:0\n"
    (tmp_path / "jobs.csv").write_text(head + step)
    told = ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'x.db'}").stderr
    assert told.startswith("Doubtful: jobs.csv: it has rows, and none is of a job: steps are not read")
    (tmp_path / "jobs.csv").write_text(head)
    assert ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'y.db'}").stderr == ""


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_tables_of_slurm_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    """Editors and shells of other systems write one, and lines that end in CR LF; `sacct -p` ends rows in a bar."""
    root = build(tmp_path / "a")
    for name in ("jobs.csv", "outages.csv"):
        rows = (root / name).read_text().splitlines()
        (root / name).write_bytes("".join(f"{row}|\r\n" for row in rows).encode(encoding))
    result = ingest(str(root), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert result.stderr == ""
    assert "160 records (160 new, 0 known, 0 skipped)" in result.stdout


def test_the_topology_s_hosts_are_known_by_their_fqdn(tmp_path: Path) -> None:
    """Without `nodes.csv` too: a log of the FQDN and the subnet manager's host are one node."""
    root = build(tmp_path / "a")
    (root / "nodes.csv").unlink()
    log = (root / "kernel/gpu-001.log").read_text()
    (root / "kernel/gpu-001.log").write_text(log.replace("gpu-001 kernel", "gpu-001.cluster.local kernel"))
    url = f"sqlite:///{tmp_path / 'x.db'}"
    assert ingest(str(root), "--db", url).exit_code == 0
    assert {event.node for event in events_of(url) if event.kind == "xid"} == {"gpu-001", "gpu-002"}


def events_of(url: str) -> list[Event]:
    """Every event of a database."""
    engine = open_database(url)
    with engine.connect() as connection:
        return list(read_events(connection, EventWindow()))


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it does: what was read before is known the next time."""
    root, database = build(tmp_path / "a"), f"sqlite:///{tmp_path / 'x.db'}"
    whole, written = Writer.write, list[object]()

    def write(self: Writer, taken: FileRecords) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(taken)
        whole(self, taken)

    monkeypatch.setattr(Writer, "write", write)
    result = ingest(str(root), "--db", database)
    assert result.exit_code == 130
    assert result.stderr == "Broken off: what was whole is loaded, and the same command goes on from there\n"
    monkeypatch.setattr(Writer, "write", whole)
    total = orjson.loads(ingest(str(root), "--db", database, "--json").stdout)["total"]
    assert total["known"] > 0
    assert total["known"] + total["new"] == total["records"] == 160


def test_files_that_nothing_reads_are_told_of(tmp_path: Path) -> None:
    """A rotated log, telemetry in another format, a name that no part has; not what lies hidden or explains."""
    for name in ("kernel/gpu-001.log.1", "telemetry/day.csv", "outage.csv", "kernel/.swp", "README.md", "notes/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "nodes.csv").write_text("node,gpus\na,8\n")
    database = f"sqlite:///{tmp_path / 'x.db'}"
    result = ingest(str(tmp_path), "--db", database)
    assert "Not read: kernel/gpu-001.log.1, outage.csv, telemetry/day.csv: no file of an archive" in result.stderr
    told = orjson.loads(ingest(str(tmp_path), "--db", database, "--json").stdout)
    assert told["unread"] == ["kernel/gpu-001.log.1", "outage.csv", "telemetry/day.csv"]


def test_of_many_troubles_the_first_are_told(tmp_path: Path) -> None:
    """A thousand broken files do not hide the summary."""
    (tmp_path / "kernel").mkdir()
    for number in range(25):
        (tmp_path / f"kernel/n{number}.log").write_bytes(os.urandom(4096))
    result = ingest(str(tmp_path), "--db", f"sqlite:///{tmp_path / 'x.db'}")
    assert len(result.stderr.splitlines()) == 22
    assert "5 files more" in result.stderr


def test_a_folder_that_is_no_archive_is_bad_input(tmp_path: Path) -> None:
    """Exit 2, one sentence, and no database is made."""
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        result = ingest(str(tmp_path / folder), "--db", f"sqlite:///{tmp_path / 'x.db'}")
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "x.db").exists()


def test_a_database_that_cannot_be_opened_is_bad_usage(tmp_path: Path) -> None:
    """Exit 2 with the remedy."""
    result = ingest(str(build(tmp_path / "a")), "--db", "mysql://x")
    assert result.exit_code == 2
    assert "use sqlite:///PATH" in result.stderr
