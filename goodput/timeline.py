"""A timeline: one cursor that only moves forward, so that its buckets sum to its length whatever is painted.

    timeline = Timeline(start_ms=0)
    timeline.paint("startup", 1_000)
    timeline.paint("productive", 5_000)
    timeline.paint("unknown", 3_000)     # lies behind the cursor: changes nothing

All moments are integer milliseconds since 1970 (or since the log's first line, where no date is known).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
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
    "evaluation",
    "unknown",
]
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)

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
    """A stretch of wall time, [start_ms, end_ms), that went into one bucket."""

    start_ms: int
    end_ms: int
    bucket: Bucket

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
        self._barrier = 0

    def paint(self, bucket: Bucket, until_ms: int) -> None:
        """Give the time from the cursor to `until_ms` to a bucket; a moment behind the cursor changes nothing."""
        if until_ms <= self.cursor_ms:
            return
        last = self.segments[-1] if len(self.segments) > self._barrier else None
        if last is not None and last.bucket == bucket:
            self.segments[-1] = Segment(last.start_ms, until_ms, bucket)
        else:
            self.segments.append(Segment(self.cursor_ms, until_ms, bucket))
        self.cursor_ms = until_ms

    def begin_part(self) -> int:
        """Begin an attempt: its segments never merge with earlier ones. Returns the index of its first segment."""
        self._barrier = len(self.segments)
        return self._barrier

    def repaint(self, part: int, since_ms: int, buckets: Collection[Bucket], to: Bucket) -> None:
        """Move what lies at or after `since_ms` in some buckets of a part into another bucket."""
        fresh: list[Segment] = []
        for segment in self.segments[part:]:
            if segment.bucket not in buckets or segment.end_ms <= since_ms:
                fresh.append(segment)
            elif segment.start_ms >= since_ms:
                fresh.append(Segment(segment.start_ms, segment.end_ms, to))
            else:
                fresh.append(Segment(segment.start_ms, since_ms, segment.bucket))
                fresh.append(Segment(since_ms, segment.end_ms, to))
        self.segments[part:] = fresh


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments with neighbours of one bucket joined."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1].bucket == segment.bucket:
            joined[-1] = Segment(joined[-1].start_ms, segment.end_ms, segment.bucket)
        else:
            joined.append(segment)
    return tuple(joined)


def sums(segments: Iterable[Segment]) -> dict[Bucket, int]:
    """Milliseconds in each bucket; every bucket is there, in the order of BUCKETS."""
    totals: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
    for segment in segments:
        totals[segment.bucket] += segment.length_ms
    return totals
