"""The oracle: better than any model may be, and not all-knowing."""

from pathlib import Path

import numpy as np
import orjson

from simulator.output.truth import hidden_scores, oracle, rank, write_truth
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, HOUR_MS


def test_the_oracle_ranks_well_and_not_perfectly(large: SimulatedCluster) -> None:
    """FIELD A3: a model near 0.95 or above would be a leak; the ceiling itself is in that region."""
    for figures in oracle(large)["horizons"].values():
        assert 0.85 < figures["roc_auc"] < 0.985
        assert figures["lift"] > 5
        assert figures["recall_at_top"]["0.01"] < figures["recall_at_top"]["0.05"] < 0.95


def test_scores_are_probabilities_of_about_the_right_size(large: SimulatedCluster) -> None:
    """Their sum is near the number of positives."""
    for horizon_h in (24, 168):
        scores, labels, moments = hidden_scores(large, horizon_h)
        assert 0 <= min(scores) <= max(scores) <= 1
        assert 0.4 < sum(scores) / sum(labels) < 2.5
        assert len(scores) == len(labels) == len(moments)


def test_only_moments_whose_horizon_is_over_count(large: SimulatedCluster) -> None:
    """What the archive does not hold is unknown, not negative."""
    _, _, moments = hidden_scores(large, 168)
    assert max(moments) <= large.settings.length_ms - 7 * DAY_MS


def test_a_running_precursor_raises_the_score(large: SimulatedCluster) -> None:
    """The day before a visible failure its node is among the highest."""
    scores, _, moments = (np.array(column) for column in hidden_scores(large, 24))
    failure = next(f for f in large.outages if f.visible and f.fault_ms - f.warning_ms > 3 * DAY_MS < f.fault_ms / 4)
    day = failure.fault_ms // DAY_MS * DAY_MS
    assert scores[moments == day].max() > 10 * np.median(scores[moments == day])


def test_the_truth_is_written_in_four_files(small: SimulatedCluster, tmp_path: Path) -> None:
    """Outages, goodput, oracle, parameters."""
    write_truth(small, tmp_path / "truth")
    parts = {path.stem: orjson.loads(path.read_bytes()) for path in (tmp_path / "truth").iterdir()}
    assert set(parts) == {"outages", "goodput", "oracle", "parameters"}
    assert [outage["class"] for outage in parts["outages"]] == [failure.kind.name for failure in small.outages]
    assert {"node", "start", "end", "class", "visible"} <= set(parts["outages"][0])
    assert all((outage["warning"] is None) != outage["visible"] for outage in parts["outages"])
    assert parts["parameters"]["settings"]["seed"] == small.settings.seed
    assert parts["parameters"]["parameters"]["frailty_shape"]["source"].startswith("D6")


def test_the_goodput_of_the_truth_has_the_ledgers_shape(small: SimulatedCluster, tmp_path: Path) -> None:
    """DESIGN section 3; the buckets sum to the wall time."""
    write_truth(small, tmp_path)
    for run in orjson.loads((tmp_path / "goodput.json").read_bytes()):
        assert run["gpus"] == 8 * run["nodes"]
        assert round(sum(run["buckets"].values()) * 1000) == round(run["wall_s"] * 1000)
        assert run["goodput"] == run["buckets"]["productive"] / run["wall_s"]
        for cut in run["interruptions"]:
            assert cut["lost_s"] > 0
            assert cut["culprit"]["node"]


def test_counting_past_outages_ranks_as_published(large: SimulatedCluster) -> None:
    """FIELD A1 and D7: history alone reaches about 0.8, hard to beat; near 0.95 would be an artefact."""
    starts: dict[int, list[int]] = {}
    for failure in large.outages:
        starts.setdefault(failure.node, []).append(failure.start_ms)
    for horizon_h in (24, 168):
        scores, labels, moments = [], [], []
        for day in range(large.settings.days // 2, large.settings.days - horizon_h // 24):
            now = day * DAY_MS
            for node in range(large.layout.nodes):
                mine = starts.get(node, [])
                scores.append(float(sum(0.98 ** ((now - start) / DAY_MS) for start in mine if start < now)))
                labels.append(any(now < start <= now + horizon_h * HOUR_MS for start in mine))
                moments.append(now)
        found = rank(np.array(scores), np.array(labels), np.array(moments))
        assert 0.65 < (found.roc_auc or 0.0) < 0.9
