"""The page of a backtest."""

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from fleet_store import day
from hypothesis import given
from hypothesis import strategies as st
from judged_rows import random_fleet

from predictor.dataset.folds import BacktestSettings, Fold
from predictor.evaluate.backtest import Backtest, WorthSettings, summarise, with_worth
from predictor.evaluate.cost import HoldPolicy
from predictor.evaluate.report import curves, to_html, verdict
from predictor.model.skill import Judged
from store.svg_plot import HEIGHT, WIDTH, Axis, Plot

FOLDS = [Fold(day(30), day(31.5), day(45.5)), Fold(day(44), day(45.5), day(59.5))]
SECTIONS = (
    "How many failures stand among the riskiest nodes", "Precision over recall", "False alarms", "How early",
    "Does 2 % mean two in a hundred?", "What acting is worth", "What if", "Folds",
)  # fmt: skip


def backtest_of(fleet: Judged) -> Backtest:
    """A backtest of rows made by hand, with one baseline that knows nothing and one that knows a little."""
    ranks = {"history_count": np.floor(2 * fleet.scores), "rules": np.zeros(len(fleet.scores))}
    served = [{"kind": "gbt", "why": "best over the last 2 folds"} for _ in FOLDS]
    report = {**summarise(fleet, ranks, BacktestSettings(), FOLDS), "served": served}
    return with_worth(
        Backtest(report, tuple("abc"), fleet, ranks), WorthSettings(policies=(HoldPolicy(), HoldPolicy(threshold=0.9)))
    )


def page_of(found: Backtest) -> str:
    """Its page with all lines."""
    return to_html(found.report, curves(found.judged, found.ranks))


def plots(page: str) -> list[ET.Element]:
    """The plots, which must be well-formed."""
    return [
        ET.fromstring(svg)  # noqa: S314
        for svg in re.findall(r'<svg viewBox="0 0 470.*?</svg>', page)
    ]


@pytest.fixture(scope="module")
def found() -> Backtest:
    """Forty nodes for a month."""
    return backtest_of(random_fleet(40, 28, 1, levels=200, rate=0.05))


def test_every_section_says_what_it_shows(found: Backtest) -> None:
    """A sentence for an operator below each heading; the policies as they were written."""
    page = page_of(found)
    for title in SECTIONS:
        assert re.search(f"<h2>{re.escape(title)}</h2><p>[^<]{{40,}}", page), title
    assert len(plots(page)) == 7
    assert "top=1%, hold_h=24, budget=5%" in page
    assert "threshold=0.9, hold_h=24" in page


def test_the_page_stands_alone(found: Backtest) -> None:
    """No script, no address of another site, no style or picture from elsewhere."""
    page = page_of(found)
    assert not re.search(r"<script|http|<link|<img|url\(|@import|src=", page)


def test_nothing_is_drawn_outside_its_plot(found: Backtest) -> None:
    """Lines, dots and boxes lie within the frame, and no figure is no number."""
    for plot in plots(page_of(found)):
        text = ET.tostring(plot, encoding="unicode")
        assert "nan" not in text
        for line in plot.iter("polyline"):
            for x, y in (point.split(",") for point in line.attrib["points"].split()):
                assert 0 <= float(x) <= WIDTH
                assert 0 <= float(y) <= HEIGHT
        for dot in plot.iter("circle"):
            assert 0 <= float(dot.attrib["cx"]) <= WIDTH
        for box in plot.iter("rect"):
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= WIDTH


def test_the_figures_of_the_report_are_on_the_page(found: Backtest) -> None:
    """With their intervals."""
    page = page_of(found)
    low, high = found.report["intervals"]["roc_auc"]
    assert f"{found.report['roc_auc']:.4g}<br><small>{low:.3g} to {high:.3g}</small>" in page
    assert f"{found.report['baselines']['history_count']['average_precision']:.4g}" in page


def test_a_quiet_time_has_a_page_too() -> None:
    """Without failures there is nothing to draw but the folds; dashes stand for what has no meaning."""
    fleet = random_fleet(10, 5, 1)
    quiet = backtest_of(replace(fleet, labels=replace(fleet.labels, positive=np.zeros(50, dtype=bool))))
    page = page_of(quiet)
    assert "there is nothing to judge by" in page
    assert "<td>-</td>" in page
    assert "Precision over recall" not in page


def test_doubts_stand_at_the_top(found: Backtest) -> None:
    """Before any figure, in full, and escaped."""
    report = {**found.report, "doubts": ["ROC AUC 0.96 <look>"]}
    page = to_html(report)
    assert page.index("ROC AUC 0.96 &lt;look&gt;") < page.index("<table")


@pytest.mark.parametrize(
    ("sure", "said"),
    [
        ([0.01, 0.03], "The model beats"),
        ([-0.03, -0.01], "use that one"),
        ([-0.1, 0.1], "cannot tell"),
        (None, "too few"),
        ([0.0, 0.0], "What served ranks as the best"),
    ],
)
def test_the_verdict_claims_no_more_than_the_interval(found: Backtest, sure: Any, said: str) -> None:
    """Better, worse, or nobody knows."""
    best = found.report["best_baseline"]
    report = {**found.report, "best_baseline": {**best, "intervals": {"average_precision": sure}}}
    assert said in verdict(report)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_even_ticks_are_few_round_and_within_the_axis(low: float, length: float) -> None:
    """Two to twelve, evenly spaced."""
    axis = Axis("x", low, low + length)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(-1e-6 <= axis.place(tick) <= 1 + 1e-6 for tick in ticks)
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[0], rtol=1e-3)


@given(st.floats(1e-6, 1e3), st.floats(1.5, 1e6))
def test_ticks_in_tenfold_steps_lie_within_the_axis(low: float, factor: float) -> None:
    """Ascending; a decade has at least one."""
    axis = Axis("x", low, low * factor, log=True)
    ticks = axis.ticks()
    assert ticks == sorted(ticks)
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)
    if factor >= 10:
        assert ticks


def test_values_outside_an_axis_stand_on_its_edge() -> None:
    """0 on a logarithmic axis among them; an axis without length has its middle."""
    axis = Axis("x", 0.001, 1, log=True)
    assert (axis.place(0), axis.place(0.001), axis.place(1), axis.place(7)) == (0, 0, 1, 1)
    assert axis.place(0.0316227766) == pytest.approx(0.5)
    assert Axis("x", 2, 2).place(2) == 0.5


def test_what_is_written_on_a_plot_is_escaped() -> None:
    """Names come from outside."""
    plot = Plot(Axis("<x>", 0, 1), Axis("y", 0, 1))
    drawn = plot.drawn(
        'a "plot"', [plot.dot((0, 0), "c0", "<b>"), plot.note((0, 0), "<i>"), plot.whisker(0, None, "c0")]
    )
    assert "<x>" not in drawn
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    ET.fromstring(drawn)  # noqa: S314
