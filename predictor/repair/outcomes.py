"""What came of repairs: how many nodes failed again within 7 days, by what had been done to them.

    for one in repair_outcomes(connection, at):
        print(one.repair, one.again, "of", one.repairs)      # reboot 21 of 46

What was done is told by a GPU's number that is another than before, by the words of the outage's reason, by a boot
while the node was out, or by how long it took, in this order (`store/nodes/repairs.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

import orjson
import sqlalchemy as sa

from store.nodes.inventory import read_outages
from store.nodes.repairs import repair_by_length, repair_told
from store.records.outage import Outage
from store.records.telemetry import ACCELERATORS
from store.tables import schema

AGAIN_D, MEMORY = 7, timedelta(days=365)
# A new number counts as that of a part put in while the node was out, if it is seen first within this of its return.
_SEEN_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """Unplanned outages that ended with one kind of repair, and how many of the nodes failed again within AGAIN_D days.

    `low` and `high` are Wilson's interval of the share, 95 %. `by_length`: how many are known by their length alone.
    """

    repair: str
    repairs: int
    again: int
    low: float
    high: float
    by_length: int


def repair_outcomes(connection: sa.Connection, at: datetime) -> list[RepairOutcome]:
    """Of the last year, by kind of repair, the commonest first; a repair younger than AGAIN_D days is left out."""
    outages = read_outages(connection, until=at, since=at - MEMORY)
    swapped, booted = _new_numbers(connection, at), _boots(connection, at)
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for mine in _by_node(outages).values():
        failures = [one for one in mine if not one.planned]
        for one, following in zip_longest(failures, failures[1:]):
            if one.end is None or at - one.end < timedelta(days=AGAIN_D):
                continue
            again = following is not None and following.start - one.end <= timedelta(days=AGAIN_D)
            repair, sure = _repair(one, one.end, swapped.get(one.node, ()), booted.get(one.node, ()))
            found[repair].append((again, sure))
    made = [_outcome(repair, told) for repair, told in found.items()]
    return sorted(made, key=lambda one: (-one.repairs, one.repair))


def _by_node(outages: Iterable[Outage]) -> Mapping[str, list[Outage]]:
    """Each node's outages, in order of their start."""
    found: dict[str, list[Outage]] = defaultdict(list)
    for one in outages:
        found[one.node].append(one)
    return found


def _repair(outage: Outage, end: datetime, swapped: Iterable[datetime], booted: Iterable[datetime]) -> tuple[str, bool]:
    """What was done, and whether anything but the length tells it."""
    if any(outage.start <= moment <= end + _SEEN_WITHIN for moment in swapped):
        return "swap", True
    if told := repair_told(outage.reason):
        return told, True
    usual = repair_by_length((end - outage.start).total_seconds() / 3600)
    quick = usual in ("returned", "reboot")
    return ("reboot", True) if quick and any(outage.start < moment <= end for moment in booted) else (usual, False)


def _outcome(repair: str, told: list[tuple[bool, bool]]) -> RepairOutcome:
    """The count of one kind, with Wilson's interval."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    count, again = len(told), sum(one for one, _ in told)
    share = binomtest(again, count).proportion_ci(method="wilson")
    return RepairOutcome(repair, count, again, share.low, share.high, sum(not sure for _, sure in told))


def _boots(connection: sa.Connection, at: datetime) -> Mapping[str, list[datetime]]:
    """When nodes booted."""
    table = schema.events
    query = sa.select(table.c.node, table.c.time).where(table.c.kind == "node_reboot", table.c.time >= at - MEMORY)
    found: dict[str, list[datetime]] = defaultdict(list)
    for node, time in connection.execute(query.where(table.c.time < at, table.c.node.is_not(None))):
        found[node].append(time)
    return found


def _new_numbers(connection: sa.Connection, at: datetime) -> Mapping[str, list[datetime]]:
    """When a GPU of a node, whoever made it, was first seen with another number than that place had before."""
    table = schema.events
    text = sa.cast(table.c.device, sa.Text)
    query = sa.select(table.c.node, text, sa.func.min(table.c.time, type_=schema.UtcTime()))
    query = query.where(table.c.time >= at - MEMORY, table.c.time < at, text.like('%"uuid"%"%-%"%'))
    places: dict[tuple[str, str], dict[str, datetime]] = defaultdict(dict)
    for node, device, first in connection.execute(query.group_by(table.c.node, text)):
        told = orjson.loads(device)
        place = told.get("pci") or told.get("index")
        if told.get("type") in ACCELERATORS and told.get("uuid") and place is not None and node is not None:
            seen = places[node, str(place)]
            seen[told["uuid"]] = min(first, seen.get(told["uuid"], first))
    found: dict[str, list[datetime]] = defaultdict(list)
    for (node, _), seen in places.items():
        found[node] += sorted(seen.values())[1:]
    return found
