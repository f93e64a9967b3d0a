"""The replay tells the same as the archive, at the moments at which it happened."""

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from parsers.pages import devices_of
from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from simulator.output.archive import entries, exposition, write_archive
from simulator.output.slurm import EVENT_HEADER, SACCT_HEADER
from simulator.output.telemetry import present, snapshots
from simulator.simulation import SimulatedCluster
from simulator.site import GPUS

BEFORE = timedelta(microseconds=1)


@pytest.fixture(scope="module")
def told(small: SimulatedCluster) -> dict[str, list[str]]:
    """Everything that is told live, by target."""
    found: dict[str, list[str]] = defaultdict(list)
    for entry in entries(small, small.settings.start - BEFORE):
        found[entry.target].append(entry.text)
    return found


def test_entries_come_in_time_order(small: SimulatedCluster) -> None:
    """And none from before `since`."""
    since = small.settings.moment(small.settings.length_ms // 2)
    times = [entry.time for entry in entries(small, since)]
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] > since
    assert times[-1] <= small.settings.moment(small.settings.length_ms)


def test_entries_are_the_archives_lines(small: SimulatedCluster, told: dict[str, list[str]], tmp_path: Path) -> None:
    """Kernel, fabric and training: the very lines, each once."""
    write_archive(small, tmp_path)
    kernel = [line for path in (tmp_path / "kernel").iterdir() for line in path.read_text("utf-8").splitlines()]
    assert sorted(told["kernel"]) == sorted(kernel)
    assert told["opensm"] == (tmp_path / "fabric" / "opensm.log").read_text("utf-8").splitlines()
    for run in small.runs:
        assert (
            told[f"training/{run.name}"] == (tmp_path / "training" / f"{run.name}.log").read_text("utf-8").splitlines()
        )
    assert set((tmp_path / "jobs.csv").read_text("utf-8").splitlines()) <= set(told["sacct"])
    assert set((tmp_path / "outages.csv").read_text("utf-8").splitlines()) <= set(told["sacctmgr"])


def test_a_cut_archive_and_the_entries_after_it_make_the_whole(
    small: SimulatedCluster, told: dict[str, list[str]], tmp_path: Path
) -> None:
    """No line is lost or told twice at the seam."""
    until = small.settings.moment(small.settings.length_ms * 3 // 5)
    write_archive(small, tmp_path, until)
    after = [entry for entry in entries(small, until) if entry.target == "kernel"]
    before = [line for path in (tmp_path / "kernel").iterdir() for line in path.read_text("utf-8").splitlines()]
    assert sorted(before + [entry.text for entry in after]) == sorted(told["kernel"])


def test_scheduler_rows_begin_with_their_header(told: dict[str, list[str]]) -> None:
    """So that a file that grows by them is a table."""
    assert told["sacct"][0] == SACCT_HEADER
    assert told["sacctmgr"][0] == EVENT_HEADER
    assert told["sacct"].count(SACCT_HEADER) == 1


def test_a_job_is_told_at_its_submit_its_start_and_its_end(small: SimulatedCluster, told: dict[str, list[str]]) -> None:
    """Pending, running, and what became of it."""
    attempt = small.runs[0].attempts[0]
    states = [row.split("|")[2] for row in told["sacct"] if row.startswith(f"{attempt.job_id}|")]
    assert states == ["PENDING", "RUNNING", attempt.state]


def test_the_exposition_is_what_telemetry_says(small: SimulatedCluster) -> None:
    """Every GPU that can be sampled, with the archive's values, by the project's own parser."""
    moment_ms = 10 * 86_400_000
    moment = small.settings.moment(moment_ms)
    found = devices_of(exposition(small, moment), Context())
    assert len(found) == int(present(small, moment_ms).sum())
    snapshot = next(snapshots(small, moment_ms, moment_ms + 1))
    names = list(small.layout.names)
    for sample in found:
        assert sample.time == moment
        values = snapshot.values[names.index(sample.node), sample.gpu]
        assert sample.values["gpu_temp_c"] == values[0]
        assert sample.values["ecc_sbe"] == values[5]


def test_a_gpu_off_the_bus_is_in_no_exposition(small: SimulatedCluster) -> None:
    """Its rows vanish until the repair, those of its neighbours stay."""
    failure = next(f for f in small.outages if f.kind.name == "off_bus")
    here = present(small, failure.fault_ms + 1)
    assert not here[failure.node, failure.gpu]
    assert here[failure.node].sum() >= GPUS - 2 or not here[failure.node].any()


def test_every_line_is_readable_line_by_line(small: SimulatedCluster, told: dict[str, list[str]]) -> None:
    """As the sidecar reads them: no parser finds one broken."""
    broken: list[str] = []
    for target, lines in told.items():
        parser = PARSERS[target.split("/")[0]].make(Context(year=2025, run="r"))
        events = list(parse(parser, lines, lambda number, error: broken.append(f"{number}: {error}")))
        assert events, target
    assert not broken


def test_counters_only_rise_between_resets(small: SimulatedCluster) -> None:
    """Hour by hour, unless the node was repaired in between."""
    before = None
    resets = {(time_ms // 3_600_000, node) for time_ms, node in small.trace.resets}
    for snapshot in snapshots(small, 0, 5 * 86_400_000):
        if before is not None:
            fell = np.argwhere((snapshot.values[..., 5:14] < before[..., 5:14]).any(axis=(1, 2))).ravel()
            hour = snapshot.time_ms // 3_600_000
            assert all((hour - 1, int(node)) in resets or (hour, int(node)) in resets for node in fell)
        before = snapshot.values
