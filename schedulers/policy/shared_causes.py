"""Which faults of a node another's failure explains, by the stored verdicts; which nodes are causes themselves.

    causes = read_causes(connection, policy, since, now)
    causes.explains(node, sign)      # the verdict "leaf004 is down", or None: then the fault is the node's own

A fault that is explained holds no node: what it hangs below is down. Whoever writes one node's lines must neither free
that node so nor have another held: a verdict counts here by the word of three nodes, of the fabric's manager or of a
scheduler, and what a node's own hardware says of itself (a GPU that is gone, memory that cannot be corrected) no
verdict about the fabric, storage, planned work or a program takes back.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

import sqlalchemy as sa

from schedulers.policy.settings import Policy
from store.nodes.node_states import FaultSign, fault_signs
from store.records.event import Cause, Severity
from store.records.event_sources import FLEET_SOURCES
from store.records.incident import Incident
from store.records.verdict import CauseClass, Verdict
from store.verdicts.verdict_log import STANDING_STATES, verdicts_between

# What a cause of a class makes other nodes say: nothing that goes beyond it is explained by it.
_Reach: TypeAlias = Literal["fabric", "nvlink", "soft", "driver", "all"]
_EXPLAINS: Mapping[CauseClass, _Reach] = {
    **dict.fromkeys(("switch", "cable", "optic", "port", "nic"), "fabric"),
    **dict.fromkeys(("nvswitch", "nvlink"), "nvlink"),
    **dict.fromkeys(("storage", "application", "job", "planned"), "soft"),
    **dict.fromkeys(("driver", "firmware"), "driver"),
    **dict.fromkeys(("rack", "power", "cooling"), "all"),
}
# Parts of one node from which others may suffer: it is that node which is held.
_OF_A_NODE: frozenset[CauseClass] = frozenset({"gpu", "nvlink", "nvswitch", "nic", "node"})
# Xids of hardware that is broken whatever happens around it: memory that cannot be corrected or remapped, and a GPU
# that is gone. Of all shared causes power and heat may be behind both, a driver behind the second alone.
_MEMORY_XIDS = frozenset({48, 64, 94, 95, 140})
_HARD_XIDS = _MEMORY_XIDS | {79}
_NVLINK_XIDS = frozenset({74, 137, *range(144, 151)})
# What many links may fall by at once: while it stands, none of them is to blame.
_OF_MANY_LINKS: frozenset[CauseClass] = frozenset({"switch", "rack", "power", "cooling", "planned"})
_SEVERAL = 3  # nodes whose word is enough
_HOLDS = 0.9  # the least probability of a verdict that holds the node that it names
_OF_THE_MACHINE: frozenset[Cause] = frozenset({"hardware", "fabric", "driver", "host"})
_BEFORE, _AFTER = timedelta(minutes=2), timedelta(minutes=10)


class NodeSign(Protocol):
    """What is said of a node: an incident, or one source's part of it."""

    @property
    def kind(self) -> str:
        """What kind of event names it."""

    @property
    def code(self) -> int | None:
        """Its number, where it has one."""

    @property
    def severity(self) -> Severity:
        """How grave it is."""

    @property
    def cause(self) -> Cause:
        """What it is of."""

    @property
    def start(self) -> datetime:
        """When it began."""


@dataclass(frozen=True, slots=True)
class SharedCauses:
    """The verdicts that count, by the nodes that suffer from them and by the node that is the cause."""

    behind: Mapping[str, Sequence[Verdict]] = field(default_factory=dict)
    own: Mapping[str, Verdict] = field(default_factory=dict)

    def explains(self, node: str | None, sign: NodeSign) -> Verdict | None:
        """The likeliest verdict that explains what is said of a node; None where that is the node's own."""
        return next((one for one in self.behind.get(node or "", ()) if _covers(one, sign)), None)

    def is_own(self, incident: Incident) -> bool:
        """Whether a fault is its node's own: one that counts a GPU's end beside a lost link is, whatever is down."""
        found = self.explains(incident.node, incident)
        if found is None:
            return True
        reach = _EXPLAINS[found.cause_class]
        own = frozenset() if reach == "all" else _MEMORY_XIDS if reach == "driver" else _HARD_XIDS
        return not incident.kinds.keys().isdisjoint(f"xid:{code}" for code in own)

    def standing(self, node: str) -> Verdict | None:
        """The likeliest verdict that stands now and from which a node suffers."""
        return next((one for one in self.behind.get(node, ()) if one.state in STANDING_STATES), None)

    def takes_links(self, node: str) -> bool:
        """Whether something stands now by which a node's links may fall though nothing is wrong with them."""
        behind = self.behind.get(node, ())
        return any(one.cause_class in _OF_MANY_LINKS and one.state in STANDING_STATES for one in behind)


def read_causes(connection: sa.Connection, policy: Policy, since: datetime, now: datetime) -> SharedCauses:
    """The shared causes of a window. One that is over still explains what it made nodes say."""
    least = policy.shared_causes.probability
    if least is None:
        return SharedCauses()
    found = [
        one
        for one in verdicts_between(connection, since, now)
        if one.probability >= least and one.state != "explained" and (_suffering(one) or _is_cause(one))
    ]
    if not found:
        return SharedCauses()
    signs = fault_signs(connection, min(one.since for one in found) - _BEFORE, now)
    behind: dict[str, list[Verdict]] = {}
    own: dict[str, Verdict] = {}
    for one in sorted(found, key=lambda verdict: (-verdict.probability, verdict.since, verdict.id)):
        nodes = _suffering(one)
        if one.cause_class in _EXPLAINS and nodes and _is_vouched(one, nodes, signs):
            for node in nodes:
                behind.setdefault(node, []).append(one)
        if _is_cause(one) and one.probability >= _HOLDS and (_spoke(one, signs) or _is_vouched(one, nodes, signs)):
            own.setdefault(one.node or "", one)
    return SharedCauses(behind, own)


def _suffering(verdict: Verdict) -> frozenset[str]:
    """The nodes that a verdict names beside its own."""
    return frozenset({*verdict.nodes, *verdict.victims} - {verdict.node or ""})


def _is_cause(verdict: Verdict) -> bool:
    """Whether it is a node's own part from which others suffer now, and which somebody must handle."""
    stands = verdict.state in STANDING_STATES and verdict.action not in ("none", "watch", "restart_app")
    return stands and verdict.node is not None and verdict.cause_class in _OF_A_NODE and bool(verdict.victims)


def _is_vouched(verdict: Verdict, nodes: Collection[str], signs: Mapping[str, Sequence[FaultSign]]) -> bool:
    """Whether enough others say what the verdict explains: three nodes, or one who speaks for the fleet."""
    speakers = set()
    for node in nodes:
        for sign in signs.get(node, ()):
            if _covers(verdict, sign) or (verdict.cause_class not in _EXPLAINS and _is_near(verdict, sign)):
                if sign.source in FLEET_SOURCES:
                    return True
                speakers.add(node)
    return len(speakers) >= _SEVERAL


def _spoke(verdict: Verdict, signs: Mapping[str, Sequence[FaultSign]]) -> bool:
    """Whether the node that is named says something of the kind itself."""
    own = (sign for sign in signs.get(verdict.node or "", ()) if sign.cause in _OF_THE_MACHINE)
    return any(_is_near(verdict, sign) for sign in own)


def _is_near(verdict: Verdict, sign: NodeSign) -> bool:
    """Whether a sign is of a verdict's time: after its own first, and while it stands."""
    if sign.start < verdict.since - _BEFORE:
        return False
    return verdict.state in STANDING_STATES or sign.start <= (verdict.last or verdict.since) + _AFTER


def _covers(verdict: Verdict, sign: NodeSign) -> bool:
    """Whether a cause of its class makes a node say this, and it was said in its time."""
    match _EXPLAINS.get(verdict.cause_class):
        case "all":
            return _is_near(verdict, sign)
        case "fabric":
            return sign.cause == "fabric" and _is_near(verdict, sign)
        case "nvlink":
            return _is_of_nvlink(sign) and _is_near(verdict, sign)
        case "soft":
            return not is_hard(sign) and _is_near(verdict, sign)
        case "driver":
            return not _is_of_memory(sign) and _is_near(verdict, sign)
        case None:
            return False


def is_hard(sign: NodeSign) -> bool:
    """Whether a node's own hardware says that it is broken."""
    if sign.kind == "xid" and sign.code in _HARD_XIDS:
        return True
    return sign.cause == "hardware" and (sign.severity == "fatal" or "uncorrect" in sign.kind)


def _is_of_memory(sign: NodeSign) -> bool:
    """Whether a part of the node's own memory is broken: no driver does that."""
    return "uncorrect" in sign.kind or (sign.kind == "xid" and sign.code in _MEMORY_XIDS)


def _is_of_nvlink(sign: NodeSign) -> bool:
    """Whether a sign is of a link between GPUs, at whose other end the cause may be."""
    if sign.kind == "xid":
        return sign.code in _NVLINK_XIDS
    return sign.kind == "sxid" or sign.kind.startswith(("nvlink", "nvswitch"))
