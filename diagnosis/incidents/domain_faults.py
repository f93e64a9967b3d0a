"""NVLink domains: one fault of a link is printed by every GPU of its domain, and is one incident of one node.

    rest, found = take_domain_faults(connection, faults)

One GPU loses a link and prints Xid 149; within half a second every other GPU of its NVLink domain (72 of an NVL72, on
18 nodes) prints the downstream Xid 145. What each node said is kept apart (`DomainFault.parts`), so the same incidents
come out in whatever order the words arrive. A node is the culprit by its own word alone:

- a node that printed a link fault of its own is the node of its incident; the others' Xid 145 go with the first one;
- where three nodes or more did, they share what failed: the switches of the domain; no node is named;
- where none did, no node of several is named, and a single one is not confirmed: another's word may be on its way.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import sqlalchemy as sa

from diagnosis.incidents.incident import (
    FAULT_COLUMNS,
    NODE_GAP,
    FaultSummary,
    decode_faults,
    encode_faults,
    fault_from,
    kept_heads,
)
from diagnosis.incidents.root import LINK_FAULTS, REPORT_KEYS, IncidentHead, is_link_fault
from store.plural import many
from store.records.event import Device
from store.records.incident import Incident
from store.tables import schema
from store.tables.bulk_rows import is_one_of

# So many nodes that lost a link at once share what failed.
_SWITCH_FROM = 3


@dataclass(frozen=True, slots=True)
class DomainFault:
    """One incident of a domain. `parts`: what each of its nodes said; `culprit`: the part that is to blame, if any."""

    domain: str
    parts: tuple[FaultSummary, ...]
    culprit: FaultSummary | None
    size: int  # nodes of the domain that are known

    def incident(self) -> Incident:
        """What it comes to."""
        said = _sum_of([self.culprit] if self.culprit else self.parts)
        whole = _sum_of(self.parts)
        nodes = tuple(sorted({part.node for part in self.parts if part.node is not None}))
        incident = replace(
            said.incident(),
            start=whole.start,
            end=whole.end,
            count=whole.count,
            kinds=dict(sorted(whole.kinds.items())),
            domain=self.domain,
            nodes=nodes,
            blast_radius=max(self.size, len(nodes)),
        )
        if self.culprit is not None:
            incident = _named(incident, self.culprit)
            return _confirmed(incident) if len(nodes) > 1 else incident
        if any(_link_fault(part) for part in self.parts):
            words = f"{many(len(nodes), 'node')} of {self.domain} lost NVLinks at once: the switches that they share"
            return replace(
                incident, node=None, device=Device(type="nvswitch"), link=None, cause="fabric", message=words,
                action="run_diagnostics", name=self.domain,
            )  # fmt: skip
        if len(nodes) == 1:
            return replace(incident, cause="fabric", link=None)
        words = (
            f"{many(len(nodes), 'node')} of {self.domain} lost NVLink transfers; no GPU says that its own link failed"
        )
        return replace(
            incident, node=None, device=Device(), link=None, cause="fabric", message=words,
            action="run_diagnostics", name=self.domain,
        )  # fmt: skip

    def heads_text(self) -> str:
        """The words of the culprit alone: what its neighbours said is no sign against it."""
        parts = self.parts if self.culprit is None else [self.culprit]
        return msgspec.json.encode(_sum_of(parts).heads).decode()

    def parts_text(self) -> str:
        """What each node said, as JSON."""
        return encode_faults(self.parts).decode()


@dataclass(frozen=True, slots=True)
class DomainChange:
    """The incidents of domains that changed, and the ids of stored incidents whose place they take."""

    made: tuple[DomainFault, ...] = ()
    gone: frozenset[str] = frozenset()


def _named(incident: Incident, culprit: FaultSummary) -> Incident:
    """The incident by the GPU whose link failed, where its own line is lost and another GPU of the node says more."""
    words = [head for head in culprit.heads if is_link_fault(head)]
    if not words or any(head.code in LINK_FAULTS for head in words):
        return incident
    head = words[0]
    return replace(
        incident, kind=head.kind, code=head.code, severity=head.severity, cause=head.cause, action=head.action,
        device=head.device, message=head.message, source=head.source, name=head.name, link=head.link,
    )  # fmt: skip


def _confirmed(incident: Incident) -> Incident:
    """A link fault that other nodes felt: the table's doubt whether it was grave is over."""
    cause = "hardware" if incident.cause in ("unknown", "fabric") else incident.cause
    action = incident.action if incident.action not in ("none", "watch") else "reset_gpu"
    return replace(incident, severity="fatal", cause=cause, action=action)


def take_domain_faults(
    connection: sa.Connection, faults: Sequence[FaultSummary]
) -> tuple[list[FaultSummary], DomainChange]:
    """Take the faults of NVLink domains from among new ones; returns the others, and what becomes of the domains."""
    if not any(fault.part for fault in faults):
        return list(faults), DomainChange()
    sizes, domain_of = _domains(connection, {fault.node for fault in faults if fault.part and fault.node})
    if not domain_of:
        return list(faults), DomainChange()
    window = (min(fault.start for fault in faults) - NODE_GAP, max(fault.end for fault in faults) + NODE_GAP)
    known, gone = _stored(connection, sizes, window)
    for fault in faults:
        if fault.part == "nvlink" and fault.node in domain_of:
            known[domain_of[fault.node]].append(fault)
    rest: list[FaultSummary] = []
    new = False
    for fault in faults:
        if fault.part == "nvlink" and fault.node in domain_of:
            new = True
        elif fault.part == "reports" and fault.node in domain_of and _belongs(fault, known[domain_of[fault.node]]):
            known[domain_of[fault.node]].append(fault)
            new = True
        else:
            rest.append(fault)
    if not new:
        return rest, DomainChange()
    gone |= _take_reports(connection, known, window)
    made = [one for domain, parts in known.items() for one in _domain_faults(domain, sizes[domain], parts)]
    return rest, DomainChange(tuple(made), frozenset(gone))


def _domains(connection: sa.Connection, nodes: Collection[str]) -> tuple[dict[str, int], dict[str, str]]:
    """The domains of several nodes, with how many they have, and the domain of each of some nodes."""
    table = schema.nodes.c
    query = sa.select(table.node, table.nvlink_domain).where(table.nvlink_domain.is_not(None))
    rows = connection.execute(query.where(is_one_of(connection, table.node, nodes)))
    found = {row.node: row.nvlink_domain for row in rows}
    if not found:
        return {}, {}
    counted = sa.select(table.nvlink_domain, sa.func.count()).group_by(table.nvlink_domain)
    counted = counted.where(is_one_of(connection, table.nvlink_domain, set(found.values())))
    sizes = {domain: count for domain, count in connection.execute(counted).all() if count > 1}
    return sizes, {node: domain for node, domain in found.items() if domain in sizes}


def _stored(
    connection: sa.Connection, domains: Collection[str], window: tuple[datetime, datetime]
) -> tuple[dict[str, list[FaultSummary]], set[str]]:
    """What nodes of domains said in the stored incidents of a window, and the ids of those."""
    table = schema.incidents.c
    query = sa.select(table.id, table.domain, table.parts).where(table.end >= window[0], table.start <= window[1])
    parts: dict[str, list[FaultSummary]] = defaultdict(list)
    gone: set[str] = set()
    for ident, domain, text in connection.execute(query.where(is_one_of(connection, table.domain, domains))):
        parts[domain] += decode_faults((text or "[]").encode())
        gone.add(ident)
    return parts, gone


def _belongs(reports: FaultSummary, parts: Iterable[FaultSummary]) -> bool:
    """Whether reports of a node (Xid 154, 45) come with what it said of its NVLinks."""
    return any(part.node == reports.node and _near(part, reports) for part in parts)


def _near(one: FaultSummary, other: FaultSummary) -> bool:
    return one.start - other.end <= NODE_GAP and other.start - one.end <= NODE_GAP


def _take_reports(
    connection: sa.Connection, known: Mapping[str, list[FaultSummary]], window: tuple[datetime, datetime]
) -> set[str]:
    """Take in the stored incidents that are reports alone, and came before what they report; returns their ids."""
    domain_of = {part.node: domain for domain, parts in known.items() for part in parts if part.node is not None}
    table = schema.incidents.c
    query = sa.select(
        *(sa.cast(table[name], sa.Text) if name in ("device", "kinds") else table[name] for name in FAULT_COLUMNS)
    )
    query = query.where(table.end >= window[0], table.start <= window[1], table.domain.is_(None))
    query = query.where(is_one_of(connection, table.node, domain_of), table.kind == "xid")
    gone: set[str] = set()
    for row in connection.execute(query):
        fault = fault_from(row)
        parts = known[domain_of[fault.node or ""]]
        if fault.kinds.keys() <= REPORT_KEYS and _belongs(fault, parts):
            parts.append(fault)
            gone.add(fault.id)
    return gone


def _domain_faults(domain: str, size: int, parts: Sequence[FaultSummary]) -> list[DomainFault]:
    """The incidents of a domain, of all that its nodes said in a window."""
    found = []
    cluster: list[FaultSummary] = []
    for part in sorted(parts, key=lambda part: (part.start, part.end, part.id)):
        if cluster and part.start - max(one.end for one in cluster) > NODE_GAP:
            found += _of_cluster(domain, size, cluster)
            cluster = []
        cluster.append(part)
    return found + (_of_cluster(domain, size, cluster) if cluster else [])


def _of_cluster(domain: str, size: int, cluster: Sequence[FaultSummary]) -> list[DomainFault]:
    """The incidents of what came together: one of each culprit, or one of the domain."""
    by_node: dict[str | None, list[FaultSummary]] = defaultdict(list)
    for part in cluster:
        by_node[part.node].append(part)
    parts = [_sum_of(own) for own in by_node.values()]
    guilty = sorted((part for part in parts if _link_fault(part)), key=_when_it_failed)
    if not guilty or len(guilty) >= _SWITCH_FROM:
        return [DomainFault(domain, tuple(parts), None, size)]
    others = [part for part in parts if part not in guilty]
    first, *later = guilty
    return [
        DomainFault(domain, (first, *others), first, size),
        *(DomainFault(domain, (part,), part, size) for part in later),
    ]


def _link_fault(part: FaultSummary) -> IncidentHead | None:
    """The first word of a part that its own link failed."""
    return next(filter(is_link_fault, part.heads), None)


def _when_it_failed(part: FaultSummary) -> tuple[datetime, str]:
    head = _link_fault(part)
    return (part.start if head is None else head.time), part.id


def _sum_of(parts: Sequence[FaultSummary]) -> FaultSummary:
    """Parts as one, of which none is changed."""
    first = min(parts, key=lambda part: (part.start, part.id))
    kinds: dict[str, int] = {}
    for part in parts:
        for kind, count in part.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + count
    heads = kept_heads([head for part in parts for head in part.heads])
    node = first.node if len({part.node for part in parts}) == 1 else None
    return FaultSummary(first.id, node, first.start, max(part.end for part in parts), kinds, heads, part="nvlink")
