"""A new machine does not inherit the hold of the old one."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from schedulers.lifecycle.replacement import DeviceIdentity, MachineRecords, read_machines, replaced
from store.database.connections import writing
from store.events.append import append_events, append_nodes
from store.records.event import Device, Event
from store.records.hint import Evidence
from store.records.node import Node

from .cluster import HOUR, NOW, hint

PLACE = "0000:0f:00.0"
HELD = hint("a", hours_ago=5, incident="e1")


def why(**machines: Any) -> str | None:
    """Why the hint of node a is dropped."""
    return replaced([HELD], MachineRecords(**{"since": {}, "until": {}} | machines), NOW).get("h-a")


@pytest.mark.parametrize(("hours_ago", "dropped"), [(4, True), (6, False), (-1, False)])
def test_a_node_that_came_into_service_since_is_another(hours_ago: float, dropped: bool) -> None:
    """After the hint was made, and by now."""
    said = why(since={"a": NOW - hours_ago * HOUR})
    assert (said is not None) is dropped
    assert said is None or said.startswith("a is another machine since 2025-03-01T08:00:00")


def test_a_node_that_left_service_is_dropped() -> None:
    """Not one that will."""
    assert why(until={"a": NOW}) == "a left service at 2025-03-01T12:00:00.000000Z"
    assert why(until={"a": NOW + HOUR}) is None


def part(hours_ago: float, place: str = PLACE, **numbers: str) -> DeviceIdentity:
    """A device as an event named it."""
    return DeviceIdentity("a", place, NOW - hours_ago * HOUR, numbers)


def test_another_number_in_the_same_place_is_another_part() -> None:
    """Serial or uuid; a number that is not told says nothing, nor does another place, nor what was before."""
    blamed = {"h-a": part(5, serial="S1", uuid="GPU-1")}
    assert why(blamed=blamed, seen={"a": [part(1, serial="S2")]}) == (
        f"a has another device at {PLACE}: its serial was S1, and is S2"
    )
    assert why(blamed=blamed, seen={"a": [part(1, uuid="GPU-2")]}) is not None
    for seen in (part(1, serial="S1"), part(1), part(1, "0000:10:00.0", serial="S2"), part(6, serial="S2")):
        assert why(blamed=blamed, seen={"a": [seen]}) is None
    assert why(seen={"a": [part(1, serial="S2")]}) is None


def event(ident: str, hours_ago: float, uuid: str | None, pci: str | None = PLACE, **attributes: Any) -> Event:
    """Something that befell a GPU."""
    device = Device("gpu", pci, 0, uuid)
    return Event(
        time=NOW - hours_ago * HOUR,
        node="a",
        source="kernel",
        kind="xid",
        code=79,
        severity="fatal",
        cause="hardware",
        action="reset_gpu",
        device=device,
        message="gone",
        attributes=attributes,
        id=ident,
    )


def test_machines_are_read_from_records_and_events(any_engine: sa.Engine) -> None:
    """The incident bears its first event's id; the serial is an attribute, the uuid the device's."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("a", in_service_since=NOW - 90 * HOUR), Node("b", in_service_until=NOW)])
        append_events(connection, [event("e1", 5, "GPU-1", serial=17), event("e2", 6, "GPU-0")], NOW)
    hints = [HELD, hint("b"), replace(hint("c"), evidence=Evidence(incident="unknown"))]
    with any_engine.connect() as connection:
        assert set(replaced(hints, read_machines(connection, hints), NOW)) == {"h-b"}
    with writing(any_engine).begin() as connection:
        append_events(connection, [event("e3", 1, None, serial="18"), event("e4", 1, None, None)], NOW)
    with any_engine.connect() as connection:
        machines = read_machines(connection, hints)
    assert machines.blamed["h-a"].numbers == {"serial": "17", "uuid": "GPU-1"}
    assert [one.numbers for one in machines.seen["a"]] == [{"serial": "18"}]
    assert set(replaced(hints, machines, NOW)) == {"h-a", "h-b"}


def test_nothing_is_read_for_no_hints(engine: sa.Engine) -> None:
    """Nor does an empty list trouble the database."""
    with engine.connect() as connection:
        assert read_machines(connection, []) == MachineRecords({}, {})
