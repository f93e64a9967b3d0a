"""The time of PyTorch's and glog's own loggers: month and day, no year."""

from datetime import datetime

from parsers.stamp import Stamps

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def glog_time(told: tuple[int, str, str] | None, stamps: Stamps, seen: datetime | None) -> datetime | None:
    """The moment of a month, day and clock, nearest to the newest time that was `seen`; None where they tell none."""
    if told is None or not 1 <= told[0] <= 12:
        return None
    month, day, clock = told
    if seen is not None:
        return stamps.nearest(month, day, clock, seen)
    return stamps.yearless(_MONTHS[month - 1], day, clock)
