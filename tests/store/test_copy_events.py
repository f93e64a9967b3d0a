"""Events into PostgreSQL: any text survives COPY, a record that is read again is known, two connections store one."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from real.patience import patience

from store.database.connections import TRIES, transact, writing
from store.database.partitions import ensure_days
from store.events import event_rows
from store.events.append import append_events
from store.events.event_pages import EventWindow, read_events
from store.records.event import Device, Event
from store.tables import schema

pytestmark = pytest.mark.integration

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def append(engine: sa.Engine, *events: Event, received: datetime = NOW) -> int:
    """Append in one transaction; returns how many were new."""
    ensure_days(engine, {event.time or received for event in events}, ("events",), now=NOW)
    with writing(engine).begin() as connection:
        return len(append_events(connection, events, received).new)


def stored(engine: sa.Engine) -> list[Event]:
    """Every event, by time."""
    with engine.begin() as connection:
        return list(read_events(connection, EventWindow()))


def note(number: int, **changes: Any) -> Event:
    """One of many events."""
    return Event(**{"time": NOW + timedelta(seconds=number), "node": "n1", "source": "kernel", "kind": "k", **changes})


def test_any_text_survives(postgres_engine: sa.Engine) -> None:
    """Whatever COPY reads otherwise: tabs, line ends, backslashes, its word for null; empty is not null."""
    odd = ["\t", "\n", "\r", "\\", "\\N", "\\.", "a\tb\\n\r\n", "\x01\x02\x7f", "\u2620", '"', "{}", "NULL", ""]
    events = [
        note(number, id=f"{number}{text}", node=text or None, kind=f"k{text}", message=text, file=text or None)
        for number, text in enumerate(odd)
    ]
    events.append(note(99, id="\\.", code=-(2**63), line=2**63 - 1, device=Device("\t\\", "\n", 1, "\\N", 2)))
    events.append(note(100, id="last", attributes={"a\tb": "\\\n", "n": None, "run": "r\\"}))
    assert append(postgres_engine, *events) == len(events)
    assert stored(postgres_engine) == events
    assert append(postgres_engine, *events) == 0


def test_nul_characters_are_left_out(postgres_engine: sa.Engine) -> None:
    """No text holds one there; the event is worth more than they are."""
    assert append(postgres_engine, note(0, id="e", message="a\0b", file="f\0"), note(1, id="f", message="c")) == 2
    assert [(event.message, event.file) for event in stored(postgres_engine)] == [("ab", "f"), ("c", None)]


@pytest.mark.parametrize("others", [0, 40], ids=["a-few-days", "many-days"])
def test_a_record_that_is_read_again_is_known_though_its_time_is_a_little_off(
    postgres_engine: sa.Engine, others: int
) -> None:
    """kmsg's times are reckoned from the boot's; by hours, over midnight; in a batch of one day or of many."""
    before = [note(0, id="e"), note(0, id="f", time=NOW - 5 * DAY)]
    assert append(postgres_engine, *before) == 2
    off = [note(0, id=e.id, time=(e.time or NOW) + timedelta(hours=h)) for e in before for h in (-23, 23)]
    for event in off:
        far = [note(0, id=f"{event.id}{event.time}{n}", time=NOW - n * DAY) for n in range(others)]
        assert append(postgres_engine, *far, event) == others
    assert append(postgres_engine, note(0, id="e", time=NOW + 3 * DAY), received=NOW + 3 * DAY) == 1


def test_a_record_without_a_time_is_known_for_thirty_days(postgres_engine: sa.Engine) -> None:
    """Only its id tells; so for one that claims a time to come."""
    undated, claims = note(0, time=None), note(0, id="c", time=datetime(2999, 1, 1, tzinfo=UTC))
    for days, new in ((0, 2), (1, 0), (29, 0)):
        assert append(postgres_engine, undated, claims, received=NOW + days * DAY) == new
    assert [event.time for event in stored(postgres_engine)] == [NOW, NOW]


def at_once(works: list[Callable[[], int]]) -> int:
    """Run each in a thread, all at the same moment; the sum of what they return."""
    ready, results = threading.Barrier(len(works)), []

    def run(work: Callable[[], int]) -> None:
        ready.wait(patience(30))
        results.append(work())

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert len(results) == len(works)
    return sum(results)


def test_what_two_connections_send_at_the_same_moment_is_stored_once(postgres_engine: sa.Engine) -> None:
    """With a time and without; forwards and backwards; and each is new to one of them alone."""
    events = [note(number, id=f"e{number:03d}") for number in range(200)]
    undated = [note(number, time=None, id=f"u{number:03d}") for number in range(50)]
    ways = [[*events, *undated], [*reversed(undated), *reversed(events)], events[50:], undated[20:]]
    times = [NOW + timedelta(microseconds=n) for n in range(len(ways))]
    works = [lambda w=w, t=t: append(postgres_engine, *w, received=t) for w, t in zip(ways, times, strict=True)]
    assert at_once(works) == 250
    assert sorted(event.id or "" for event in stored(postgres_engine)) == sorted(
        e.id or "" for e in (*events, *undated)
    )


def test_what_another_writer_stored_in_between_is_left_out(
    postgres_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this one looked and before it wrote: the rest goes in by another way."""
    assert append(postgres_engine, note(0), note(1)) == 2
    monkeypatch.setattr(event_rows, "_stored_ids", lambda *_: set())
    with writing(postgres_engine).begin() as connection:
        taken = append_events(connection, [note(number) for number in range(4)], NOW)
        assert {event.time for event in taken.new} == {NOW + timedelta(seconds=number) for number in (2, 3)}
        assert len(append_events(connection, [note(3), note(4)], NOW).new) == 1
    assert len(stored(postgres_engine)) == 5


def test_an_error_of_the_driver_is_one_of_sqlalchemy_s(postgres_engine: sa.Engine) -> None:
    """Callers know no other: a 503 of the API, a fold that comes again."""
    with writing(postgres_engine).begin() as connection, pytest.raises(sa.exc.ProgrammingError):
        connection.execute(sa.text("ALTER TABLE events RENAME COLUMN line TO row"))
        append_events(connection, [note(0)], NOW)


def test_a_transaction_that_was_ended_for_another_s_sake_is_run_again(postgres_engine: sa.Engine) -> None:
    """Two that wait for each other: PostgreSQL ends one, and both come through."""
    table = schema.rules
    row = {"time": NOW, "version": "v", "text": ""}
    with postgres_engine.begin() as connection:
        connection.execute(table.insert(), [row, row])
    both, tries = threading.Barrier(2), []

    def work(first: int, second: int) -> Callable[[sa.Connection], int]:
        def change(connection: sa.Connection) -> int:
            tries.append(first)
            for seq in (first, second):
                connection.execute(sa.update(table).where(table.c.seq == seq).values(text=str(first)))
                if seq == first and len(tries) <= 2:
                    both.wait(patience(30))
            return 1

        return change

    assert at_once([lambda: transact(postgres_engine, work(1, 2)), lambda: transact(postgres_engine, work(2, 1))]) == 2
    assert 2 < len(tries) <= 2 * TRIES


def test_a_transaction_that_fails_by_itself_is_not_run_again(postgres_engine: sa.Engine) -> None:
    """What is wrong with it would be wrong again."""
    tries: list[int] = []

    def work(connection: sa.Connection) -> None:
        tries.append(1)
        connection.execute(sa.text("SELECT 1/0"))

    with pytest.raises(sa.exc.DataError):
        transact(postgres_engine, work)
    assert len(tries) == 1
