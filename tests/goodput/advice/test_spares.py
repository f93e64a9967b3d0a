"""The spare count, against the table of published figures."""

import math

import pytest

from goodput.advice.spares import SparesInputs, advise, expected_wait_s, share_down, waits_s


@pytest.mark.parametrize(
    ("nodes", "mttr_h", "needed"),
    [
        (128, 2.2, (1, 1)),
        (128, 24, (2, 3)),
        (128, 72, (4, 7)),
        (1250, 2.2, (2, 3)),
        (1250, 24, (7, 15)),
        (1250, 72, (16, 36)),
        (12500, 2.2, (7, 14)),
        (12500, 24, (42, 102)),
        (12500, 72, (108, 275)),
    ],
)
def test_the_count_is_that_of_the_field(nodes: int, mttr_h: float, needed: tuple[int, int]) -> None:
    """FIELD B5: nodes down at P99 for 2.3 and 6.5 failures per 1000 node-days."""
    found = tuple(advise(SparesInputs(nodes, outages, 1e6, mttr_h * 3600)).spares for outages in (2300, 6500))
    assert found == needed


def test_the_sample_decides_how_wide_the_advice_is() -> None:
    """The count at the ends of the rate's interval lies on both sides; the plain values hold the inputs."""
    advice = advise(SparesInputs(1250, 20, 10_000.0, 86_400.0))
    assert advice.spares_low < advice.spares < advice.spares_high
    assert advice.expected_down == pytest.approx(1250 * share_down(20 / 10_000, 86_400.0))
    assert advice.to_json()["inputs"]["outages"] == 20


def test_no_outage_needs_no_spare_but_may_need_one() -> None:
    """Nothing seen in a short time: the upper end speaks."""
    advice = advise(SparesInputs(1250, 0, 1000.0, 86_400.0))
    assert (advice.spares, advice.spares_low) == (0, 0)
    assert advice.spares_high > 0


@pytest.mark.parametrize("wrong", [(0, 1, 1.0, 1.0), (1, 1, 0.0, 1.0), (1, 1, 1.0, -1.0)])
def test_advice_needs_something_observed(wrong: tuple[int, int, float, float]) -> None:
    """No nodes, no time, a repair that takes less than nothing."""
    with pytest.raises(ValueError, match="advice needs"):
        advise(SparesInputs(*wrong))


def test_a_wait_lasts_until_enough_nodes_are_back() -> None:
    """One spare: the second failure waits for the first node, the third for the second."""
    waits = waits_s([0.0, 10.0, 20.0, 200.0], [100.0, 100.0, 100.0, 50.0], spares=1)
    assert waits == [0.0, 90.0, 90.0, 0.0]
    assert waits_s([0.0, 10.0], [100.0, 5.0], spares=0) == [100.0, 90.0]
    assert waits_s([0.0, 10.0], [100.0, 5.0], spares=2) == [0.0, 0.0]


def test_the_expected_wait_of_a_thousand_nodes_that_are_out() -> None:
    """e^-1000 is no float, and yet each failure waits: about ln(n / spares) repairs."""
    assert expected_wait_s(1_000 / 86_400.0, 86_400.0, 10) == pytest.approx(86_400.0 * math.log(1_000 / 10.5), rel=0.01)
    assert expected_wait_s(0.0, 86_400.0, 1) == expected_wait_s(1e-9, 0.0, 0) == 0.0
    assert expected_wait_s(0.0, 86_400.0, 0) == 86_400.0
