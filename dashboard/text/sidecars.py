"""What `GET /sidecars` answers, as typed records, and what is wrong with a node's collection, in words."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dashboard.text import words

# A node's clock that is further off than this dates its faults wrongly.
_SKEW = timedelta(minutes=2)
# Past this share of its limit a spool is about to hold its sources back.
_FULL = 0.8


@dataclass(frozen=True, slots=True)
class SidecarSource:
    """One source of a sidecar; counts since the sidecar started."""

    source: str
    up: bool = True
    blocked: bool = False
    lines: int = 0
    events: int = 0
    errors: int = 0
    lost: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What waits on the node's disk for the server."""

    events_bytes: int = 0
    telemetry_bytes: int = 0
    oldest_s: float = 0.0
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """What can no longer be had, since the sidecar started."""

    records: int = 0  # by the kernel's ring and the like, before they were read
    events: int = 0
    rollups: int = 0
    damaged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a sidecar last said of itself."""

    sources: tuple[SidecarSource, ...] = ()
    spool: SpoolState = field(default_factory=SpoolState)
    lost: Lost = field(default_factory=Lost)
    rejected: int = 0
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sidecar:
    """One item of `GET /sidecars`: `received` is by the server's clock, `time` by the node's."""

    node: str
    received: datetime
    time: datetime | None = None
    version: str | None = None
    started: datetime | None = None
    state: str = "ok"
    report: Report = field(default_factory=Report)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and what to do about it. Plain text."""

    what: str
    do: str


def faults(sidecar: Sidecar) -> list[Fault]:
    """Everything that is wrong with a node's collection, the gravest first."""
    report = sidecar.report
    return [*_losses(report), *_sources(report), *_spool(report.spool), *_clock(sidecar)]


def _losses(report: Report) -> Iterator[Fault]:
    lost = report.lost
    if lost.events:
        yield Fault(f"{words.many(lost.events, 'event')} given up", "give the spool more room: spool_max_bytes")
    if lost.damaged_bytes:
        yield Fault(f"{size(lost.damaged_bytes)} of the spool unreadable", "look at the node's disk")
    if report.rejected:
        yield Fault(f"{words.many(report.rejected, 'item')} refused by the server", "read rejected.jsonl in its spool")
    if lost.records:
        yield Fault(
            f"{words.many(lost.records, 'log record')} overwritten before they were read",
            "enlarge the kernel's ring (log_buf_len), or find what floods it",
        )
    if lost.rollups:
        yield Fault(f"{words.many(lost.rollups, 'hour')} of telemetry given up", "the server was away too long")


def _sources(report: Report) -> Iterator[Fault]:
    for source in report.sources:
        if not source.up:
            yield Fault(f"cannot read {source.source}", "see the sidecar's own log on the node")
        elif source.blocked:
            yield Fault(f"{source.source} waits for room in the spool", "see why the server takes nothing from it")


def _spool(spool: SpoolState) -> Iterator[Fault]:
    waiting = spool.events_bytes + spool.telemetry_bytes
    if spool.limit_bytes and waiting >= _FULL * spool.limit_bytes:
        yield Fault(
            f"{size(waiting)} wait for the server, the oldest {words.duration(spool.oldest_s)}",
            "see why the server takes nothing from it",
        )


def _clock(sidecar: Sidecar) -> Iterator[Fault]:
    if sidecar.time is not None and abs(sidecar.time - sidecar.received) > _SKEW:
        off_s = (sidecar.time - sidecar.received).total_seconds()
        way = "ahead" if off_s > 0 else "behind"
        yield Fault(f"its clock is {words.duration(abs(off_s))} {way}", "set it by NTP: faults are dated by it")


def size(count: float) -> str:
    """Bytes as people say them: 512 B, 4.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
