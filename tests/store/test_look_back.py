"""Stretches of time, one after the other: together the whole window, and none of it twice."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from store.tables.pages import TimeStretch, backwards, forwards

START = datetime(2025, 1, 1, tzinfo=UTC)
days = st.integers(-500, 500)
sides = st.one_of(st.none(), days)


def at(day: int | None) -> datetime | None:
    """The moment of a day."""
    return None if day is None else START + timedelta(days=day)


def holds(stretch: TimeStretch, moment: datetime) -> bool:
    """Whether a moment lies in a stretch."""
    since, until = stretch
    return (since is None or since <= moment) and (until is None or moment < until)


@given(days, sides, sides, st.lists(days, max_size=20))
def test_every_moment_of_the_window_lies_in_one_stretch(
    near: int, since: int | None, until: int | None, moments: list[int]
) -> None:
    """Whatever the window, and wherever the search begins: both ways, in order, no other moment."""
    for search, sign in ((backwards, -1), (forwards, 1)):
        stretches = list(search(START + timedelta(days=near), at(since), at(until)))
        for day in moments:
            moment = START + timedelta(days=day)
            inside = (since is None or day >= since) and (until is None or day < until)
            assert sum(holds(stretch, moment) for stretch in stretches) == int(inside), (search, stretches)
        found = [place for day in sorted(moments, reverse=sign < 0) for place in _places(stretches, day)]
        assert found == sorted(found), "the nearer ones come first"


def _places(stretches: list[TimeStretch], day: int) -> list[int]:
    moment = START + timedelta(days=day)
    return [place for place, stretch in enumerate(stretches) if holds(stretch, moment)]


def test_the_calendar_has_ends() -> None:
    """A search from its first day on does not overflow."""
    first = datetime.min.replace(tzinfo=UTC)
    assert list(backwards(first)) == [(None, None)]
    assert list(forwards(datetime.max.replace(tzinfo=UTC))) == [(None, None)]
