"""A pattern for many literals finds what each of them finds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.formats.kernel import SIGNS
from parsers.text.parser import holds_any

WORDS = st.lists(st.text(alphabet="ab|(. [", min_size=1, max_size=5), max_size=8)


@given(words=WORDS, text=st.text(alphabet="ab|(. [c", max_size=30))
def test_holds_any_finds_what_one_of_them_finds(words: list[str], text: str) -> None:
    """Literals that begin alike, that hold each other, that mean something in a pattern; none at all."""
    assert bool(holds_any(words).search(text)) == any(word in text for word in words)


@given(text=st.lists(st.sampled_from([*SIGNS, *(sign[:-1] for sign in SIGNS), " ", "x"]), max_size=4).map("".join))
def test_the_kernels_signs_are_found(text: str) -> None:
    """Whole, cut by a letter, run together."""
    found = bool(re.search("|".join(map(re.escape, SIGNS)), text))
    assert bool(holds_any(SIGNS).search(text)) == found


@pytest.mark.parametrize("words", [["aX", "X", "bX"], ["abX", "X."], ["Xa", "aX", "XaX"]])
@pytest.mark.parametrize("text", ["", "aX", "X", "bXa", ".X.", "abX.", "cX", "aaX", "Xa", "xab"])
def test_what_stands_before_the_rarest_letter_counts(words: list[str], text: str) -> None:
    """Literals that end alike from it on are told apart by their beginnings."""
    assert bool(holds_any(words).search(text)) == any(word in text for word in words)
