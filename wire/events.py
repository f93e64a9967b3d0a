"""Events, incidents, audit rows, rules and the result of a batch: `GET /events`, `POST /events` ..."""

from typing import Annotated, Any

from msgspec import Meta, field

from store.records.event import Action, Cause, Severity
from store.records.incident import LifeState, ThreadStep
from wire.hints import RemedyJson
from wire.message import Always, JsonBody, JsonObject, Sometimes, Text, Time, example, one_of

MOST_TEXT = 2000
MOST_SILENCE_H = 720.0


class RejectedJson(JsonObject, frozen=True, kw_only=True):
    """A record that was left out."""

    line: Annotated[int, example(3)]
    detail: Annotated[str, example("'severity' is 'bad': use one of info, warning, error, fatal")]


class BatchResultJson(JsonObject, frozen=True, kw_only=True):
    """The result of a batch: new records, known ones, and those left out (the first hundred are named)."""

    accepted: Annotated[int, example(17)]
    known: Annotated[int, example(2)]
    rejected: tuple[RejectedJson, ...]


class LogsResultJson(BatchResultJson, frozen=True, kw_only=True):
    """The result of a batch of log lines; to a request of OTLP, how many records were refused and why, too."""

    partialSuccess: Sometimes[dict[str, str]] = field(default_factory=dict)  # noqa: N815 - the protocol's


class SpansResultJson(JsonObject, frozen=True, kw_only=True):
    """OTLP's answer: empty, or how many spans were refused and why."""

    partialSuccess: Annotated[dict[str, str], example({})]  # noqa: N815 - the protocol's spelling


class MetricsResultJson(JsonObject, frozen=True, kw_only=True):
    """OTLP's answer: empty, or how many data points were refused and why the first was."""

    partialSuccess: Annotated[dict[str, str], example({})]  # noqa: N815 - the protocol's spelling


class DeviceJson(JsonObject, frozen=True, kw_only=True):
    """Where in a node or fabric."""

    type: Annotated[str, example("gpu")] = "node"
    pci: Annotated[str | None, example("0000:0f:00.0")] = None
    index: int | None = None
    uuid: str | None = None
    port: int | None = None


class EventJson(JsonObject, frozen=True, kw_only=True):
    """One event, as `foreshock parse` prints it, with its id and when it was received."""

    id: Annotated[str, example("3f2a0c5a9b8e4d1f8a7b6c5d4e3f2a1b")] = ""
    time: Always[Time] = None
    received: Always[Time] = None
    node: Annotated[str | None, example("gpu-017")] = None
    source: Annotated[str, example("kernel")] = ""
    kind: Annotated[str, example("xid")]
    code: Annotated[int | None, example(79)] = None
    severity: Annotated[str, one_of(Severity)] = "info"
    cause: Annotated[str, one_of(Cause)] = "unknown"
    action: Annotated[str, one_of(Action)] = "none"
    device: DeviceJson = DeviceJson()
    message: Annotated[str, example("GPU has fallen off the bus.")] = ""
    meaning: Annotated[str | None, example("Driver can no longer reach the GPU over PCIe")] = None
    attributes: Annotated[dict[str, Any], example({"pid": 1234, "process": "python"})] = {}
    line: int | None = None
    file: Sometimes[str | None] = None


class ThreadEntryJson(JsonObject, frozen=True, kw_only=True):
    """One step of a person about an incident or a verdict. `owner`: whose it became; `until`: the end of a silence."""

    time: Time
    actor: Annotated[str, example("person:ann")]
    step: Annotated[str, one_of(ThreadStep)]
    text: str = ""
    owner: str | None = None
    until: Time | None = None


class LifeJson(JsonObject, frozen=True, kw_only=True):
    """What people have made of an incident or a verdict.

    `owner`: whose it is; `by`, `since`: who brought it to this state, and when; `entries` of its thread. `again`: why
    it is open, or calls, once more after somebody's word: it is worse than what that person saw, or has shown again.
    """

    state: Annotated[str, one_of(LifeState)] = "open"
    owner: str | None = None
    by: str | None = None
    since: Time | None = None
    silenced_until: Time | None = None
    entries: int = 0
    again: str | None = None


class ThreadRequestJson(JsonBody, frozen=True, kw_only=True):
    """What a person says with a step.

    `owner`: whose it is from now on (default: who sends this). Of a silence the end: `until`, or `hours` from now
    (default 4, at most 720). A note has a `text`.
    """

    text: Annotated[str, Meta(max_length=MOST_TEXT, pattern=r"^[^\x00]*$")] = ""
    owner: Text | None = None
    hours: Annotated[float, Meta(gt=0, le=MOST_SILENCE_H)] | None = None
    until: Time | None = None


class IncidentJson(JsonObject, frozen=True, kw_only=True):
    """The events of one fault, coalesced.

    `link`: of the device, where one is known. `domain`: the NVLink domain that the fault took along, `nodes` those of
    it that felt it: `node` alone is the culprit, and nothing is asked of the others. `shown`: when a gauge last showed
    that the fault stands, long after its own events. `devices`: all that are as bad as `device`, that first. `action`:
    what to do about it, by the verdict of its `remedy`; by its own line where no verdict decides. `life`: what people
    have made of it. Of one incident asked for by its id: its `thread`, and the `verdicts` that put it down
    to a cause, the likeliest first.
    """

    id: str
    node: str | None = None
    start: Time
    end: Time
    kind: Annotated[str, example("xid")]
    code: Annotated[int | None, example(79)] = None
    severity: Annotated[str, one_of(Severity)] = "info"
    cause: Annotated[str, one_of(Cause)] = "unknown"
    action: Annotated[str, one_of(Action)] = "none"
    device: DeviceJson = DeviceJson()
    message: str = ""
    count: int = 1
    kinds: dict[str, int] = {}
    blast_radius: int | None = None
    source: Annotated[str | None, example("kernel")] = None
    name: Annotated[str | None, example("nvme0")] = None
    meaning: Annotated[str | None, example("Driver can no longer reach the GPU over PCIe")] = None
    link: Annotated[int | None, example(14)] = None
    domain: Annotated[str | None, example("nvl72-03")] = None
    nodes: list[str] = []
    shown: Time | None = None
    devices: Sometimes[list[DeviceJson]] = []
    remedy: Sometimes[RemedyJson | None] = None
    life: Sometimes[LifeJson | None] = None
    thread: Sometimes[list[ThreadEntryJson]] = []
    verdicts: Sometimes[list[str]] = []


class AuditJson(JsonObject, frozen=True, kw_only=True):
    """One row of the audit: who did what to which hint, when, and the outcome.

    `position`: its place in the hash chain, from 1. `hash`: SHA-256 of it and of the row before (docs/audit.md).
    """

    seq: int = 0
    time: Time
    actor: str = ""
    action: str = ""
    subject: str = ""
    detail: Annotated[Any, Meta(extra_json_schema={"type": "object"})] = None
    position: int | None = None
    hash: str | None = None


class RulesJson(JsonObject, frozen=True, kw_only=True):
    """A site's rules, as they came into force."""

    seq: int
    time: Time
    version: Annotated[str, example("9f86d081884c")]
    text: str
