"""A transformer's shape: its arithmetic, how it is written, whose it is."""

import pytest

from goodput.formulas.shape import Shape, ShapeError, parse_shape, shape_of

GPT3 = Shape(batch=1536, layers=96, seq=2048, hidden=12288)


def test_the_operations_are_six_a_parameter_and_token_where_sequences_are_short() -> None:
    """A layer has 12 h^2 parameters."""
    short = Shape(batch=4, layers=3, seq=1, hidden=1000)
    assert short.flops == pytest.approx(6 * (12 * 1000**2 * 3) * 4, rel=1e-3)
    assert Shape(2, 1, 10, 100).flops == 72 * 2 * 10 * 100**2 + 12 * 2 * 10**2 * 100


def test_a_shape_is_read_as_it_is_written() -> None:
    """In any order."""
    assert parse_shape("layers=96, batch=1536,hidden=12288,seq=2048") == GPT3


@pytest.mark.parametrize(
    "text", ["", "batch=1", "batch=1,layers=1,seq=1,hidden=0", "batch=1,layers=1,seq=1,hidden=x", "b=1",
             "batch=1,batch=1,layers=1,seq=1,hidden=1", "batch=-1,layers=1,seq=1,hidden=1"]
)  # fmt: skip
def test_a_broken_shape_says_how_it_is_written(text: str) -> None:
    """In one sentence."""
    with pytest.raises(ShapeError, match=r"write batch=B,layers=L,seq=S,hidden=H"):
        parse_shape(text)


def test_runs_find_their_shape_by_pattern() -> None:
    """The first that fits."""
    other = Shape(1, 1, 1, 1)
    assert shape_of("llm-70b-2", {"llm-70b*": GPT3, "*": other}) == GPT3
    assert shape_of("x", {"llm-70b*": GPT3, "*": other}) == other
    assert shape_of("x", {"llm-70b*": GPT3}) is None
