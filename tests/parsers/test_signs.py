"""A pattern for many literals finds what each of them finds."""

import re

from hypothesis import given
from hypothesis import strategies as st

from parsers.kernel import SIGNS
from parsers.signs import any_of

WORDS = st.lists(st.text(alphabet="ab|(. [", min_size=1, max_size=5), max_size=8)


@given(words=WORDS, text=st.text(alphabet="ab|(. [c", max_size=30))
def test_any_of_finds_what_one_of_them_finds(words: list[str], text: str) -> None:
    """Literals that begin alike, that hold each other, that mean something in a pattern; none at all."""
    assert bool(any_of(words).search(text)) == any(word in text for word in words)


@given(text=st.lists(st.sampled_from([*SIGNS, *(sign[:-1] for sign in SIGNS), " ", "x"]), max_size=4).map("".join))
def test_the_kernels_signs_are_found(text: str) -> None:
    """Whole, cut by a letter, run together."""
    assert bool(any_of(SIGNS).search(text)) == bool(re.search("|".join(map(re.escape, SIGNS)), text))
