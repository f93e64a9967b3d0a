"""Is the simulated cluster as hard to foretell as the published ones? A quick model on what the logs hold.

FIELD D7: signs alone near ROC-AUC 0.60-0.75, with history 0.80-0.85, and never 0.95 or above: that would be a leak.
"""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from simulator.faults.hazard import Availability
from simulator.output.truth import rank
from simulator.simulation import SimulatedCluster
from simulator.site import DAY_MS

WINDOWS_D = (1, 3, 7)


def daily(cluster: SimulatedCluster) -> dict[str, np.ndarray]:
    """How many of each sign a node showed on each day, as (days, nodes)."""
    shape = (cluster.settings.days, cluster.layout.nodes)
    counts: dict[str, np.ndarray] = {}

    def add(name: str, time_ms: int, node: int) -> None:
        if time_ms < cluster.settings.length_ms:
            counts.setdefault(name, np.zeros(shape))[time_ms // DAY_MS, node] += 1

    for line in cluster.trace.kernel:
        if line.xid and line.xid[1] in (63, 64, 74, 92, 94):
            add(f"xid {line.xid[1]}", line.time_ms, line.node)
        elif line.xid and line.xid[1] in (13, 31, 43, 45):
            add("application", line.time_ms, line.node)
    for count in cluster.trace.counts:
        if count.counter != "ecc_dbe":
            add(count.counter, count.time_ms, count.node)
    for loss in cluster.trace.links:
        add("flap", loss.down_ms, loss.node)
    for gap in cluster.trace.gaps:
        add("gap" if gap.gpu is None else "GPU gap", gap.start_ms, gap.node)
    return counts


def before(counts: np.ndarray, window_d: int) -> np.ndarray:
    """Sums over the days before each midnight."""
    total = np.vstack([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    days = np.arange(counts.shape[0])
    return np.asarray(total[days] - total[np.maximum(days - window_d, 0)])


def history(cluster: SimulatedCluster) -> np.ndarray:
    """Past outages of each node, fading by 2 % a day."""
    past = np.zeros((cluster.settings.days, cluster.layout.nodes))
    for failure in cluster.outages:
        days = np.arange(failure.start_ms // DAY_MS + 1, cluster.settings.days)
        past[days, failure.node] += 0.98 ** (days - failure.start_ms / DAY_MS)
    return past


def at_risk(cluster: SimulatedCluster) -> tuple[np.ndarray, np.ndarray]:
    """Which (day, node) count, and which of them are followed by an outage within a day."""
    shape = (cluster.settings.days, cluster.layout.nodes)
    availability = Availability(cluster.layout, cluster.outages)
    risk = np.array([[availability.usable(node, day * DAY_MS) for node in range(shape[1])] for day in range(shape[0])])
    fails = np.zeros(shape, dtype=bool)
    for failure in cluster.outages:
        fails[failure.start_ms // DAY_MS, failure.node] = True
    return risk, fails


def auc(cluster: SimulatedCluster, features: list[np.ndarray]) -> float:
    """Learned on the first half, judged on the second."""
    risk, fails = at_risk(cluster)
    rows = np.stack(features, axis=-1)
    half = cluster.settings.days // 2
    learn, judge = risk.copy(), risk.copy()
    learn[half - 2 :], learn[:7], judge[:half] = False, False, False
    model = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.06, max_leaf_nodes=8, min_samples_leaf=40, l2_regularization=5.0, random_state=0
    )
    model.fit(rows[learn], fails[learn])
    found = rank(model.predict_proba(rows[judge])[:, 1], fails[judge], np.nonzero(judge)[0])
    assert found.roc_auc is not None
    return found.roc_auc


@pytest.mark.slow
def test_signs_tell_something_and_history_more(large: SimulatedCluster) -> None:
    """As published; neither is near perfect."""
    counts = daily(large)
    signs = [before(counts[name], window) for name in sorted(counts) for window in WINDOWS_D]
    alone = auc(large, signs)
    both = auc(large, [*signs, history(large), *(before(counts[name], 30) for name in sorted(counts))])
    assert 0.58 < alone < 0.78
    assert 0.70 < both < 0.90


def test_no_single_sign_gives_failures_away(large: SimulatedCluster) -> None:
    """A column that ranks above 0.8 by itself would be an artefact."""
    risk, fails = at_risk(large)
    for name, values in daily(large).items():
        found = rank(before(values, 7)[risk], fails[risk], np.nonzero(risk)[0])
        assert (found.roc_auc or 0.0) < 0.8, name
