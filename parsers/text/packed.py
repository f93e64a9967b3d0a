"""gzip and zstd unpacked piece by piece: memory is bounded, and time is linear in what goes in and comes out.

    b"".join(unzipped(iter([gzip.compress(b"a") + gzip.compress(b"b")]))) -> b"ab"

A stream may be many members (gzip) or frames (zstd) in a row, as `cat a.gz b.gz` makes it. Each library hands back a
copy of all that follows a member: of a million empty members in one piece that is a cost of the square. So a library is
never given more than a small piece, and no copy is larger than that.
"""

import threading
import zlib
from collections.abc import Iterable, Iterator

import zstandard

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
# What one piece of input may become at once: a decompression bomb is read piece by piece.
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_GZIP_PIECE_BYTES = 4096
# zstd gives all that its input holds, at most 128 KiB for four bytes: so it is given less at once.
_ZSTD_PIECE_BYTES = 1024
# Larger windows are refused: a frame may ask for gigabytes.
_MOST_WINDOW_BYTES = 2**27
# A frame of so little is unpacked in one step, with what is kept for it: to lay out a new one takes ten times as long.
_SMALL_BYTES = 64 * 1024
_SMALL = zstandard.ZstdDecompressor(max_window_size=_SMALL_BYTES)
_SMALL_IN_USE = threading.Lock()


class PackedError(ValueError):
    """What cannot be unpacked, or not to its end; what came before was given."""


class CutShortError(PackedError):
    """Packed data that end before their last member does."""


def unzipped(chunks: Iterable[bytes], most_members: int | None = None, *, padded: bool = True) -> Iterator[bytes]:
    """The content of gzip members one after another.

    Args:
        most_members: more of them are refused; None for any number.
        padded: whether bytes behind the last member are passed over, whatever they are; else zeros alone are.

    Raises:
        PackedError: the data are damaged, or have too many members.
        CutShortError: they end within a member.
    """
    member, members = zlib.decompressobj(wbits=31), 1
    ended = begun = False
    for piece in _pieces(chunks, _GZIP_PIECE_BYTES):
        data = piece
        while data:
            if member.eof:
                if ended or not data.startswith(GZIP[:1]):
                    ended = True
                    if padded:
                        return
                    if data.strip(b"\x00"):
                        raise PackedError("what follows its last member is no gzip")
                    break
                member, members = zlib.decompressobj(wbits=31), members + 1
                _check_count(members, most_members, "members")
            begun = True
            try:
                out = member.decompress(data, MAX_OUTPUT_BYTES)
            except zlib.error as error:
                raise PackedError(str(error)) from error
            if out:
                yield out
            data = member.unused_data if member.eof else member.unconsumed_tail
    if begun and not member.eof:
        raise CutShortError("it is cut short")


def unzstd(chunks: Iterable[bytes], most_frames: int | None = None) -> Iterator[bytes]:
    """The content of zstd frames one after another; `most_frames` as of `unzipped`.

    Raises:
        PackedError: the data are damaged, have too many frames, or ask for too large a window.
        CutShortError: they end within a frame.
    """
    unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    frame, frames = unpacker.decompressobj(), 1
    begun = False
    for piece in _pieces(chunks, _ZSTD_PIECE_BYTES):
        data = piece
        while data:
            if frame.eof:
                frame, frames = unpacker.decompressobj(), frames + 1
                _check_count(frames, most_frames, "frames")
            begun = True
            try:
                out = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise PackedError(str(error)) from error
            if out:
                yield out
            data = frame.unused_data if frame.eof else b""
    if begun and not frame.eof:
        raise CutShortError("it is cut short")


def small_frame(data: bytes) -> bytes | None:
    """The content of one whole zstd frame that says that it is small; None for anything else."""
    try:
        if not 0 < zstandard.get_frame_parameters(data).content_size <= _SMALL_BYTES:
            return None
        with _SMALL_IN_USE:
            return _SMALL.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


def _pieces(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for at in range(0, len(chunk), size):
            yield chunk[at : at + size]


def _check_count(count: int, most: int | None, what: str) -> None:
    if most is not None and count > most:
        raise PackedError(f"it has more than {most} {what}: pack it as one")
