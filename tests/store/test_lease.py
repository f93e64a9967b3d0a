"""Leases: one holder at a time, whoever asks, and a new one when it dies."""

import threading
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database.coordination import acquire, release
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment after noon."""
    return NOW + timedelta(seconds=seconds)


def test_of_many_that_ask_at_once_one_gets_it(any_engine: sa.Engine) -> None:
    """In each of several rounds; nobody fails."""
    for round_ in range(3):
        got: list[str] = []
        failures: list[BaseException] = []

        def ask(holder: str, name: str = f"loop{round_}") -> None:
            try:
                if acquire(any_engine, name, holder, NOW, 60.0):
                    got.append(holder)  # noqa: B023  # joined within the round
            except BaseException as error:  # noqa: BLE001  # shown by the test
                failures.append(error)  # noqa: B023

        threads = [threading.Thread(target=ask, args=(f"h{i}",)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(got) == 1


def test_a_dead_holder_is_followed_when_its_time_is_up(any_engine: sa.Engine) -> None:
    """Not a microsecond before; and should it come back, it has to wait itself."""
    assert acquire(any_engine, "x", "dead", NOW, 60.0)
    assert not acquire(any_engine, "x", "heir", at(59.999999), 60.0)
    assert acquire(any_engine, "x", "heir", at(60), 60.0)
    assert not acquire(any_engine, "x", "dead", at(61), 60.0)


def test_a_holder_that_goes_on_renewing_keeps_it(any_engine: sa.Engine) -> None:
    """Each renewal counts from its own moment."""
    for second in range(0, 300, 50):
        assert acquire(any_engine, "x", "a", at(second), 60.0)
        assert not acquire(any_engine, "x", "b", at(second + 49), 60.0)


def test_only_its_holder_gives_a_lease_back(any_engine: sa.Engine) -> None:
    """A server that stops late does not take it from its heir; giving back what one has not is nothing."""
    assert acquire(any_engine, "x", "a", NOW, 60.0)
    release(any_engine, "x", "b")
    release(any_engine, "y", "a")
    assert not acquire(any_engine, "x", "b", at(1), 60.0)
    release(any_engine, "x", "a")
    release(any_engine, "x", "a")
    assert acquire(any_engine, "x", "b", at(1), 60.0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 40), st.floats(1, 90), st.booleans()), min_size=1, max_size=12
    )
)
def test_a_lease_is_never_held_twice(engine: sa.Engine, steps: list[tuple[str, float, float, bool]]) -> None:
    """Against a plain model: any order of asking, waiting and giving back."""
    with engine.begin() as connection:
        connection.execute(sa.delete(schema.leases))
    now, holder, until = NOW, "", NOW
    for who, wait_s, ttl_s, gives_back in steps:
        now += timedelta(seconds=wait_s)
        if gives_back:
            release(engine, "x", who)
            if who == holder:
                holder = ""
            continue
        free = holder in ("", who) or until <= now
        assert acquire(engine, "x", who, now, ttl_s) is free
        if free:
            holder, until = who, now + timedelta(seconds=ttl_s)


def test_the_database_s_clock_decides(any_engine: sa.Engine) -> None:
    """Whatever the time of this host is: a lease of now lasts for its time from the database's now."""
    assert acquire(any_engine, "x", "a", None, 600.0)
    assert not acquire(any_engine, "x", "b", None, 600.0)
    with any_engine.connect() as connection:
        until = connection.scalar(sa.select(schema.leases.c.until))
    assert until is not None
    assert abs((until - datetime.now(UTC)).total_seconds() - 600) < 300  # one machine, one clock
    assert not acquire(any_engine, "x", "b", until - timedelta(microseconds=1), 600.0)
    assert acquire(any_engine, "y", "a", None, -1.0)
    assert acquire(any_engine, "y", "b", None, 600.0)
