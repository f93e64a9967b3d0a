"""The lines of a stream, plain, gzip or zstd by its first bytes, in bounded memory.

    for raw in lines(stream, "node.log.gz"): ...

A line longer than MAX_LINE is cut there. A compressed stream that ends early gives all that was whole, then an error.
"""

import zlib
from collections.abc import Iterator
from typing import Protocol

import zstandard

from parsers.text.parser import MAX_LINE

CHUNK_BYTES = 1024 * 1024
# What one chunk of input may become at once: a decompression bomb is read piece by piece.
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
# zstd gives all that its input holds, at most 128 KiB for four bytes: so it is given little at once.
ZSTD_PIECE_BYTES = 1024

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
# How a packed stream begins.
PACKED = (_GZIP, _ZSTD)


class ReadError(ValueError):
    """A stream that cannot be read further; the message names it and says why."""


class ByteSource(Protocol):
    """What bytes are read from: an open file, or a pipe, which may give less than asked for."""

    def read1(self, size: int, /) -> bytes:
        """At most so many bytes, as soon as there are any; none at the end."""


def lines(stream: ByteSource, name: str) -> Iterator[bytes]:
    """The lines of a stream, without their ends, each at most MAX_LINE long.

    Raises:
        ReadError: the stream cannot be read further, or is cut short; what came before was given.
    """
    for block in blocks(stream, name):
        yield from split(block)


def split(block: bytes) -> Iterator[bytes]:
    """The lines of a block of whole lines."""
    whole = block.split(b"\n")
    if not whole[-1]:
        del whole[-1]
    return (line[:MAX_LINE] for line in whole)


def blocks(stream: ByteSource, name: str) -> Iterator[bytes]:
    """The stream in blocks of whole lines, each as soon as it is there; the last line may lack its end.

    What a line is longer than MAX_LINE may be missing.

    Raises:
        ReadError: as of `lines`.
    """
    rest, cut = b"", False
    for chunk in plain(stream, name):
        begin = 0
        if cut:  # the end of a line that was given already
            begin = chunk.find(b"\n") + 1
            cut = not begin
        end = chunk.rfind(b"\n") + 1
        if cut:
            continue
        if end > begin:
            yield rest + chunk[begin:end]
            rest, begin = b"", end
        rest += chunk[begin:]
        if len(rest) > MAX_LINE:
            yield rest[:MAX_LINE] + b"\n"
            rest, cut = b"", True
    if rest:
        yield rest


def plain(stream: ByteSource, name: str) -> Iterator[bytes]:
    """The stream's content, decompressed."""
    try:
        first = stream.read1(CHUNK_BYTES)
        while first and len(first) < len(_ZSTD) and (more := stream.read1(CHUNK_BYTES)):
            first += more
        if first.startswith(_GZIP):
            yield from _unzipped(_chunks(first, stream), name)
        elif first.startswith(_ZSTD):
            yield from _unzstd(_chunks(first, stream), name)
        else:
            yield from _chunks(first, stream)
    except OSError as error:
        raise ReadError(f"cannot read {name}: {error.strerror or error}") from error
    except (zlib.error, zstandard.ZstdError) as error:
        raise ReadError(f"{name} is damaged: {error}; what was whole before it was read") from error


def _chunks(first: bytes, stream: ByteSource) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = stream.read1(CHUNK_BYTES)


def _unzipped(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The content of gzip members one after another; other bytes after the last are padding."""
    member = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        data = chunk
        while data:
            if member.eof:
                if not data.startswith(_GZIP[:1]):
                    return
                member = zlib.decompressobj(wbits=31)
            yield member.decompress(data, MAX_OUTPUT_BYTES)
            data = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise ReadError(f"{name} is cut short: its gzip data ends early; what was whole was read")


def _unzstd(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The content of zstd frames one after another."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    for chunk in chunks:
        out, size = [], 0
        for at in range(0, len(chunk), ZSTD_PIECE_BYTES):
            data = chunk[at : at + ZSTD_PIECE_BYTES]
            while data:
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                try:
                    out.append(frame.decompress(data))
                except zstandard.ZstdError:
                    yield b"".join(out)
                    raise
                size += len(out[-1])
                data = frame.unused_data if frame.eof else b""
                if size >= MAX_OUTPUT_BYTES:
                    yield b"".join(out)
                    out, size = [], 0
        yield b"".join(out)
    if not frame.eof:
        raise ReadError(f"{name} is cut short: its zstd data ends early; what was whole was read")
