"""A run of two nodes in a store that failed thrice, with saves, outages and fault events: for advice and what-ifs."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Attribute, Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
GPU = Device("gpu", pci="0000:0f:00.0")
# Each attempt: submit, start, fault, end; seconds since the start.
ATTEMPTS = ((0, 60, 30_000, 30_300), (30_300, 30_900, 70_000, 70_600), (70_600, 70_800, 90_000, 90_060))
END = 130_000


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(seconds=seconds)


def _line(kind: str, seconds: float, **told: Attribute) -> Event:
    return Event(at(seconds), None, "training", kind, attributes={"run": "llm", **told})


def _worked(start: float, until: float, number: int) -> list[Event]:
    """Iterations of 100 s from a start on, a save of 20 s after every tenth."""
    log, clock = [], start + 120.0
    while clock + 100 <= until:
        clock, number = clock + 100, number + 1
        log.append(_line("iteration", clock, iteration=number, iterations=1, elapsed_ms=100_000.0))
        if number % 10 == 0 and clock + 20 <= until:
            log.append(_line("checkpoint_save_start", clock, iteration=number))
            clock += 20
            log.append(_line("checkpoint_save", clock, iteration=number, duration_ms=20_000.0))
    return log


def store_run(engine: sa.Engine) -> None:
    """Write it."""
    log: list[Event] = []
    jobs, faults, number = [], [], 0
    for place, (submit, start, fault, end) in enumerate(ATTEMPTS):
        log += _worked(start, fault - 10, number)
        number = max(int(str(e.attributes["iteration"])) for e in log if e.kind == "checkpoint_save")
        jobs.append(Job(str(place), "llm", "FAILED", at(submit), at(start), at(end), 2, "gpu-[1-2]"))
        faults.append(
            Event(at(fault), "gpu-1", "kernel", "xid", code=79, severity="fatal", cause="hardware", device=GPU)
        )
    log += _worked(90_200, END - 10, number)
    jobs.append(Job("9", "llm", "COMPLETED", at(90_060), at(90_200), at(END), 2, "gpu-[1-2]"))
    lines = [
        Event(
            event.time,
            None,
            event.source,
            event.kind,
            attributes=event.attributes,
            file="llm.log",
            line=place,
        )
        for place, event in enumerate(log, start=1)
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1", gpus=8), Node("gpu-2", gpus=8), Node("gpu-3", gpus=8)])
        append_jobs(connection, jobs)
        append_events(connection, [*lines, *faults], at(END))
        outages = [
            Outage("gpu-1", at(fault + 60), at(fault + 7_260), "DOWN", "Xid 79", None, False, "hardware")
            for _, _, fault, _ in ATTEMPTS
        ]
        append_outages(connection, outages)
