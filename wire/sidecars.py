"""Sidecars and their heartbeats: `POST /heartbeats`, `GET /sidecars`."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from store.records.event_sources import Trust
from store.records.node import SidecarState
from wire.message import Always, JsonBody, JsonObject, Sometimes, Text, Time, example, one_of

Count: TypeAlias = Annotated[int, Meta(ge=0)]
ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1000)]


class SidecarSourceJson(JsonObject, frozen=True, kw_only=True):
    """One source of a sidecar; counts since the sidecar started.

    `trust`: who can write it. `refused`: its lines that speak of what such a writer may not tell.
    """

    source: str
    up: Sometimes[bool] = False
    blocked: Sometimes[bool] = False
    lines: Sometimes[int] = 0
    events: Sometimes[int] = 0
    errors: Sometimes[int] = 0
    lost: Sometimes[Count] = 0
    failures: Sometimes[int] = 0
    refused: Sometimes[Count] = 0
    trust: Annotated[Sometimes[str | None], one_of(Trust)] = None


class SpoolJson(JsonObject, frozen=True, kw_only=True):
    """The backlog on the node's disk that waits for the server."""

    events_bytes: Sometimes[int] = 0
    telemetry_bytes: Sometimes[int] = 0
    oldest_s: Sometimes[float] = 0.0
    limit_bytes: Sometimes[int | None] = None


class SidecarLossJson(JsonObject, frozen=True, kw_only=True):
    """Records that cannot be recovered, since the sidecar started; `records`: overwritten before they were read."""

    records: Sometimes[Count] = 0
    events: Sometimes[Count] = 0
    rollups: Sometimes[Count] = 0
    damaged_bytes: Sometimes[Count] = 0

    @property
    def is_any(self) -> bool:
        """Whether anything was lost."""
        return bool(self.records or self.events or self.rollups or self.damaged_bytes)


class HeartbeatJson(JsonObject, frozen=True, kw_only=True):
    """The report of a sidecar about itself; counts are totals since `started`."""

    node: ShortText
    time: Time
    version: ShortText
    boot: Sometimes[str | None] = None
    started: Time
    interval_s: Annotated[float, Meta(gt=0, le=86_400)]
    sources: Annotated[tuple[SidecarSourceJson, ...], Meta(max_length=200)]
    spool: Sometimes[SpoolJson] = SpoolJson()
    lost: SidecarLossJson
    rejected: Sometimes[Count] = 0


class SidecarJson(JsonObject, frozen=True, kw_only=True):
    """A node's sidecar, by its last heartbeat (`report`). `received` is by the server's clock, `time` by the node's.

    `unbroken_since`: since when no two of its heartbeats lay more than 15 minutes apart.
    """

    node: Annotated[str, example("gpu-017")]
    received: Time
    time: Always[Time] = None
    version: Always[str] = None
    started: Always[Time] = None
    unbroken_since: Time | None = None
    state: Annotated[str, one_of(SidecarState)] = "ok"
    report: HeartbeatJson


class SidecarCountsJson(JsonObject, frozen=True, kw_only=True):
    """How many sidecars ever reported, are silent now, or are troubled."""

    known: int = 0
    silent: int = 0
    troubled: int = 0


class EnrollmentJson(JsonBody, frozen=True, kw_only=True):
    """The node that wants a token of its own."""

    node: Annotated[Text, example("gpu-017")]


class EnrolledJson(JsonObject, frozen=True, kw_only=True):
    """A node's own token; its text is told this once."""

    name: Annotated[str, example("gpu-017")]
    node: Annotated[str, example("gpu-017")]
    scopes: Annotated[tuple[str, ...], example(["ingest"])]
    token: Annotated[str, example("fsk_...")]
