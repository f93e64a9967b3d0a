"""The lines of interest of a large plain file: searched by several processes, while this one decodes what they find.

    for picked in forked_scan(file.fileno(), size_bytes, Picker(SIGNS), workers=2): ...

Worker k reads the blocks k, k + workers, ... with its own buffer. A line belongs to the block in which it begins.
What a worker finds waits in its pipe until its turn has come: a full pipe stops it, so memory is bounded.
"""

import marshal
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from io import BufferedReader
from typing import NoReturn

from parsers.lines import ReadError
from parsers.parser import MAX_LINE
from parsers.scan import Picked

BLOCK_BYTES = 4 * 1024 * 1024
# More than these find lines faster than one process decodes them.
MAX_WORKERS = 4

Pick = Callable[[bytearray, int, int], Picked]
_SIZE = struct.Struct("<q")


def forked_scan(
    descriptor: int, size_bytes: int, pick: Pick, workers: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[Picked]:
    """What stands in each block, in order.

    Raises:
        ReadError: the file cannot be read; what came before was given.
    """
    count = -(-size_bytes // block_bytes)
    children: list[tuple[int, BufferedReader]] = []
    with ExitStack() as stack:
        for first in range(min(workers, count)):
            out, into = os.pipe()
            child = os.fork()
            if not child:
                os.close(out)
                for _, earlier in children:
                    earlier.close()
                _work(into, descriptor, range(first, count, workers), pick, block_bytes)
            os.close(into)
            pipe = stack.enter_context(closing(os.fdopen(out, "rb")))
            stack.callback(_end, child)
            children.append((child, pipe))
        for block in range(count):
            yield _received(children[block % len(children)][1])


def _received(pipe: BufferedReader) -> Picked:
    """The next message of a worker."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise ReadError("a process that searched the file ended early: it may have been killed for memory")
    body = pipe.read(_SIZE.unpack(head)[0])
    lines, texts = marshal.loads(body)  # noqa: S302  # written by our own child
    if lines < 0:
        raise ReadError(texts)
    return Picked(lines, texts)


def _end(child: int) -> None:
    """Stop a worker that may still be at work."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _work(into: int, descriptor: int, blocks: range, pick: Pick, block_bytes: int) -> NoReturn:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = 1
    try:
        buffer = bytearray(1 + block_bytes + MAX_LINE)
        with os.fdopen(into, "wb") as pipe:
            for block in blocks:
                try:
                    found = picked_at(descriptor, block * block_bytes, buffer, pick, block_bytes)
                    message = marshal.dumps((found.lines, found.texts))
                except OSError as error:
                    message = marshal.dumps((-1, f"cannot read on: {error.strerror or error}"))
                pipe.write(_SIZE.pack(len(message)))
                pipe.write(message)
                pipe.flush()
        status = 0
    except BrokenPipeError:  # nobody reads any more
        pass
    finally:
        os._exit(status)


def picked_at(descriptor: int, offset: int, buffer: bytearray, pick: Pick, block_bytes: int) -> Picked:
    """What stands in the lines that begin in the `block_bytes` at an offset of a file."""
    # One byte before, which may be a line's end, and what the last line needs of the next block.
    lead = min(offset, 1)
    got = 0
    wanted = lead + block_bytes + MAX_LINE
    with memoryview(buffer) as view:
        while got < wanted and (more := os.preadv(descriptor, [view[got:wanted]], offset - lead + got)):
            got += more
    start = 0 if not offset else buffer.find(b"\n", 0, min(got, block_bytes)) + 1
    if offset and not start:  # a line from before goes on beyond the block
        return Picked(0, [])
    limit = lead + block_bytes
    if got <= limit:
        return pick(buffer, start, got)
    end = buffer.find(b"\n", limit - 1, got) + 1
    return pick(buffer, start, end or got)
