"""The past of one node: hints, telemetry, scores and errors by the hour, its days (pruned ones included), its parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.records.event_sources import FLEET_SOURCES, MACHINES
from store.records.telemetry import hour_of
from store.tables import hint_tables, schema, topology_tables
from store.tables.day_totals import DayStart, summary

# A row is either there or in the day that it was summed up to, never in both: one statement sees one state of the two.


def event_days(
    connection: sa.Connection, node: str, since: datetime, until: datetime
) -> dict[datetime, dict[str, int]]:
    """The node's events of since <= time < until, both midnights: day -> kind -> count."""
    events, days = schema.events, schema.event_days
    day = DayStart(events.c.time).label("day")
    there = sa.select(day, events.c.kind, sa.func.count().label("count")).where(
        events.c.node == node, events.c.time >= since, events.c.time < until
    )
    gone = sa.select(days.c.day, days.c.kind, sa.func.sum(days.c.count).label("count")).where(
        days.c.node == node, days.c.day >= since, days.c.day < until
    )
    both = sa.union_all(there.group_by(day, events.c.kind), gone.group_by(days.c.day, days.c.kind))
    found: dict[datetime, dict[str, int]] = {}
    for moment, kind, count in connection.execute(both):
        kinds = found.setdefault(moment, {})
        kinds[kind] = kinds.get(kind, 0) + int(count)
    return found


def telemetry_days(
    connection: sa.Connection, node: str, since: datetime, until: datetime
) -> dict[datetime, dict[str, Any]]:
    """The node's days of telemetry of since <= time < until, both midnights: day -> the columns of `telemetry_days`.

    Of a day that is half pruned both halves are joined: see `join`.
    """
    hours, days = schema.telemetry, schema.telemetry_days
    chosen = sa.select(hours).where(hours.c.node == node, hours.c.time >= since, hours.c.time < until).subquery()
    there = summary("telemetry", chosen)
    names = [column.name for column in there.selected_columns]
    gone = sa.select(*(days.c[name] for name in names)).where(
        days.c.node == node, days.c.day >= since, days.c.day < until
    )
    found: dict[datetime, dict[str, Any]] = {}
    for row in connection.execute(sa.union_all(there, gone)).mappings():
        values = {name: row[name] for name in names if name not in ("node", "day")}
        other = found.get(row["day"])
        found[row["day"]] = values if other is None else join(other, values)
    return found


def join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two parts of one day: sums, extremes and means as `store.tables.day_totals.adding` does it."""
    samples = one["samples"] + other["samples"]
    joined: dict[str, Any] = {"hours": one["hours"] + other["hours"], "samples": samples}
    for name in one.keys() - joined.keys():
        known = [part for part in (one, other) if part[name] is not None]
        if len(known) < 2:  # both
            joined[name] = known[0][name] if known else None
        elif "mean" in name:
            joined[name] = sum(part[name] * part["samples"] for part in known) / samples if samples else None
        else:
            joined[name] = (min if "min" in name else max)(part[name] for part in known)
    return joined


_HORIZON_NAMES = {24: "score_24h", 168: "score_7d"}


def node_hints(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's hints made since a moment, and those still valid then."""
    table = hint_tables.hints
    query = sa.select(table).where(table.c.node == node, table.c.valid_until >= since)
    return [dict(row) for row in connection.execute(query.order_by(table.c.created, table.c.id)).mappings()]


def node_telemetry(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's roll-ups, one an hour; hours without samples are missing."""
    table = schema.telemetry
    # What is kept of single devices is many times the rest.
    columns = [column for column in table.columns if column.name not in ("node", "devices", "packed")]
    query = sa.select(*columns).where(table.c.node == node, table.c.time >= since).order_by(table.c.time)
    return [dict(row) for row in connection.execute(query).mappings()]


def node_scores(connection: sa.Connection, node: str, since: datetime) -> list[dict[str, Any]]:
    """The node's scores over time: `time`, `score_24h` and `score_7d` (None where one was not made)."""
    table = schema.scores
    query = sa.select(table.c.time, table.c.horizon_h, table.c.score).where(table.c.node == node, table.c.time >= since)
    found: dict[datetime, dict[str, Any]] = {}
    for row in connection.execute(query.order_by(table.c.time)):
        if row.horizon_h in _HORIZON_NAMES:
            line = found.setdefault(row.time, {"time": row.time, "score_24h": None, "score_7d": None})
            line[_HORIZON_NAMES[row.horizon_h]] = row.score
    return list(found.values())


def node_errors(
    connection: sa.Connection, node: str, kinds: Mapping[str, str], since: datetime, until: datetime, most: int
) -> tuple[dict[datetime, dict[str, int]], datetime | None]:
    """What a node's events count, by hour and group; and since when that is all, where older events were left out.

    A counter's rise is one event: it counts as many times as its `attributes.count` says, any other event once.

    Args:
        kinds: the group of each kind of event that is counted.
        most: events that are read, the newest.
    """
    events = schema.events.c
    query = sa.select(events.time, events.kind, events.attributes).where(
        events.node == node, events.kind.in_(sorted(kinds)), events.time >= since, events.time < until
    )
    rows = connection.execute(query.order_by(events.time.desc()).limit(most)).all()
    found: dict[datetime, dict[str, int]] = {}
    for time, kind, attributes in reversed(rows):
        told = (attributes or {}).get("count")
        rise = int(told) if isinstance(told, int | float) and 1 <= told < _MOST_RISE else 1
        groups = found.setdefault(hour_of(time), {})
        groups[kinds[kind]] = groups.get(kinds[kind], 0) + rise
    return found, rows[-1].time if len(rows) == most else None


# A counter that was read wrongly, or a lie, leaves the sum within what JSON can hold.
_MOST_RISE = 2**40
_GPU_PLACE = re.compile(r"gpu:?(\d{1,3})", re.ASCII)
_PCI_PLACE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.ASCII)
# Who observes this node's hardware.
_OBSERVERS = sorted(MACHINES - FLEET_SOURCES)
_GPU_TYPES = ("gpu", "npu", "mlu", "hpu")


@dataclass(slots=True)
class NodeGpu:
    """What a GPU of a node is called; None = nobody tells. `index` is its number within the node."""

    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    serial: str | None = None
    type: str = "gpu"


def node_gpus(connection: sa.Connection, node: str, most: int) -> list[NodeGpu]:
    """The GPUs of a node that somebody names, by index and PCI address: the topology, then its newest events.

    Args:
        most: names, and events, that are read, the newest.
    """
    names = topology_tables.device_names.c
    query = sa.select(names.device, names.kind, names.name).where(
        names["class"] == "gpu", names.device.startswith(f"{node}/", autoescape=True), names.until.is_(None)
    )
    told: dict[str, NodeGpu] = {}
    for device, kind, name in connection.execute(query.order_by(names.device, names.kind).limit(most)):
        gpu = told.setdefault(device, _by_place(device.rpartition("/")[2]))
        if kind == "name" and gpu.index is None:
            gpu.index = _by_place(name.rpartition("/")[2]).index
        elif kind in ("pci", "serial"):
            setattr(gpu, kind, getattr(gpu, kind) or name)
    found: list[NodeGpu] = []
    for gpu in told.values():
        _join(found, gpu)
    events = schema.events.c
    heard = sa.select(events.device, events.attributes).where(events.node == node, events.source.in_(_OBSERVERS))
    for device, attributes in connection.execute(heard.order_by(events.time.desc()).limit(most)):
        if (kind := (device or {}).get("type")) in _GPU_TYPES:
            serial = (attributes or {}).get("serial")
            told_last = NodeGpu(device.get("index"), device.get("pci"), device.get("uuid"), type=kind)
            told_last.serial = None if serial is None else str(serial)
            _join(found, told_last)
    return sorted(found, key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.pci or "", gpu.uuid or ""))


def _by_place(place: str) -> NodeGpu:
    """By the name of a GPU within its node: `gpu3`, or its PCI address."""
    number = _GPU_PLACE.fullmatch(place)
    return NodeGpu(int(number[1]) if number else None, place if _PCI_PLACE.fullmatch(place) else None)


def _join(found: list[NodeGpu], told: NodeGpu) -> None:
    """Put what is told of a GPU to the one that it is of; what was told before holds: it is newer."""
    names = ("pci", "uuid", "serial")
    same = next(
        (one for one in found if any(getattr(told, n) and getattr(one, n) == getattr(told, n) for n in names)), None
    )
    numbered = next((one for one in found if told.index is not None and one.index == told.index), None)
    if same is None and numbered is not None:
        # Another one had the number before: a boot may count otherwise.
        same = numbered if all(None in (getattr(numbered, n), getattr(told, n)) for n in names) else None
    if same is None:
        if numbered is None and any(getattr(told, name) is not None for name in ("index", *names)):
            found.append(told)
        return
    for name in names:
        setattr(same, name, getattr(same, name) or getattr(told, name))
    same.type = told.type if same.type == "gpu" else same.type
    if same.index is None and numbered is None:
        same.index = told.index
