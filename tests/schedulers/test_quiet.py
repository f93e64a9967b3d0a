"""Quiet hours, over midnight and in other zones."""

from datetime import UTC, datetime

import pytest

from schedulers.policy.settings import QuietHoursError, quiet_now, read_quiet_hours


def at(hour: int, minute: int = 0, month: int = 1) -> datetime:
    """A time of a day of 2025, in UTC."""
    return datetime(2025, month, 15, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-06:00", [at(22), at(23, 59), at(0), at(5, 59)], [at(6), at(12), at(21, 59)]),
        ("12:00-13:00", [at(12), at(12, 59)], [at(11, 59), at(13), at(0)]),
        ("18:00-24:00", [at(18), at(23, 59)], [at(0), at(17, 59)]),
        ("00:00-08:00 Asia/Shanghai", [at(16), at(23, 59)], [at(0), at(15, 59)]),
        ("22:00-06:00 Europe/Berlin", [at(21), at(20, month=7), at(4, 59)], [at(20), at(5), at(4, month=7)]),
    ],
)
def test_hours_begin_and_end(text: str, inside: list[datetime], outside: list[datetime]) -> None:
    """The first moment is in, the last is not; a zone has its summer time."""
    hours = read_quiet_hours(text)
    assert [hours.hold(moment) for moment in inside] == [True] * len(inside)
    assert [hours.hold(moment) for moment in outside] == [False] * len(outside)


@pytest.mark.parametrize(
    "text",
    ["", "22-06", "22:00", "25:00-06:00", "22:60-06:00", "06:00-06:00", "22:00-06:00 Mars", "a:b-c:d", "24:00-06:00"],
)
def test_what_are_no_hours_is_refused(text: str) -> None:
    """With the text."""
    with pytest.raises(QuietHoursError, match=repr(text)):
        read_quiet_hours(text)


def test_of_several_the_one_that_holds_is_named() -> None:
    """As it is written."""
    hours = ("12:00-13:00", "22:00-06:00")
    assert [quiet_now(hours, at(hour)) for hour in (12, 23, 15)] == ["12:00-13:00", "22:00-06:00", None]
