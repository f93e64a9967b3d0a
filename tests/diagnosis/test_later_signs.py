"""What a gauge shows, or what follows days after, is the same fault: one incident, in whatever order it is told."""

import itertools
from datetime import timedelta

import pytest
import sqlalchemy as sa
from fault_events import at, xid

from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.event_pages import read_incidents
from store.records.event import Device, Event, with_id
from store.records.incident import Incident

GPU = Device(type="gpu", index=2)


def shown(seconds: float, code: int = 79, interval_s: float = 600, node: str = "gpu-001") -> Event:
    """An exporter's gauge shows a code that it did not show an interval before."""
    after = (at(seconds) - timedelta(seconds=interval_s)).isoformat()
    attributes = {"gauge": True, "after": after}
    event = Event(
        at(seconds), node, "dcgm", "xid", code, "fatal", "hardware", "reboot_node", GPU, "shown", attributes=attributes
    )
    return with_id(event, "page")


def gone(seconds: float, since: float, code: int = 79) -> Event:
    """A GPU that is missing while its Xid stands."""
    attributes = {"follows": f"xid:{code}", "since": at(since).isoformat()}
    event = Event(at(seconds), "gpu-001", "dcgm", "gpu_missing", severity="warning", device=GPU, attributes=attributes)
    return with_id(event, "page")


def stored(engine: sa.Engine, *batches: list[Event]) -> list[Incident]:
    """The incidents that a database has after batches."""
    for batch in batches:
        with writing(engine).begin() as connection:
            update_incidents(connection, batch)
    with engine.begin() as connection:
        return read_incidents(connection, at(-10_000_000), at(10_000_000))


def what(incidents: list[Incident]) -> list[tuple[object, ...]]:
    """Start, end, source and kinds."""
    return [(one.start, one.end, one.source, one.kinds) for one in incidents]


def test_a_gauge_makes_an_incident_where_no_log_is_kept() -> None:
    """As grave as its Xid."""
    [incident] = coalesce([shown(0)])
    assert (incident.kind, incident.code, incident.severity, incident.device.index) == ("xid", 79, "fatal", 2)


def test_a_gauge_that_shows_the_kernel_s_xid_later_is_no_second_incident() -> None:
    """Up to an interval later; the kernel's line names the incident, and its end stays."""
    [incident] = coalesce([xid(79, 0), shown(400)])
    assert (incident.source, incident.start, incident.end, incident.count) == ("kernel", at(0), at(0), 2)


@pytest.mark.parametrize(
    "other",
    [shown(700), shown(400, code=74), shown(400, node="gpu-002")],
    ids=["later", "code", "node"],
)
def test_a_gauge_that_shows_another_xid_is_an_incident_of_its_own(other: Event) -> None:
    """It was not there an interval before, or it is another fault."""
    assert len(coalesce([xid(79, 0), other])) == 2


def test_a_gpu_that_vanishes_days_after_its_xid_is_the_same_fault() -> None:
    """What else happens on the node meanwhile is not drawn in."""
    events = [shown(0), xid(63, 90_000), gone(500_000, since=0), xid(94, 500_100)]
    assert [one.kinds for one in coalesce(events)] == [{"gpu_missing": 1, "xid:79": 1}, {"xid:63": 1}, {"xid:94": 1}]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_in_which_they_are_stored_does_not_matter(any_engine: sa.Engine, order: tuple[int, ...]) -> None:
    """The kernel's log may come after the telemetry, and what lies between stays apart."""
    events = [xid(79, 0), shown(400), xid(63, 200)]
    found = stored(any_engine, *([events[place]] for place in order))
    assert what(found) == what(coalesce(events))
    assert len(found) == 2


def test_a_sign_of_a_stored_fault_joins_it(any_engine: sa.Engine) -> None:
    """Days later, in another batch."""
    found = stored(any_engine, [shown(0)], [xid(63, 90_000)], [gone(500_000, since=0)])
    assert [one.kinds for one in found] == [{"gpu_missing": 1, "xid:79": 1}, {"xid:63": 1}]


def test_attributes_that_are_none_of_ours_are_no_sign() -> None:
    """Anybody may post an event: what cannot be read says nothing."""
    odd = [
        xid(79, 0),
        *(
            Event(at(seconds), "gpu-001", "dcgm", "gpu_missing", severity="warning", device=GPU, attributes=attributes)
            for seconds, attributes in (
                (500.0, {"follows": "xid:79", "since": "yesterday"}),
                (700.0, {"follows": "xid:many", "since": at(0).isoformat()}),
                (900.0, {"follows": "xid:79", "since": "2025-03-01T12:00:00"}),
                (1100.0, {"follows": 79, "since": None}),
            )
        ),
    ]
    assert len(coalesce(with_id(one, "x") if one.id is None else one for one in odd)) == 5
