"""The demo's real node: its values are the tape's to the digit, its times the replay's, its licence on the way."""

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pyarrow.parquet as pq
import pytest
from real.patience import patience

from cli.replay import tape as tapes
from cli.replay.clock import ReplayClock
from cli.replay.exporter import LEAD, TAIL, exporter, tape_page
from cli.replay.tape import BEFORE_FAULT, CREDIT, NODE, ReplayTape, read_tape
from parsers.pages import devices_of
from parsers.text.parser import Context
from simulator.output.archive import write_archive
from simulator.simulation import simulate
from simulator.site import SimulationSettings
from store.records.telemetry import Sample

START = datetime(2026, 11, 20, 3, 7, 33, tzinfo=UTC)
FAULT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)  # the step in which the replay's ninth hour ends
ORIGIN = Path(__file__).parents[2] / "fixtures/real/gwdg/tapes/ggpu142_2025-03-15_unknown-error-possibly-nongpu"


@pytest.fixture(scope="module")
def tape() -> ReplayTape:
    """The tape as the demo reads it."""
    return read_tape(START)


def gpus_at(tape: ReplayTape, moment: datetime) -> list[Sample]:
    """What the product reads of the GPUs on the page of a moment."""
    page = tape.exposition(moment)
    return [one for one in devices_of(page, Context(node=NODE, until=moment)) if one.type == "gpu"]


def test_the_xid_comes_nine_hours_into_the_replay_and_not_before(tape: ReplayTape) -> None:
    """On all four GPUs, as it was."""
    assert FAULT <= START + BEFORE_FAULT < FAULT + tapes.STEP
    before, after = gpus_at(tape, FAULT - timedelta(seconds=1)), gpus_at(tape, FAULT)
    assert [(one.node, one.gpu, one.values["xid_last"]) for one in before] == [(NODE, gpu, 0.0) for gpu in range(4)]
    assert [one.values["xid_last"] for one in after] == [79.0] * 4
    assert {one.time for one in after} == {FAULT}


def test_two_days_later_the_system_is_silent_and_its_bmc_answers(tape: ReplayTape) -> None:
    """Then it has booted, at a time of the replay."""
    silent = FAULT + timedelta(days=2) - timedelta(minutes=20)
    assert gpus_at(tape, silent - timedelta(seconds=1))
    assert gpus_at(tape, silent) == []
    page = tape.exposition(silent)
    assert "ipmi_up 1.0" in page
    assert "node_" not in page
    back = silent + timedelta(minutes=100)
    assert len(gpus_at(tape, back)) == 4
    line = next(line for line in tape.exposition(back).splitlines() if line.startswith("node_boot_time_seconds"))
    booted = datetime.fromtimestamp(float(line.split()[1]), UTC)
    assert silent < booted < back


def test_outside_the_tape_the_page_is_empty(tape: ReplayTape) -> None:
    """Before it and after it; no replay is that long."""
    assert tape.exposition(tape.moments[0] - timedelta(seconds=1)) == ""
    assert tape.exposition(tape.moments[-1] + tapes.STEP) == ""
    assert tape.moments[-1] >= START + LEAD + TAIL


def test_values_are_those_of_the_tape(tape: ReplayTape) -> None:
    """Every figure of one moment, against the file; what Prometheus added is no exporter's."""
    moment = FAULT + timedelta(hours=1)
    origin = pq.read_table(ORIGIN / "telemetry/gpu.parquet").to_pylist()
    there = datetime(2025, 3, 15, 14, 50, tzinfo=UTC)
    found = {
        (name, row["gpu"]): row[name]
        for row in origin
        if row["time"] == there
        for name in row
        if name.startswith("DCGM") and row[name] is not None
    }
    page = [line for line in tape.exposition(moment).splitlines() if line.startswith("DCGM")]
    read = {(line.split("{")[0], int(line.split('"')[1])): float(line.split()[-2]) for line in page}
    assert read == {key: value for key, value in found.items() if value == value}
    assert len(read) > 30
    assert "scrape_samples" not in tape.exposition(moment)


def test_the_exporter_serves_its_page_beside_the_cluster_s(tape: ReplayTape) -> None:
    """Each node on its own page."""
    cluster = simulate(SimulationSettings(nodes=8, days=3, seed=3))
    clock = ReplayClock(FAULT, FAULT, epoch=START, speed=1.0)
    with exporter(cluster, clock, tape) as url:
        own = httpx2.get(tape_page(url), timeout=patience(5)).text
        others = httpx2.get(url, timeout=patience(5)).text
    assert own == tape.exposition(FAULT)
    assert NODE not in others


def test_the_history_goes_into_the_archive_up_to_the_start(tape: ReplayTape, tmp_path: Path) -> None:
    """A row in nodes.csv, and telemetry of both kinds that ends where the replay begins."""
    write_archive(simulate(SimulationSettings(nodes=8, days=2, seed=3)), tmp_path)
    tape.write_history(tmp_path, START)
    with (tmp_path / "nodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert (rows[-1]["node"], rows[-1]["gpus"], rows[-1]["gpu_model"]) == (NODE, "4", "NVIDIA A100-SXM4-80GB")
    for name in ("gpu", "host"):
        table = pq.read_table(tmp_path / "telemetry" / f"{NODE}-{name}.parquet")
        assert set(table["node"].to_pylist()) == {NODE}
        assert START - tapes.STEP < max(table["time"].to_pylist()) <= START
        assert table.num_rows > 1000


def test_the_tape_lies_in_the_repository_once_and_in_the_package_with_its_licence() -> None:
    """Links to the fixture: the build follows them."""
    folder = Path(tapes.__file__).parent / "gwdg"
    names = {path.name for path in folder.iterdir()}
    assert names == {"gpu.parquet", "host.parquet", "nodes.csv", "LICENSE", "CITATION.cff"}
    assert all(path.is_symlink() and path.resolve().is_relative_to(ORIGIN.parents[1]) for path in folder.iterdir())
    assert "Attribution 4.0 International" in (folder / "LICENSE").read_text(encoding="utf-8")
    for words in ("GWDG GPU Node Telemetry", "10.5281/zenodo.19052367", "CC-BY-4.0"):
        assert words in CREDIT
