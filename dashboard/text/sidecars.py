"""What `GET /sidecars` answers, as typed records, and what is wrong with a node's collection, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from dashboard.text import words
from wire.sidecars import HeartbeatJson, SidecarJson, SpoolJson

# A node's clock that is further off than this dates its faults wrongly.
_SKEW = timedelta(minutes=2)
_MAY_TELL = {
    "kernel": "faults that the kernel reports",
    "system": "everything: root alone writes it",
    "user": "training alone: a job's user can write it",
}
# Past this share of its limit a spool is about to hold its sources back.
_FULL = 0.8


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, and what to do about it. Plain text."""

    what: str
    do: str


def faults(sidecar: SidecarJson) -> list[Trouble]:
    """Everything that is wrong with a node's collection, the gravest first."""
    report = sidecar.report
    return [*_losses(report), *_sources(report), *_spool(report.spool), *_clock(sidecar)]


def _losses(report: HeartbeatJson) -> Iterator[Trouble]:
    lost = report.lost
    if lost.events:
        yield Trouble(f"{words.many(lost.events, 'event')} given up", "give the spool more room: spool_max_bytes")
    if lost.damaged_bytes:
        yield Trouble(f"{size(lost.damaged_bytes)} of the spool unreadable", "look at the node's disk")
    if report.rejected:
        yield Trouble(
            f"{words.many(report.rejected, 'item')} refused by the server", "read rejected.jsonl in its spool"
        )
    if lost.records:
        yield Trouble(
            f"{words.many(lost.records, 'log record')} overwritten before they were read",
            "enlarge the kernel's ring (log_buf_len), or find what floods it",
        )
    if lost.rollups:
        yield Trouble(f"{words.many(lost.rollups, 'hour')} of telemetry given up", "the server was away too long")


def _sources(report: HeartbeatJson) -> Iterator[Trouble]:
    for source in report.sources:
        if not source.up:
            yield Trouble(f"cannot read {source.source}", "see the sidecar's own log on the node")
        elif source.blocked:
            yield Trouble(f"{source.source} waits for room in the spool", "see why the server takes nothing from it")
        if source.refused:
            yield Trouble(
                f"{words.many(source.refused, 'line')} refused of {source.source}",
                "a user's log speaks as the kernel or another node: see who wrote it",
            )


def source_rows(found: Sequence[SidecarJson]) -> list[dict[str, str]]:
    """The sources of some sidecars, by trust, the weakest first: whose word each is, and what was refused of it."""
    kinds: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for sidecar in found:
        for source in sidecar.report.sources:
            kinds.setdefault((source.trust or "", source.source), []).append((sidecar.node, source.refused))
    order = {trust: place for place, trust in enumerate(("user", "system", "kernel"))}
    rows = []
    for (trust, spec), nodes in sorted(kinds.items(), key=lambda item: (order.get(item[0][0], -1), item[0][1])):
        refused = sum(lines for _node, lines in nodes)
        rows.append(
            {
                "source": spec,
                "trust": trust or words.DASH,
                "may tell": _MAY_TELL.get(trust, "what an older sidecar lets through"),
                "nodes": words.count(len(nodes)),
                "refused": words.count(refused),
            }
        )
    return rows


def _spool(spool: SpoolJson) -> Iterator[Trouble]:
    waiting = spool.events_bytes + spool.telemetry_bytes
    if spool.limit_bytes and waiting >= _FULL * spool.limit_bytes:
        yield Trouble(
            f"{size(waiting)} wait for the server, the oldest {words.duration(spool.oldest_s)}",
            "see why the server takes nothing from it",
        )


def _clock(sidecar: SidecarJson) -> Iterator[Trouble]:
    if sidecar.time is not None and abs(sidecar.time - sidecar.received) > _SKEW:
        off_s = (sidecar.time - sidecar.received).total_seconds()
        way = "ahead" if off_s > 0 else "behind"
        yield Trouble(f"its clock is {words.duration(abs(off_s))} {way}", "set it by NTP: faults are dated by it")


def size(count: float) -> str:
    """Bytes as people say them: 512 B, 4.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
