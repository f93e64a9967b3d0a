"""A prior is handed on as a small file that anybody may have written."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lessons import lesson

from predictor.dataset.matrix import FIXED
from predictor.hazard.hazard import HazardEvidence
from predictor.hazard.prior import MOST_BYTES, MOST_SHAPE, PriorError, packaged, parse_prior, to_json, weakened
from predictor.learning.training_set import node_hours

WHOLE = json.loads(to_json(packaged()))
BASE = "one"


def changed(**figures: Any) -> bytes:
    """The package's file with the base rate's figures of a day in place, or other fields."""
    whole = json.loads(json.dumps(WHOLE))
    if "base" in figures:
        whole["horizons_h"]["24"][BASE] = figures.pop("base")
    return json.dumps(whole | figures).encode()


def test_a_prior_is_read_as_it_was_written() -> None:
    """Four digits are kept."""
    again = parse_prior(to_json(packaged()))
    assert again.source == packaged().source
    for hours, known in packaged().evidence.items():
        np.testing.assert_allclose(again.evidence[hours].rates(), known.rates(), rtol=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"[" * 90_000,
        b"\xff\xfe",
        b" " * (MOST_BYTES + 1),
        changed(version=2),
        changed(source="a\x1b[2J"),
        changed(source="x" * 501),
        changed(more=1),
        changed(horizons_h={}),
        changed(horizons_h={"24": {}, "168": {}}),
        changed(base=[0.0, 1.0]),
        changed(base=[-1.0, -1.0]),
        changed(base=[MOST_SHAPE * 2, 1e6]),
        changed(base=[1.0, 1e-3]),
        changed(base=[1.0]),
        changed(base=[True, 1e4]),
        changed(base=["1", "2"]),
        changed(base=[10**400, 1.0]),
        changed(base=[1.0, float("nan")]),
        changed(base=[1.0, float("inf")]),
        changed() + b"{}",
    ],
)
def test_a_file_that_is_no_prior_is_refused(text: bytes) -> None:
    """Nothing of it is taken."""
    with pytest.raises(PriorError):
        parse_prior(text)


def test_a_quiet_node_of_a_new_site_is_told_about_the_usual_rate() -> None:
    """Less than the fleet's mean and not nothing; one with a row remapping much more."""
    values = np.full((2, len(FIXED)), np.nan, dtype=np.float32)
    names = [feature.name for feature in FIXED]
    values[1, names.index("row_remap_7d")] = 3
    quiet, bad = packaged().model(FIXED, 24).probability(values)
    assert 1e-5 < quiet < 3.8e-3
    assert bad > 5 * quiet


def test_the_hours_of_a_lesson_are_those_of_its_nodes() -> None:
    """Each outage once, however many rows speak of it; of a failure no hour counts after it."""
    whole = lesson(nodes=30, days=20)
    seen = node_hours(whole)
    assert seen.failed.sum() == pytest.approx(len(np.unique(whole.outages())))
    span_h = 30 * 20 * 24
    assert 0.95 * span_h < seen.hours.sum() <= span_h
    assert (seen.hours[seen.failed > 0] < seen.hours.max()).any()


@pytest.mark.parametrize("every", [2, 4])
def test_hours_and_failures_are_the_same_however_often_one_looked(every: int) -> None:
    """Once a day, or every other day: a rate is one of node-hours, not of looks."""
    whole = lesson(nodes=200, days=80)
    moments = np.unique(whole.time_ms)
    seldom = whole.only(np.isin(whole.time_ms, moments[::every]))
    seldom = replace(seldom, sample=replace(seldom.sample, cadence_h=12.0 * every))
    often, rarely = node_hours(whole), node_hours(seldom)
    watched = 1.0 if every == 2 else 0.5  # every other day, one of two is not watched
    assert rarely.hours.sum() == pytest.approx(watched * often.hours.sum(), rel=0.03)
    rate, of_fewer = (seen.failed.sum() / seen.hours.sum() for seen in (often, rarely))
    assert of_fewer == pytest.approx(rate, rel=0.15)


def test_what_is_handed_on_rests_on_few_failures_and_says_the_same() -> None:
    """A site's own outages soon count for more."""
    known = HazardEvidence.weak(1).after(node_hours(lesson()))
    handed = weakened(known)
    np.testing.assert_allclose(handed.rates(), known.rates())
    assert handed.shape.max() <= MOST_SHAPE
