"""An incident: the events of one fault, coalesced; and its life: what people did about it, and what came of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from store.records.event import SEVERITIES, Action, Cause, Device, Severity
from store.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault: when it began and last showed, the worst it said, and the device held to be the culprit.

    `id` is that of its first event, so coalescing again gives the same incident.
    `source` said what names it; `name` is the device's where it has one (nvme0, swp51, a DIMM's label).
    `kinds` counts its events by `kind` or `kind:code`; `blast_radius` is the number of nodes of the runs it stopped.
    `link` is that of the device, where what names it tells one. `domain` is the NVLink domain whose nodes (`nodes`) one
    fault took along: `node` alone is the culprit, None where no node is known to be.
    `shown` is when a gauge last showed that the fault stands, long after its own events; None where none did.
    """

    id: str
    node: str | None
    start: datetime
    end: datetime
    kind: str
    code: int | None
    severity: Severity
    cause: Cause
    action: Action
    device: Device
    message: str
    count: int
    kinds: dict[str, int] = field(default_factory=dict)
    blast_radius: int | None = None
    source: str | None = None
    name: str | None = None
    link: int | None = None
    domain: str | None = None
    nodes: tuple[str, ...] = ()
    shown: datetime | None = None


_INCIDENT = tuple(field.name for field in fields(Incident))


def incident_of(row: Any) -> Incident:
    """The incident of a row of `incidents`."""
    values = {name: row[name] for name in _INCIDENT}
    return Incident(**{**values, "device": Device(**row["device"]), "nodes": tuple(row["nodes"] or ())})


# The life of an incident or a verdict: each step of a person is an entry of its thread, with how bad it was then. An
# acknowledgement, a silence or a close ends where it becomes worse, for nobody has said a word about that.

ThreadStep: TypeAlias = Literal["ack", "note", "silence", "unsilence", "repair", "validate", "close", "reopen"]
LifeState: TypeAlias = Literal["open", "acknowledged", "in_repair", "validated", "closed"]
_LEADS_TO: Mapping[str, LifeState] = {
    "ack": "acknowledged",
    "repair": "in_repair",
    "validate": "validated",
    "close": "closed",
    "reopen": "open",
}
# These say that nothing is left: what shows afterwards opens it again.
_OVER = ("validated", "closed")


@dataclass(frozen=True, slots=True)
class ThreadSubject:
    """An incident or a verdict as a person sees it: where and when it is, and how bad.

    `last` is when it last showed. `named` and `extent` are a verdict's: what it holds to be the cause, and of how many
    nodes. `part` tells incidents apart that one node has at one time.
    """

    id: str
    node: str | None
    start: datetime
    end: datetime
    part: str = ""
    severity: Severity | None = None
    last: datetime | None = None
    named: str = ""
    extent: int = 0

    def is_worse_than(self, seen: "ThreadSubject") -> bool:
        """Whether it is worse than what a person saw, or something else."""
        return _rank(self.severity) > _rank(seen.severity) or self.named != seen.named or self.extent > seen.extent

    def went_on_after(self, seen: "ThreadSubject") -> bool:
        """Whether it has shown again since."""
        return self.last is not None and (seen.last is None or self.last > seen.last)


@dataclass(frozen=True, slots=True)
class ThreadWord:
    """What a person says: the step, who, why; to whom it goes (`ack`), until when it lasts (`silence`)."""

    step: ThreadStep
    actor: str
    text: str = ""
    owner: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """One step of one person, and the subject as that person saw it then."""

    time: datetime
    word: ThreadWord
    seen: ThreadSubject


@dataclass(frozen=True, slots=True)
class IncidentLife:
    """What has become of it: the state, whose it is, who said so and when, and until when nobody is to be called.

    `again`: why it is open once more, or calls once more; None where nothing undid what was said.
    """

    state: LifeState = "open"
    owner: str | None = None
    by: str | None = None
    since: datetime | None = None
    silenced_until: datetime | None = None
    entries: int = 0
    again: str | None = None


def verdict_subject(verdict: Verdict) -> ThreadSubject:
    """A verdict: another cause, another action or more nodes than before is something that nobody has seen yet."""
    last = verdict.last or verdict.since
    named = f"{verdict.cause_class} {verdict.name} {verdict.action}"
    place = (verdict.id, verdict.node, verdict.since, last)
    return ThreadSubject(*place, part="verdict", last=last, named=named, extent=len(verdict.nodes))


def life_of(entries: Sequence[ThreadEntry], subject: ThreadSubject, now: datetime) -> IncidentLife:
    """What a thread, in its order, has made of its subject as of a moment."""
    life, led, quiet = IncidentLife(entries=len(entries)), None, None
    for entry in entries:
        word = entry.word
        if (state := _LEADS_TO.get(word.step)) is not None:
            owner = None if state == "open" else word.owner or life.owner or word.actor
            life, led = replace(life, state=state, owner=owner, by=word.actor, since=entry.time), entry
        elif word.step in ("silence", "unsilence"):
            quiet = entry if word.step == "silence" else None
    if led is not None and life.state != "open":
        if subject.is_worse_than(led.seen):
            life = replace(life, state="open", again=f"it is worse than when {led.word.actor} saw it")
        elif life.state in _OVER and subject.went_on_after(led.seen):
            again = f"it has shown again since {led.word.actor} said that it is over"
            life = replace(life, state="open", again=again)
    if quiet is None or quiet.word.until is None or quiet.word.until <= now:
        return life
    if subject.is_worse_than(quiet.seen):
        return replace(life, again=life.again or f"it is worse than when {quiet.word.actor} silenced it")
    return replace(life, silenced_until=quiet.word.until)


def _rank(severity: Severity | None) -> int:
    return -1 if severity is None else SEVERITIES.index(severity)
