"""Reading ahead changes nothing but the time."""

import threading
from collections.abc import Iterator

import pytest

from cli.archive.log_input import read_ahead


def test_items_come_in_order() -> None:
    """All of them."""
    assert list(read_ahead(iter(range(100)))) == list(range(100))
    assert list(read_ahead(iter([]))) == []


def test_what_the_source_raises_comes_after_what_it_gave() -> None:
    """As without the thread."""

    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        found.extend(read_ahead(source()))
    assert found == [1]


def test_a_reader_that_stops_ends_the_thread() -> None:
    """Though the source would go on for ever."""

    def source() -> Iterator[int]:
        while True:
            yield 1

    items = read_ahead(source())
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert "read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_only_so_much_is_read_ahead() -> None:
    """Memory is bounded: a source is not drained while nobody takes."""
    given: list[int] = []

    def source() -> Iterator[int]:
        for number in range(1000):
            given.append(number)
            yield number

    items = read_ahead(source())
    assert next(items) == 0
    assert len(given) < 10
    assert list(items) == list(range(1, 1000))
