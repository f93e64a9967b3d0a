"""Events and jobs that the diagnosis tests share."""

from datetime import UTC, datetime, timedelta

from store.records import fault_catalog
from store.records.event import Attribute, Cause, Device, Event, Severity
from store.records.job import Job

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
GPU = Device(type="gpu", pci="0000:0f:00.0")


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(seconds=seconds)


def xid(code: int, seconds: float, node: str = "gpu-001", name: str | None = None, **attributes: int) -> Event:
    """An Xid with the catalogue's meaning."""
    known = fault_catalog.xid(code)
    severity: Severity = known.severity if known else "warning"
    cause: Cause = known.cause if known else "unknown"
    return Event(
        time=at(seconds),
        node=node,
        source="kernel",
        kind="xid",
        code=code,
        severity=severity,
        cause=cause,
        action=known.action if known else "run_diagnostics",
        device=GPU,
        message=f"Xid {code}",
        attributes=attributes,
        id=name or f"{node}-{code}-{seconds:09.3f}",
    )


def lost_port(seconds: float, node: str | None = "gpu-001", kind: str = "port_removed", guid: str = "0xa1") -> Event:
    """A port that vanished."""
    device = Device(type="port" if node else "switch", uuid=guid)
    return Event(
        at(seconds),
        node,
        "opensm",
        kind,
        severity="error",
        cause="fabric",
        device=device,
        message=kind,
        id=f"{node}-{kind}-{guid}-{seconds:09.3f}",
    )


def job(
    start: float, end: float | None, state: str, nodes: str = "gpu-[001-004]", run: str = "llm", number: int = 1
) -> Job:
    """One attempt of a run."""
    return Job(str(number), "llm", state, at(start), at(start), None if end is None else at(end), 4, nodes)


def iteration(seconds: float, run: str = "llm") -> Event:
    """One iteration line."""
    attributes: dict[str, Attribute] = {
        "run": run,
        "iteration": int(seconds),
        "iterations": 1,
        "elapsed_ms": 1000.0,
    }
    return Event(at(seconds), None, "training", "iteration", attributes=attributes)


def program_error(seconds: float, message: str, error: str, node: str | None = None, run: str = "llm") -> Event:
    """One reported error."""
    attributes = {"run": run, "error": error}
    return Event(
        at(seconds), node, "training", "training_error", severity="error", message=message, attributes=attributes
    )
