"""A ticket for each link that something speaks against and that is likely to be lost: what to look at, in which order.

    link_tickets(connection, at)      # the riskiest first, with the keys of a node's (`predictor/repair/export.py`)

A technician gets one for a link of the last scoring within a day whose own signs add `RISK` or more to the probability
of its loss within 24 h, and that is `TIMES` times as likely to be lost as the median link, or more. `RISK` is
ours: such a link is lost every ten days or more often.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.history.arrays import EVENT_WINDOW_MS, Precursors, from_ms, to_ms
from predictor.history.families import FAMILIES
from predictor.links.cabling import read_cabling
from predictor.links.link_log import read_link_log
from predictor.repair.records import SERIALS, TIMES
from store.hints.hint_log import read_hints
from store.models.scores import LinkScore, links_at_risk, usual_link_score
from store.nodes.inventory import read_nodes
from store.records.event import format_time
from store.records.hint import Hint
from store.records.node import Node
from store.tables import schema
from store.tables.bulk_rows import is_one_of

RISK = 0.1
HORIZON_H = 24
MOST = 500
_MOST_EVENTS = 20  # of each family, the newest
_MOST_QUOTED = 120  # letters
# Which part an event is of; a module's reading says at which end.
_OF_MODULE = ("optics_alarm", "mlx5_module_temp", "mlx5_module_error", "mlx5_module_unplugged")
_OF_ADAPTER = ("pcie_", "mlx5_health", "mlx5_cmd", "mlx5_init", "mlx5_temp", "mlx5_pcie_power", "efa_cmd")
_ADAPTERS = ("hca", "nic", "net", "interface")


@dataclass(frozen=True, slots=True)
class LinkSign:
    """One event that speaks against a link: who said what of which part."""

    id: str
    node: str
    kind: str
    message: str
    attributes: Mapping[str, Any]
    is_of_adapter: bool = False


def link_tickets(connection: sa.Connection, at: datetime) -> list[dict[str, Any]]:
    """The tickets of links as of a moment, the riskiest link first; unknown is None."""
    usual = usual_link_score(connection, HORIZON_H)
    risky = links_at_risk(connection, HORIZON_H, (at - timedelta(hours=HORIZON_H), at), RISK, MOST)
    wanted = [one for one in risky if one.own_reasons and one.score >= TIMES * usual]
    if not wanted:
        return []
    events = _events_of(connection, wanted, at)
    places = {node.node: node for node in read_nodes(connection)}
    adapters = _adapters(connection)
    hints = _hints(connection, [one.node for one in wanted if one.node is not None])
    found = []
    for number, one in enumerate(wanted):
        faults, ids = _faults(events, number)
        signs = _signs(connection, ids)
        ends = _ends(one, adapters.get(one.link))
        about = _about(one, places.get(one.node or ""), signs, ends)
        told = [hint for hint in hints if hint.evidence.link is not None and hint.evidence.link.name == one.link]
        found.append({**about, **faults, "hints": told, "tests": [], "next_step": link_steps(signs, ends)})
    return found


def _about(one: LinkScore, place: Node | None, signs: Sequence[LinkSign], ends: Sequence[str]) -> dict[str, Any]:
    """Where it is, why it is listed, and its number."""
    told = "; ".join(reason.text for reason in one.own_reasons)
    known = {key: getattr(place, key, None) for key in ("rack", "leaf", "gpu_model", "driver")}
    serials = (str(sign.attributes[key]) for sign in reversed(signs) for key in SERIALS if sign.attributes.get(key))
    return {
        "node": one.node,
        **known,
        "why": f"{100 * one.score:.0f} % likely to be lost within {one.horizon_h} h: {told}",
        "part": "link",
        **dict.fromkeys(("pci", "index", "uuid")),
        "serial": next(serials, None),
        "link": one.link,
        "ends": list(ends),
        "evidence": [sign.id for sign in signs],
    }


def link_steps(signs: Sequence[LinkSign], ends: Sequence[str]) -> str:
    """What to do with a link, the cheapest step first, by what speaks against it.

    Dirt is behind most failures of optics (FIELD D4), so cleaning comes first, whatever the signs are.
    """
    steps = []
    adapter = next((sign for sign in reversed(signs) if sign.is_of_adapter), None)
    if adapter is not None:
        steps.append(f"Look at the adapter of {adapter.node} and its slot{_told(adapter)}.")
    steps.append(f"Clean and reseat module and cable at both ends ({' and '.join(ends)}).")
    steps.append(_module_step([sign for sign in signs if sign.kind in _OF_MODULE], signs))
    steps.append("If that does not help, swap the cable.")
    return " ".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


def _module_step(readings: Sequence[LinkSign], signs: Sequence[LinkSign]) -> str:
    """Which module to swap: the one whose readings are wrong, but of light that does not come in the other end's."""
    again = "its bit errors go on" if _errs(signs) else "it is lost again"
    if not readings:
        return f"If {again}, swap the module at one end, then that at the other: no reading says which."
    newest = readings[-1]
    said = _told(newest)
    if newest.attributes.get("reading") == "rx_power":
        return (
            f"If {again}, swap the module at the other end than {newest.node}, where too little light comes in{said}."
        )
    return f"If {again}, swap the module at {newest.node}{said}."


def _told(sign: LinkSign) -> str:
    """What a sign's sender says, in quotes: the steps are ours, these words are not."""
    said = sign.message[:_MOST_QUOTED].replace('"', "'") or sign.kind
    return f' ({sign.node or "the fabric"} says: "{said}")'


def _errs(signs: Sequence[LinkSign]) -> bool:
    """Whether it errs and was not lost lately."""
    return bool(signs) and all(sign.kind in ("bit_errors", "counter", "link_degraded", *_OF_MODULE) for sign in signs)


def _events_of(connection: sa.Connection, links: Sequence[LinkScore], at: datetime) -> Precursors:
    """What was told of these links in 28 days, each by its position."""
    cabling = read_cabling(connection)
    tellers = {node for one in links for node in (one.node, *cabling.tellers(one.link)) if node is not None}
    window_ms = (to_ms(at) - EVENT_WINDOW_MS, to_ms(at))
    names = [one.link for one in links]
    return read_link_log(connection, cabling, names, window_ms, True, sorted(tellers)).precursors(*window_ms)


def _faults(events: Precursors, number: int) -> tuple[dict[str, Any], list[str]]:
    """What was seen of a link by family, and the newest events' ids."""
    mine = np.flatnonzero(events.node == number)
    told: list[tuple[int, str, datetime, datetime]] = []
    ids: list[str] = []
    for number, family in enumerate(FAMILIES):
        of_family = mine[events.family[mine] == number]
        if len(of_family):
            first, last = (from_ms(int(events.time_ms[at])) for at in (of_family[0], of_family[-1]))
            told.append((-len(of_family), family.noun, first, last))
            ids += events.ids[of_family[-_MOST_EVENTS:]].tolist()
    faults = [
        {"what": noun, "count": -count, "first": format_time(first), "last": format_time(last)}
        for count, noun, first, last in sorted(told)
    ]
    seen = {
        "first_seen": format_time(min(one[2] for one in told)) if told else None,
        "last_seen": format_time(max(one[3] for one in told)) if told else None,
    }
    return {**seen, "faults": faults}, ids


def _signs(connection: sa.Connection, ids: Sequence[str]) -> list[LinkSign]:
    """The events, oldest first."""
    table = schema.events.c
    columns = (table.id, table.node, table.kind, table.message, table.attributes, table.device, table.severity)
    query = sa.select(*columns).where(is_one_of(connection, table.id, ids)).order_by(table.time, table.id)
    return [
        LinkSign(ident, node or "", kind, message or "", attributes or {}, _is_of_adapter(kind, device, severity))
        for ident, node, kind, message, attributes, device, severity in connection.execute(query)
    ]


def _is_of_adapter(kind: str, device: Mapping[str, Any] | None, severity: str) -> bool:
    """Whether it is a grave fault of a network adapter: of a host with one cable, all faults of PCIe are its link's."""
    of_one = kind.startswith(_OF_ADAPTER) and severity in ("error", "fatal")
    return of_one and (kind.startswith(("mlx5", "efa")) or (device or {}).get("type") in _ADAPTERS)


def _adapters(connection: sa.Connection) -> dict[str, str]:
    """What the host calls the adapter at the end of a cable, by the cable's name."""
    table = schema.links.c
    query = sa.select(table.switch, table.port, table.hca).where(table.hca.is_not(None))
    return {f"{switch}/{port}": hca for switch, port, hca in connection.execute(query)}


def _ends(one: LinkScore, adapter: str | None) -> tuple[str, ...]:
    """Both ends as a technician finds them; the host's with its adapter, where that is known."""
    if adapter is None or one.node is None:
        return one.ends
    return (*one.ends[:-1], f"{one.ends[-1]} ({adapter})")


def _hints(connection: sa.Connection, nodes: Sequence[str]) -> list[Hint]:
    """The hints of these nodes that a link called for."""
    return [
        hint
        for node in dict.fromkeys(nodes)
        for hint in read_hints(connection, node=node)
        if hint.evidence.link is not None
    ]
