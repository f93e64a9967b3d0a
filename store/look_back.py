"""Reading the newest (or the oldest) of a table of days, a stretch of time after the other.

A query without bounds plans and opens every day that is kept, hundreds of them. Most of what is asked for lies near the
present: it is looked for in the nearest day first, then in the week, in the month, and at last in all the rest.
The stretches do not overlap, so what is found is what one query over all of them would find. Each is short: a query
locks every day that it opens, with its indexes, until its transaction ends, and the server has room for so many locks.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

STEPS = tuple(timedelta(days=days) for days in (1, 7, 30, 60, 120, 180, 240, 300, 370))
Stretch = tuple[datetime | None, datetime | None]


def backwards(near: datetime, since: datetime | None = None, until: datetime | None = None) -> Iterator[Stretch]:
    """Stretches since <= time < until from the newest to the oldest; `near` is where what is asked for may lie.

    The first reaches from a day before `near` to the end, the last from the beginning; None is an open side.
    """
    end = until
    for step in STEPS:
        begin = _moved(near, -step)
        if begin is None or (since is not None and begin <= since):
            break
        if end is None or begin < end:
            yield begin, end
            end = begin
    yield since, end


def onwards(near: datetime, since: datetime | None = None, until: datetime | None = None) -> Iterator[Stretch]:
    """Stretches since <= time < until from the oldest to the newest; the first ends a day after `near`."""
    begin = since
    for step in STEPS:
        end = _moved(near, step)
        if end is None or (until is not None and end >= until):
            break
        if begin is None or begin < end:
            yield begin, end
            begin = end
    yield begin, until


def _moved(moment: datetime, by: timedelta) -> datetime | None:
    """The moment moved; None where the calendar ends."""
    try:
        return moment + by
    except OverflowError:
        return None
