"""The oracle's figures against scikit-learn's and against a count by hand, on its own scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from simulated import cluster_of
from sklearn.metrics import average_precision_score, roc_auc_score

from simulator.faults.hazard import Availability
from simulator.output.truth import HORIZONS_H, TOPS, _lead_cdf, hidden_scores, oracle, rank
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS, HOUR_MS


@pytest.mark.parametrize("horizon_h", HORIZONS_H)
def test_the_figures_are_scikit_learns_on_the_same_rows(large: SimulatedCluster, horizon_h: int) -> None:
    """ROC-AUC, average precision, lift and prevalence of the whole archive."""
    scores, labels, _ = (np.array(column) for column in hidden_scores(large, horizon_h))
    told = oracle(large)["horizons"][str(horizon_h)]
    assert told["rows"] == len(scores)
    assert told["positives"] == int(labels.sum())
    assert told["prevalence"] == pytest.approx(labels.mean())
    assert told["roc_auc"] == pytest.approx(roc_auc_score(labels, scores))
    assert told["average_precision"] == pytest.approx(average_precision_score(labels, scores))
    assert told["lift"] == pytest.approx(told["average_precision"] / labels.mean())


@given(
    some.lists(
        some.tuples(some.integers(0, 3), some.floats(0, 1, width=16), some.booleans()), min_size=2, max_size=80
    ).filter(lambda rows: 0 < sum(row[2] for row in rows) < len(rows))
)
def test_recall_at_the_top_is_what_a_person_would_count(rows: list[tuple[int, float, bool]]) -> None:
    """At each moment the best so many of its rows, never less than one; found over all that there were."""
    groups, scores, labels = (np.array(column) for column in zip(*rows, strict=True))
    told = rank(scores.astype(float), labels, groups).recall_at_top
    for top in TOPS:
        found = 0
        for group in set(groups.tolist()):
            mine = [row for row in rows if row[0] == group]
            mine.sort(key=lambda row: -row[1])
            found += sum(row[2] for row in mine[: max(1, round(top * len(mine)))])
        assert told[str(top)] == pytest.approx(found / sum(row[2] for row in rows))


@pytest.mark.parametrize("horizon_h", HORIZONS_H)
def test_a_label_is_an_outage_that_begins_within_the_horizon(horizon_h: int) -> None:
    """Counted by hand for each node that is in service at midnight, and for no other."""
    cluster = cluster_of(33, 25, 7)
    availability = Availability(cluster.layout, cluster.outages)
    for drain in cluster.drains:
        availability.add(drain)
    _, labels, moments = hidden_scores(cluster, horizon_h)
    expected = []
    for now in sorted(set(moments)):
        assert now % DAY_MS == 0
        for node in range(33):
            if availability.usable(node, now):
                starts = [f.start_ms for f in cluster.outages if f.node == node]
                expected.append(any(now < start <= now + horizon_h * HOUR_MS for start in starts))
    assert labels == expected
    assert any(labels)


def test_a_longer_horizon_is_never_less_likely(large: SimulatedCluster) -> None:
    """For the same node and moment."""
    day, _, at = hidden_scores(large, 24)
    week, _, later = hidden_scores(large, 168)
    short = np.array(day)[np.isin(at, later)]
    assert len(short) == len(week)
    assert (np.array(week) >= short - 1e-12).all()


def test_a_lead_time_has_its_median_at_one_half(large: SimulatedCluster) -> None:
    """Half of a class's precursors last no longer than its median; the share rises with the hours."""
    failure = next(f for f in large.outages if f.visible)
    median_h, _ = failure.kind.lead_h
    assert _lead_cdf(failure, median_h) == pytest.approx(0.5)
    shares = [_lead_cdf(failure, hours) for hours in (0, 1, 10, 100, 1000)]
    assert shares == sorted(shares)
    assert shares[0] < 1e-6
    assert shares[-1] > 0.95


def test_an_archive_without_an_outage_has_no_figures() -> None:
    """None, not nought."""
    told = oracle(cluster_of(8, 2, 2, 0.001))["horizons"]["24"]
    assert told["positives"] == 0
    assert told["roc_auc"] is told["average_precision"] is told["lift"] is None
    assert set(told["recall_at_top"].values()) == {None}
    assert told["rows"] > 0


def test_an_archive_shorter_than_the_horizon_has_no_rows() -> None:
    """A week cannot be judged in two days."""
    told = oracle(cluster_of(8, 2, 2, 0.001))["horizons"]["168"]
    assert (told["rows"], told["prevalence"]) == (0, None)
