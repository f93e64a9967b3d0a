"""Whom the ledger blames where the first fault is not the whole story."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from goodput.timeline import to_ms
from goodput.wall_time.attempt_painter import BlameEvidence, blame, faults_by_time
from goodput.wall_time.attempts import RunAttempt, first_fault, is_fault
from store.records.event import Cause, Device, Event
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
NODES = frozenset({"gpu-1", "gpu-2", "gpu-3", "gpu-4"})
WINDOW = (to_ms(START), to_ms(START + timedelta(seconds=600)))
LEAVES = dict.fromkeys(sorted(NODES), "leaf-1")
ATTEMPT = RunAttempt(None, to_ms(START), WINDOW[1], "FAILED", NODES)


def lost(node: str, seconds: float) -> Event:
    """A port that vanished."""
    device = Device("port", uuid="0xa1")
    time = START + timedelta(seconds=seconds)
    return Event(time, node, "opensm", "port_removed", severity="error", cause="fabric", device=device)


def outage(node: str, seconds: float, cause: Cause, planned: bool = False) -> Outage:
    """A node that went down."""
    return Outage(node, START + timedelta(seconds=seconds), None, "DOWN", "", None, planned, cause)


def error(message: str, node: str | None = None, cause: Cause = "unknown") -> Event:
    """What the program said."""
    time = START + timedelta(seconds=60)
    return Event(time, node, "training", "training_error", severity="error", cause=cause, message=message)


def test_a_lost_port_is_its_own_culprit() -> None:
    """Nothing else is known."""
    cause, culprit = blame(ATTEMPT, lost("gpu-1", 60), WINDOW, BlameEvidence(leaves=LEAVES))
    assert cause == "fabric"
    assert culprit is not None
    assert (culprit.node, culprit.device.uuid) == ("gpu-1", "0xa1")


def test_ports_that_vanish_together_under_one_leaf_point_to_the_switch() -> None:
    """Three nodes within seconds; two, or three over minutes, do not."""
    together = [lost(node, 60 + n) for n, node in enumerate(sorted(NODES))]
    cause, culprit = blame(ATTEMPT, together[0], WINDOW, BlameEvidence(faults_by_time(together), leaves=LEAVES))
    assert culprit is not None
    assert (cause, culprit.node, culprit.device.type) == ("fabric", "leaf-1", "switch")
    for few in (together[:2], [together[0], lost("gpu-2", 120), lost("gpu-3", 180)]):
        _, culprit = blame(ATTEMPT, together[0], WINDOW, BlameEvidence(faults_by_time(few), leaves=LEAVES))
        assert culprit is not None
        assert culprit.node == "gpu-1"


def test_the_outage_that_follows_tells_why_a_port_vanished() -> None:
    """A host that crashed takes its port along; a fabric or unknown outage adds nothing."""
    cause, culprit = blame(ATTEMPT, lost("gpu-1", 60), WINDOW, BlameEvidence(outages=[outage("gpu-1", 300, "host")]))
    assert culprit is not None
    assert (cause, culprit.device.type, culprit.kind) == ("host", "node", "outage")
    for other in (outage("gpu-1", 300, "fabric"), outage("gpu-2", 300, "host"), outage("gpu-1", 300, "host", True)):
        cause, culprit = blame(ATTEMPT, lost("gpu-1", 60), WINDOW, BlameEvidence(outages=[other]))
        assert (cause, culprit is not None and culprit.device.type) == ("fabric", "port")


def test_a_dead_gpu_needs_no_outage() -> None:
    """The Xid names the device."""
    gpu = Device("gpu", pci="0000:0f:00.0")
    fault = replace(lost("gpu-1", 60), kind="xid", code=79, cause="hardware", device=gpu)
    cause, culprit = blame(ATTEMPT, fault, WINDOW, BlameEvidence(outages=[outage("gpu-1", 300, "host")]))
    assert culprit is not None
    assert (cause, culprit.device.pci) == ("hardware", "0000:0f:00.0")


def test_the_one_task_that_failed_names_the_node() -> None:
    """Where all were killed, nobody is named; words tell storage from the program's own error."""
    fault = error("OSError: [Errno 5] Input/output error: '/data/x'")
    one = [fault, error("task 1: Exited with exit code 1", "gpu-2")]
    cause, culprit = blame(ATTEMPT, fault, WINDOW, BlameEvidence(faults_by_time(one)))
    assert (cause, culprit is not None and culprit.node) == ("storage", "gpu-2")
    assert blame(ATTEMPT, fault, WINDOW, BlameEvidence(faults_by_time([*one, error("Killed", "gpu-3")]))) == (
        "storage",
        None,
    )
    assert blame(ATTEMPT, error("ValueError: x"), WINDOW, BlameEvidence()) == ("application", None)
    assert blame(ATTEMPT, error("ECC", cause="hardware"), WINDOW, BlameEvidence()) == ("hardware", None)


def test_a_lost_link_is_a_fault_whoever_says_it_and_one_taken_down_on_purpose_is_none() -> None:
    """The adapter's driver, the bond, a fabric manager; information never ends an attempt."""
    for kind in ("link_down", "port_removed", "ib_port", "net_link", "bond_down", "node_down"):
        assert is_fault(replace(lost("a", 0), kind=kind, severity="warning"))
        assert not is_fault(replace(lost("a", 0), kind=kind, severity="info"))


def test_a_task_that_failed_within_the_last_millisecond_is_named() -> None:
    """The window is in whole milliseconds."""
    last = replace(error("NET/IB", "gpu-2", "fabric"), time=START + timedelta(seconds=600, microseconds=999))
    cause, culprit = blame(ATTEMPT, last, WINDOW, BlameEvidence(faults_by_time([last])))
    assert culprit is not None
    assert (cause, culprit.node) == ("fabric", "gpu-2")


ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (ILLEGAL, "application"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "application"),
        ("KeyError: 'labels'", "unknown"),
        ("task 5: Exited with exit code 1", "unknown"),
    ],
)
def test_what_the_program_did_itself_is_no_nodes_fault(words: str, cause: Cause) -> None:
    """One rank reports it, Slurm names its task, the GPU that ran it writes Xid 13 or 31: all victims."""
    for code in (None, 13, 31, 43, 45):
        told = [error(words, "gpu-2", cause), error("task 5: Exited with exit code 1", "gpu-2")]
        if code is not None:
            device = Device("gpu", pci="0000:0f:00.0")
            mark = Event(START + timedelta(seconds=59), "gpu-2", "kernel", "xid", code=code, device=device)
            told.append(replace(mark, severity="error", cause="application"))
        fault = first_fault(ATTEMPT, told)
        assert blame(ATTEMPT, fault, WINDOW, BlameEvidence(faults_by_time(told))) == ("application", None)


def test_a_dead_gpu_that_the_program_noticed_first_is_the_culprit() -> None:
    """Its kernel wrote some seconds later, or its clock is behind; an hour later it is another story."""
    gpu = Device("gpu", pci="0000:0f:00.0")
    dead = Event(START + timedelta(seconds=90), "gpu-3", "kernel", "xid", code=79, severity="fatal", device=gpu)
    told = [error(ILLEGAL, "gpu-2", "application"), replace(dead, cause="hardware")]
    fault = first_fault(ATTEMPT, told)
    cause, culprit = blame(ATTEMPT, fault, WINDOW, BlameEvidence(faults_by_time(told)))
    assert culprit is not None
    assert (cause, culprit.node, culprit.code) == ("hardware", "gpu-3", 79)
    late = [told[0], replace(told[1], time=START + timedelta(seconds=121))]
    assert blame(ATTEMPT, first_fault(ATTEMPT, late), WINDOW, BlameEvidence(faults_by_time(late)))[1] is None
    elsewhere = [told[0], replace(told[1], node="gpu-9")]
    assert blame(ATTEMPT, first_fault(ATTEMPT, elsewhere), WINDOW, BlameEvidence())[1] is None


@pytest.mark.parametrize("window", [(0, 90), (30, 60), (30, 30), (31, 59), (91, 99), (60, 30)])
def test_the_faults_of_a_window_come_by_time_its_ends_included(window: tuple[int, int]) -> None:
    """In whatever order they were told; one without a time is in none."""
    seconds = [60, 0, 30, 90, 30]
    undated = replace(lost("gpu-1", 0), time=None)
    told = BlameEvidence(faults_by_time([undated, *(lost("gpu-1", second) for second in seconds)]))
    found = told.between(*(WINDOW[0] + second * 1_000 for second in window))
    expected = [lost("gpu-1", second).time for second in sorted(seconds) if window[0] <= second <= window[1]]
    assert [one.time for one in found] == expected
