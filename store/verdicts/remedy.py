"""Which verdict says what is to be done about a fault: one fault has one remedy, wherever it is shown.

    decide(connection, [FaultPlace("e1", "gpu-017", start, end, (device,), is_hard=True)])["e1"].action

A fault's own line asks for what its catalogue says. A verdict that names the fault knows more: the likeliest of those
that stand decides, where none stands the likeliest of those that ended. What is no more likely than not decides
nothing. Nor does a verdict on a program, a file server or planned work decide what is done about broken hardware.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from store.records.event import Device
from store.records.incident import Incident
from store.records.verdict import CauseClass, Verdict
from store.tables.bulk_rows import is_one_of
from store.tables.verdict_tables import verdict_subjects, verdicts
from store.verdicts.verdict_log import STANDING_STATES

# A cause may show before its incident, and for hours after it.
_EARLIER, _LATER = timedelta(hours=1), timedelta(days=1)
_NEAR = timedelta(minutes=1)
# More likely than not: what one node alone says of others is told with a half.
_SURE = 0.5
_SOFT: frozenset[CauseClass] = frozenset({"application", "job", "planned", "storage"})
_MOST = 2_000  # verdicts that are looked at for a page, the newest
_RANK = {"open": 0, "revised": 0, "closed": 1, "explained": 2}


class _Evidence(msgspec.Struct):
    events: tuple[str, ...] = ()


class _Names(msgspec.Struct):
    """What a verdict rests on, without all the rest of it."""

    incidents: tuple[str, ...] = ()
    evidence_for: tuple[_Evidence, ...] = ()


_NAMES = msgspec.json.Decoder(_Names)
_VERDICT = msgspec.json.Decoder(Verdict)


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """An incident as a verdict is looked for: where and when it was. `is_hard`: its hardware says that it is broken."""

    id: str
    node: str | None
    start: datetime
    end: datetime
    devices: tuple[Device, ...] = ()
    is_hard: bool = False


def place_of(incident: Incident) -> FaultPlace:
    """The place of a stored incident."""
    is_hard = is_broken(incident.severity, incident.cause)
    return FaultPlace(incident.id, incident.node, incident.start, incident.end, (incident.device,), is_hard)


def is_broken(severity: str, cause: str) -> bool:
    """Whether hardware itself says that it is broken."""
    return severity == "fatal" and cause == "hardware"


def decide(connection: sa.Connection, faults: Sequence[FaultPlace]) -> dict[str, Verdict]:
    """The verdict that decides what is done about each fault, by its id; a fault that none decides is left out."""
    return decided(faults, naming(connection, faults))


def decided(faults: Sequence[FaultPlace], named: Mapping[str, Sequence[Verdict]]) -> dict[str, Verdict]:
    """The same of faults whose verdicts are read already, as `naming` gives them."""
    hard = {one.id for one in faults if one.is_hard}
    found = (
        (ident, next((one for one in some if _decides(one, ident in hard)), None)) for ident, some in named.items()
    )
    return {ident: one for ident, one in found if one is not None}


def _decides(verdict: Verdict, is_hard: bool) -> bool:
    return verdict.probability > _SURE and not (is_hard and verdict.cause_class in _SOFT)


def naming(connection: sa.Connection, faults: Sequence[FaultPlace]) -> dict[str, list[Verdict]]:
    """The verdicts that put each fault down to a cause, by its id: those that stand first, then the likeliest.

    One that stands names what its own device says again, too: it is told anew only where something is other.
    """
    if not faults:
        return {}
    by_node: dict[str | None, list[FaultPlace]] = {}
    for fault in faults:
        by_node.setdefault(fault.node, []).append(fault)
    wanted = {fault.id: fault for fault in faults}
    found: dict[str, list[Verdict]] = {}
    window = (min(one.start for one in faults) - _EARLIER, max(one.end for one in faults) + _LATER)
    for row in _rows(connection, wanted, {node for node in by_node if node is not None}, window):
        names = _NAMES.decode(row.document)
        told = (event for one in names.evidence_for for event in one.events)
        mine = {ident for ident in (*names.incidents, *told) if ident in wanted and _is_of_its_time(row, wanted[ident])}
        again = by_node.get(row.node, ()) if row.node is not None and row.state in STANDING_STATES else ()
        if not mine and not again:
            continue
        verdict = _VERDICT.decode(row.document)
        for ident in mine | {fault.id for fault in again if _is_again(verdict, fault)}:
            found.setdefault(ident, []).append(verdict)
    return {ident: sorted(some, key=_order) for ident, some in found.items()}


def _rows(
    connection: sa.Connection, wanted: Iterable[str], nodes: Iterable[str], window: tuple[datetime, datetime]
) -> Iterable[sa.Row[Any]]:
    """The verdicts of a window that name any of some incidents or nodes, the newest ones."""
    c, of = verdicts.c, verdict_subjects.c
    named = (
        sa.select(of.verdict).where(of.kind == kind, is_one_of(connection, of.name, names))
        for kind, names in (("incident", wanted), ("node", nodes))
    )
    query = sa.select(c.document, c.node, c.state, c.since, c.ended).where(c.id.in_(sa.union_all(*named)))
    query = query.where(c.since < window[1], sa.or_(c.ended.is_(None), c.ended >= window[0]))
    return connection.execute(query.order_by(c.since.desc(), c.id).limit(_MOST))


def _is_of_its_time(row: sa.Row[Any], fault: FaultPlace) -> bool:
    """Whether a verdict stood when a fault was, or soon after: whatever else is on the page."""
    return row.since < fault.end + _LATER and (row.ended is None or row.ended >= fault.start - _EARLIER)


def _is_again(verdict: Verdict, fault: FaultPlace) -> bool:
    """Whether a fault is the word of a standing verdict's own device again."""
    device = verdict.device
    if fault.start < verdict.since - _NEAR or device.is_bare():
        return False
    return device.key() in {one.key() for one in fault.devices}


def _order(verdict: Verdict) -> tuple[int, float, datetime, str]:
    return _RANK[verdict.state], -verdict.probability, verdict.since, verdict.id
