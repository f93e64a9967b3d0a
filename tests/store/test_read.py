"""Reads on both databases: half-open windows, cursors, and nothing that was not known then."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.database.connections import writing
from store.events.append import append_events, append_nodes, append_outages
from store.events.event_pages import EventWindow, newest_time, read_events, read_incidents
from store.nodes.inventory import read_nodes, read_outages
from store.records.event import Device, Event
from store.records.incident import Incident
from store.records.node import Node
from store.records.outage import Outage
from store.records.telemetry import Rollup
from store.tables import schema
from store.telemetry.hours import append_rollups

START = datetime(2025, 3, 1, tzinfo=UTC)


def at(hour: float) -> datetime:
    """A moment of the test's day."""
    return START + timedelta(hours=hour)


@pytest.fixture
def filled(any_engine: sa.Engine) -> sa.Engine:
    """Twelve events, one an hour, of two nodes, three kinds and two sources; two of them at one moment."""
    events = [
        Event(
            at(hour),
            f"n{hour % 2}",
            "training" if hour % 3 == 0 else "kernel",
            ("xid", "sxid", "iteration")[hour % 3],
            attributes={"run": "llm"} if hour % 4 == 0 else {},
            id=f"{hour:02d}",
        )
        for hour in range(12)
    ]
    with writing(any_engine).begin() as connection:
        append_events(connection, [*events, Event(at(5), "n1", "kernel", "xid", id="05b")], at(24))
    return any_engine


def ids(engine: sa.Engine, window: EventWindow, **options: object) -> list[str]:
    """The ids that a read gives, as hours."""
    with engine.begin() as connection:
        return [event.id or "" for event in read_events(connection, window, **options)]  # type: ignore[arg-type]


def test_events_come_in_order_of_time_and_id(filled: sa.Engine) -> None:
    """All of them, without a window."""
    assert ids(filled, EventWindow()) == ["00", "01", "02", "03", "04", "05", "05b", "06", "07", "08", "09", "10", "11"]


def test_a_window_has_its_beginning_and_not_its_end(filled: sa.Engine) -> None:
    """since <= time < until; an open side is open."""
    assert ids(filled, EventWindow(since=at(2), until=at(5))) == ["02", "03", "04"]
    assert ids(filled, EventWindow(since=at(10))) == ["10", "11"]
    assert ids(filled, EventWindow(until=at(1))) == ["00"]
    assert ids(filled, EventWindow(since=at(5), until=at(5))) == []


def test_events_are_told_apart_by_node_kind_run_and_source(filled: sa.Engine) -> None:
    """Each alone and together."""
    assert ids(filled, EventWindow(node="n0")) == ["00", "02", "04", "06", "08", "10"]
    assert ids(filled, EventWindow(kind="sxid")) == ["01", "04", "07", "10"]
    assert ids(filled, EventWindow(run="llm")) == ["00", "04", "08"]
    assert ids(filled, EventWindow(node="n0", kind="sxid", run="llm")) == ["04"]
    assert ids(filled, EventWindow(), kinds=["sxid", "iteration"], excluding=["training"], limit=3) == [
        "01",
        "02",
        "04",
    ]
    assert ids(filled, EventWindow(), kinds=[]) == []
    assert ids(filled, EventWindow(node="nobody")) == []


def test_a_cursor_goes_on_after_the_last_even_within_one_moment(filled: sa.Engine) -> None:
    """Page by page gives the same as at once."""
    paged: list[str] = []
    after: tuple[datetime, str] | None = None
    while True:
        with filled.begin() as connection:
            page = list(read_events(connection, EventWindow(after=after), limit=2))
        if not page:
            break
        paged += [event.id or "" for event in page]
        assert page[-1].time is not None
        after = (page[-1].time, page[-1].id or "")
    assert paged == ids(filled, EventWindow())


def test_what_a_read_gives_can_be_broken_off(filled: sa.Engine) -> None:
    """It is a stream."""
    with filled.begin() as connection:
        assert next(read_events(connection, EventWindow())).id == "00"


def outage(node: str, start: float, end: float | None) -> Outage:
    """An outage by its hours."""
    return Outage(node, at(start), None if end is None else at(end), "DOWN", "Xid 79", None, False, "hardware")


def test_as_of_a_moment_nobody_knows_how_an_outage_will_end(any_engine: sa.Engine) -> None:
    """One that begins then or later is not there; one that ended before has its end."""
    with writing(any_engine).begin() as connection:
        append_outages(connection, [outage("a", 1, 2), outage("b", 1, 9), outage("c", 3, None), outage("a", 6, 7)])
    with any_engine.begin() as connection:
        assert read_outages(connection, until=at(6)) == [outage("a", 1, 2), outage("b", 1, None), outage("c", 3, None)]
        assert read_outages(connection, until=at(2))[0] == outage("a", 1, None)
        assert read_outages(connection, node="a") == [outage("a", 1, 2), outage("a", 6, 7)]
        assert len(read_outages(connection)) == 4


def test_nodes_come_by_name(any_engine: sa.Engine) -> None:
    """With all that is known of them."""
    nodes = [Node("b"), Node("a", "r1", "leaf", "H100", 8, "550", at(0), at(9))]
    with writing(any_engine).begin() as connection:
        append_nodes(connection, nodes)
    with any_engine.begin() as connection:
        assert read_nodes(connection) == nodes[::-1]


def test_incidents_are_found_by_when_they_showed(any_engine: sa.Engine) -> None:
    """One that began before the window and lasted into it is there."""
    incident = Incident(
        "i", "n0", at(1), at(5), "xid", 79, "fatal", "hardware", "reboot_node", Device("gpu", index=3), "gone", 4,
        {"xid:79": 4},
    )  # fmt: skip
    with writing(any_engine).begin() as connection:
        row = {column.name: getattr(incident, column.name, None) for column in schema.incidents.columns}
        device = {"type": "gpu", "pci": None, "index": 3, "uuid": None, "port": None}
        connection.execute(sa.insert(schema.incidents), [{**row, "device": device}])
    with any_engine.begin() as connection:
        assert read_incidents(connection, at(3), at(4)) == [incident]
        assert read_incidents(connection, at(5), at(6), node="n0") == [incident]
        assert read_incidents(connection, at(0), at(1)) == []
        assert read_incidents(connection, at(6), at(9)) == []
        assert read_incidents(connection, at(0), at(9), node="n1") == []


def test_the_newest_time_is_of_events_or_roll_ups(any_engine: sa.Engine) -> None:
    """None where there is nothing."""
    with writing(any_engine).begin() as connection:
        assert newest_time(connection) is None
        append_rollups(connection, [Rollup("n0", at(3), 8, 8)])
        assert newest_time(connection) == at(3)
        append_events(connection, [Event(at(4), "n0", "s", "k")], at(24))
        assert newest_time(connection) == at(4)


MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001  # hypothesis adds the zone


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments=st.lists(MOMENTS, min_size=1, max_size=5, unique=True))
def test_any_moment_is_stored_to_the_microsecond_and_sorts(any_engine: sa.Engine, moments: list[datetime]) -> None:
    """Before 1970 and in far years too."""
    with writing(any_engine).begin() as connection:
        connection.execute(sa.delete(schema.events))
        append_events(connection, [Event(moment, None, "s", "k") for moment in moments], max(moments))
        assert [event.time for event in read_events(connection, EventWindow())] == sorted(moments)
