"""A ledger cut into days: nothing is lost at midnight."""

from dataclasses import replace

from hand_made_run import START, attempt, iteration, ledger
from hypothesis import given
from hypothesis import strategies as some

from goodput.cluster.losses import days_of
from goodput.ledger import Ledger
from goodput.timeline import BUCKETS, DAY_MS, Bucket, Segment, merged, to_ms

EMPTY = ledger([attempt(0, 1)], [])


def with_segments(segments: list[Segment]) -> Ledger:
    """A dated ledger of these segments."""
    return replace(
        EMPTY,
        start_ms=segments[0].start_ms,
        end_ms=segments[-1].end_ms,
        segments=merged(segments),
        held=tuple((segment, 16) for segment in segments),
    )


@given(
    some.integers(0, 3 * DAY_MS),
    some.lists(some.tuples(some.integers(1, 2 * DAY_MS), some.sampled_from(BUCKETS)), min_size=1, max_size=12),
)
def test_the_days_sum_to_the_ledger(begin_ms: int, parts: list[tuple[int, Bucket]]) -> None:
    """To the millisecond in each bucket, and no day holds more than a day."""
    segments, cursor = [], begin_ms
    for length, bucket in parts:
        segments.append(Segment(cursor, cursor + length, bucket))
        cursor += length
    made = with_segments(segments)
    days = days_of(made)
    assert sum(day.wall_ms for day in days) == made.wall_ms
    for bucket, ms in made.buckets_ms.items():
        assert sum(day.wall_ms for day in days if day.bucket == bucket) == ms
    for moment in {day.day for day in days}:
        assert to_ms(moment) % DAY_MS == 0
        assert sum(day.wall_ms for day in days if day.day == moment) <= DAY_MS
    assert all(day.gpu_ms == day.wall_ms * 16 and day.wall_ms > 0 for day in days)


def test_a_segment_over_two_midnights_is_three_days() -> None:
    """An hour, a day, an hour."""
    hour = 3_600_000
    midnight = to_ms(START) + DAY_MS
    days = days_of(with_segments([Segment(midnight - hour, midnight + DAY_MS + hour, "productive")]))
    assert [(to_ms(day.day) - midnight, day.wall_ms) for day in days] == [(-DAY_MS, hour), (0, DAY_MS), (DAY_MS, hour)]


def test_a_run_that_shrinks_holds_fewer_gpus() -> None:
    """Each attempt with its own: three nodes are not counted where two worked."""
    made = ledger([attempt(0, 30, "FAILED", number=1), attempt(40, 60, nodes="gpu-1", number=2)], [])
    assert made.gpu_ms is not None
    assert sum(day.gpu_ms or 0 for day in days_of(made)) == sum(made.gpu_ms.values()) == 30_000 * 16 + 30_000 * 8
    assert [one.gpus for one in made.interruptions] == [16]


def test_without_known_gpus_there_is_no_gpu_time_and_without_dates_no_day() -> None:
    """Null, not 0."""
    made = ledger([attempt(0, 30)], [iteration(10, 1), iteration(20, 2)])
    assert {day.gpu_ms for day in days_of(replace(made, held=None))} == {None}
    assert days_of(replace(made, dated=False)) == []
