"""Finding the files of an archive, and reading them whatever state they are in."""

import gzip
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import zstandard
from ingest.small_archive import KERNEL, OPENSM, build

from collectors.files.archive import (
    ArchiveError,
    ArchivePart,
    context_of,
    find_parts,
    newest_dated,
    read_part,
    told_year,
)
from parsers.text.parser import Context

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def newest_of(root: Path) -> tuple[datetime, str] | None:
    """The newest date of an archive, and the file that bears it."""
    return newest_dated(find_parts(root), NOW)


def part(path: Path, name: str = "kernel") -> ArchivePart:
    """A part of an archive for a file."""
    return ArchivePart(name, path, f"{name}/{path.name}", path.stat().st_size)


def test_every_part_is_found_and_in_order(tmp_path: Path) -> None:
    """Nodes first, telemetry last, files by name; what is of no part is passed over."""
    root = build(tmp_path / "a")
    (root / "README").write_text("notes")
    (root / "kernel/notes.txt").write_text("notes")
    (root / "telemetry/folder.parquet").mkdir()
    assert [p.relative for p in find_parts(root)] == [
        "nodes.csv",
        "fabric/ibnetdiscover.txt",
        "outages.csv",
        "jobs.csv",
        "kernel/gpu-001.log",
        "kernel/gpu-002.log",
        "fabric/opensm.log",
        "training/llm.log",
        "telemetry/2025-03-01.parquet",
        "telemetry/2025-03-02.parquet",
        "telemetry/2025-03-03.parquet",
    ]


def test_a_folder_without_a_part_is_no_archive(tmp_path: Path) -> None:
    """The message names what was looked for."""
    with pytest.raises(ArchiveError, match=r"none of nodes\.csv"):
        find_parts(tmp_path)
    with pytest.raises(ArchiveError, match="no folder"):
        find_parts(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["gpu-017.log", "gpu-017.log.gz", "gpu-017.json", "gpu-017.log.zst"])
def test_a_log_is_named_for_its_node(tmp_path: Path, name: str) -> None:
    """Under any ending; a node's own name may have dots."""
    assert ArchivePart("kernel", tmp_path / name, name, 0).stem() == "gpu-017"
    assert ArchivePart("kernel", tmp_path / "n1.example.org.log", "", 0).stem() == "n1.example.org"


def test_the_newest_moment_is_the_archive_s_own(tmp_path: Path) -> None:
    """The day after the last telemetry, here."""
    assert newest_of(build(tmp_path / "a")) == (datetime(2025, 3, 4, tzinfo=UTC), "telemetry/2025-03-03.parquet")


def test_old_files_do_not_make_the_newest_date_old(tmp_path: Path) -> None:
    """One log of this year beside tables of years ago: opensm's dates are of this year."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-003.log").write_text(KERNEL.format(node="gpu-003").replace("2025-03-01", "2026-11-20"))
    newest = newest_of(root)
    assert newest is not None
    assert (newest[0].date(), newest[1]) == (date(2026, 11, 20), "kernel/gpu-003.log")
    year = told_year(find_parts(root), newest)
    assert year is not None
    assert year.startswith("fabric/opensm.log may bear dates without a year: 2026 is taken, by the newest date, which ")


def test_a_broken_clock_s_date_is_not_the_newest(tmp_path: Path) -> None:
    """One node of three lives in 2099, another has no date at all."""
    root = build(tmp_path / "a")
    (root / "kernel/gpu-003.log").write_text(KERNEL.format(node="gpu-003").replace("2025-", "2099-"))
    (root / "kernel/gpu-004.log").write_text("[    1.0] NVRM: Xid (PCI:0000:0f:00): 79\n2025-02-31T00:00:00 no date\n")
    (root / "kernel/gpu-005.log.gz").write_bytes(gzip.compress(b"2031-01-01T00:00:00 not looked into"))
    (root / "telemetry/latest.parquet").write_bytes(b"")
    newest = newest_of(root)
    assert newest is not None
    assert newest[0] == datetime(2025, 3, 4, tzinfo=UTC)


def test_an_archive_without_dates_goes_by_its_files_modification(tmp_path: Path) -> None:
    """As an operator's fresh copy has it; the year that is asked for holds before that."""
    (tmp_path / "fabric").mkdir()
    path = tmp_path / "fabric/opensm.log"
    path.write_text("Dec 31 23:00:00 000001 [8EAC6C0] 0x02 -> SUBNET UP\n")
    os.utime(path, (datetime(2024, 2, 1, tzinfo=UTC).timestamp(),) * 2)
    parts = find_parts(tmp_path)
    assert newest_dated(parts, NOW) is None
    assert context_of(parts[0], None) == Context(year=2024, until=datetime(2024, 2, 1, tzinfo=UTC))
    assert context_of(parts[0], None, year=2022).year == 2022
    assert context_of(parts[0], datetime(2023, 5, 5, tzinfo=UTC)).year == 2023


def test_ids_tell_equal_lines_apart_by_file_and_line(tmp_path: Path) -> None:
    """And are the same when read again."""
    path = tmp_path / "n.log"
    line = KERNEL.format(node="n").splitlines()[0]
    path.write_text(f"{line}\n{line}\n")
    first, again = (read_part(part(path), Context(node="n")).events for _ in range(2))
    assert len({event.id for event in first}) == 2
    assert [event.id for event in first] == [event.id for event in again]
    assert [event.line for event in first] == [1, 2]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_compressed_log_reads_as_a_plain_one(tmp_path: Path, pack: object) -> None:
    """Both packings."""
    assert callable(pack)
    suffix = ".gz" if pack is gzip.compress else ".zst"
    (tmp_path / "n.log").write_text(KERNEL.format(node="n"))
    (tmp_path / f"p.log{suffix}").write_bytes(pack(KERNEL.format(node="n").encode()))
    plain, packed = (read_part(part(tmp_path / name), Context()).events for name in ("n.log", f"p.log{suffix}"))
    assert [event.code for event in plain] == [event.code for event in packed] == [79, 31]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_first_line_counts_behind_a_byte_order_mark_too(tmp_path: Path, pack: object) -> None:
    """An editor of another system saved the log: its first line is a fault as any other."""
    assert callable(pack)
    (tmp_path / "n.log").write_bytes(pack(KERNEL.format(node="n").encode("utf-8-sig")))
    assert [event.code for event in read_part(part(tmp_path / "n.log"), Context()).events] == [79, 31]


def test_what_came_before_the_end_of_a_cut_file_is_kept(tmp_path: Path) -> None:
    """A gzip file that was copied halfway."""
    whole = gzip.compress(KERNEL.format(node="n").encode() + os.urandom(300_000).hex().encode())
    (tmp_path / "n.log.gz").write_bytes(whole[: len(whole) // 2])
    records = read_part(part(tmp_path / "n.log.gz"), Context())
    assert [event.code for event in records.events] == [79, 31]
    assert records.broken is not None
    assert "copy it anew" in records.broken


def test_a_small_cut_file_keeps_what_came_before_the_end_too(tmp_path: Path) -> None:
    """The log of a quiet node is shorter than what is looked at to tell text from a binary."""
    whole = gzip.compress(KERNEL.format(node="n").encode() + b"2025-03-03T00:00:00+00:00 n kernel: x\n" * 9)
    (tmp_path / "n.log.gz").write_bytes(whole[:-12])
    records = read_part(part(tmp_path / "n.log.gz"), Context())
    assert [event.code for event in records.events] == [79, 31]
    assert records.broken is not None


def test_an_unreadable_file_is_told_of(tmp_path: Path) -> None:
    """It went away between looking and reading."""
    (tmp_path / "n.log").write_text("x")
    gone = part(tmp_path / "n.log")
    (tmp_path / "n.log").unlink()
    broken = read_part(gone, Context()).broken
    assert broken is not None
    assert "No such file" in broken


@pytest.mark.parametrize("name", ["kernel", "fabric", "training", "jobs", "outages", "nodes", "topology"])
def test_a_binary_file_is_told_of_in_every_part(tmp_path: Path, name: str) -> None:
    """Random bytes are no log."""
    (tmp_path / "x.log").write_bytes(os.urandom(5000))
    assert (
        read_part(part(tmp_path / "x.log", name), Context()).broken == "it is no text: replace it with the log itself"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("kernel", OPENSM, "no line of 20 is of the format kernel: it looks like opensm"),
        ("fabric", KERNEL.format(node="n"), "no line of 60 is of the format opensm: it looks like kernel"),
        ("fabric", OPENSM.partition("drop_mgr")[0] + "SUBNET UP\n", None),
        ("kernel", "2025-03-01T04:05:07.000000+00:00 n kernel: usb 1-1: new device\n", None),
        ("kernel", "usb 1-1: new high-speed USB device number 2\n", None),
        ("switches", "2025-03-01T04:05:07+00:00 leaf-01 systemd[1]: Started Session 3.\n", None),
    ],
)
def test_a_log_under_another_ones_name_is_told_of(tmp_path: Path, name: str, text: str, said: str | None) -> None:
    """By what its lines look like; a log in which nothing happened is fine."""
    (tmp_path / "x.log").write_text(text * 20)
    found = read_part(part(tmp_path / "x.log", name), Context(year=2025))
    assert found.misread == said
    assert found.broken is None


@pytest.mark.parametrize("name", ["kernel", "fabric", "training", "topology"])
def test_an_empty_log_says_nothing(tmp_path: Path, name: str) -> None:
    """And is not broken."""
    (tmp_path / "x.log").write_bytes(b"")
    records = read_part(part(tmp_path / "x.log", name), Context())
    assert (records.events, records.broken, records.skipped) == ((), None, 0)


def test_nuls_of_a_crash_and_gigantic_lines_do_not_hide_what_follows(tmp_path: Path) -> None:
    """A host that lost power leaves a block of NULs; one line is a megabyte long."""
    good = KERNEL.format(node="n").encode()
    (tmp_path / "n.log").write_bytes(bytes(6000) + b"\n" + b"x" * 1_000_000 + b"\n\xff\xfe latin \xe9\n" + good)
    assert [event.code for event in read_part(part(tmp_path / "n.log"), Context()).events] == [79, 31]


def test_lines_without_a_time_take_the_one_before_them(tmp_path: Path) -> None:
    """And are marked: nobody wrote that time."""
    text = (
        "NVRM: Xid (PCI:0000:0f:00): 13, first\n" + KERNEL.format(node="n") + "NVRM: Xid (PCI:0000:0f:00): 45, last\n"
    )
    (tmp_path / "n.log").write_text(text)
    events = read_part(part(tmp_path / "n.log"), Context(node="n")).events
    assert [event.code for event in events] == [13, 79, 31, 45]
    assert [bool(event.attributes.get("time_assumed")) for event in events] == [True, False, False, True]
    assert events[0].time == events[1].time
    assert events[3].time == events[2].time


def test_a_file_without_any_time_takes_the_archive_s_newest(tmp_path: Path) -> None:
    """Not today's."""
    until = datetime(2025, 3, 4, tzinfo=UTC)
    (tmp_path / "n.log").write_text("NVRM: Xid (PCI:0000:0f:00): 79, gone\n")
    assert [event.time for event in read_part(part(tmp_path / "n.log"), Context(node="n", until=until)).events] == [
        until
    ]


def test_broken_rows_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    """Of a table of nodes."""
    (tmp_path / "nodes.csv").write_text("node,gpus\na,8\n,8\nb,many\n")
    records = read_part(part(tmp_path / "nodes.csv", "nodes"), Context())
    assert [node.node for node in records.nodes] == ["a"]
    assert records.skipped == 2
    assert records.first_skip == "line 3: a row without a node"


def test_a_table_of_nodes_without_the_column_is_broken(tmp_path: Path) -> None:
    """With the remedy."""
    (tmp_path / "nodes.csv").write_text("rack\nr1\n")
    broken = read_part(part(tmp_path / "nodes.csv", "nodes"), Context()).broken
    assert broken is not None
    assert "column `node`" in broken
