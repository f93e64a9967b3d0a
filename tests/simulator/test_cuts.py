"""A cut at any moment: what was written until then and what is told after it make the whole, no line lost or twice."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from simulated import SIZES, cluster_of, events_in, lines_in

from simulator.output.archive import OutputLine, entries, jobs, outages, write_archive, write_telemetry
from simulator.output.slurm import EVENT_HEADER, SACCT_HEADER
from simulator.output.telemetry import snapshots
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, HOUR_MS

SHARE = some.floats(0, 1)


def moments_of_interest(cluster: SimulatedCluster) -> list[int]:
    """Where something begins or ends: the very millisecond, and those beside it."""
    times = [0, cluster.settings.length_ms, cluster.roll_ms]
    for run in cluster.runs:
        for attempt in run.attempts[:3]:
            times += [attempt.submit_ms, attempt.start_ms, attempt.first_ms, attempt.last_line_ms, attempt.end_ms]
    for failure in cluster.outages[:3]:
        times += [failure.fault_ms, failure.start_ms, failure.end_ms]
    times += [drain.end_ms for drain in cluster.drains[:2]]
    whole = cluster.settings.length_ms
    return sorted({min(max(time + beside, 0), whole) for time in times for beside in (-1, 0, 1)})


def told(cluster: SimulatedCluster, until_ms: int) -> dict[str, list[OutputLine]]:
    """What is told after a moment, by target, without headers."""
    found: dict[str, list[OutputLine]] = {}
    for entry in entries(cluster, cluster.settings.moment(until_ms)):
        if entry.text not in (SACCT_HEADER, EVENT_HEADER):
            found.setdefault(entry.target, []).append(entry)
    return found


def key(row: str) -> tuple[str, ...]:
    """What a row of Slurm's is about: a job, or a node's outage with its start."""
    cells = row.split("|")
    return (cells[0],) if len(cells) == 10 else (cells[0], cells[1])


@pytest.mark.parametrize("size", [(8, 3, 5), (33, 4, 2)])
def test_jobs_and_outages_told_after_a_cut_complete_its_tables(size: tuple[int, int, int]) -> None:
    """At every moment at which something happens: the newest row of each job and outage is the final one."""
    cluster = cluster_of(*size)
    end = cluster.settings.length_ms
    whole = {"sacct": jobs(cluster, end), "sacctmgr": outages(cluster, end)}
    for until in moments_of_interest(cluster):
        after = told(cluster, until)
        for target, before in (("sacct", jobs(cluster, until)), ("sacctmgr", outages(cluster, until))):
            newest = {key(row): row for row in before}
            assert len(newest) == len(before)
            newest |= {key(entry.text): entry.text for entry in after.get(target, [])}
            assert sorted(newest.values()) == sorted(whole[target]), until


@pytest.mark.parametrize("size", [(8, 3, 5), (33, 4, 2)])
def test_a_row_that_is_told_is_news(size: tuple[int, int, int]) -> None:
    """No row comes twice, and none that the cut table shows already."""
    cluster = cluster_of(*size)
    for until in moments_of_interest(cluster)[::5]:
        after = told(cluster, until)
        for target, before in (("sacct", jobs(cluster, until)), ("sacctmgr", outages(cluster, until))):
            rows = [entry.text for entry in after.get(target, [])]
            assert len(set(rows)) == len(rows)
            assert not set(rows) & set(before)


def check_lines(cluster: SimulatedCluster, until_ms: int, folder: Path) -> None:
    """Kernel, fabric and training: the lines before and after a cut are the lines of the whole."""
    write_archive(cluster, folder, cluster.settings.moment(until_ms))
    after, everything = told(cluster, until_ms), told(cluster, -1)
    targets = {"opensm": "fabric/opensm.log"} | {
        f"training/{run.name}": f"training/{run.name}.log" for run in cluster.runs
    }
    for target, path in targets.items():
        lines = lines_in(folder / path) + [entry.text for entry in after.get(target, [])]
        assert lines == [entry.text for entry in everything.get(target, [])], target
    kernel = [line for path in (folder / "kernel").iterdir() for line in lines_in(path)]
    kernel += [entry.text for entry in after.get("kernel", [])]
    assert Counter(kernel) == Counter(entry.text for entry in everything.get("kernel", []))


@settings(max_examples=12)
@given(SIZES, SHARE)
def test_a_cut_anywhere_splits_every_log_in_two(size: tuple[int, int, int], share: float) -> None:
    """Whatever the cluster, whatever the moment."""
    cluster = cluster_of(*size)
    with TemporaryDirectory() as folder:
        check_lines(cluster, int(share * cluster.settings.length_ms), Path(folder))


def test_a_cut_at_the_moment_of_a_line_has_the_line_before_it(tmp_path: Path) -> None:
    """At the edge itself, a millisecond before it and one after it."""
    cluster = cluster_of(8, 3, 5)
    attempt = cluster.runs[0].attempts[0]
    for place, at in enumerate((attempt.last_line_ms, cluster.trace.kernel[3].time_ms, cluster.trace.links[0].down_ms)):
        for beside in (-1, 0, 1):
            check_lines(cluster, at + beside, tmp_path / f"{place}{beside}")
    cut = tmp_path / "00" / "training" / f"{cluster.runs[0].name}.log"
    stamp = f"{cluster.settings.moment(attempt.last_line_ms):%Y-%m-%d %H:%M:%S}"
    assert any(stamp in line for line in lines_in(cut))
    assert not any(stamp in line for line in lines_in(tmp_path / "0-1" / "training" / cut.name))


@settings(max_examples=10)
@given(SIZES, SHARE)
def test_nothing_in_a_cut_archive_is_of_the_future(size: tuple[int, int, int], share: float) -> None:
    """Whatever is decoded from it bears a time up to the cut; what ends later is open."""
    cluster = cluster_of(*size)
    until_ms = int(share * cluster.settings.length_ms)
    until = cluster.settings.moment(until_ms)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_archive(cluster, folder, until)
        found = [e for path in (folder / "kernel").iterdir() for e in events_in(path, "kernel")]
        found += events_in(folder / "fabric" / "opensm.log", "opensm")
        found += [e for path in (folder / "training").iterdir() for e in events_in(path, "training")]
        found += events_in(folder / "jobs.csv", "sacct") + events_in(folder / "outages.csv", "sacctmgr")
        assert all(event.time is None or event.time <= until for event in found)
        open_outages = sum(e.attributes["end"] is None for e in found if e.kind == "outage")
        spans = [(f.start_ms, f.end_ms) for f in cluster.outages] + [(d.start_ms, d.end_ms) for d in cluster.drains]
        assert open_outages == sum(start <= until_ms < end for start, end in spans)
        running = [e for e in found if e.kind == "job" and e.attributes["state"] == "RUNNING"]
        attempts = [a for run in cluster.runs for a in run.attempts]
        assert len(running) == sum(a.start_ms <= until_ms < a.end_ms for a in attempts) <= 1


@pytest.mark.parametrize("until_ms", [0, 1, HOUR_MS - 1, HOUR_MS, DAY_MS - 1, DAY_MS, 2 * DAY_MS + 7 * HOUR_MS + 1])
def test_telemetry_is_cut_at_the_hour(tmp_path: Path, until_ms: int) -> None:
    """The sample of the very moment is in, the next is not; each row is the snapshot's."""
    cluster = cluster_of(8, 3, 5)
    write_telemetry(cluster, tmp_path, until_ms)
    tables = [pq.read_table(path) for path in sorted(tmp_path.iterdir())]
    assert len(tables) == until_ms // DAY_MS + 1
    rows = sum(table.num_rows for table in tables)
    assert rows == sum(int(s.present.sum()) for s in snapshots(cluster, 0, until_ms + 1))
    newest = max(table["time"].to_pylist()[-1] for table in tables)
    assert newest == cluster.settings.moment(until_ms // HOUR_MS * HOUR_MS)


def test_a_cut_after_the_end_is_the_whole(tmp_path: Path) -> None:
    """Nothing happens after the end."""
    cluster = cluster_of(8, 2, 3)
    write_archive(cluster, tmp_path / "whole")
    write_archive(cluster, tmp_path / "after", cluster.settings.moment(9 * DAY_MS))
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert (tmp_path / "after" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()
    assert list(entries(cluster, cluster.settings.moment(cluster.settings.length_ms))) == []


@settings(max_examples=10)
@given(SIZES, SHARE, SHARE)
def test_a_later_cut_only_adds(size: tuple[int, int, int], first: float, second: float) -> None:
    """What was told between two cuts is what the later has more."""
    cluster = cluster_of(*size)
    low, high = sorted(int(share * cluster.settings.length_ms) for share in (first, second))
    early = [(e.time, e.target, e.text) for e in entries(cluster, cluster.settings.moment(low))]
    late = [(e.time, e.target, e.text) for e in entries(cluster, cluster.settings.moment(high))]
    headers = (SACCT_HEADER, EVENT_HEADER)
    edge = cluster.settings.moment(high)
    assert [e for e in early if e[0] > edge and e[2] not in headers] == [e for e in late if e[2] not in headers]
    assert all(a[0] <= b[0] for a, b in pairwise(early))
