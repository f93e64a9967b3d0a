"""The incidents table: however events arrive, it holds what coalescing all of them gives."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from fault_events import at, iteration, job, lost_port, xid
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_jobs
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.incident import Incident


def taken(engine: sa.Engine, *batches: list[Event]) -> list[Incident]:
    """The stored incidents after batches, each appended and merged as the API does it."""
    for batch in batches:
        with writing(engine).begin() as connection:
            appended = append_events(connection, batch, received=at(10_000))
            update_incidents(connection, appended.new)
    with engine.begin() as connection:
        return read_incidents(connection, at(-10_000), at(100_000))


def test_later_events_join_the_stored_incident(engine: sa.Engine) -> None:
    """The incident grows; its id, start and head stay."""
    (incident,) = taken(engine, [xid(79, 0)], [xid(45, 30)], [xid(31, 80)])
    assert (incident.code, incident.count, incident.end) == (79, 3, at(80))


def test_a_late_event_may_join_two_incidents_into_one(engine: sa.Engine) -> None:
    """The event between them was on its way."""
    assert len(taken(engine, [xid(79, 0), xid(79, 110)])) == 2
    (incident,) = taken(engine, [xid(45, 55)])
    assert (incident.count, incident.start, incident.end) == (3, at(0), at(110))


def test_a_late_first_event_gives_the_incident_its_id(engine: sa.Engine) -> None:
    """The id is that of the first event, whenever it arrived."""
    (incident,) = taken(engine, [xid(79, 30)], [xid(63, 0)])
    assert (incident.id, incident.code) == ("gpu-001-63-00000.000", 79)


def test_an_undated_event_is_dated_by_its_receipt(engine: sa.Engine) -> None:
    """The store knows when it came in."""
    (incident,) = taken(engine, [replace(xid(79, 0), time=None)])
    assert incident.start == at(10_000)


def test_what_is_no_fault_touches_nothing(engine: sa.Engine) -> None:
    """Training lines make no incident."""
    with writing(engine).begin() as connection:
        assert update_incidents(connection, [iteration(1)]) == []


def test_the_blast_radius_is_the_size_of_the_job_on_the_node(engine: sa.Engine) -> None:
    """The job that ran when the incident began; none where no job ran."""
    with writing(engine).begin() as connection:
        append_jobs(connection, [job(0, 100, "FAILED"), job(200, None, "RUNNING", "gpu-[001-002]", number=2)])
    found = taken(engine, [xid(79, 50), xid(79, 150), xid(79, 300), xid(79, 50, "gpu-009"), lost_port(50, None)])
    radius = {(one.node, one.start): one.blast_radius for one in found}
    assert radius == {
        ("gpu-001", at(50)): 4,
        ("gpu-001", at(150)): None,
        ("gpu-001", at(300)): 4,
        ("gpu-009", at(50)): None,
        (None, at(50)): None,
    }


def test_many_nodes_and_many_reworked_incidents_at_once(engine: sa.Engine) -> None:
    """Beyond the sizes that are asked for one by one, the same comes out."""
    events = [xid(79, second, f"gpu-{n:03d}") for n in range(450) for second in (0, 40)]
    early = [xid(63, 20, f"gpu-{n:03d}") for n in range(450)]
    assert taken(engine, events, early) == coalesce([*events, *early])


def test_late_events_of_a_flood_are_counted_without_reading_the_others(engine: sa.Engine) -> None:
    """In batches out of order: the count is exact, and so is what names it, with no event in the store to ask."""
    flood = [xid(31, n / 10) for n in range(300)] + [xid(45, 7.05), xid(79, 12.05)]
    with writing(engine).begin() as connection:
        for start in (7, 3, 5, 0, 6, 1, 4, 2):
            update_incidents(connection, flood[start::8])
        (incident,) = read_incidents(connection, at(0), at(100))
    assert [incident] == coalesce(flood)
    assert (incident.count, incident.kinds) == (302, {"xid:31": 300, "xid:45": 1, "xid:79": 1})


events = st.lists(
    st.builds(
        lambda code, second, node: lost_port(second, None) if node is None else xid(code, second, node),
        st.sampled_from([79, 45, 31, 122, 63, 43, 48]),
        st.integers(0, 400),
        st.sampled_from(["a", "b", None]),
    ),
    max_size=25,
    unique_by=lambda event: event.id,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """One database for all examples, emptied before each."""
    engine = open_database(f"sqlite:///{Path(tmp_path_factory.mktemp('db')) / 'x.db'}")
    migrate(engine)
    yield engine
    engine.dispose()


@settings(max_examples=120, deadline=None)
@given(events, st.lists(st.integers(1, 6), max_size=25))
def test_any_order_and_any_batches_give_what_coalescing_all_gives(
    shared: sa.Engine, events: list[Event], cuts: list[int]
) -> None:
    """The order of arrival leaves no trace."""
    with writing(shared).begin() as connection:
        for table in ("events", "incidents"):
            connection.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608  # names of ours
    batches, rest = [], list(events)
    for cut in [*cuts, len(events)]:
        batches.append(rest[:cut])
        rest = rest[cut:]
    assert taken(shared, *batches) == coalesce(events)
