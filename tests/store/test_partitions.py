"""A table a day: made when needed, by anybody, and nobody waits for it or fails for want of it."""

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
import sqlalchemy as sa
from real.patience import patience

from store.database import partitions as module
from store.database.connections import open_database, writing
from store.database.partitions import DIVIDED, ensure_days, name_of, partitions
from store.events.append import append_events
from store.records.event import Event
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TODAY = NOW.date()

pytestmark = pytest.mark.integration


@pytest.fixture
def others(postgres_engine: sa.Engine) -> Iterator[list[sa.Engine]]:
    """Three more engines of the same database, as other processes have them: none knows what another knows."""
    engines = [open_database(postgres_engine.url.render_as_string(hide_password=False)) for _ in range(3)]
    yield engines
    for engine in engines:
        engine.dispose()


def names(engine: sa.Engine, table: str = "events") -> list[str]:
    """The partitions of a table."""
    with engine.connect() as connection:
        return [part.name for part in partitions(connection, table)]


def write(engine: sa.Engine, *moments: datetime) -> None:
    """An event at each moment."""
    with writing(engine).begin() as connection:
        append_events(connection, [Event(moment, "n", "kernel", "note") for moment in moments], NOW)


def places(engine: sa.Engine) -> dict[str, int]:
    """How many events lie in which partition."""
    query = sa.text("SELECT tableoid::regclass::text, count(*) FROM events GROUP BY 1")
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def test_a_new_database_has_the_table_of_others_alone(postgres_engine: sa.Engine) -> None:
    """Its first days are made like any other."""
    for table in DIVIDED:
        assert names(postgres_engine, table) == [f"{table}_other"]


def test_a_day_has_a_table_of_its_own(postgres_engine: sa.Engine) -> None:
    """By days and by moments alike, of the tables that are asked for; its rows lie there."""
    ensure_days(postgres_engine, [NOW, TODAY - DAY], ("events",), NOW)
    expected = [name_of("events", TODAY - DAY), name_of("events", TODAY), "events_other"]
    assert names(postgres_engine) == expected
    assert names(postgres_engine, "scores") == ["scores_other"]
    midnight = datetime(2025, 3, 1, tzinfo=UTC)
    write(postgres_engine, midnight, midnight - timedelta(microseconds=1), midnight + DAY)
    assert places(postgres_engine) == dict.fromkeys(expected, 1)


def test_what_is_there_is_not_asked_for_again(postgres_engine: sa.Engine) -> None:
    """A writer's call costs no statement."""
    ensure_days(postgres_engine, [NOW, datetime(1971, 1, 1, tzinfo=UTC)], ("events",), NOW)
    said: list[str] = []
    sa.event.listen(postgres_engine, "before_cursor_execute", lambda *told: said.append(told[2]))
    ensure_days(writing(postgres_engine), [NOW, datetime(1971, 1, 1, tzinfo=UTC)], ("events",), NOW)
    assert said == []
    ensure_days(postgres_engine, [NOW + DAY], ("events",), NOW)
    assert said


def test_days_far_away_stay_with_the_others(postgres_engine: sa.Engine) -> None:
    """A clock that says 1971 or 2999 makes no tables; its rows are kept and found."""
    odd = [datetime(1971, 1, 1, tzinfo=UTC), NOW + 4 * DAY, NOW - 1501 * DAY]
    ensure_days(postgres_engine, odd, ("events",), NOW)
    assert names(postgres_engine) == ["events_other"]
    write(postgres_engine, *odd)
    assert places(postgres_engine) == {"events_other": 3}
    ensure_days(postgres_engine, [NOW + 3 * DAY, NOW - 1500 * DAY], ("events",), NOW)
    assert len(names(postgres_engine)) == 3


def test_one_call_makes_so_many_days_and_no_more(postgres_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first; the next call goes on."""
    monkeypatch.setattr(module, "MAX_NEW", 2)
    days = [TODAY - i * DAY for i in range(5)]
    for there in (2, 4, 5):
        ensure_days(postgres_engine, days, ("events",), NOW)
        assert names(postgres_engine)[-2] == name_of("events", TODAY)
        assert len(names(postgres_engine)) == there + 1


def test_rows_that_came_before_their_day_move_over(postgres_engine: sa.Engine) -> None:
    """Those of the day, and those alone; as they were."""
    write(postgres_engine, NOW, NOW + DAY)
    with postgres_engine.connect() as connection:
        before = connection.execute(sa.select(schema.events).order_by("time")).all()
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    assert places(postgres_engine) == {name_of("events", TODAY): 1, "events_other": 1}
    with postgres_engine.connect() as connection:
        assert connection.execute(sa.select(schema.events).order_by("time")).all() == before


def test_many_writers_of_a_new_day_make_it_once(postgres_engine: sa.Engine, others: list[sa.Engine]) -> None:
    """Of several processes at once: no failure, no row lost, none in the wrong place."""
    failures: list[BaseException] = []
    gate = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            gate.wait(patience(60))
            for day in range(3):
                moments = [NOW + day * DAY + timedelta(seconds=number * 100 + i) for i in range(20)]
                ensure_days(others[number % 3], moments, ("events",), NOW)
                write(others[number % 3], *moments)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for engine in others:
        module._KNOWN_DAYS.pop(engine.dialect, None)
    ensure_days(others[0], [NOW + i * DAY for i in range(3)], ("events",), NOW)
    assert places(postgres_engine) == {name_of("events", TODAY + i * DAY): 120 for i in range(3)}


def test_a_long_reader_keeps_a_new_day_waiting_and_no_writer(
    postgres_engine: sa.Engine, others: list[sa.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go to the table of others until the reader is done; then they move."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    write(postgres_engine, NOW)
    with others[0].begin() as reader:
        assert reader.scalar(sa.text("SELECT count(*) FROM events")) == 1
        ensure_days(others[1], [NOW + DAY], ("events",), NOW)
        write(others[1], NOW + DAY, NOW + timedelta(seconds=1))
        assert len(names(others[1])) == 2
    assert places(postgres_engine) == {name_of("events", TODAY): 2, "events_other": 1}
    ensure_days(others[1], [NOW + DAY], ("events",), NOW)
    assert len(names(others[1])) == 2, "after a failure it is left alone for a while"
    ensure_days(others[2], [NOW + DAY], ("events",), NOW)
    assert places(postgres_engine) == {name_of("events", TODAY): 2, name_of("events", TODAY + DAY): 1}


def test_a_long_reader_of_other_days_keeps_no_new_day_waiting(
    postgres_engine: sa.Engine, others: list[sa.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole table is never locked, which every reader and writer would wait for."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    with others[0].begin() as reader:
        events = schema.events
        asked = sa.select(events.c.id).where(events.c.time >= NOW, events.c.time < NOW + timedelta(hours=1))
        reader.execute(asked.with_for_update())
        ensure_days(others[1], [NOW + DAY], ("events",), NOW)
        assert len(names(others[1])) == 3


def test_a_day_that_another_process_dropped_takes_rows_all_the_same(
    postgres_engine: sa.Engine, others: list[sa.Engine]
) -> None:
    """Who still takes it for there writes to the table of others."""
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    with others[0].begin() as connection:
        connection.execute(sa.text(f"DROP TABLE {name_of('events', TODAY)}"))
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    write(postgres_engine, NOW)
    assert places(postgres_engine) == {"events_other": 1}


def test_a_table_in_the_way_is_no_error_of_the_writer(postgres_engine: sa.Engine) -> None:
    """Such as a day that was taken out and is being summed up."""
    with postgres_engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {name_of('events', TODAY)} (x int)"))
    ensure_days(postgres_engine, [NOW], ("events",), NOW)
    write(postgres_engine, NOW)
    assert places(postgres_engine) == {"events_other": 1}


def test_a_read_between_moments_looks_at_their_days_alone(postgres_engine: sa.Engine) -> None:
    """By the plan; days beyond both ends are not in it."""
    ensure_days(postgres_engine, [NOW - i * DAY for i in range(5)], ("events",), NOW)
    events = schema.events
    asked = sa.select(events.c.id).where(events.c.time >= NOW - DAY, events.c.time < NOW, events.c.node == "n")
    text = asked.compile(postgres_engine, compile_kwargs={"literal_binds": True})
    with postgres_engine.connect() as connection:
        plan = "\n".join(connection.scalars(sa.text(f"EXPLAIN {text}")))
    found = {name for name in names(postgres_engine) if name in plan}
    assert found == {name_of("events", TODAY - DAY), name_of("events", TODAY)}


@pytest.mark.parametrize(
    ("day", "is_there"), [(date(2025, 3, 1), True), (date(2025, 3, 2), True), (date(2025, 3, 3), False)]
)
def test_a_partition_of_many_days_covers_each_of_them(day: date, is_there: bool) -> None:
    """An operator may attach a table of more days than one; its bounds are printed in any zone."""
    part = module._partition("events", "x", "FOR VALUES FROM ('2025-03-01 01:00:00+01') TO ('2025-03-03 00:00:00+00')")
    assert part.covers(day) is is_there
    assert not module._partition("events", "x", "DEFAULT").covers(day)
