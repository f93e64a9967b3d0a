"""Error reports: what a line reports of an attempt's end, its cause, and the repeats by other ranks."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from store.records.event import Attribute, Event
from store.runs.rank_set import text_of_ranks

# The words of an error show its cause. Words that fit several causes show none.
#
# CUDA error: uncorrectable ECC error encountered      -> hardware
# [Errno 28] No space left on device                   -> storage
# remote process exited or there was a network error   -> unknown

_WORDS = (
    (
        "hardware",
        re.compile(
            r"uncorrectable (?:NVLink|ECC)|ECC error|hardware stack error|fallen off the bus|GPU is lost"
            r"|unable to determine the device handle|CUDA error: unknown error|device is in an unavailable state"
            r"|Invalid access of peer GPU memory|CUDA_ERROR_CONTAINED"
            r"|\bUCE ERROR\b|HBM MULTI BIT ECC ERROR|HCCS LINK ERROR",
            re.IGNORECASE,
        ),
    ),
    (
        "storage",
        re.compile(
            r"Errno (?:5|28|30|107|116|121|122)\b|Input/output error|No space left|Disk quota exceeded"
            r"|Stale (?:NFS )?file handle|Read-only file system|Transport endpoint is not connected|Remote I/O error",
            re.IGNORECASE,
        ),
    ),
    (
        "fabric",
        re.compile(
            r"NET/IB|\bibv_\w{1,40}|vendor.err|IBV_WC_|transport retry|InfiniBand|\berror cqe\b"
            r"|bind NVLink SHARP \(NVLS\)|system not yet initialized|HCCL OP RETRY FAILED|SUSPECT REMOTE ERROR",
            re.IGNORECASE,
        ),
    ),
    (
        "application",
        re.compile(
            r"out of memory|OutOfMemory|RESOURCE_EXHAUSTED|illegal memory access|device-side assert"
            r"|unspecified launch failure"
            r"|misaligned address|invalid device (?:function|ordinal)|invalid configuration argument|no kernel image is"
            r"|out of shared memory|insufficient shared memory|size mismatch|shapes? cannot be multiplied"
            r"|ncclInvalid(?:Usage|Argument)\b|invalid (?:usage|argument) \(run with NCCL_DEBUG",
            re.IGNORECASE,
        ),
    ),
)
# Python's own errors that a program makes by itself, whatever they say.
_OWN = frozenset(
    (
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "AttributeError",
        "AssertionError",
        "ImportError",
        "ModuleNotFoundError",
        "NameError",
        "ZeroDivisionError",
        "NotImplementedError",
        "UnboundLocalError",
        "RecursionError",
        "OverflowError",
        "FloatingPointError",
        "SyntaxError",
        "IndentationError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "JSONDecodeError",
        "LookupError",
        "ValidationError",
        "ConfigAttributeError",
        "OutOfMemoryError",
    )
)
# Someone stopped the program: no fault of its own.
_STOPPED = frozenset({"SignalException", "KeyboardInterrupt"})


def variant_of(name: str, message: str) -> str:
    """The variant of `training_error`: a cause, `ended`, or nothing where it is not known."""
    if name in _STOPPED:
        return "ended"
    for cause, words in _WORDS:
        if words.search(message):
            return cause
    return "application" if name in _OWN else ""


# The errors of an attempt, each reported once: thousands of ranks repeat the same few.
#
# The first rank's error is held while others may repeat it, and says how many did (`repeats`).

# Different errors between two iterations.
MAX_ERRORS = 64
# Ranks of one error that are held.
MAX_RANKS = 200_000
# An error is held no longer than for these lines.
MAX_LINES = 20_000
# Python's traceback of an exception that it ignores is no longer than these lines, other ranks' among them.
MAX_IGNORED = 200


class AttemptErrors:
    """Holds the errors since the last iteration, and knows which of them were reported."""

    def __init__(self) -> None:
        self._held: dict[str, Event] = {}
        self._seen: set[str] = set()
        self._first = 0
        self._ranks: dict[str, set[int]] = {}  # that repeat each error
        self._ignored: list[int] = []  # lines that reported an exception that Python ignores

    def ignore(self, line: int) -> None:
        """The next error of a traceback ends nothing: it was raised while an object was taken down."""
        if len(self._ignored) < MAX_ERRORS:
            self._ignored.append(line)

    def ignored(self, line: int) -> bool:
        """Whether an error of a traceback is one of those."""
        self._ignored = [since for since in self._ignored if line - since <= MAX_IGNORED]
        return bool(self._ignored) and self._ignored.pop(0) > 0

    def add(self, key: str, event: Event) -> bool:
        """Hold an error, or count it as one more of its kind. False where it was reported before."""
        rank = event.attributes.get("rank")
        if (first := self._held.get(key)) is not None:
            ranks = self._ranks[key]
            if isinstance(rank, int) and len(ranks) < MAX_RANKS:
                ranks.add(rank)
            repeats = first.attributes.get("repeats", 1)
            count = repeats + 1 if isinstance(repeats, int) else 2
            self._held[key] = replace(
                first, time=first.time or event.time, attributes={**first.attributes, "repeats": count}
            )
            return True
        if key in self._seen or len(self._seen) >= MAX_ERRORS:
            return False
        self._seen.add(key)
        self._held[key] = event
        self._ranks[key] = {rank} if isinstance(rank, int) else set()
        self._first = self._first or event.line or 0
        return True

    def late(self, line: int) -> bool:
        """Whether the first error is held for long enough."""
        return bool(self._held) and line - self._first > MAX_LINES

    def release(self) -> list[Event]:
        """The errors held, in their order; repeats of them that follow are reported no more."""
        held = [_with_ranks(event, self._ranks[key]) for key, event in self._held.items()]
        self._held, self._ranks, self._first = {}, {}, 0
        return held

    def forget(self) -> None:
        """Work went on: the same error would be a new one."""
        self._seen = set(self._held)


def _with_ranks(event: Event, ranks: set[int]) -> Event:
    """The error with all ranks that reported it: who did not is as telling as who did."""
    if len(ranks) < 2:
        return event
    return replace(event, attributes={**event.attributes, "ranks": text_of_ranks(ranks)})


MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """What a line tells.

    Attributes:
        name: the error's name, `attributes.error` of the event.
        variant: of its kind in the table of kinds: it decides severity, cause and action.
        time: text of a time in the line, ISO 8601; `glog` where it is `MMDD clock` without a year.
        node: the host that the line names.
        distinct_by: what else than its name makes it another error.
        traceback: it is the last line of one.
        of_group: its rank counts within a process group: the job's, where the line's prefix names it, goes before.
    """

    name: str
    message: str
    kind: str = "training_error"
    variant: str = ""
    time: str | None = None
    glog: tuple[int, str, str] | None = None
    node: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    distinct_by: str = ""
    traceback: bool = False
    of_group: bool = False

    def key(self) -> str:
        """Equal for the same error reported by many ranks."""
        return f"{self.kind} {self.name} {self.variant} {self.distinct_by}"

    def event_attributes(
        self, rank: int | None, local_rank: int | None, job_rank: int | None = None
    ) -> dict[str, Attribute]:
        """The event's attributes; the ranks are those of the line's prefix, where the line itself names none."""
        names = {"training_error": "error", "training_phase": "phase"}
        found: dict[str, Attribute] = {names[self.kind]: self.name} if self.kind in names else {}
        ranks = {"rank": rank, "local_rank": local_rank}
        told = {**found, **{name: value for name, value in ranks.items() if value is not None}, **self.attributes}
        return {**told, "rank": job_rank} if self.of_group and job_rank is not None else told


@dataclass(frozen=True, slots=True)
class ErrorReader:
    """A registry entry: `read` gets a line with one of the signs, without launcher prefix and time."""

    name: str
    signs: tuple[str, ...]
    read: Callable[[str], ErrorReport | None]


def numbers(found: Mapping[str, str | None]) -> dict[str, Attribute]:
    """The groups of a match as attributes: whole numbers where they are."""
    values: dict[str, Attribute] = {}
    for name, value in found.items():
        if value is not None:
            values[name] = int(value) if value.removeprefix("-").isdecimal() and len(value) < 16 else value
    return values
