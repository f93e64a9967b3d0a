"""A hint: a request to a scheduler, with its evidence, owner, validity and state. The evidence is JSON at rest.

    {"score": 0.31, "horizon_h": 24, "reasons": ["3 row remaps"], "acted": "2025-03-01T12:00:00.000000Z"}

    evidence_of(row["evidence"]).reasons       # ("3 row remaps",); what is not known is None
    evidence.to_json()                         # the same keys; a key without a value is left out

A key that `Evidence` does not know, or whose value has another type, is kept in `other` and written back as it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from store.records.event import format_time, parse_time

# The state of a hint at one scheduler. asked: ordered, and not read back yet. confirmed: read back. foreign: another
# keeps work off the node. undone: a person removed our hold. absent: the scheduler has no such node. refused: the
# scheduler cannot do it. released: our hold is gone.
HoldState: TypeAlias = Literal["asked", "confirmed", "foreign", "undone", "absent", "refused", "released"]
# Of a node: watch to release. Of a job that runs on a culprit: save now, start again without it, take a spare for it.
HintAction: TypeAlias = Literal["watch", "avoid", "cordon", "drain", "release", "checkpoint", "requeue", "swap"]
# shadow: written down, never sent. proposed: waits for a person. approved: to be sent. sent: a scheduler took it.
# confirmed: read back from the scheduler. The rest are ends: withdrawn by a person, expired at valid_until, released
# because the node is well again.
HintState: TypeAlias = Literal[
    "shadow", "proposed", "approved", "sent", "confirmed", "withdrawn", "expired", "released"
]

HINT_ACTIONS: tuple[HintAction, ...] = get_args(HintAction)
OPEN_STATES: tuple[HintState, ...] = ("shadow", "proposed", "approved", "sent", "confirmed")
LIVE_STATES: tuple[HintState, ...] = ("approved", "sent", "confirmed")  # what a scheduler is to be brought to


_Reader: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StateChange:
    """Who approved or ended a hint, and when."""

    by: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Approval:
    """One person's yes to a hint that needs another's, too: as the audit names them, who it is, to what, and when."""

    by: str
    person: str
    action: str
    time: datetime


@dataclass(frozen=True, slots=True)
class HintWitness:
    """One of two independent detectors that saw a node fail."""

    incident: str
    source: str
    kind: str
    code: int | None
    time: datetime


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """The job that ran on the node when its score was judged."""

    job: str
    run: str
    gpus: int


@dataclass(frozen=True, slots=True)
class HintCost:
    """GPU-hours: of the node for as long as the hint stands, and of a failure of `run` (None: of the largest job).

    `node_gpus`, `job_gpus`: what was reckoned with; `assumed` names those of them that nobody knew.
    """

    held_gpu_h: float
    failure_gpu_h: float
    run: str | None = None
    node_gpus: int | None = None
    job_gpus: int | None = None
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HintLink:
    """The link of the node for which a hint was made, as a scoring of links at `time` said.

    `score`: how likely it is lost within `horizon_h` hours; `own_risk`: what its own signs add to that; `stop_risk`:
    that its loss stops the job on the node, None where that is not known. `threshold`: what `own_risk` (of an `avoid`:
    `stop_risk`) passed. `events`: what speaks against it.
    """

    name: str
    ends: tuple[str, ...]
    score: float
    horizon_h: int
    own_risk: float
    stop_risk: float | None
    threshold: float
    events: tuple[str, ...]
    time: datetime


@dataclass(frozen=True, slots=True)
class RefusedHold:
    """A hold that a limit refuses: for which incident (or `score`) the node calls for it, and since when."""

    incident: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ReleaseWait:
    """The node is well since a moment; its release waits for something."""

    since: datetime
    waits: str = ""


@dataclass(frozen=True, slots=True)
class RepairCase:
    """The node failed its test too often: how often, and the last line of the test."""

    since: datetime
    tries: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TicketClosing:
    """The last closed ticket of the node: who closed it, how many were, what its system calls it, and what it says."""

    by: str
    time: datetime
    closings: int
    reference: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One hint's evidence. Every field that is not known is None, a flag False.

    `score`, `horizon_h`, `reasons`, `threshold`: the risk as of `scored`, and the threshold that it passed. `what`,
    `spare` to `job_nodes`: of a hint on a job. `code`: of the fault, for the breaker. `held`: why a hold is an `avoid`.
    `acted`: when the hint was made or escalated. `quiet`: the quiet hours that it waits for. `control`: written down
    only. `review`: a person decides, whatever the mode. `approvals`: of people, while it still needs another's.
    `verdict`: the id of the one that names the node, or that explains what the node shows. `link`: of a hint that a
    link of the node calls for; `reasons` are then that link's.
    """

    score: float | None = None
    horizon_h: int | None = None
    reasons: tuple[str, ...] | None = None
    incident: str | None = None
    witnesses: tuple[HintWitness, ...] | None = None
    threshold: float | None = None
    job: JobOnNode | None = None
    control: bool = False
    what: str | None = None
    spare: str | None = None
    spare_leaf: str | None = None
    spare_score: float | None = None
    exclude: tuple[str, ...] | None = None
    run: str | None = None
    job_nodes: int | None = None
    cost: HintCost | None = None
    code: str | None = None
    review: bool = False
    held: str | None = None
    call: RefusedHold | None = None
    acted: datetime | None = None
    quiet: str | None = None
    release: ReleaseWait | None = None
    repair: RepairCase | None = None
    ticket: TicketClosing | None = None
    approvals: tuple[Approval, ...] | None = None
    approved: StateChange | None = None
    closed: StateChange | None = None
    verdict: str | None = None
    link: HintLink | None = None
    scored: datetime | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that is stored and sent: only the keys that have a value, and `other`."""
        found = {}
        for name in _READERS:
            value = getattr(self, name)
            if (value is not None and value is not False) or self._is_null(name):
                found[name] = _plain(value)
        return found | dict(self.other)

    def _is_null(self, name: str) -> bool:
        """Whether a key is written as null: its sibling is there, so it was looked for and is not known."""
        sibling = _NULL_WITH.get(name)
        return sibling is not None and getattr(self, sibling) is not None


def evidence_of(found: Mapping[str, Any]) -> Evidence:
    """The record of a JSON object."""
    known, other = dict[str, Any](), dict[str, Any]()
    for key, value in found.items():
        read = _READERS.get(key)
        if read is None:
            other[key] = value
        elif value is not None:
            try:
                known[key] = read(value)
            except (TypeError, KeyError, ValueError):
                other[key] = value
    return Evidence(**known, other=other)


# The keys of a part that are no name of Python, and keys that are null where their sibling is there.
_JSON_KEYS: Mapping[tuple[type, str], str] = {(RefusedHold, "incident"): "for"}
_NULL_WITH: Mapping[str, str] = {"score": "horizon_h", "spare_leaf": "spare", "spare_score": "spare"}


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if is_dataclass(value):
        kind = type(value)
        return {_JSON_KEYS.get((kind, one.name), one.name): _plain(getattr(value, one.name)) for one in fields(value)}
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is no flag")
    return value


def _moment(value: Any) -> datetime:
    return parse_time(_text(value))


def _optional(read: _Reader) -> _Reader:
    return lambda value: None if value is None else read(value)


def _list_of(read: _Reader) -> _Reader:
    def read_list(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r} is no list")
        return tuple(map(read, value))

    return read_list


def _part(part: type, /, **readers: _Reader) -> _Reader:
    """A reader of one part; a key that the part does not need may be missing."""
    keys = {name: _JSON_KEYS.get((part, name), name) for name in readers}

    def read_part(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"{value!r} is no object")
        return part(**{name: readers[name](value[key]) for name, key in keys.items() if key in value})

    return read_part


_CHANGE = _part(StateChange, by=_text, time=_moment)
_READERS: Mapping[str, _Reader] = {
    "score": _number,
    "horizon_h": _whole,
    "reasons": _list_of(_text),
    "incident": _text,
    "witnesses": _list_of(
        _part(HintWitness, incident=_text, source=_text, kind=_text, code=_optional(_whole), time=_moment)
    ),
    "threshold": _number,
    "job": _part(JobOnNode, job=_text, run=_text, gpus=_whole),
    "control": _flag,
    "what": _text,
    "spare": _text,
    "spare_leaf": _text,
    "spare_score": _number,
    "exclude": _list_of(_text),
    "run": _text,
    "job_nodes": _whole,
    "cost": _part(
        HintCost,
        held_gpu_h=_number,
        failure_gpu_h=_number,
        run=_optional(_text),
        node_gpus=_optional(_whole),
        job_gpus=_optional(_whole),
        assumed=_list_of(_text),
    ),
    "code": _text,
    "review": _flag,
    "held": _text,
    "call": _part(RefusedHold, incident=_text, since=_moment),
    "acted": _moment,
    "scored": _moment,
    "quiet": _text,
    "release": _part(ReleaseWait, since=_moment, waits=_text),
    "repair": _part(RepairCase, since=_moment, tries=_whole, detail=_text),
    "ticket": _part(TicketClosing, by=_text, time=_moment, closings=_whole, reference=_text, text=_text),
    "approvals": _list_of(_part(Approval, by=_text, person=_text, action=_text, time=_moment)),
    "approved": _CHANGE,
    "closed": _CHANGE,
    "verdict": _text,
    "link": _part(
        HintLink,
        name=_text,
        ends=_list_of(_text),
        score=_number,
        horizon_h=_whole,
        own_risk=_number,
        stop_risk=_optional(_number),
        threshold=_number,
        events=_list_of(_text),
        time=_moment,
    ),
}


@dataclass(frozen=True, slots=True)
class Hint:
    """One request. `evidence` holds the score, the incident and what else speaks for it."""

    id: str
    node: str
    action: HintAction
    state: HintState
    reason: str
    owner: str
    created: datetime
    valid_until: datetime
    evidence: Evidence = field(default_factory=Evidence)
    job: str | None = None  # the job that it concerns; None: the node alone
    policy: str | None = None  # the version of the policy that asked for it last

    @property
    def is_control(self) -> bool:
        """Whether it is only written down, in every mode, to see what comes of a node that is left alone."""
        return self.evidence.control

    def to_row(self) -> dict[str, Any]:
        """The fields by name, as the table and the API have them: the evidence is a JSON object."""
        return {name: getattr(self, name) for name in Hint.__slots__} | {"evidence": self.evidence.to_json()}


def hint_of(row: Any) -> Hint:
    """The hint of a row of `hints`."""
    found = {name: row[name] for name in Hint.__slots__}
    return Hint(**(found | {"evidence": evidence_of(found["evidence"])}))
