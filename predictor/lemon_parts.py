"""Which part of a node is the culprit, and by which number a vendor knows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import sqlalchemy as sa

from predictor.lemon_records import NAMES_AT_A_TIME, Fault
from predictor.lemon_signals import Told
from store import schema
from store.event import Device

# A part stands out when it was bad on this share of the days on which any was, and more than once.
DOMINANT = 0.6
# Attributes of events that hold a part's number, first choice first.
_SERIALS = ("serial", "cable_serial")


@dataclass(frozen=True, slots=True)
class Part:
    """The culprit: bad on `days` of the `of` days that any of the node's parts was; `far_end`: where its link leads."""

    device: Device
    name: str | None
    faults: tuple[Fault, ...]
    days: int
    of: int
    serial: str | None = None
    uuid: str | None = None
    far_end: str | None = None

    @property
    def words(self) -> str:
        """`gpu 0000:d8:00.0`, `port 0xb83fd20300200061 (leaf-02 port 7)`."""
        return self.device.words(self.name) + (f" ({self.far_end})" if self.far_end else "")


def culprit_of(told: Told) -> Part | None:
    """The part that gave most of a node's serious faults, of the window or else of the longer memory; None for none."""
    return _dominant(told.faults) or _dominant([*told.faults, *told.flaps]) or _dominant(told.remembered)


def _dominant(faults: Sequence[Fault]) -> Part | None:
    """The part that was bad on most days; a burst is one day's."""
    days: dict[str, set[date]] = {}
    for fault in faults:
        days.setdefault(fault.part, set()).add(fault.start.date())
    if not days:
        return None
    part, bad = max(days.items(), key=lambda item: (len(item[1]), item[0]))
    mine = tuple(fault for fault in faults if fault.part == part)
    of = sum(map(len, days.values()))
    if len(mine) < 2 or len(bad) < DOMINANT * of or (mine[0].device.type == "node" and not mine[0].name):
        return None
    return Part(mine[-1].device, mine[-1].name, mine, len(bad), of, uuid=mine[-1].device.uuid)


def identified(connection: sa.Connection, parts: Mapping[str, Part | None]) -> dict[str, Part]:
    """The parts with serial number, uuid and far end, where the events of their faults or the topology tell them."""
    known = {node: part for node, part in parts.items() if part is not None}
    about = _attributes(connection, [fault.id for part in known.values() for fault in part.faults[-20:]])
    cables = _cables(connection, [node for node, part in known.items() if part.device.type in ("port", "hca")])
    found = {}
    for node, part in known.items():
        told = [about[fault.id] for fault in reversed(part.faults) if fault.id in about]
        serials = (one[key] for one in told for key in _SERIALS if one.get(key))
        uuids = (one["uuid"] for one in told if one.get("uuid"))
        found[node] = replace(
            part,
            serial=next((str(serial) for serial in serials), None),
            uuid=part.uuid or next((str(uuid) for uuid in uuids), None),
            far_end=cables.get(node),
        )
    return found


def _attributes(connection: sa.Connection, ids: Sequence[str]) -> dict[str, dict[str, object]]:
    """The attributes of the events that began the incidents: these bear the same id."""
    table, found = schema.events, dict[str, dict[str, object]]()
    for i in range(0, len(ids), NAMES_AT_A_TIME):
        query = sa.select(table.c.id, table.c.attributes).where(table.c.id.in_(ids[i : i + NAMES_AT_A_TIME]))
        found |= {row.id: row.attributes for row in connection.execute(query)}
    return found


def _cables(connection: sa.Connection, nodes: Sequence[str]) -> dict[str, str]:
    """Where the link of a node leads; of a node with several links it is not known which one fell."""
    table, found = schema.links, dict[str, list[str]]()
    for i in range(0, len(nodes), NAMES_AT_A_TIME):
        query = sa.select(table.c.peer, table.c.switch, table.c.port).where(
            table.c.peer.in_(nodes[i : i + NAMES_AT_A_TIME])
        )
        for peer, switch, port in connection.execute(query.order_by(table.c.switch, table.c.port)):
            found.setdefault(peer, []).append(f"{switch} port {port}")
    return {node: ends[0] for node, ends in found.items() if len(ends) == 1}
