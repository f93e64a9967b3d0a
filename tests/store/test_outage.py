"""Outages: what a reason means, and the record that rides in an event."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.records.event import CAUSES, Event, RecordError
from store.records.outage import classify, outage_from_event, reason_rules

FAULTS = Path(__file__).parents[2].parent / "shared/data/faults/outages.csv"


@pytest.mark.parametrize(
    ("state", "reason", "planned", "cause"),
    [
        ("DOWN", "Xid 79", False, "hardware"),
        ("DRAIN", "NHC: GPU ECC DBE", False, "hardware"),
        ("DOWN", "PSU failed", False, "hardware"),
        ("DOWN", "Not responding", False, "host"),
        ("DOWN", "Node unexpectedly rebooted", False, "host"),
        ("DRAIN", "IB link flapping", False, "fabric"),
        ("DOWN", "lustre mount lost", False, "storage"),
        ("DRAIN", "driver upgrade 550", True, "driver"),
        ("DRAIN", "Firmware update window", True, "unknown"),
        ("DOWN", "Firmware mismatch, software", False, "driver"),
        ("DOWN", "Kernel panic", False, "host"),
        ("DOWN", "hardware failure", False, "hardware"),
        ("MAINT", "scheduled maintenance", True, "unknown"),
        ("DRAIN", "foreshock: score 0.8", True, "unknown"),
        ("DRAIN", "Kill task failed", False, "host"),
        ("DRAIN", "Prolog error", False, "host"),
        ("DRAIN", "Epilog error", False, "host"),
        ("DRAIN", "batch job complete failure", False, "host"),
        ("DRAIN", "Duplicate jobid", False, "host"),
        ("DRAIN", "Low socket*core*thread count, Low CPUs", False, "hardware"),
        ("DRAIN", "Low RealMemory (reported:515000 < 100.00% of configured:1030000)", False, "hardware"),
        ("DRAIN", "Low TmpDisk", False, "storage"),
        ("DRAIN", "gres/gpu count reported lower than configured (0 < 8)", False, "hardware"),
        ("DOWN", "Reboot ASAP : reboot issued", True, "unknown"),
        ("DOWN", "Reboot ASAP : reboot timed out", False, "host"),
        ("DOWN", "ResumeTimeout reached", False, "host"),
        ("REBOOT", "", True, "unknown"),
        ("DRAIN", "planned: driver 570.124.06 rollout", True, "driver"),
        ("DRAIN", "planned: driver X rollout", True, "driver"),
        ("DRAIN", "rollout of NVIDIA driver 570", True, "driver"),
        ("DRAIN", "Xid 79 after driver 570 rollout", False, "hardware"),
        ("DRAIN", "IB link down since maintenance", False, "fabric"),
        ("DRAIN", "driver upgrade failed", False, "driver"),
        ("DRAIN", "BIOS update failed", False, "host"),
        ("DRAIN", "BIOS update", True, "unknown"),
        ("DRAIN", "Kernel update", True, "unknown"),
        ("DRAIN", "planned: reboot after firmware upgrade", True, "unknown"),
        ("DOWN", "unplanned reboot", False, "host"),
        ("DOWN", "unscheduled maintenance: GPU 3", False, "hardware"),
        ("DRAIN", "user request", True, "application"),
        ("DRAIN", "not applicable", False, "unknown"),
        ("DOWN", "", False, "unknown"),
        ("DRAIN", "NHC: check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).", False, "fabric"),
        ("DRAIN", "NHC: check_hw_physmem_free:  Not enough RAM free (1 kB < 2 kB).", False, "host"),
        ("DRAIN", "NHC: check_hw_cpuinfo:  Actual CPU socket count (1) does not match", False, "hardware"),
        ("DRAIN", "NHC: check_fs_mount:  /gpudata not mounted", False, "storage"),
        ("DRAIN", "NHC: check_fs_mount:  /planned not mounted", False, "storage"),
        ("DRAIN", "NHC: check_ps_daemon:  Process nvidia-persistenced not running", False, "host"),
        ("DRAIN", "NHC: check_nvsmi_healthmon:  nvidia-smi:  NVIDIA driver not loaded", False, "driver"),
        ("DRAIN", "foreshock: check_gpu_ecc failed", True, "unknown"),
        ("DOWN+NOT_RESPONDING", "", False, "host"),
        ("DOWN", "?????", False, "unknown"),
    ],
)
def test_a_reason_tells_whether_it_was_planned_and_what_caused_it(
    state: str, reason: str, planned: bool, cause: str
) -> None:
    """Slurm's own words, NHC's and those of operators."""
    assert classify(state, reason) == (planned, cause)


def test_every_rule_has_a_known_cause() -> None:
    """And there is one that a wrong order would hide: planned work comes first."""
    assert all(rule.cause in CAUSES for rule in reason_rules())
    assert reason_rules()[0].planned


# Words of the trace's own classes (the second part of a reason) and what they mean to us.
CLASS_CAUSES = {
    "GPU": "hardware",
    "Fan": "hardware",
    "NIC": "fabric",
    "Parameter Plane Cable": "fabric",
    "Power Supply": "hardware",
    "Motherboard": "hardware",
    "CPU": "hardware",
    "File System": "storage",
    "System Crash": "host",
    "Motherboard Battery": "hardware",
    "Riser Card": "hardware",
    "RAID Card": "storage",
    "Operating System": "host",
    "Unknown Error": "unknown",
    "Stress Test Failure": "unknown",
}


@pytest.mark.skipif(not FAULTS.exists(), reason="the shared data is not beside this repository")
def test_the_reasons_of_a_real_trace_are_failures_with_the_cause_of_their_class() -> None:
    """584 outages of 400 servers: none was planned, and a class with a clear meaning has its cause."""
    with FAULTS.open() as file:
        table = list(csv.DictReader(file, delimiter="|"))
    wrong = []
    for row in table:
        planned, cause = classify(row["State"], row["Reason"])
        kind = row["Reason"].split("/")[1]
        if planned or (kind in CLASS_CAUSES and cause != CLASS_CAUSES[kind]):
            wrong.append((row["Reason"], planned, cause))
    assert len(table) == 584
    assert sorted(set(wrong)) == []


def test_an_outage_rides_in_an_event() -> None:
    """Closed, with its user."""
    event = Event(
        None,
        "gpu-017",
        "sacctmgr",
        "outage",
        attributes={
            "start": "2025-03-01T04:05:06Z",
            "end": "2025-03-01T06:00:00Z",
            "state": "DOWN",
            "reason": "Xid 79",
            "user": "root",
        },
    )
    outage = outage_from_event(event)
    assert (outage.node, outage.user, outage.planned, outage.cause) == ("gpu-017", "root", False, "hardware")
    assert outage.start == datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
    assert outage.end == datetime(2025, 3, 1, 6, tzinfo=UTC)


def test_an_outage_that_lasts_has_no_end_and_needs_no_user() -> None:
    """What is unknown is None."""
    outage = outage_from_event(Event(None, "a", "s", "outage", attributes={"start": "2025-03-01", "end": ""}))
    assert (outage.end, outage.user, outage.state, outage.cause) == (None, None, "", "unknown")


@pytest.mark.parametrize(
    "event",
    [
        Event(None, None, "s", "outage", attributes={"start": "2025-03-01"}),
        Event(None, "a", "s", "outage"),
        Event(None, "a", "s", "outage", attributes={"start": 7}),
        Event(None, "a", "s", "outage", attributes={"start": "soon"}),
    ],
)
def test_an_outage_without_node_or_start_is_refused(event: Event) -> None:
    """It could not be placed."""
    with pytest.raises(RecordError):
        outage_from_event(event)
