"""The archive: complete, the same twice, cut where it is asked to be, and readable by the parsers."""

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from parsers.formats.ibnetdiscover import links
from parsers.registry import PARSERS
from parsers.text.parser import Context, ParseError, parse
from simulator.output.archive import write_archive
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import SimulationSettings
from store.records.event import Event, parse_time
from store.records.hostlist import expand
from store.records.outage import outage_from_event
from store.records.telemetry import COUNTERS, GAUGES


@pytest.fixture(scope="module")
def archive(small: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole archive of the small cluster."""
    folder = tmp_path_factory.mktemp("small") / "archive"
    write_archive(small, folder)
    return folder


def digests(folder: Path) -> dict[str, str]:
    """Every file's content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def decoded(path: Path, name: str) -> list[Event]:
    """A file's events; a line that its parser finds broken fails the test."""
    until = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    context = Context(node=path.stem, run=path.stem, year=2025, until=until)

    def complain(number: int, error: ParseError) -> None:
        raise AssertionError(f"{path.name}:{number}: {error}")

    with path.open("rb") as lines:
        return list(parse(PARSERS[name].make(context), lines, complain))


def rows(path: Path, separator: str) -> Iterator[dict[str, str]]:
    """A table's rows."""
    with path.open(encoding="utf-8") as lines:
        yield from csv.DictReader(lines, delimiter=separator)


def test_every_part_is_there(archive: Path, small: SimulatedCluster) -> None:
    """As DESIGN draws it."""
    names = {str(path.relative_to(archive)) for path in archive.rglob("*")}
    assert {"nodes.csv", "jobs.csv", "outages.csv", "fabric/opensm.log", "fabric/ibnetdiscover.txt"} <= names
    assert {f"training/{run.name}.log" for run in small.runs} <= names
    assert len(list((archive / "telemetry").iterdir())) == small.settings.days
    assert len(list((archive / "kernel").iterdir())) == small.layout.nodes


def test_the_same_seed_writes_the_same_bytes(archive: Path, small: SimulatedCluster, tmp_path: Path) -> None:
    """Every file, telemetry too."""
    write_archive(simulate(small.settings), tmp_path)
    assert digests(tmp_path) == digests(archive)


def test_kernel_lines_parse_to_what_the_trace_holds(archive: Path, small: SimulatedCluster) -> None:
    """Each Xid with its code, GPU, node and time; noise gives nothing."""
    expected = Counter(
        (small.settings.moment(line.time_ms), small.layout.names[line.node], line.xid[1])
        for line in small.trace.kernel
        if line.xid
    )
    found = [event for path in (archive / "kernel").iterdir() for event in decoded(path, "kernel")]
    assert Counter((e.time, e.node, e.code) for e in found if e.kind == "xid") == expected
    assert sum(e.kind == "sxid" for e in found) == sum("SXid" in line.text for line in small.trace.kernel)
    assert all(e.device.pci for e in found if e.kind == "xid")


def test_the_fabric_log_tells_every_loss(archive: Path, small: SimulatedCluster) -> None:
    """A port removed and discovered again, of the right host, at the right moment of the right year."""
    events = decoded(archive / "fabric" / "opensm.log", "opensm")
    removed = Counter((e.time, e.node) for e in events if e.kind == "port_removed" and e.node)
    assert removed == Counter(
        (small.settings.moment(loss.down_ms), small.layout.names[loss.node]) for loss in small.trace.links
    )
    back = sum(loss.up_ms < small.settings.length_ms for loss in small.trace.links)
    assert sum(e.kind == "port_discovered" for e in events) == back


def test_the_topology_names_every_host_once(archive: Path, small: SimulatedCluster) -> None:
    """On the leaf that nodes.csv says."""
    text = (archive / "fabric" / "ibnetdiscover.txt").read_text(encoding="utf-8")
    cables = list(links(text.splitlines()))
    leaves = {str(cable["peer"]): cable["switch"] for cable in cables if cable["peer_type"] == "hca"}
    assert leaves == {row["node"]: row["leaf"] for row in rows(archive / "nodes.csv", ",")}
    assert sum(cable["peer_type"] == "switch" for cable in cables) == 2 * small.layout.leaves * small.layout.spines


def test_training_lines_parse_to_the_steps(archive: Path, small: SimulatedCluster) -> None:
    """As many iterations, saves and loads as were simulated, each with its length."""
    for run in small.runs:
        events = decoded(archive / "training" / f"{run.name}.log", "training")
        kinds = Counter(event.kind for event in events)
        steps = [step for attempt in run.attempts for step in attempt.steps]
        expected = Counter(step.kind for step in steps)
        assert kinds["iteration"] == expected["iteration"]
        assert kinds["checkpoint_save"] == expected["save"]
        assert kinds["checkpoint_save_start"] == expected["save"] + expected["save_unfinished"]
        assert kinds["evaluation"] == expected["evaluation"]
        assert kinds["checkpoint_load"] == sum(attempt.loaded is not None for attempt in run.attempts)
        lines = [event for event in events if event.kind == "iteration"]
        told = [float(str(e.attributes["elapsed_ms"])) * int(str(e.attributes["iterations"])) for e in lines]
        assert told == [step.length_ms for step in steps if step.kind == "iteration"]
        assert [e.time for e in lines] == [small.settings.moment(s.end_ms) for s in steps if s.kind == "iteration"]


def test_jobs_parse_to_the_attempts(archive: Path, small: SimulatedCluster) -> None:
    """One row an attempt, its hosts in Slurm's short form."""
    events = decoded(archive / "jobs.csv", "sacct")
    attempts = [attempt for run in small.runs for attempt in run.attempts]
    assert [event.attributes["job_id"] for event in events] == [str(attempt.job_id) for attempt in attempts]
    for event, attempt in zip(events, attempts, strict=True):
        assert expand(str(event.attributes["node_list"])) == [small.layout.names[node] for node in attempt.nodes]
        assert parse_time(str(event.attributes["end"])) == small.settings.moment(attempt.end_ms)


def test_outages_are_classed_as_they_were_meant(archive: Path, small: SimulatedCluster) -> None:
    """Planned work is planned; a failure is none, and of its class's cause."""
    found = [outage_from_event(event) for event in decoded(archive / "outages.csv", "sacctmgr")]
    unplanned = {(outage.node, outage.start): outage for outage in found if not outage.planned}
    assert len(found) - len(unplanned) == len(small.drains)
    assert len(unplanned) == len(small.outages)
    for failure in small.outages:
        outage = unplanned[small.layout.names[failure.node], small.settings.moment(failure.start_ms)]
        assert outage.cause == ("hardware" if failure.kind.cause == "driver" else failure.kind.cause)


def test_telemetry_has_the_columns_of_dcgm(archive: Path) -> None:
    """Sorted hours, one row a GPU, UTC, no row twice."""
    table = pq.read_table(archive / "telemetry" / "2025-01-02.parquet")
    assert set(table.column_names) == {"time", "node", "gpu", *GAUGES, *COUNTERS}
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
    frame = table.to_pandas()
    assert not frame.duplicated(["time", "node", "gpu"]).any()
    assert frame["time"].is_monotonic_increasing
    assert frame["DCGM_FI_DEV_GPU_TEMP"].between(15, 110).all()


def test_nodes_that_join_later_are_silent_before(archive: Path, small: SimulatedCluster) -> None:
    """No telemetry, no line, no job before `in_service_since`."""
    since = {row["node"]: parse_time(row["in_service_since"]) for row in rows(archive / "nodes.csv", ",")}
    late = {node for node, moment in since.items() if moment > small.settings.start}
    assert late
    for node in late:
        assert all(
            event.time and event.time >= since[node] for event in decoded(archive / "kernel" / f"{node}.log", "kernel")
        )
    first = pq.read_table(archive / "telemetry" / "2025-01-01.parquet", columns=["node"]).to_pandas()
    assert not set(first["node"]) & late


def test_until_cuts_every_part(small: SimulatedCluster, archive: Path, tmp_path: Path) -> None:
    """Only what had been written by then; what runs is running, what is out is out."""
    attempt = next(a for run in small.runs for a in run.attempts if a.end_ms - a.start_ms > 7_200_000)
    until = small.settings.moment(attempt.start_ms + 3_600_000)
    write_archive(small, tmp_path, until)
    job = next(row for row in rows(tmp_path / "jobs.csv", "|") if row["JobID"] == str(attempt.job_id))
    assert (job["State"], job["End"], job["Elapsed"]) == ("RUNNING", "Unknown", "01:00:00")
    for path in (tmp_path / "kernel").iterdir():
        whole = (archive / "kernel" / path.name).read_text(encoding="utf-8")
        assert whole.startswith(path.read_text(encoding="utf-8"))
        assert all(event.time and event.time <= until for event in decoded(path, "kernel"))
    last = max((tmp_path / "telemetry").iterdir())
    newest = pq.read_table(last, columns=["time"]).to_pandas()["time"].max()
    assert until - timedelta(hours=1) < newest <= until


def test_an_open_outage_is_unknown_at_its_end(small: SimulatedCluster, tmp_path: Path) -> None:
    """As sacctmgr prints it."""
    failure = small.outages[0]
    write_archive(small, tmp_path, small.settings.moment(failure.start_ms + 1000))
    row = [r for r in rows(tmp_path / "outages.csv", "|") if r["NodeName"] == small.layout.names[failure.node]][-1]
    assert row["TimeEnd"] == "Unknown"


def test_a_cut_before_the_beginning_is_an_empty_archive(small: SimulatedCluster, tmp_path: Path) -> None:
    """Headers and the first sample, no job, no outage."""
    write_archive(small, tmp_path, datetime(2020, 1, 1, tzinfo=UTC))
    assert not list(rows(tmp_path / "jobs.csv", "|"))
    assert not list(rows(tmp_path / "outages.csv", "|"))
    assert not list((tmp_path / "training").iterdir())


def test_another_start_moves_every_time(tmp_path: Path) -> None:
    """The opensm log's file bears the year that its lines do not."""
    settings = SimulationSettings(nodes=8, days=2, seed=1, start=datetime(2023, 5, 1, tzinfo=UTC))
    write_archive(simulate(settings), tmp_path)
    stamp = datetime.fromtimestamp((tmp_path / "fabric" / "opensm.log").stat().st_mtime, UTC)
    assert stamp.year == 2023
    assert (tmp_path / "telemetry" / "2023-05-02.parquet").is_file()
