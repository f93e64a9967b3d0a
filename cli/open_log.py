"""A log that is open for reading: which format it is of, and its lines by the fastest way that there is.

    log = OpenLog(stream, "node.log", failures)
    for number, text in log.lines(log.format()): ...

A format with signs is searched block by block, a large plain file by several processes (`forked_scan.py`), a packed
one in this thread while another unpacks it. Any other format is read line by line. A pipe is read as it comes.
"""

import io
import itertools
import os
import stat
from collections.abc import Iterator
from typing import TypeVar

from cli.forked_scan import MAX_WORKERS, forked_scan
from parsers.auto import SAMPLE_LINES, detect
from parsers.lines import PACKED, ReadError, blocks, split
from parsers.parser import clean
from parsers.registry import PARSERS
from parsers.scan import LARGE_BYTES, Picked, Picker, numbered, picked
from parsers.signs import Signs

Item = TypeVar("Item")


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
        entry = PARSERS.get(format_name)
        if every or entry is None or entry.signs is None:
            return enumerate((clean(line) for block in self._blocks for line in split(block)), start=1)
        return numbered(self._picked(entry.signs))

    def _picked(self, signs: Signs) -> Iterator[Picked]:
        workers = min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        if self._plain_bytes >= LARGE_BYTES and workers > 1 and hasattr(os, "fork"):
            return self._until_broken(forked_scan(self._descriptor, self._plain_bytes, Picker(signs), workers))
        source = self._blocks
        if self._packed:
            from cli.read_ahead import read_ahead  # only here: threads cost time to load

            source = read_ahead(source)
        return picked(source, signs)

    def _until_broken(self, source: Iterator[Item]) -> Iterator[Item]:
        try:
            yield from source
        except ReadError as error:
            self._failures.append(error)
