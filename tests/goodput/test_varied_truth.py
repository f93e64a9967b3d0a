"""The ledger of runs that save, wait, shrink, overlap and lose records in many ways, against the simulator's truth.

Where every record of a run is there, each bucket equals the truth; where some are missing, the truth lies within the
bounds that the ledger states.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cli.main import foreshock
from goodput.ledger import Ledger
from goodput.reading.ledgers import read_ledgers
from goodput.timeline import BUCKETS
from simulator.output.archive import write_archive
from simulator.output.truth import goodput
from simulator.simulation import simulate
from simulator.site import SimulationSettings
from simulator.training.attempt import SimulatedRun

SEEDS = (2, 3, 14, 36)


@dataclass(frozen=True)
class Pair:
    """A run as it was, and its ledger."""

    run: SimulatedRun
    truth: dict[str, Any]
    ours: Ledger

    @property
    def overlaps(self) -> bool:
        """Whether an attempt began before the one before it had ended."""
        attempts = self.run.attempts
        return any(after.start_ms < before.end_ms for before, after in pairwise(attempts))

    @property
    def whole(self) -> bool:
        """Whether every record of it is there, and nothing overlaps."""
        return not self.overlaps and not any(attempt.hidden for attempt in self.run.attempts)


def _pairs(seed: int, folder: Path) -> Iterator[Pair]:
    cluster = simulate(SimulationSettings(24, 30, seed, rate_per_1000_node_days=20.0, training="varied"))
    write_archive(cluster, folder / "archive")
    shutil.rmtree(folder / "archive" / "telemetry")  # says nothing of runs
    url = f"sqlite:///{folder / 'foreshock.db'}"
    result = CliRunner().invoke(foreshock, ["ingest", str(folder / "archive"), "--db", url])
    assert result.exit_code == 0, result.output
    with sa.create_engine(url).connect() as connection:
        ledgers = {ledger.run: ledger for ledger in read_ledgers(connection)}
    truth = {told["run"]: told for told in json.loads(json.dumps(goodput(cluster)))}
    for run in cluster.runs:
        yield Pair(run, truth[run.name], ledgers[run.name])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """Two runs of each seed."""
    return [pair for seed in SEEDS for pair in _pairs(seed, tmp_path_factory.mktemp(f"seed{seed}"))]


def test_there_is_some_of_everything(pairs: list[Pair]) -> None:
    """Otherwise the tests below prove little."""
    attempts = [attempt for pair in pairs for attempt in pair.run.attempts]
    kinds = {step.kind for attempt in attempts for step in attempt.steps}
    assert kinds >= {"save", "save_async", "save_memory", "save_unfinished", "evaluation"}
    assert {attempt.hidden for attempt in attempts} == {"", "log", "job"}
    assert any(pair.overlaps for pair in pairs)
    assert any(len({len(attempt.nodes) for attempt in pair.run.attempts}) > 1 for pair in pairs)
    assert sum(pair.whole for pair in pairs) >= 3
    assert any(pair.ours.unfinished_saves for pair in pairs)


def test_where_all_is_told_every_bucket_equals_the_truth(pairs: list[Pair]) -> None:
    """Within a second; the bounds then leave no more open than how a node that vanished spent its last minutes."""
    for pair in pairs:
        if pair.whole:
            ours = {bucket: length / 1000 for bucket, length in pair.ours.buckets_ms.items()}
            assert ours == pytest.approx(pair.truth["buckets"], abs=1.0), pair.run.name
            least, most = pair.ours.bounds_ms["productive"]
            assert least == most == pair.ours.buckets_ms["productive"]


def test_the_truth_lies_within_the_bounds(pairs: list[Pair]) -> None:
    """Whatever is missing; wall time is known all the same."""
    for pair in pairs:
        assert pair.ours.wall_ms / 1000 == pair.truth["wall_s"]
        for bucket, (least, most) in pair.ours.bounds_ms.items():
            assert least <= round(1000 * pair.truth["buckets"][bucket]) <= most, (pair.run.name, bucket)
            assert least <= pair.ours.buckets_ms[bucket] <= most


def test_gpu_time_follows_every_change_of_size(pairs: list[Pair]) -> None:
    """Of runs whose jobs are all known; overlapping attempts hold their GPUs each."""
    compared = 0
    for pair in pairs:
        if any(attempt.hidden == "job" for attempt in pair.run.attempts):
            assert pair.ours.gpu_ms is None
            continue
        assert pair.ours.gpu_ms is not None
        truth = {bucket: round(hours * 3_600_000) for bucket, hours in pair.truth["gpu_hours"].items()}
        assert sum(pair.ours.gpu_ms.values()) == sum(truth.values())
        if not any(attempt.hidden for attempt in pair.run.attempts):
            compared += 1
            size = max(len(attempt.nodes) for attempt in pair.run.attempts) * 8
            # What a save in the background stalled is told when it ends: of one that never does nobody knows it.
            untold_ms = 1000 + 6000 * len(pair.ours.unfinished_saves)
            assert pair.ours.gpu_ms == pytest.approx(truth, abs=untold_ms * size)
    assert compared >= 3


def test_the_parts_of_the_startup_sum_to_it(pairs: list[Pair]) -> None:
    """Launch, build and the first line's excess, for every attempt that iterated; stragglers are named."""
    for pair in pairs:
        if pair.whole:
            parts = pair.ours.details["startup"]
            assert sum(parts.values()) == pytest.approx(pair.truth["buckets"]["startup"], abs=1.0)
            assert set(parts) <= {"launch", "build", "first_iteration"}
            assert "stragglers" in pair.ours.details or not pair.truth["buckets"]["degraded"]
    assert set(pairs[0].ours.buckets_ms) == set(BUCKETS)
