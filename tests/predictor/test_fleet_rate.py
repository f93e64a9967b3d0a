"""How sure a node is worse than its fleet: right where the truth is known, and never sure of equals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from predictor.repair.fleet_rate import excess
from predictor.repair.lemons import chosen

TIMES = 4.0


def counted(nodes: int, shape: float, mean: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A fleet's true multiples of its mean, and 28 days of counts."""
    random = np.random.default_rng(seed)
    multiple = random.gamma(shape, 1 / shape, nodes)
    return multiple, random.poisson(multiple * mean)


@pytest.mark.parametrize(("nodes", "mean"), [(200, 0.1), (12_500, 0.01), (12_500, 0.1), (12_500, 3.0)])
def test_among_equals_nobody_is_a_lemon(nodes: int, mean: float) -> None:
    """The most that chance gives one of 12,500 alike nodes makes it no lemon, whatever the rate."""
    for seed in range(5):
        _, counts = counted(nodes, 1000.0, mean, seed)
        found = excess(counts, np.full(nodes, 28.0), TIMES)
        assert chosen(found.probability, 0.1).sum() == 0


@pytest.mark.parametrize(("shape", "mean"), [(0.12, 0.3), (0.3, 0.3), (1.0, 3.0)])
def test_the_promised_share_of_false_ones_is_kept(shape: float, mean: float) -> None:
    """Over fleets of any spread, at most a tenth of the listed are not four times the mean (and a little for luck)."""
    listed = false = 0
    for seed in range(20):
        multiple, counts = counted(3_000, shape, mean, seed)
        kept = chosen(excess(counts, np.full(3_000, 28.0), TIMES).probability, 0.1)
        listed += int(kept.sum())
        false += int((kept & (multiple < TIMES)).sum())
    assert listed > 50
    assert false / listed <= 0.15


def test_a_stated_probability_is_how_often_it_is_so() -> None:
    """Of nodes that are held 50 to 80 % sure, so many are."""
    sure, right = [], []
    for seed in range(20):
        multiple, counts = counted(3_000, 0.12, 0.3, seed)
        probability = excess(counts, np.full(3_000, 28.0), TIMES).probability
        middle = (probability > 0.5) & (probability < 0.8)
        sure += probability[middle].tolist()
        right += (multiple[middle] >= TIMES).tolist()
    assert len(sure) > 200
    assert np.mean(right) == pytest.approx(np.mean(sure), abs=0.08)


def test_a_lemon_among_equals_is_found() -> None:
    """Six failures where the others have one in ten."""
    counts = np.zeros(400, dtype=np.int64)
    counts[:40], counts[0] = 1, 6
    found = excess(counts, np.full(400, 28.0), TIMES)
    assert found.probability[0] > 0.9
    assert found.multiple[0] > 10
    assert np.flatnonzero(chosen(found.probability, 0.1)).tolist() == [0]


def test_the_same_count_in_less_time_says_more() -> None:
    """A node that served three days and failed three times is worse than one that took 28."""
    counts = np.array([3, 3] + [0] * 198 + [1] * 20)
    exposure = np.full(len(counts), 28.0)
    exposure[0] = 3.0
    found = excess(counts, exposure, TIMES)
    assert found.probability[0] > found.probability[1]
    assert found.expected[0] == pytest.approx(found.expected[1] * 3 / 28)


def test_what_was_not_watched_is_not_judged() -> None:
    """No exposure: no probability, and nobody else's changes."""
    counts = np.array([0, 2, 1, 0, 0, 0])
    exposure = np.array([0.0, 28, 28, 28, 28, 28])
    found = excess(counts, exposure, TIMES)
    alone = excess(counts[1:], exposure[1:], TIMES)
    assert np.isnan(found.probability[0])
    assert found.probability[1:].tolist() == alone.probability.tolist()


@pytest.mark.parametrize("counts", [[], [0, 0, 0]], ids=["no nodes", "no counts"])
def test_a_quiet_fleet_has_no_lemons(counts: list[int]) -> None:
    """Nothing to compare with."""
    found = excess(np.array(counts, dtype=np.int64), np.full(len(counts), 28.0), TIMES)
    assert found.mean == 0
    assert chosen(found.probability, 0.1).tolist() == [False] * len(counts)


@given(some.lists(some.integers(0, 60), min_size=2, max_size=60), some.floats(0.5, 100))
def test_more_failures_never_make_a_node_less_suspect(counts: list[int], exposure: float) -> None:
    """Within one fleet, in any fleet; and probabilities are ones."""
    ordered = np.sort(np.array(counts, dtype=np.int64))
    found = excess(ordered, np.full(len(counts), exposure), TIMES)
    assert (np.diff(found.probability) >= -1e-9).all()
    assert ((found.probability >= 0) & (found.probability <= 1 + 1e-12)).all()


def test_a_list_holds_the_surest_while_its_expected_false_share_is_small() -> None:
    """0.99 and 0.9 expect 0.055; 0.7 with them 0.137: too many. What is no likelier than not is never listed."""
    assert chosen(np.array([0.7, 0.99, 0.9, np.nan]), 0.1).tolist() == [False, True, True, False]
    assert chosen(np.array([0.99] * 50 + [0.45]), 0.1).tolist() == [True] * 50 + [False]
