"""Lines of streams: bounded, compressed, cut short."""

import gzip
import io
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from parsers.text.lines import ReadError, blocks, lines, plain
from parsers.text.packed import PackedError, small_frame, unzstd
from parsers.text.parser import MAX_LINE

TEXT = b"".join(b"line %d of a log\n" % number for number in range(20_000))


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    def read1(self, _size: int, /) -> bytes:
        """The next few."""
        given_now, self._data = self._data[: self._size], self._data[self._size :]
        return given_now


def zstd(data: bytes) -> bytes:
    """Compressed."""
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_any_packing_in_any_portions_gives_the_same_lines(pack: Callable[[bytes], bytes], size: int) -> None:
    """Known by the first bytes, not by the name."""
    text = TEXT[:2000] if size == 1 else TEXT
    assert list(lines(Trickle(pack(text), size), "x")) == [line for line in text.split(b"\n") if line]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_files_packed_one_after_another_are_one(pack: Callable[[bytes], bytes]) -> None:
    """logrotate and cat."""
    packed = pack(b"a\nb") + pack(b"") + pack(b"c\nd\n")
    assert list(lines(io.BytesIO(packed), "x")) == [b"a", b"bc", b"d"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_stream_cut_short_gives_what_was_whole_then_an_error(pack: Callable[[bytes], bytes]) -> None:
    """The error names the file."""
    noise = b"".join(b"%d\n" % (number * 7919 % 100_003) for number in range(400_000))
    packed = pack(noise)
    found: list[bytes] = []
    with pytest.raises(ReadError, match=r"node\.log is cut short"):
        found.extend(lines(io.BytesIO(packed[: len(packed) * 2 // 3]), "node.log"))
    assert len(found) > 1000
    assert found == noise.split(b"\n")[: len(found)]


def test_a_damaged_stream_is_an_error() -> None:
    """Bits that flipped."""
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(ReadError, match=r"damaged|cut short"):
        list(lines(io.BytesIO(bytes(packed)), "x"))
    with pytest.raises(ReadError, match="damaged"):
        list(lines(io.BytesIO(b"\x28\xb5\x2f\xfd" + b"\xff" * 100), "x"))


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_what_came_before_the_damage_is_given(pack: Callable[[bytes], bytes]) -> None:
    """As much as is certain."""
    noise = b"".join(b"%d\n" % (number * 7919 % 100_003) for number in range(200_000))
    packed = pack(noise)
    found: list[bytes] = []
    with pytest.raises(ReadError, match=r"damaged|cut short"):
        found.extend(lines(io.BytesIO(packed[: len(packed) * 2 // 3] + b"\xff" * 300_000), "node.log"))
    assert len(found) > 1000
    assert found[:1000] == noise.split(b"\n")[:1000]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_decompression_bomb_is_read_piece_by_piece(pack: Callable[[bytes], bytes]) -> None:
    """A few kilobytes that become hundreds of megabytes."""
    bomb = pack(bytes(200_000_000))
    sizes = [len(chunk) for chunk in plain(io.BytesIO(bomb), "x")]
    assert sum(sizes) == 200_000_000
    assert max(sizes) < 40_000_000


@given(st.binary(max_size=300), st.binary(max_size=30), st.integers(0, 40))
@example(b"", b"", 0)
@example(bytes(70_000), b"", 0)
def test_a_small_frame_in_one_step_is_what_the_pieces_are(data: bytes, more: bytes, cut: int) -> None:
    """Whatever follows it, and wherever it is cut: in one step it is whole and alone, or it is left to the pieces."""
    packed = zstd(data) + more
    packed = packed[: len(packed) - cut]
    found = small_frame(packed)
    try:
        expected = b"".join(unzstd([packed]))
    except PackedError:
        assert found is None
    else:
        assert found in (None, expected)
    if data and not more and not cut:
        assert found == (data if len(data) < 65_536 else None)


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 30))
def test_blocks_are_whole_lines(parts: list[bytes], size: int) -> None:
    """Each but the last ends where a line ends, and they are all that was read."""
    text = b"-" + b"\n".join(parts)
    found = list(blocks(Trickle(text, size), "x"))
    assert b"".join(found) == text
    assert all(block.endswith(b"\n") for block in found[:-1])
    assert all(found)


def test_bytes_behind_a_gzip_member_are_padding() -> None:
    """As gzip itself treats zeros."""
    assert list(lines(io.BytesIO(gzip.compress(b"a\n") + b"\x00" * 512), "x")) == [b"a"]


def test_a_source_that_fails_is_an_error() -> None:
    """A directory, a disk."""

    class Broken(Trickle):
        def read1(self, _size: int, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(ReadError, match="cannot read x: Input/output error"):
        list(lines(Broken(b"", 1), "x"))


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3_000_000])
def test_a_gigantic_line_is_cut_and_the_next_one_is_whole(length: int) -> None:
    """Memory stays bounded."""
    found = list(lines(Trickle(b"x" * length + b"\nnext\n" + b"y" * length, 100_000), "x"))
    assert [len(line) for line in found] == [min(length, MAX_LINE), 4, min(length, MAX_LINE)]
    assert found[1] == b"next"


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20), st.integers(1, 30))
@example([b"\x80\x02"], 1)
@example([b"\x80\x02\x00"], 1)
def test_lines_are_those_that_were_joined(parts: list[bytes], size: int) -> None:
    """Whatever the portions; a last empty line is none. The first bytes are of no archive and no dump."""
    text = b"-" + b"\n".join(parts)
    expected = text.split(b"\n")
    assert list(lines(Trickle(text, size), "x")) == (expected if expected[-1] else expected[:-1])
