"""The worked examples of docs/goodput.md are run as they stand there, and say what was published."""

import doctest
from pathlib import Path

import pytest

from goodput.formulas.ettr import EttrSetting, exact, linear

PAGE = Path(__file__).parents[2] / "docs" / "goodput.md"


def test_the_page_says_what_its_lines_give() -> None:
    """Every example, to the digit printed."""
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 14
    assert results.failed == 0


@pytest.mark.parametrize(("interval_s", "published"), [(3600.0, 0.70), (300.0, 0.93)])
def test_both_forms_give_metas_published_figures(interval_s: float, published: float) -> None:
    """arXiv 2410.21680: to two and a half points."""
    setting = EttrSetting(2_000, 6.5e-3, interval_s, 300.0)
    assert linear(setting) == pytest.approx(published, abs=0.025)
    assert exact(setting) == pytest.approx(published, abs=0.025)


def test_the_exact_form_is_nearer_to_what_meta_states_at_a_hundred_thousand() -> None:
    """0.5: the linear form gives 0.41, the exact one 0.55."""
    setting = EttrSetting(12_500, 6.5e-3, 420.0, 420.0)
    assert abs(exact(setting) - 0.5) < abs(linear(setting) - 0.5)
