"""A ledger cut at midnight (UTC): what of each day went into which bucket.

sum(day.wall_ms for day in days_of(ledger)) == ledger.wall_ms      # always, for a dated ledger
"""

from collections.abc import Iterable

from goodput.ledger import Ledger
from goodput.timeline import DAY_MS, Segment, from_ms
from store.losses import RunDay


def days_of(ledger: Ledger) -> list[RunDay]:
    """The days of a ledger in order, a row for each bucket that holds time; none of a ledger without dates."""
    if not ledger.dated:
        return []
    wall = _by_day((segment, 1) for segment in ledger.segments)
    held = None if ledger.held is None else _by_day(ledger.held)
    # Attempts that overlap hold GPUs in buckets that the wall clock gives to one of them.
    return [
        RunDay(
            from_ms(day_ms),
            bucket,
            wall.get((day_ms, bucket), 0),
            None if held is None else held.get((day_ms, bucket), 0),
        )
        for day_ms, bucket in sorted({*wall, *(held or ())})
    ]


def _by_day(stretches: Iterable[tuple[Segment, int]]) -> dict[tuple[int, str], int]:
    """Milliseconds times width of each midnight's day and bucket."""
    found: dict[tuple[int, str], int] = {}
    for segment, width in stretches:
        begin = segment.start_ms
        while begin < segment.end_ms:
            midnight = (begin // DAY_MS + 1) * DAY_MS
            end = min(midnight, segment.end_ms)
            place = (midnight - DAY_MS, segment.bucket)
            found[place] = found.get(place, 0) + (end - begin) * width
            begin = end
    return found
