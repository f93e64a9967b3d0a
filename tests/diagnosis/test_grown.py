"""Incidents that only count on: their rows stay where they are, and hold what coalescing everything gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from fault_events import at, job, xid

from diagnosis.incidents import incidents_table
from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import append_jobs
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.incident import Incident


def merge(engine: sa.Engine, *batches: list[Event]) -> list[Incident]:
    """The stored incidents after batches."""
    for batch in batches:
        with writing(engine).begin() as connection:
            update_incidents(connection, batch)
    with engine.begin() as connection:
        return read_incidents(connection, at(-10_000), at(100_000))


@contextmanager
def rows_inserted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each call of `insert_rows` gets meanwhile."""
    counts: list[int] = []
    insert = incidents_table.insert_rows

    def counted(connection: Any, table: Any, columns: Any, rows: Any) -> None:
        counts.append(len(rows))
        insert(connection, table, columns, rows)

    with monkeypatch.context() as patch:
        patch.setattr(incidents_table, "insert_rows", counted)
        yield counts


def test_a_flood_changes_the_row_that_is_there(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats of what an incident knows; the same incident as of all at once."""
    first = [xid(79, 0), xid(45, 1, caused_by=79), xid(31, 2)]
    merge(any_engine, first)
    later = [[xid(code, second, name=f"e{code}-{second}") for code in (79, 45, 31)] for second in (10, 20, 30)]
    with rows_inserted(monkeypatch) as inserted:
        stored = merge(any_engine, *later)
    assert inserted == [1, 0, 0]  # the plain Xid 45 is another thing than one that names its cause
    assert stored == coalesce([*first, *(event for batch in later for event in batch)])


def test_each_of_many_grows_by_its_own(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some nodes have news and some a new incident; the others stay as they were."""
    batches = [
        [xid(79, second + number, node=f"n{number}", name=f"{number}-{second}") for number in range(begin, 8, step)]
        for second, begin, step in ((0, 0, 1), (20, 0, 2), (40, 1, 3), (500, 0, 4))
    ]
    merge(any_engine, batches[0])
    with rows_inserted(monkeypatch) as inserted:
        stored = merge(any_engine, *batches[1:])
    assert inserted == [0, 0, 2]
    assert stored == coalesce([event for batch in batches for event in batch])


def test_what_a_late_event_joins_goes_into_the_earlier_row(any_engine: sa.Engine) -> None:
    """It knows all that the other one knew: its row grows, the other's goes."""
    whole = [xid(79, 0), xid(79, 110), xid(79, 55)]
    assert len(merge(any_engine, whole[:2])) == 2
    assert merge(any_engine, whole[2:]) == coalesce(whole)


def test_a_late_first_event_moves_the_row(any_engine: sa.Engine) -> None:
    """Another id, another start: the old row goes."""
    whole = [xid(79, 30), xid(79, 0)]
    assert merge(any_engine, whole[:1], whole[1:]) == coalesce(whole)


def test_a_job_that_is_told_later_is_seen_with_the_next_event(any_engine: sa.Engine) -> None:
    """The blast radius is a column that grows, too."""
    (alone,) = merge(any_engine, [xid(79, 10)])
    with writing(any_engine).begin() as connection:
        append_jobs(connection, [job(0, None, "RUNNING")])
    (beside,) = merge(any_engine, [xid(79, 20)])
    assert (alone.blast_radius, beside.blast_radius, beside.count) == (None, 4, 2)
