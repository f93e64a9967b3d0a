"""Stretches of time, one after the other: together the whole window, and none of it twice."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from store.database.connections import writing
from store.database.partitions import ensure_days
from store.events.append import append_events
from store.events.event_pages import EventWindow, event_page, read_events
from store.records.event import Event
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


def test_events_of_the_far_past_are_found_by_plans_that_are_kept(postgres_engine: sa.Engine) -> None:
    """Asked again and again, both ways, also once there are more; other statements are planned as ever."""
    ensure_days(postgres_engine, [(START - timedelta(days=day)).date() for day in range(100)])
    window = EventWindow(node="gpu-001")
    for back in range(0, 99, 9):
        time = START - timedelta(days=back, hours=1)
        with writing(postgres_engine).begin() as connection:
            append_events(connection, [Event(time, node, "kernel", "xid", 79) for node in ("gpu-001", "gpu-002")], time)
        with postgres_engine.connect() as connection:
            plain = [event.id for event in read_events(connection, window)]
        with postgres_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            near = START + timedelta(days=3)
            ways = (window, True), (EventWindow(since=START - timedelta(days=99), node="gpu-001"), False)
            for asked, newest in ways:
                assert [row["id"] for row in event_page(connection, asked, 100, newest, near)] == plain
                assert len(event_page(connection, asked, 2, newest, near)) == min(2, len(plain))
            assert connection.scalar(sa.text("SHOW plan_cache_mode")) == "force_custom_plan"
            kept = connection.scalar(sa.text("SELECT sum(generic_plans) FROM pg_prepared_statements"))
    assert kept
