"""Bytes to whole lines."""

from hypothesis import given
from hypothesis import strategies as st

from collectors.files.content import FilePosition, mark_of
from collectors.files.tail import LineSplitter
from parsers.text.parser import MAX_LINE


@given(st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=20), st.data())
def test_any_cut_into_chunks_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    """Where a read ends is chance; the lines, their numbers and the offset do not depend on it."""
    text = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = []
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    assert found == [(number, line.lstrip(b"\0")) for number, line in enumerate(lines, start=1)]
    assert splitter.offset == splitter.read_offset == len(text)


def test_a_partial_line_is_kept_until_its_end_comes() -> None:
    """The position stays before it, so that a restart reads it whole."""
    splitter = LineSplitter(offset=100, line=7)
    assert splitter.feed(b"one\ntw") == [(8, b"one")]
    assert (splitter.offset, splitter.read_offset, splitter.line) == (104, 106, 8)
    assert splitter.feed(b"o\n") == [(9, b"two")]
    assert splitter.offset == 108


def test_a_gigantic_line_is_cut_and_the_next_one_is_whole() -> None:
    """A megabyte without a line end neither fills the memory nor moves the offset wrongly."""
    splitter = LineSplitter()
    for _ in range(16):
        assert splitter.feed(b"x" * 65536) == []
    lines = splitter.feed(b"y\nnext\n")
    assert [(number, len(raw)) for number, raw in lines] == [(1, MAX_LINE), (2, 4)]
    assert splitter.offset == 16 * 65536 + 7


def test_the_last_line_of_a_finished_file_needs_no_end() -> None:
    """`rest` gives it once, and nothing where there is none."""
    splitter = LineSplitter()
    splitter.feed(b"one\ntwo")
    assert splitter.rest() == [(2, b"two")]
    assert splitter.rest() == []
    assert splitter.offset == 7


def test_a_mark_tells_files_apart_by_what_is_before_the_position() -> None:
    """Only the last bytes count; nothing before it is a mark of its own."""
    assert mark_of(b"a" * 1000 + b"b" * 256) == mark_of(b"b" * 256)
    assert mark_of(b"a") != mark_of(b"b")
    assert mark_of(b"") == 0


def test_generations_of_a_file_have_different_identities() -> None:
    """So that the first line after a truncation gets another id than the first before."""
    assert FilePosition(1, 2, 0).identity != FilePosition(1, 2, 1).identity
