"""The timeline: a cursor that only moves forward."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from goodput.timeline import BUCKETS, Segment, Timeline, from_ms, merged, sums, to_ms

paints = st.lists(st.tuples(st.sampled_from(BUCKETS), st.integers(-50, 200)), max_size=30)


def test_moments_are_whole_milliseconds_rounded_down() -> None:
    """There and back again, before 1970 too."""
    moment = datetime(2025, 3, 1, 4, 5, 6, 789_999, tzinfo=UTC)
    assert from_ms(to_ms(moment)) == moment.replace(microsecond=789_000)
    assert to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == -1


def test_neighbours_of_one_bucket_join_but_not_across_parts() -> None:
    """An attempt's segments stay its own until the end."""
    timeline = Timeline(0)
    timeline.paint("waiting", 10)
    timeline.paint("waiting", 20)
    part = timeline.begin_part()
    timeline.paint("waiting", 30)
    assert timeline.segments == [Segment(0, 20, "waiting"), Segment(20, 30, "waiting")]
    assert part == 1
    assert merged(timeline.segments) == (Segment(0, 30, "waiting"),)


def test_what_lies_behind_the_cursor_changes_nothing() -> None:
    """Late news cannot make an overlap."""
    timeline = Timeline(100)
    timeline.paint("startup", 150)
    timeline.paint("productive", 120)
    timeline.paint("productive", 150)
    assert timeline.segments == [Segment(100, 150, "startup")]


def test_repainting_cuts_a_segment_at_the_moment_and_spares_other_buckets() -> None:
    """Work since the save is lost; the save and what came before it stay."""
    timeline = Timeline(0)
    part = timeline.begin_part()
    for bucket, until in (("productive", 10), ("checkpoint_save", 12), ("productive", 20), ("detection", 25)):
        timeline.paint(bucket, until)  # type: ignore[arg-type]  # the tuple's words are buckets
    timeline.repaint(part, 5, ("productive",), "lost_work")
    assert timeline.segments == [
        Segment(0, 5, "productive"),
        Segment(5, 10, "lost_work"),
        Segment(10, 12, "checkpoint_save"),
        Segment(12, 20, "lost_work"),
        Segment(20, 25, "detection"),
    ]


@given(paints, st.integers(-50, 200))
def test_the_sums_are_the_length_whatever_is_painted_and_repainted(steps: list[tuple[object, int]], since: int) -> None:
    """Nothing negative, no hole."""
    timeline = Timeline(0)
    for bucket, until in steps:
        timeline.paint(bucket, until)  # type: ignore[arg-type]  # sampled from BUCKETS
    timeline.repaint(0, since, ("productive", "degraded"), "lost_work")
    totals = sums(timeline.segments)
    assert list(totals) == list(BUCKETS)
    assert sum(totals.values()) == timeline.cursor_ms
    assert sum(segment.length_ms for segment in merged(timeline.segments)) == timeline.cursor_ms
    assert all(one.end_ms == two.start_ms for one, two in zip(timeline.segments, timeline.segments[1:], strict=False))
