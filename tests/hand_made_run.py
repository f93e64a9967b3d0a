"""Small runs made by hand, for the ledger's tests: two nodes, moments in seconds, buckets in milliseconds."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from goodput.account import account
from goodput.ledger import Ledger, RunRecords
from goodput.log.training_log import lines_of
from goodput.timeline import to_ms
from store.records.event import Attribute, Cause, Device, Event, Severity
from store.records.job import Job
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)
GPU = Device(type="gpu", pci="0000:0f:00.0")


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(milliseconds=round(seconds * 1000))


def attempt(
    start: float | None,
    end: float | None,
    state: str = "COMPLETED",
    submit: float | None = None,
    nodes: str = "gpu-[1-2]",
    number: int = 1,
) -> Job:
    """One job of the run; without `submit` it was submitted when it started."""
    submitted = start if submit is None else submit
    moments = [None if x is None else at(x) for x in (submitted, start, end)]
    return Job(str(number), "run", state, *moments, nodes=2, node_list=nodes)


def said(kind: str, seconds: float | None = None, **attributes: Attribute) -> Event:
    """One training event."""
    return Event(None if seconds is None else at(seconds), None, "training", kind, attributes=attributes)


def iteration(seconds: float | None, number: int, elapsed_s: float = 10.0, count: int = 1) -> Event:
    """One iteration line that covers `count` iterations of `elapsed_s` each."""
    return said("iteration", seconds, iteration=number, iterations=count, elapsed_ms=elapsed_s * 1000)


def saved(seconds: float | None, number: int, duration_s: float | None) -> list[Event]:
    """A save's first line and its last one."""
    told: dict[str, Attribute] = {} if duration_s is None else {"duration_ms": duration_s * 1000}
    return [
        said("checkpoint_save_start", seconds, iteration=number),
        said("checkpoint_save", None, iteration=number, **told),
    ]


def fault(
    seconds: float, node: str | None = "gpu-1", severity: Severity = "fatal", cause: Cause = "hardware", code: int = 79
) -> Event:
    """An Xid on a node's GPU."""
    return Event(at(seconds), node, "kernel", "xid", code=code, severity=severity, cause=cause, device=GPU)


def lost_port(seconds: float, node: str) -> Event:
    """A port that vanished, as the subnet manager tells it."""
    device = Device("port", uuid="0xa1", port=1)
    return Event(at(seconds), node, "opensm", "port_removed", severity="error", cause="fabric", device=device)


def reported(seconds: float, message: str, node: str | None = None, severity: Severity = "error") -> Event:
    """What the program or its launcher said before it ended."""
    return Event(at(seconds), node, "training", "training_error", severity=severity, message=message)


def outage(node: str, seconds: float, cause: Cause = "host", planned: bool = False) -> Outage:
    """A node out of service, still."""
    return Outage(node, at(seconds), None, "DOWN", "Not responding", None, planned, cause)


def records(
    jobs: Sequence[Job], log: Sequence[Event], faults: Sequence[Event] = (), outages: Sequence[Outage] = ()
) -> RunRecords:
    """All that is known of the run; four nodes hang under one leaf."""
    leaves = {f"gpu-{n}": "leaf-1" for n in range(1, 5)}
    return RunRecords("run", jobs, lines_of(log), faults, outages, leaves, {"gpu-1": 8, "gpu-2": 8})


def ledger(
    jobs: Sequence[Job],
    log: Sequence[Event],
    faults: Sequence[Event] = (),
    outages: Sequence[Outage] = (),
    until: float | None = None,
) -> Ledger:
    """The account, whose buckets sum to its wall time."""
    made = account(records(jobs, log, faults, outages), None if until is None else to_ms(at(until)))
    assert sum(made.buckets_ms.values()) == made.wall_ms
    return made


def ms(made: Ledger) -> dict[str, int]:
    """The buckets that hold anything, in milliseconds."""
    return {name: value for name, value in made.buckets_ms.items() if value}
