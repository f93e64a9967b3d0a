"""The reference for disks: its features look back only, its figures are those of plain counting."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import drives_reference
from benchmarks.drives_reference import Drives, days, figures, reference


def archive(folder: Path, late: int) -> Path:
    """Two drives over four months; `late` is what one of them says on the day of the landmark and after."""
    (folder / "telemetry").mkdir(parents=True)
    nodes = "node,gpu_model,gpus,in_service_since,in_service_until\na,X,1,2014-01-01,2014-04-10\nb,Y,1,2014-01-01,\n"
    (folder / "nodes.csv").write_text(nodes)
    outages = "NodeName|TimeStart|TimeEnd|State|Reason|User\na|2014-04-10T00:00:00||DOWN|drive failed|root\n"
    (folder / "outages.csv").write_text(outages)
    rows = [("2014-01-01", "a", 0), ("2014-03-20", "a", 5), ("2014-04-01", "a", late), ("2014-04-05", "a", late)]
    rows += [("2014-01-01", "b", 1), ("2014-04-02", "b", late)]
    frame = pd.DataFrame(rows, columns=["time", "node", "smart_187"])
    frame["time"] = pd.to_datetime(frame["time"], utc=True).astype("datetime64[ms, UTC]")
    frame.to_parquet(folder / "telemetry" / "2014.parquet")
    return folder


def test_features_say_what_stood_before_the_landmark(tmp_path: Path) -> None:
    """What comes on its day or later changes nothing; the drive that fails within 30 days is positive."""
    day = int(days(pd.Series(["2014-04-01"])).iloc[0])
    node, fails, values = Drives(archive(tmp_path / "one", 7)).landmark(day)
    assert node.tolist() == [0, 1]
    assert fails.tolist() == [True, False]
    assert values[:, 0].tolist() == [5, 1]
    # Risen by 5 in 30 days, once, 12 days ago.
    assert values[0, [2, 4, 5]].tolist() == [5, 1, 12]
    np.testing.assert_array_equal(values, Drives(archive(tmp_path / "other", 900)).landmark(day)[2])


def test_recall_is_counted_up_to_one_false_alarm_in_a_hundred() -> None:
    """Of four failures two stand above the second of two hundred others."""
    scores = np.concatenate([[10.0, 9.0, 3.0, 2.0], [9.5, 8.0], np.full(198, 5.0)])
    fails = np.arange(204) < 4
    precision, recall = figures(fails, scores, np.ones(204))
    assert recall == pytest.approx(0.5)
    assert 0.4 < precision < 0.45


def test_nothing_is_learned_whose_answer_was_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Landmarks of 30 days and less before are left out; those judged are asked in order, each with its age in days."""
    values = {day: np.full((2, 1), day, dtype=np.float32) for day in (0, 31, 61, 92)}
    parts = {day: (np.arange(2), np.array([True, False]), one) for day, one in values.items()}
    given: list[tuple[list[float], list[float], list[float]]] = []

    def boosted(learned: np.ndarray, _fails: np.ndarray, age_d: np.ndarray, asked: np.ndarray) -> np.ndarray:
        given.append((learned[:, 0].tolist(), age_d.tolist(), asked[:, 0].tolist()))
        return asked[:, 0].astype(np.float64)

    monkeypatch.setattr(drives_reference, "boosted", boosted)
    assert reference(parts, [61, 92], 61).tolist() == [61, 61, 92, 92]
    reference(parts, [92], 92)
    assert given == [([0, 0], [61, 61], [61, 61, 92, 92]), ([0, 0, 31, 31, 61, 61], [92, 92, 61, 61, 31, 31], [92, 92])]
