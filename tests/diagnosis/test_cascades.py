"""Cascades: one fault says many things, on many devices, late and out of order; it stays one incident with one name."""

import json
import random
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import pairwise

import pytest
from fault_events import at, lost_port, xid
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.incidents.incident import (
    FAULT_COLUMNS,
    MAX_HEADS,
    coalesce,
    fault_from,
    fault_of,
    gap_of,
    is_fault,
)
from store.records.event import Device, Event, Severity, kind_key
from store.records.incident import Incident


def on(event: Event, pci: str) -> Event:
    """The event on another GPU of its node."""
    return replace(event, device=Device("gpu", pci=pci), id=f"{event.id}-{pci}")


def sxid(code: int, seconds: float, node: str = "gpu-001", severity: Severity = "fatal", link: int = 46) -> Event:
    """A fault of an NVSwitch at a link."""
    device = Device("nvswitch", pci="0000:c1:00.0", port=link)
    name = f"{node}-sxid-{code}-{seconds:09.3f}-{link}"
    return Event(at(seconds), node, "kernel", "sxid", code, severity, "hardware", "reset_fabric", device, id=name)


def named(*events: Event) -> str:
    """What the one incident of these events is called."""
    (incident,) = coalesce(events)
    return kind_key(incident.kind, incident.code)


def test_channels_torn_down_on_every_gpu_follow_the_one_that_fell_off_the_bus() -> None:
    """An Xid 79, then 45 of all eight GPUs: the incident is the dead one's, with its device and action."""
    torn = [on(xid(45, 0.1 * n), f"0000:{n:02x}:00.0") for n in range(1, 9)]
    (incident,) = coalesce([*torn, xid(79, 0)])
    assert (incident.code, incident.device.pci, incident.action) == (79, "0000:0f:00.0", "reboot_node")
    assert (incident.count, incident.kinds) == (9, {"xid:45": 8, "xid:79": 1})
    assert (incident.start, incident.end) == (at(0), at(0.8))


def test_a_row_remap_before_a_double_bit_error_is_the_smaller_news() -> None:
    """63 (a row will be remapped), 48 (the error itself), 45: named by the error, begun with the first sign."""
    (incident,) = coalesce([xid(63, 0), xid(48, 0.2), xid(45, 0.3)])
    assert (incident.code, incident.severity, incident.start) == (48, "fatal", at(0))
    assert named(xid(48, 0), xid(63, 0.2), xid(45, 0.3)) == "xid:48"
    assert named(xid(63, 0), xid(94, 1), xid(45, 2)) == "xid:94"


def test_of_a_double_bit_error_and_its_failed_remap_the_earlier_names_the_incident() -> None:
    """Both are fatal."""
    assert named(xid(48, 0), xid(64, 1)) == "xid:48"
    assert named(xid(64, 0), xid(48, 1)) == "xid:64"


def test_an_nvlink_error_shows_on_both_ends() -> None:
    """Neighbours report the same link within milliseconds: one incident of the node, called by the first."""
    ends = [on(xid(74, 0.002), "0000:1b:00.0"), on(xid(74, 0), "0000:43:00.0"), on(xid(45, 1), "0000:1b:00.0")]
    (incident,) = coalesce(ends)
    assert (incident.code, incident.device.pci, incident.count) == (74, "0000:43:00.0", 3)


@pytest.mark.parametrize(("first", "name"), [("switch", "sxid:20034"), ("gpu", "xid:74")])
def test_a_switch_fault_and_the_gpus_nvlink_error_are_one_incident(first: str, name: str) -> None:
    """An SXid and an Xid 74 of one link: whichever was first, the pair stays together."""
    switch, gpu = sxid(20034, 0 if first == "switch" else 0.5), xid(74, 0.5 if first == "switch" else 0)
    (incident,) = coalesce([switch, gpu])
    assert kind_key(incident.kind, incident.code) == name
    assert incident.kinds == {"sxid:20034": 1, "xid:74": 1}


def test_a_switch_fault_that_is_not_fatal_leaves_the_name_to_the_gpus_error() -> None:
    """Severity comes before the order."""
    assert named(sxid(22013, 0, severity="error"), xid(74, 0.5)) == "xid:74"


def test_a_torn_down_channel_beside_a_switch_fault_is_its_consequence() -> None:
    """The switch's warning is the root of the program's error."""
    assert named(sxid(22013, 1, severity="warning"), xid(45, 0)) == "sxid:22013"


@pytest.mark.parametrize("cause", [79, 119, 120, 48, 95])
@pytest.mark.parametrize("program", [13, 31])
def test_a_program_that_fell_with_the_gpu_is_never_the_head(cause: int, program: int) -> None:
    """Its lines may be printed first."""
    assert named(xid(program, 0), xid(cause, 5)) == f"xid:{cause}"


def test_reports_alone_are_named_by_the_gravest_of_them() -> None:
    """A changed recovery action and torn-down channels: nothing else is known."""
    assert named(xid(154, 0), xid(45, 1)) == "xid:45"


def test_an_unknown_code_is_a_warning_that_any_known_fault_outranks() -> None:
    """It still makes an incident of its own, to be looked at."""
    assert named(xid(999, 0)) == "xid:999"
    assert named(xid(999, 0), xid(94, 1)) == "xid:94"


def test_the_minute_of_a_node_is_counted_from_event_to_event() -> None:
    """A chain of faults 60 s apart is one incident however long; a microsecond more cuts it."""
    chain = [xid(79, 60 * n) for n in range(30)]
    (long,) = coalesce(chain)
    assert (long.count, long.end - long.start) == (30, timedelta(seconds=1740))
    late = replace(xid(79, 0, name="late"), time=at(60) + timedelta(microseconds=1))
    assert [one.count for one in coalesce([xid(79, 0), late])] == [1, 1]


def test_five_seconds_join_only_the_same_switch_and_the_same_kind() -> None:
    """Fabric events that name no node: by device and code, to the microsecond."""
    down, gone = lost_port(0, None, "link_down"), lost_port(1, None, "port_removed")
    assert len(coalesce([down, gone])) == 2
    at_border, beyond = lost_port(5, None, "link_down"), lost_port(5.000001, None, "link_down")
    assert [one.count for one in coalesce([down, at_border])] == [2]
    assert [one.count for one in coalesce([down, beyond])] == [1, 1]
    assert len(coalesce([down, lost_port(0, None, "link_down", guid="0xb2")])) == 2


def test_a_nodes_port_and_a_switchs_port_never_join() -> None:
    """One names a host, the other none."""
    assert [one.node for one in coalesce([lost_port(0, "gpu-001"), lost_port(0, None)])] == [None, "gpu-001"]
    assert gap_of((None, "x")) == timedelta(seconds=5)
    assert gap_of(("gpu-001", "")) == timedelta(minutes=1)


def test_ports_of_one_switch_are_different_devices() -> None:
    """Port 1 and port 2 went down: two faults."""
    ports = [replace(lost_port(0, None), device=Device("port", uuid="0xa1", port=n), id=f"p{n}") for n in (1, 2)]
    assert [one.device.port for one in coalesce(ports)] == [1, 2]


def test_an_incident_takes_the_id_of_its_first_event_or_one_of_its_content() -> None:
    """So that it keeps its name as it grows, and has one without ids too."""
    bare = replace(xid(79, 0), id=None)
    (incident,) = coalesce([bare])
    (again,) = coalesce([bare, xid(45, 3)])
    assert len(incident.id) == 32
    assert again.id == incident.id


@pytest.mark.parametrize(
    ("source", "kind", "severity", "counts"),
    [
        ("kernel", "xid", "warning", True),
        ("kernel", "xid", "info", False),
        ("dcgm", "gpu_missing", "warning", True),
        ("dcgm", "telemetry", "fatal", False),
        ("opensm", "link_down", "error", True),
        ("training", "training_error", "fatal", False),
        ("sacctmgr", "outage", "error", False),
        ("sacct", "job", "fatal", False),
        ("alertmanager", "alert", "fatal", True),
    ],
)
def test_only_faults_of_the_machine_make_incidents(source: str, kind: str, severity: Severity, counts: bool) -> None:
    """Work and plans are accounted for elsewhere."""
    assert is_fault(Event(at(0), "a", source, kind, severity=severity)) is counts


def test_a_flood_is_one_incident_that_tells_its_size() -> None:
    """Ten thousand warnings of a minute, one grave fault amid them."""
    flood = [xid(92, n / 200, name=f"w{n:05d}") for n in range(10_000)]
    (incident,) = coalesce([*flood, xid(79, 25.0011)])
    assert (incident.count, incident.code, incident.kinds) == (10_001, 79, {"xid:79": 1, "xid:92": 10_000})


def grown(first: list[Event], later: list[Event]) -> Incident:
    """The incident of some events with others joined in."""
    fault = fault_of(first)
    fault.join(fault_of(later))
    return fault.incident()


def test_events_join_as_if_all_had_been_there() -> None:
    """The worst renames it; a consequence does not; where the name turns out to be a consequence, another takes it."""
    for first, later in (
        ([xid(63, 0)], [xid(79, 5)]),
        ([xid(79, 0)], [xid(45, 5), xid(31, 9)]),
        ([xid(45, 0)], [xid(79, 5)]),
        ([xid(31, 0), xid(63, 1)], [xid(122, 5)]),
        ([xid(79, 20)], [xid(92, 4), xid(31, 30)]),
    ):
        (whole,) = coalesce([*first, *later])
        assert grown(first, later) == grown(later, first) == whole


def test_of_very_many_different_faults_the_worst_stay_to_name_the_incident() -> None:
    """However they come: a node whose every line names another device must not grow without end."""
    many = [on(xid(79 if n == 300 else 92, n / 10), f"0000:{n // 32:02x}:{n % 32:02x}.0") for n in range(400)]
    fault = fault_of(many[250:])
    fault.join(fault_of(many[:250]))
    assert len(fault.heads) == MAX_HEADS
    assert fault.heads == fault_of(many).heads
    assert (fault.incident().code, fault.incident().count) == (79, 400)


def test_what_is_stored_of_a_fault_is_all_that_joining_needs() -> None:
    """Its candidates go to a row and back; the row of a plain fault has none beside its own words."""
    for events in ([xid(79, 0)], [xid(45, 0, caused_by=79)], [xid(31, 0), xid(79, 5), xid(31, 9)]):
        fault = fault_of(events)
        incident = fault.incident()
        row = asdict(incident) | {"heads": fault.heads_text()}
        row |= {name: json.dumps(row[name]) for name in ("device", "kinds")}
        assert fault_from([row[name] for name in FAULT_COLUMNS]) == fault
        assert (row["heads"] is None) == (len(events) == 1 and not events[0].attributes)


codes = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 122, 154, 999])
cascades = st.lists(
    st.builds(
        lambda code, tenth, pci: on(xid(code, tenth / 10), f"0000:{pci:02x}:00.0"),
        codes,
        st.integers(0, 1500),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda event: event.id,
)


@settings(max_examples=150)
@given(cascades, st.integers(0, 2**32))
def test_no_order_of_arrival_changes_an_incident(events: list[Event], seed: int) -> None:
    """Nor loses or doubles an event; the head is one of the incident's own."""
    incidents = coalesce(events)
    assert coalesce(random.Random(seed).sample(events, len(events))) == incidents
    faults = [event for event in events if event.severity != "info"]
    assert sum(incident.count for incident in incidents) == len(faults)
    for incident in incidents:
        assert kind_key(incident.kind, incident.code) in incident.kinds
        assert incident.start <= incident.end
    for before, after in pairwise(incidents):
        assert after.start - before.end > timedelta(minutes=1)
