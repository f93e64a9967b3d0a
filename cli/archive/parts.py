"""What a worker of `foreshock ingest` does with one file of an archive: hash it, read it; nothing is written here."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TypeVar

from collectors.files.archive import ArchivePart, PartRecords, read_part
from parsers.site_rules.rules import NO_RULES, SiteRules
from parsers.text.parser import Context
from store.records.event import RecordError
from store.telemetry.archive_table import time_span
from store.telemetry.telemetry_file import TelemetryFile, read_telemetry

# Results that wait for the writer: enough to keep the workers busy, few enough to hold in memory.
_AHEAD = 8

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Digest:
    """A file's content as a hash, and for telemetry the moments at which it begins and ends."""

    part: ArchivePart
    sha256: str
    begins_us: int = 0
    ends_us: int = 0
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to read. `only_carry`: it was taken before, and is read for what the file after it must know."""

    digest: Digest
    context: Context
    only_carry: bool = False
    rules: SiteRules = NO_RULES


@dataclass(frozen=True, slots=True)
class FileRecords:
    """What was read of a file: `telemetry` of a Parquet file that could be read, `records` of any other."""

    task: FileTask
    records: PartRecords
    telemetry: TelemetryFile | None = None


def digest(part: ArchivePart) -> Digest:
    """Hash a file."""
    try:
        with part.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return Digest(part, "", broken=f"it cannot be read ({error.strerror}): check its permissions")
    begins_us, ends_us = time_span(part.path) if part.name == "telemetry" else (0, 0)
    return Digest(part, sha256, begins_us, ends_us)


def take(task: FileTask) -> FileRecords:
    """Read a file. Never fails: what is broken is told of in the result."""
    part = task.digest.part
    if part.name != "telemetry":
        return FileRecords(task, read_part(part, task.context, task.rules))
    try:
        telemetry = read_telemetry(part.path)
    except RecordError as error:
        return FileRecords(task, PartRecords(broken=str(error)))
    skips = [*telemetry.left_out[:1], *(["rows without a time or node"] if telemetry.skipped else [])]
    skipped = telemetry.skipped + len(telemetry.left_out)
    return FileRecords(task, PartRecords(skipped=skipped, first_skip="; ".join(skips) or None), telemetry)


def in_order(executor: Executor | None, step: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results of a step in the order of the items, a few computed ahead; without an executor one by one, here."""
    if executor is None:
        yield from map(step, items)
        return
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(executor.submit(step, item))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
