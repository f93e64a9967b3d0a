"""A log that is open for reading: which format it is of, and its lines by the fastest way that there is.

    log = OpenLog(stream, "node.log", failures)
    for number, text in log.lines(log.format()): ...

A format with signs is searched block by block, a large plain file by several processes (`forked_scan.py`), a packed
one in this thread while another unpacks it. Any other format is read line by line. A pipe is read as it comes.
"""

import io
import itertools
import marshal
import os
import queue
import signal
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from io import BufferedReader
from typing import NoReturn, TypeVar

from parsers.registry import MIXED, PARSERS, SAMPLE_LINES, MixedSelector, detect
from parsers.text.lines import PACKED, ReadError, blocks, split
from parsers.text.parser import MAX_LINE, FormatSigns, clean
from parsers.text.scan import LARGE_BYTES, LineSelection, LineSelector, numbered, select_lines

# The lines of interest of a large plain file: searched by several processes, while this one decodes what they find.
#
#     for picked in forked_scan(file.fileno(), size_bytes, Picker(SIGNS), workers=2): ...
#
# Worker k reads the blocks k, k + workers, ... with its own buffer. A line belongs to the block in which it begins.
# What a worker finds waits in its pipe until its turn has come: a full pipe stops it, so memory is bounded.

BLOCK_BYTES = 4 * 1024 * 1024
# More than these find lines faster than one process decodes them.
MAX_WORKERS = 4

Pick = Callable[[bytearray, int, int], LineSelection]
_SIZE = struct.Struct("<q")


def forked_scan(
    descriptor: int, size_bytes: int, pick: Pick, workers: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[LineSelection]:
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


def _received(pipe: BufferedReader) -> LineSelection:
    """The next message of a worker."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise ReadError("a process that searched the file ended early: it may have been killed for memory")
    body = pipe.read(_SIZE.unpack(head)[0])
    lines, texts = marshal.loads(body)  # noqa: S302  # written by our own child
    if lines < 0:
        raise ReadError(texts)
    return LineSelection(lines, texts)


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


def picked_at(descriptor: int, offset: int, buffer: bytearray, pick: Pick, block_bytes: int) -> LineSelection:
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
        return LineSelection(0, [])
    limit = lead + block_bytes
    if got <= limit:
        return pick(buffer, start, got)
    end = buffer.find(b"\n", limit - 1, got) + 1
    return pick(buffer, start, end or got)


# An iterator that another thread is ahead with: what it does outside the interpreter's lock runs beside us.

Item = TypeVar("Item")
# Items that wait at once.
DEPTH = 2
_PATIENCE_S = 0.1


def read_ahead(source: Iterator[Item]) -> Iterator[Item]:
    """The items of a source, in order; what it raises is raised here."""
    waiting: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(DEPTH)
    gone = threading.Event()

    def put(item: Item | None, error: BaseException | None) -> None:
        while not gone.is_set():
            try:
                waiting.put((item, error), timeout=_PATIENCE_S)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for item in source:
                put(item, None)
                if gone.is_set():
                    return
            put(None, None)
        except BaseException as error:  # noqa: BLE001  # raised in the reader's thread
            put(None, error)

    thread = threading.Thread(target=read, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = waiting.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        gone.set()
        thread.join()


class OpenLog:
    """One log. What stops it from being read to its end is kept, so that what came before is decoded whole."""

    def __init__(self, stream: io.BufferedReader, label: str, failures: list[ReadError]) -> None:
        """`failures` is where a failure is put; `label` is the log's name in it."""
        self._label = label
        self._failures = failures
        self._descriptor = stream.fileno()
        status = os.fstat(self._descriptor)
        self.live = not stat.S_ISREG(status.st_mode)
        self._packed = not self.live and os.pread(self._descriptor, 4, 0).startswith(PACKED)
        self._plain_bytes = 0 if self.live or self._packed or stream.tell() else status.st_size
        self._blocks = self._until_broken(blocks(stream, label))

    def format(self) -> str:
        """The format that the first lines speak for.

        Raises:
            ReadError: they speak for none.
        """
        held: list[bytes] = []
        sample: list[str] = []
        for block in self._blocks:
            held.append(block)
            sample += map(clean, split(block))
            if len(sample) >= SAMPLE_LINES:
                break
        self._blocks = itertools.chain(held, self._blocks)
        found = detect(sample[:SAMPLE_LINES])
        if found is None:
            if not any(map(str.strip, sample)):
                return "kernel"
            raise ReadError(f"{self._label} is of no format that is known: name it (see `foreshock formats`)")
        return found

    def lines(self, format_name: str, every: bool = False) -> Iterator[tuple[int, str]]:
        """The lines that a parser of the format must be fed, or `every` line, with their 1-based numbers."""
        if format_name == MIXED and not every and not self.live:
            return numbered(MixedSelector()(self._blocks))
        entry = PARSERS.get(format_name)
        if every or entry is None or entry.signs is None:
            return enumerate((clean(line) for block in self._blocks for line in split(block)), start=1)
        return numbered(self._picked(entry.signs))

    def _picked(self, signs: FormatSigns) -> Iterator[LineSelection]:
        workers = min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        if self._plain_bytes >= LARGE_BYTES and workers > 1 and hasattr(os, "fork"):
            return self._until_broken(forked_scan(self._descriptor, self._plain_bytes, LineSelector(signs), workers))
        source = self._blocks
        if self._packed:
            # only here: threads cost time to load

            source = read_ahead(source)
        return select_lines(source, signs)

    def _until_broken(self, source: Iterator[Item]) -> Iterator[Item]:
        try:
            yield from source
        except ReadError as error:
            self._failures.append(error)
