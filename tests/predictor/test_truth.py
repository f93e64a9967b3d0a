"""A backtest beside a simulated cluster's truth."""

import json
from pathlib import Path
from typing import Any

import pytest
from fleet_store import START
from judged_rows import judged
from simulated import cluster_of

from predictor.evaluate.truth import TruthError, against_truth, read_truth
from predictor.history.arrays import from_ms, to_ms
from predictor.model.skill import Judged
from simulator.output.truth import write_truth
from store.records.event import format_time

NAMES = tuple(f"n{i}" for i in range(20))
REPORT = {"horizon_h": 24, "average_precision": 0.1, "lift": 10.0}
ORACLE = {"horizons": {"24": {"average_precision": 0.4, "lift": 20.0, "roc_auc": 0.9}}}


def moved(found: Judged) -> Judged:
    """The same rows, from START on."""
    begin = to_ms(START)
    labels = found.labels
    starts = type(labels)(labels.at_risk, labels.known, labels.positive, labels.next_start_ms + begin)
    return Judged(found.time_ms + begin, found.node, found.scores, starts)


def write(directory: Path, outages: list[dict[str, Any]], oracle: object = ORACLE) -> Path:
    """A truth folder."""
    (directory / "outages.json").write_text(json.dumps(outages))
    (directory / "oracle.json").write_text(json.dumps(oracle))
    return directory


def outage(node: str, at_h: float, kind: str, warning_h: float | None = None) -> dict[str, Any]:
    """An outage, in hours from START."""
    first = to_ms(START)
    start, warning = (
        None if h is None else format_time(from_ms(first + int(h * 3_600_000))) for h in (at_h, warning_h)
    )
    return {"node": node, "start": start, "class": kind, "visible": warning is not None, "warning": warning}


def test_failures_are_told_by_class_and_by_precursor(tmp_path: Path) -> None:
    """Half of the memory faults had a precursor: the class is predictable; hosts' is not, whatever they had."""
    scores = [[9.0, *[1.0] * 18, 2.0], [1.0] * 18 + [8.0, 9.0], [9.0] + [1.0] * 19]
    hits = [[1] + [0] * 19, [0] * 18 + [1, 0], [0, 1] + [0] * 18]
    # Half a second off: the archive tells seconds.
    outages = [outage("n0", 12.0001, "hbm", 2.0), outage("n18", 36, "hbm"), outage("n1", 60, "host", 40)]
    truth = read_truth(write(tmp_path, [*outages, outage("elsewhere", 1, "host")]), NAMES)
    found = against_truth(moved(judged(scores, hits)), truth, REPORT)
    assert found["unmatched_rows"] == 0
    assert found["predictable"]["classes"] == ["hbm"]
    assert found["classes"]["hbm"]["share_with_precursor"] == 0.5
    # One place a moment: n0 has it on the first day; n18 stands behind n19 on the second.
    assert found["predictable"]["recall_at_top"]["0.05"] == 0.5
    assert (found["predictable"]["outages"], found["predictable"]["foreseen"]) == (2, 0.5)
    assert (found["with_precursor"]["outages"], found["with_precursor"]["foreseen"]) == (2, 0.5)
    # The memory's began two hours after the moment, the host's eight hours before it.
    assert (found["precursor_begun"]["rows"], found["precursor_begun"]["foreseen"]) == (1, 0.0)
    assert found["classes"]["host"]["recall_at_top"]["0.05"] == 0.0
    assert found["oracle"]["average_precision_ratio"] == pytest.approx(0.25)
    assert found["oracle"]["lift_ratio"] == pytest.approx(0.5)


def test_outages_that_the_truth_does_not_know_are_counted(tmp_path: Path) -> None:
    """Of another cluster, say: no figure is made up; and no oracle for a horizon that it was not asked for."""
    hits = [[1] + [0] * 19]
    truth = read_truth(write(tmp_path, [outage("n0", 14, "hbm", 1.0), outage("n1", 12, "hbm", 1.0)]), NAMES)
    found = against_truth(moved(judged([[1.0] * 20], hits)), truth, {**REPORT, "horizon_h": 72})
    assert found["unmatched_rows"] == 1
    assert found["predictable"]["recall_at_top"]["0.01"] is None
    assert found["oracle"] is None
    empty = read_truth(write(tmp_path, []), NAMES)
    assert against_truth(moved(judged([[1.0] * 20], hits)), empty, REPORT)["unmatched_rows"] == 1


def test_what_the_simulator_writes_can_be_read(tmp_path: Path) -> None:
    """Every outage, in order of node and time."""
    cluster = cluster_of(17, 6, 3)
    write_truth(cluster, tmp_path)
    truth = read_truth(tmp_path, cluster.layout.names)
    assert len(truth.kind) == len(cluster.outages) > 5
    assert (truth.node >= 0).all()
    assert (truth.visible == (truth.warning_ms < 2**62)).all()
    assert set(truth.oracle) == {"24", "168"}


@pytest.mark.parametrize(
    ("outages", "oracle", "said"),
    [(None, None, "outages.json"), ([{"node": "n0"}], ORACLE, "no truth"), ([], {"a": 1}, "no truth")],
)
def test_what_is_no_truth_is_refused(tmp_path: Path, outages: Any, oracle: object, said: str) -> None:
    """Naming the file or the folder."""
    if outages is not None:
        write(tmp_path, outages, oracle)
    with pytest.raises(TruthError, match=said):
        read_truth(tmp_path, NAMES)
