"""The lines of a stream, plain, gzip, zstd or a flight recorder's dump by its first bytes, in bounded memory.

    for raw in lines(stream, "node.log.gz"): ...

A line longer than MAX_LINE is cut there. A compressed stream that ends early gives all that was whole, then an error.
"""

import itertools
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Protocol

from parsers.dumps.flight_dump import DumpError, dump_lines, is_dump
from parsers.text.packed import GZIP, ZSTD, CutShortError, PackedError, unzipped, unzstd
from parsers.text.parser import MAX_LINE

CHUNK_BYTES = 1024 * 1024
# How a packed stream begins.
PACKED = (GZIP, ZSTD)


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
    for chunk in _without_mark(plain(stream, name)):
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


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same without the byte order mark that editors and spreadsheets begin a file with."""
    yield next(chunks, b"").removeprefix(BOM_UTF8)
    yield from chunks


def plain(stream: ByteSource, name: str) -> Iterator[bytes]:
    """The stream's content, decompressed."""
    try:
        first = stream.read1(CHUNK_BYTES)
        while first and len(first) < len(ZSTD) and (more := stream.read1(CHUNK_BYTES)):
            first += more
        if first.startswith(GZIP):
            yield from _content(unzipped(_chunks(first, stream)))
        elif first.startswith(ZSTD):
            yield from _content(unzstd(_chunks(first, stream)))
        else:
            yield from _content(_chunks(first, stream))
    except OSError as error:
        raise ReadError(f"cannot read {name}: {error.strerror or error}") from error
    except CutShortError:
        raise ReadError(f"{name} is cut short: its packed data end early; what was whole was read") from None
    except PackedError as error:
        raise ReadError(f"{name} is damaged: {error}; what was whole before it was read") from error
    except DumpError as error:
        raise ReadError(f"{name} is a binary dump that is not read: {error}") from error


def _content(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Text as it is; a flight recorder's dump as text."""
    first = next(chunks, b"")
    whole = itertools.chain((first,), chunks) if first else chunks
    yield from dump_lines(whole) if is_dump(first) else whole


def _chunks(first: bytes, stream: ByteSource) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = stream.read1(CHUNK_BYTES)
