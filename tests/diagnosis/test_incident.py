"""Events to incidents: what belongs together, and what it is called."""

import random
from dataclasses import replace

import pytest
from fault_events import at, iteration, job, lost_port, xid

from diagnosis.incidents.incident import coalesce, is_fault, when
from store.records.event import Device, Event, event_id


def test_events_of_a_node_within_a_minute_are_one_incident() -> None:
    """A gap of a minute joins, a longer one cuts."""
    first, second = coalesce([xid(79, 0), xid(45, 60), xid(45, 120.5)])
    assert (first.count, first.start, first.end) == (2, at(0), at(60))
    assert (second.count, second.code) == (1, 45)


def test_two_nodes_are_two_incidents() -> None:
    """The same second on another node is another fault."""
    assert [one.node for one in coalesce([xid(79, 0, "b"), xid(79, 0, "a")])] == ["a", "b"]


def test_events_without_a_node_join_by_device_and_code_within_five_seconds() -> None:
    """A switch is no host: only the same device counts, and only for seconds."""
    events = [lost_port(0, None), lost_port(5, None), lost_port(10.5, None), lost_port(1, None, guid="0xb2")]
    assert [(one.device.uuid, one.count) for one in coalesce(events)] == [("0xa1", 2), ("0xb2", 1), ("0xa1", 1)]


def test_the_order_of_the_input_does_not_matter() -> None:
    """Shuffled events give the same incidents."""
    events = [xid(code, second, node) for node in "ab" for code in (31, 45, 79) for second in (0, 50, 130, 131)]
    shuffled = random.Random(1).sample(events, len(events))
    assert coalesce(shuffled) == coalesce(events)


def test_the_worst_root_names_the_incident() -> None:
    """Fatal before error before warning; the earlier of equals; the machine before a program."""
    (incident,) = coalesce([xid(63, 0), xid(31, 1), xid(48, 2), xid(95, 3), lost_port(4)])
    assert (incident.code, incident.severity, incident.action) == (48, "fatal", "reset_gpu")
    assert incident.kinds == {"port_removed": 1, "xid:31": 1, "xid:48": 1, "xid:63": 1, "xid:95": 1}
    assert incident.id == "gpu-001-63-00000.000"


@pytest.mark.parametrize("cause", [79, 31, 94, 63])
def test_a_torn_down_channel_is_never_the_head(cause: int) -> None:
    """An Xid 45 follows the fault, even if its line comes first and its severity is worse."""
    (incident,) = coalesce([xid(45, 0), xid(cause, 1)])
    assert incident.code == cause


def test_a_torn_down_channel_alone_is_its_own_head() -> None:
    """Nothing else is known: then it is what happened."""
    (incident,) = coalesce([xid(45, 0), xid(45, 1)])
    assert (incident.code, incident.kinds) == (45, {"xid:45": 2})


def test_an_event_whose_line_names_its_cause_is_a_consequence() -> None:
    """`caused_by` speaks for itself."""
    (incident,) = coalesce([xid(94, 0, caused_by=63), xid(63, 1)])
    assert incident.code == 63


def test_an_mmu_fault_follows_a_failed_pmu_call() -> None:
    """The warning is the root of the error (82 % of cases, FIELD D5)."""
    (incident,) = coalesce([xid(122, 0), xid(31, 0.05)])
    assert (incident.code, incident.severity) == (122, "warning")


def test_what_is_no_fault_makes_no_incident() -> None:
    """Iterations, jobs, outages, mere information and undated events."""
    said = Event(at(0), "a", "sacct", "job", severity="error")
    assert coalesce([iteration(0), said, xid(43, 0), replace(xid(79, 0), time=None)]) == []
    assert job(0, 1, "FAILED").run == "llm"
    assert is_fault(Event(at(0), "a", "dcgm", "row_remap", severity="warning", device=Device("gpu")))


def test_an_unknown_code_is_an_incident_with_an_unknown_cause() -> None:
    """Never dropped."""
    (incident,) = coalesce([xid(999, 0)])
    assert (incident.code, incident.cause, incident.severity) == (999, "unknown", "warning")


def test_an_event_without_an_id_gets_the_one_of_its_content() -> None:
    """The incident's id is stable."""
    plain = replace(xid(79, 0), id=None)
    assert coalesce([plain])[0].id == event_id(plain)


def test_the_time_of_an_undated_event_is_asked_for_in_vain() -> None:
    """Callers have filtered those."""
    with pytest.raises(ValueError, match="bears no time"):
        when(replace(xid(79, 0), time=None))
