"""Metrics of any page that a site names."""

import re
from datetime import UTC, datetime

import pytest

from parsers.pages import MAX_SERIES, kept_samples
from parsers.text.parser import Context, ParseError

NOW = datetime(2025, 3, 1, 4, tzinfo=UTC)
CONTEXT = Context(node="n1", until=NOW)
ANY = [re.compile("site_.*")]


def test_what_has_the_same_labels_is_one_device() -> None:
    """Named by the labels' values in order of the labels' names; other metrics are passed over."""
    page = '# HELP site_a x\nsite_a{rack="r7",loop="2"} 1\nsite_b{loop="2",rack="r7"} 2\nsite_c 3\nnot_site_a 4\n'
    found = {sample.device_name(): sample.values for sample in kept_samples(page, ANY, CONTEXT)}
    assert found == {"series:2,r7": {"site_a": 1.0, "site_b": 2.0}, "series:": {"site_c": 3.0}}


def test_broken_lines_and_no_numbers_are_left_out() -> None:
    """What is whole beside them is kept."""
    page = 'site_a{x="\nsite_b NaN\nsite_c 1 2 3 4\nsite_d 5\n'
    assert [sample.values for sample in kept_samples(page, ANY, CONTEXT)] == [{"site_d": 5.0}]


def test_series_are_bounded() -> None:
    """A page of a million series fills no memory."""
    page = "".join(f'site_a{{n="{number}"}} 1\n' for number in range(MAX_SERIES + 5))
    assert len(kept_samples(page, ANY, CONTEXT)) == MAX_SERIES


def test_without_patterns_or_matches_nothing_is_kept() -> None:
    """And a node must be known where something is."""
    assert kept_samples("site_a 1\n", [], CONTEXT) == []
    assert kept_samples("a 1\n", ANY, Context()) == []
    with pytest.raises(ParseError, match=r"Context\.node"):
        kept_samples("site_a 1\n", ANY, Context())
