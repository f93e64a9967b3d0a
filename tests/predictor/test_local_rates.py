"""Rates of a site with few outages: what is told is what comes, within the interval, and no sharper."""

import numpy as np
import pytest
from scipy.stats import poisson

from predictor.history.arrays import Floats
from predictor.model.baselines import BASELINES
from predictor.model.local_rates import PUBLISHED, GroupRate, PriorRate, RateRows, local_rates, rounded

HISTORY, RULES = BASELINES["history_count"], BASELINES["rules"]
NODES, DAYS = 40, 120
COLUMNS = np.array([0, 1])


def site(seed: int) -> tuple[tuple[Floats, Floats], Floats]:
    """Forty nodes over 120 days, a dozen outages or so: what history told of each day and node, and what came."""
    random = np.random.default_rng(seed)
    hazard = random.gamma(0.4, random.gamma(4.0, 3.0e-3 / 4.0) / 0.4, NODES)
    fails = random.random((DAYS + 1, NODES)) < hazard
    before = np.cumsum(fails, axis=0)
    month = before - np.vstack([np.zeros((28, NODES)), before])[: DAYS + 1]
    return (month[:-1].astype(float), before[:-1].astype(float)), fails[1:].astype(float)


def counted(history: tuple[Floats, Floats], came: Floats, days: slice) -> RateRows:
    """The rows of some days."""
    flat = came[days].ravel()
    return RateRows([one[days].ravel() for one in history], flat, np.ones(len(flat)), int(flat.sum()), 24)


def rates_of(rows: RateRows, prior: PriorRate = PUBLISHED) -> tuple[GroupRate, ...]:
    """The groups of history."""
    return local_rates(rows, HISTORY, COLUMNS, prior).groups


def test_on_sites_with_few_outages_what_is_told_is_what_comes() -> None:
    """Three hundred sites learn from 80 days and are held against the 40 that follow: by group and over all."""
    told, came, within = np.zeros(4), np.zeros(4), []
    for seed in range(300):
        history, fails = site(seed)
        learned, later = counted(history, fails, slice(0, 80)), counted(history, fails, slice(80, None))
        rates = local_rates(learned, HISTORY, COLUMNS)
        said = rates.forest.probability(np.stack(list(later.values), axis=1).astype(np.float32))
        month, ever = later.values
        kind = np.maximum.reduce([1 * (ever > 0), 2 * (month > 0), 3 * (month > 1)])
        assert said == pytest.approx(np.array([one.told for one in rates.groups])[kind])
        told += np.bincount(kind, said, 4)
        came += np.bincount(kind, later.positive, 4)
        count = np.bincount(kind, later.positive, 4)
        for number, watched in enumerate(np.bincount(kind, minlength=4)):
            one = rates.groups[number]  # what comes has a chance of its own, beside that of the rate
            least, most = poisson.ppf(0.05, one.low * watched), poisson.ppf(0.95, one.high * watched)
            within.append(least <= count[number] <= most)
    assert came.sum() / told.sum() == pytest.approx(1.0, abs=0.25), (told, came)
    assert (came / told).min() > 1 / 1.5, (told, came)
    assert (came / told).max() < 1.5, (told, came)
    assert np.mean(within) > 0.9


def test_without_an_outage_the_prior_is_told_and_outages_take_its_place() -> None:
    """The more there are, the less it counts."""
    nothing = np.zeros(400)
    none = RateRows([nothing, nothing], nothing, np.ones(400), 0, 24)
    low, high = PriorRate(1e-3, 2.0, "a"), PriorRate(1e-2, 2.0, "b")
    assert rates_of(none, high)[0].told > 2 * rates_of(none, low)[0].told
    many = np.tile([1.0] + [0.0] * 19, 400)
    full = RateRows([np.zeros(8000)] * 2, many, np.ones(8000), 400, 24)
    assert rates_of(full, low)[0].told == pytest.approx(0.05, rel=0.1)
    assert rates_of(full, low)[0].told == pytest.approx(rates_of(full, high)[0].told, rel=0.05)


def test_two_rows_that_speak_of_one_outage_are_no_two_outages() -> None:
    """The interval is that of the outages."""
    once, twice = np.tile([1.0] + [0.0] * 99, 20), np.tile([1.0, 1.0] + [0.0] * 198, 20)
    single = rates_of(RateRows([np.zeros(2000)] * 2, once, np.ones(2000), 20, 24))[0]
    double = rates_of(RateRows([np.zeros(4000)] * 2, twice, np.ones(4000), 20, 24))[0]
    assert (double.low, double.high) == pytest.approx((single.low, single.high), rel=0.02)


def test_more_history_is_never_told_a_lower_rate() -> None:
    """Though by chance nobody of the nodes with two outages failed again."""
    month, ever = np.array([0.0] * 900 + [1.0] * 50 + [2.0] * 50), np.array([0.0] * 900 + [1.0] * 100)
    failed = np.zeros(1000)
    failed[[*range(10), *range(900, 910)]] = 1.0
    told = [one.told for one in rates_of(RateRows([month, ever], failed, np.ones(1000), 20, 24))]
    assert told == sorted(told)
    assert told[2] == told[3] > told[0]


@pytest.mark.parametrize("seed", range(5))
def test_no_figure_is_sharper_than_its_interval(seed: int) -> None:
    """Of a dozen outages one digit or two, not three; and it lies in its interval."""
    history, fails = site(seed)
    for one in rates_of(counted(history, fails, slice(0, 80))):
        assert one.low <= one.told <= one.high
        assert one.told == rounded(one.told, one.low, one.high)
        assert len(f"{one.told:.6g}".lstrip("0.").replace(".", "")) <= 2


def test_signs_have_two_groups() -> None:
    """Fired or not."""
    fired = np.array([0.0] * 900 + [3.0] * 100)
    failed = np.array([0.0] * 895 + [1.0] * 5 + [0.0] * 60 + [1.0] * 40)
    rows = RateRows([fired, *[np.zeros(1000)] * 3], failed, np.ones(1000), 45, 24)
    rates = local_rates(rows, RULES, np.arange(4))
    assert [one.name for one in rates.groups] == ["without such a sign", "with one"]
    assert rates.groups[1].told == pytest.approx(0.35, abs=0.07)
    assert "of nodes with one" in rates.words
