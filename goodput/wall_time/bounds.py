"""What a run's records leave open: for each bucket the least and the most of the wall time that it may truly hold.

    bounds_ms(ledger.segments)["productive"]      # (3_600_000, 7_200_000)

Each stretch of time is in one bucket, and says which others it may belong to. The least that a bucket holds is what is
in it beyond doubt; the most is that and all that may be in it. Where the records tell everything, both are equal.
Whole seconds that a log prints are taken as they are: each stall may be off by one.
"""

from collections.abc import Iterable

from goodput.timeline import BUCKETS, Bucket, Segment

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
