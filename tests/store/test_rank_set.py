"""Sets of ranks as texts: what goes in comes out, and no text is without bound."""

from hypothesis import given
from hypothesis import strategies as st

from store.runs.rank_set import MOST_CHARS, MOST_RANKS, is_cut, numbers_of, ranks_of, text_of_numbers, text_of_ranks


def test_a_job_without_one_rank_is_two_ranges() -> None:
    """The one that is not there is seen."""
    assert text_of_ranks(set(range(1024)) - {512}) == "0-511,513-1023"


def test_a_replica_group_is_one_range_with_a_step() -> None:
    """Every eighth rank."""
    assert text_of_ranks(range(3, 1024, 8)) == "3-1019/8"


def test_three_of_four_ranks_of_a_large_job_are_told_whole() -> None:
    """The first rank of every four prints another line: too many ranges, few by a step."""
    ranks = {rank for rank in range(12_288) if rank % 4} - {2753}
    assert text_of_ranks(ranks) == "1-2749/4,2757-12285/4,2-12286/4,3-12287/4"
    assert ranks_of(text_of_ranks(ranks)) == ranks


@given(st.sets(st.integers(0, 5000), max_size=400))
def test_a_set_comes_back_from_its_text(ranks: set[int]) -> None:
    """Whatever the ranks are."""
    assert ranks_of(text_of_ranks(ranks)) == ranks


@given(st.dictionaries(st.integers(0, 500), st.integers(0, 9), max_size=200))
def test_numbers_of_ranks_come_back_from_their_text(numbers: dict[int, int]) -> None:
    """One number alone is of all ranks."""
    assert numbers_of(text_of_numbers(numbers), numbers) == numbers


def test_what_does_not_fit_is_counted() -> None:
    """Squares have no step between them."""
    text = text_of_ranks(number * number for number in range(3000))
    kept, _, left_out = text.rpartition(",+")
    assert len(kept) <= MOST_CHARS
    assert len(ranks_of(kept)) + int(left_out) == 3000
    assert is_cut(text)
    assert not is_cut(kept)


def test_a_text_that_claims_all_numbers_is_read_to_the_bound() -> None:
    """A sender may write anything."""
    assert len(ranks_of("0-9999999," * 100)) == MOST_RANKS
    assert ranks_of("x,-3,5-2,7") == {7}
    assert ranks_of(True) == ranks_of(-1) == ranks_of(None) == ranks_of("+500") == frozenset()
    assert numbers_of("a:1;2:3;:4;99999999999999999999999:1", ()) == {3: 2}
