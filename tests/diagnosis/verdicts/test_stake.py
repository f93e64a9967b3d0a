"""Who suffers from a cause, and what is at stake now: each save lowers it, and who began anew suffers no more."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from diagnosis.incidents.intake import put_faults
from diagnosis.symptoms.meaning import shown_since
from diagnosis.verdicts.engine import VerdictEngine
from diagnosis.verdicts.stake import with_stakes_now
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import Device, Event, with_id
from store.records.job import Job
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.verdict_log import open_verdicts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST = Job("1", "llm", "RUNNING", NOW - 5 * HOUR, NOW - 5 * HOUR, None, 2, "gpu-[000-001]", None)
AFRESH = Job("2", "llm", "RUNNING", None, NOW + timedelta(minutes=7), None, 2, "gpu-[000-001]", None)


@pytest.fixture
def cluster(any_engine: sa.Engine) -> sa.Engine:
    """Eight nodes of eight GPUs, and a job on two of them."""
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", "r0", "leaf0", "H100", 8, "550") for n in range(8)])
        append_jobs(connection, [FIRST])
    return any_engine


def fault(code: int, node: str = "gpu-000", at: datetime = NOW) -> Event:
    """The kernel's line of an Xid: 94 is over with the process, 79 is not."""
    action = "restart_app" if code == 94 else "reboot_node"
    severity = "error" if code == 94 else "fatal"
    device = Device("gpu", pci="0000:0f:00.0")
    return Event(at, node, "kernel", "xid", code, severity, "hardware", action, device, f"Xid {code}")


def still_shown(at: datetime) -> Event:
    """The gauge goes on showing the same Xid."""
    said = {"error": "stands", "follows": "xid:94", "since": (NOW - HOUR / 6).isoformat()}
    device = Device("gpu", pci="0000:0f:00.0", index=0)
    return Event(at, "gpu-000", "dcgm", "xid_hint", 94, "warning", "hardware", "none", device, "stands", said)


def save(at: datetime) -> Event:
    """A checkpoint is whole."""
    said = {"run": "llm", "iteration": 100}
    return Event(
        at, None, "training", "checkpoint_save", None, "info", "application", "none", message="", attributes=said
    )


def take(engine: sa.Engine, *events: Event) -> None:
    """What the API does with events."""
    received = max(one.time for one in events if one.time is not None)
    with writing(engine).begin() as connection:
        put_faults(connection, append_events(connection, [with_id(one) for one in events], received).new, received)


def put_jobs(engine: sa.Engine, *jobs: Job) -> None:
    """What a scheduler tells."""
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)


def causes(engine: sa.Engine, now: datetime) -> list[Verdict]:
    """Those that stand, as they are shown."""
    with engine.connect() as connection:
        found = with_stakes_now(connection, open_verdicts(connection), now)
    return [one for one in found if one.cause_class != "unknown"]


def test_each_hourly_save_lowers_what_is_at_stake(cluster: sa.Engine) -> None:
    """16 GPUs that save every hour never lose more than 16 GPU-hours and a bit, whatever was last written down."""
    clock = [NOW]
    engine = VerdictEngine(cluster, lambda: clock[0])
    take(cluster, save(NOW - HOUR / 2), fault(79))
    engine.turn()
    (first,) = causes(cluster, NOW)
    assert first.gpu_hours_at_stake == pytest.approx(8.0)
    for hours in range(1, 6):
        clock[0] = NOW + hours * HOUR
        take(cluster, save(clock[0] - HOUR / 2), fault(79, "gpu-001", clock[0]))
        engine.turn()
        assert [one.gpu_hours_at_stake for one in causes(cluster, clock[0])] == pytest.approx([8.0] * 2)
        with cluster.connect() as connection:  # what is told of a change has the saves of that moment, too
            newest = max(open_verdicts(connection), key=lambda one: one.since)
        assert newest.gpu_hours_at_stake <= 8.0
        take(cluster, save(clock[0] + HOUR / 4))
        assert [one.gpu_hours_at_stake for one in causes(cluster, clock[0] + HOUR / 4)] == [0.0, 0.0]


def test_a_job_that_began_anew_suffers_no_more_and_nobody_is_told_to_restart_it(cluster: sa.Engine) -> None:
    """A gauge that goes on showing the Xid is no new sign; the same Xid once more is one."""
    clock = [NOW]
    engine = VerdictEngine(cluster, lambda: clock[0])
    take(cluster, fault(94))
    engine.turn()
    (one,) = causes(cluster, NOW)
    assert (one.jobs, one.action) == (("llm",), "restart_app")
    clock[0] = NOW + timedelta(minutes=5)
    put_jobs(cluster, replace(FIRST, state="FAILED", end=NOW + timedelta(minutes=4)))
    take(cluster, still_shown(clock[0]))
    engine.turn()
    (one,) = causes(cluster, clock[0])
    assert (one.jobs, one.action, one.gpu_hours_at_stake) == (("llm",), "restart_app", 0.0)  # it waits for its restart
    clock[0] = NOW + 2 * HOUR
    put_jobs(cluster, AFRESH)
    take(cluster, still_shown(clock[0]))
    assert [(one.jobs, one.action) for one in causes(cluster, clock[0])] == [((), "none")]
    VerdictEngine(cluster, lambda: clock[0]).turn()
    (one,) = causes(cluster, clock[0])
    assert (one.jobs, one.action, one.gpu_hours_at_stake) == ((), "none", 0.0)
    clock[0] += HOUR
    take(cluster, fault(94, at=clock[0]))
    VerdictEngine(cluster, lambda: clock[0]).turn()
    (one,) = causes(cluster, clock[0])
    assert (one.jobs, one.action) == (("llm",), "restart_app")


def test_a_warning_is_no_new_sign_and_a_worse_fault_has_its_own_remedy(cluster: sa.Engine) -> None:
    """A row is remapped and a program faults: the job gets on. Then the GPU's memory fails."""
    clock = [NOW + HOUR]
    put_jobs(cluster, replace(FIRST, state="FAILED", end=NOW + timedelta(minutes=4)), AFRESH)
    take(cluster, fault(94))
    take(cluster, replace(fault(63, at=clock[0]), severity="warning"))
    take(cluster, replace(fault(13, at=clock[0]), cause="application", action="restart_app", severity="error"))
    VerdictEngine(cluster, lambda: clock[0]).turn()
    (one,) = causes(cluster, clock[0])
    assert (one.jobs, one.action) == ((), "none")
    clock[0] += HOUR
    take(cluster, replace(fault(48, at=clock[0]), action="reset_gpu"))
    VerdictEngine(cluster, lambda: clock[0]).turn()
    (one,) = causes(cluster, clock[0])
    assert (one.jobs, one.action) == (("llm",), "reset_gpu")
    assert "Xid 48" in one.reason


def test_a_job_that_went_on_elsewhere_suffers_no_more(cluster: sa.Engine) -> None:
    """An exporter misses the GPU minutes after the restart: no job has work there. Nothing is left to restart."""
    put_jobs(cluster, replace(FIRST, state="FAILED", end=NOW + timedelta(minutes=4)))
    put_jobs(cluster, replace(AFRESH, node_list="gpu-[002-003]"))
    gone = replace(fault(79, at=NOW + HOUR / 4), source="dcgm", kind="gpu_missing", code=None, severity="warning")
    take(cluster, fault(79), gone, fault(94, "gpu-001"))
    VerdictEngine(cluster, lambda: NOW + HOUR / 2).turn()
    found = {one.node: (one.jobs, one.action) for one in causes(cluster, NOW + HOUR / 2)}
    assert found == {"gpu-000": ((), "reboot_node"), "gpu-001": ((), "none")}


def test_what_is_broken_stays_as_likely_whatever_breaks_later(cluster: sa.Engine) -> None:
    """A GPU off its bus is off until somebody sees to it: the time alone speaks for nothing."""
    clock = [NOW]
    take(cluster, fault(79))
    VerdictEngine(cluster, lambda: clock[0]).turn()
    (before,) = causes(cluster, NOW)
    clock[0] = NOW + 20 * HOUR
    take(cluster, fault(79, "gpu-005", clock[0]))
    VerdictEngine(cluster, lambda: clock[0]).turn()
    found = {one.node: one for one in causes(cluster, clock[0])}
    assert found["gpu-000"].probability == pytest.approx(before.probability, abs=0.05)
    assert found["gpu-000"].action == before.action


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2025-03-01", 7, None, ""])
def test_a_time_that_no_exporter_shows_is_none(since: Any) -> None:
    """A node writes it: a year at the edge of the calendar would end the verdicts of all."""
    assert shown_since(Event(NOW, "gpu-001", "dcgm", "xid", code=79, attributes={"after": since})) is None
    told = {"after": "2025-03-01T11:00:00Z"}
    assert shown_since(Event(NOW, "gpu-001", "dcgm", "xid", code=79, attributes=told)) is not None
