"""Verdicts: `GET /verdicts`, `/verdicts/{id}`, the stream, what receivers are sent, and `foreshock diagnose --json`.

verdict_object(verdict, rank=1)     # the JSON object of a record: the same keys wherever a verdict leaves the product
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from store.records.event import Action, Cause, Device
from store.records.verdict import CauseClass, Verdict, VerdictEvidence, VerdictState
from wire.events import DeviceJson, LifeJson, ThreadEntryJson
from wire.message import JsonObject, Sometimes, Time, example, one_of
from wire.money.price import MoneyJson


class VerdictEvidenceJson(JsonObject, frozen=True, kw_only=True):
    """One reason for or against a cause. `weight`: its logarithm of odds (natural); `events`: ids, few."""

    text: Annotated[str, example("8 of the 8 nodes below it lost a rail")]
    events: list[str] = []
    weight: float = 0.0


class VerdictRevisionJson(JsonObject, frozen=True, kw_only=True):
    """One change of a verdict: what has changed, in words, and how it was held from then on."""

    revision: int
    time: Time
    state: Annotated[str, one_of(VerdictState)]
    what: Annotated[str, example("late evidence: gpu-019 lost the rail, too, 40 s ago")]
    probability: float
    cause_class: Annotated[str, one_of(CauseClass)] = msgspec.field(name="class")
    name: str
    reason: str = ""
    nodes: int = 0


class CheckStartJson(JsonObject, frozen=True, kw_only=True):
    """One check that begins: the site's command by its name, of which node, and against which other."""

    node: Annotated[str, example("gpu-017")]
    check: Annotated[str, example("dcgmi")]
    peer: str | None = None


class LeftOutNodeJson(JsonObject, frozen=True, kw_only=True):
    """A suspect that is not checked, and why."""

    node: Annotated[str, example("gpu-018")]
    reason: Annotated[str, example("a job runs on it: checks.with_jobs, or --with-jobs, allows it")]


class VerdictCheckJson(JsonObject, frozen=True, kw_only=True):
    """What `POST /verdicts/{id}/check` began; what each says becomes evidence of the verdict."""

    begun: list[CheckStartJson] = []
    left_out: list[LeftOutNodeJson] = []


class VerdictJson(JsonObject, frozen=True, kw_only=True):
    """One cause, with what speaks for and against it, what hangs below it and what to do.

    `rank`: its place among all that stand now (of `foreshock diagnose`: in its answer), 1 the likeliest; 0: it has
    ended. `class` `unknown`: no cause known here explains what is seen. `nodes`: those below it, or that felt it;
    `victims`: those of them that suffer only, of which nothing is asked. `gpu_hours_at_stake`: the GPU-hours that its
    running jobs would lose if they stopped now (docs/verdicts.md); `money_at_stake`: those by the configuration's
    `gpu_hour_price`. `score`: `probability` under its earlier name.
    `life`: what people have made of it; `thread`, of one verdict asked for by its id: their steps.
    `why` it ended; `what` has changed, in the stream; `revisions`, of one verdict asked for by its id: every change of
    it, oldest first.
    """

    id: str = ""
    state: Annotated[str, one_of(VerdictState)] = "open"
    revision: int = 0
    explained_by: str | None = None
    rank: Annotated[int, example(1)]
    probability: Annotated[float, example(0.93)]
    score: Annotated[float, example(0.93)] = 0.0
    cause_class: Annotated[str, one_of(CauseClass)] = msgspec.field(name="class")
    name: Annotated[str, example("leaf004")]
    names: Annotated[list[str], example(["leaf004", "0xb83fd203001000c0"])] = []
    node: str | None = None
    device: DeviceJson = DeviceJson()
    cause: Annotated[str, one_of(Cause)] = "unknown"
    action: Annotated[str, one_of(Action)] = "none"
    since: Time
    last: Time | None = None
    reason: Annotated[str, example("all 8 nodes below leaf004 lost rail 3 within 2 s; its other end is well")] = ""
    nodes: list[str] = []
    victims: list[str] = []
    jobs: list[str] = []
    gpu_hours_at_stake: float = 0.0
    incidents: list[str] = []
    evidence_for: list[VerdictEvidenceJson] = []
    evidence_against: list[VerdictEvidenceJson] = []
    opened: Sometimes[Time | None] = None
    changed: Sometimes[Time | None] = None
    ended: Sometimes[Time | None] = None
    why: Sometimes[str | None] = None
    what: Sometimes[str | None] = None
    revisions: Sometimes[list[VerdictRevisionJson]] = []
    life: Sometimes[LifeJson | None] = None
    thread: Sometimes[list[ThreadEntryJson]] = []
    money_at_stake: Sometimes[MoneyJson | None] = None


def verdict_object(verdict: Verdict, rank: int) -> dict[str, Any]:
    """The JSON object of a verdict, but for what comes sometimes; its times are `datetime`s."""
    found = msgspec.to_builtins(verdict_json(verdict, rank), builtin_types=(datetime,))
    return {name: value for name, value in found.items() if name not in _SOMETIMES}


_SOMETIMES = ("opened", "changed", "ended", "why", "what", "revisions", "life", "thread", "money_at_stake")


def verdict_json(verdict: Verdict, rank: int) -> VerdictJson:
    """The same as it is typed."""
    return VerdictJson(
        id=verdict.id,
        state=verdict.state,
        revision=verdict.revision,
        explained_by=verdict.explained_by,
        rank=rank,
        probability=verdict.probability,
        score=verdict.probability,
        cause_class=verdict.cause_class,
        name=verdict.name,
        names=list(verdict.names),
        node=verdict.node,
        device=_device(verdict.device),
        cause=verdict.cause,
        action=verdict.action,
        since=verdict.since,
        last=verdict.last,
        reason=verdict.reason,
        nodes=list(verdict.nodes),
        victims=list(verdict.victims),
        jobs=list(verdict.jobs),
        gpu_hours_at_stake=verdict.gpu_hours_at_stake,
        incidents=list(verdict.incidents),
        evidence_for=[_evidence(one) for one in verdict.evidence_for],
        evidence_against=[_evidence(one) for one in verdict.evidence_against],
    )


def _device(device: Device) -> DeviceJson:
    return DeviceJson(type=device.type, pci=device.pci, index=device.index, uuid=device.uuid, port=device.port)


def _evidence(one: VerdictEvidence) -> VerdictEvidenceJson:
    return VerdictEvidenceJson(text=one.text, events=list(one.events), weight=one.weight)
