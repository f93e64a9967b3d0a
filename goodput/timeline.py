"""A timeline: one cursor that only moves forward, so that its buckets sum to its length whatever is painted.

    timeline = Timeline(start_ms=0)
    timeline.paint("startup", 1_000)
    timeline.paint("productive", 5_000)
    timeline.paint("unknown", 3_000)     # lies behind the cursor: changes nothing

All moments are integer milliseconds since 1970 (or since the log's first line, where no date is known).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args

Bucket: TypeAlias = Literal[
    "productive",
    "checkpoint_save",
    "checkpoint_load",
    "startup",
    "detection",
    "waiting",
    "lost_work",
    "degraded",
    "data_stall",
    "evaluation",
    "unknown",
]
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
CERTAIN: frozenset[Bucket] = frozenset()
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DAY_S = 86_400.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def to_ms(moment: datetime) -> int:
    """Whole milliseconds since 1970, rounded down."""
    return (moment - _EPOCH) // _MS


def from_ms(moment_ms: int) -> datetime:
    """The aware UTC moment of milliseconds since 1970."""
    return _EPOCH + moment_ms * _MS


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of wall time, [start_ms, end_ms), that went into one bucket.

    `maybe` = the other buckets that its time may truly belong to: none where the records tell.
    """

    start_ms: int
    end_ms: int
    bucket: Bucket
    maybe: frozenset[Bucket] = CERTAIN

    @property
    def length_ms(self) -> int:
        """How long it lasted."""
        return self.end_ms - self.start_ms


class Timeline:
    """Wall time painted from left to right; never a hole, never an overlap."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.cursor_ms = start_ms
        self.segments: list[Segment] = []

    def paint(self, bucket: Bucket, until_ms: int, maybe: frozenset[Bucket] = CERTAIN) -> None:
        """Give the time from the cursor to `until_ms` to a bucket; a moment behind the cursor changes nothing."""
        if until_ms <= self.cursor_ms:
            return
        last = self.segments[-1] if self.segments else None
        if last is not None and last.bucket == bucket and last.maybe == maybe:
            self.segments[-1] = Segment(last.start_ms, until_ms, bucket, maybe)
        else:
            self.segments.append(Segment(self.cursor_ms, until_ms, bucket, maybe))
        self.cursor_ms = until_ms


def repainted(
    segments: Iterable[Segment], since_ms: int, buckets: Collection[Bucket], to: Bucket, sure: bool = True
) -> list[Segment]:
    """The segments with what lies at or after `since_ms` in some buckets moved into another bucket.

    Not `sure` = it may be that it was rightly where it was.
    """
    fresh: list[Segment] = []
    for piece, is_meant in _cut(segments, since_ms, buckets):
        maybe = piece.maybe if sure else piece.maybe | {piece.bucket}
        fresh.append(replace(piece, bucket=to, maybe=maybe - {to}) if is_meant else piece)
    return fresh


def doubted(segments: Iterable[Segment], since_ms: int, buckets: Collection[Bucket], or_else: Bucket) -> list[Segment]:
    """The segments, with what lies at or after `since_ms` in some buckets said to be another one's perhaps."""
    return [
        replace(piece, maybe=piece.maybe | {or_else}) if is_meant else piece
        for piece, is_meant in _cut(segments, since_ms, buckets)
    ]


def _cut(segments: Iterable[Segment], since_ms: int, buckets: Collection[Bucket]) -> Iterator[tuple[Segment, bool]]:
    """The segments, cut at a moment; of each piece whether it is of some buckets and lies at or after it."""
    for segment in segments:
        if segment.bucket not in buckets or segment.end_ms <= since_ms:
            yield segment, False
        elif segment.start_ms < since_ms:
            yield replace(segment, end_ms=since_ms), False
            yield replace(segment, start_ms=since_ms), True
        else:
            yield segment, True


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments with neighbours of one bucket, equally certain, joined."""
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        if last is not None and last.bucket == segment.bucket and last.maybe == segment.maybe:
            joined[-1] = replace(last, end_ms=segment.end_ms)
        else:
            joined.append(segment)
    return tuple(joined)


def sums(segments: Iterable[Segment]) -> dict[Bucket, int]:
    """Milliseconds in each bucket; every bucket is there, in the order of BUCKETS."""
    totals: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    for segment in segments:
        totals[segment.bucket] += segment.length_ms
    return totals


def gpu_ms(stretches: Iterable[tuple[Segment, int]] | None) -> dict[Bucket, int] | None:
    """GPU-milliseconds in each bucket; None where the size of an attempt is unknown, or there is none."""
    if stretches is None:
        return None
    totals: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    for segment, size in stretches:
        totals[segment.bucket] += segment.length_ms * size
    return totals


# What a run's records leave open: for each bucket the least and the most of the wall time that it may truly hold.
#
#     bounds_ms(ledger.segments)["productive"]      # (3_600_000, 7_200_000)
#
# Each stretch of time is in one bucket, and says which others it may belong to. The least that a bucket holds is what
# is in it beyond doubt; the most is that and all that may be in it. Where the records tell everything, both are equal.
# Whole seconds that a log prints are taken as they are: each stall may be off by one.

# Of a job that ran, nobody knows what it did: anything but wait.
RUNNING: frozenset[Bucket] = frozenset(BUCKETS) - {"waiting"}
# Between two starts of which the log alone tells: the end of the one, the wait and the start of the other.
BETWEEN: frozenset[Bucket] = frozenset(BUCKETS)
# Before the first iteration line of a program whose load, or whose first line's length, the log does not tell.
STARTING: frozenset[Bucket] = frozenset({"startup", "checkpoint_load"})
# After the last line of an attempt whose fault nobody saw: it may have stood still for some of it.
ENDING: frozenset[Bucket] = frozenset({"lost_work", "detection"})


def bounds_ms(segments: Iterable[Segment]) -> dict[Bucket, tuple[int, int]]:
    """The least and the most milliseconds of each bucket; what it holds in the ledger lies within."""
    least: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    most: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    for segment in segments:
        others = segment.maybe - {segment.bucket}
        if not others:
            least[segment.bucket] += segment.length_ms
        most[segment.bucket] += segment.length_ms
        for bucket in others:
            most[bucket] += segment.length_ms
    return {bucket: (least[bucket], most[bucket]) for bucket in BUCKETS}
