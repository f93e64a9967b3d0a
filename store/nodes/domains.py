"""The NVLink domain of each node: by whose word it is known, and the counters of the links of each.

    note_domains(connection, {"gpu-017": "5000-...-0005.1"}, is_told=True)   # a scheduler's labels: they replace
    note_domains(connection, domains_of(events))                             # a node's own word: only what is unknown
    link_readings(connection, since, until)                                  # what each link's counters last showed

The column `nvlink_domain` of `nodes.csv` and a scheduler's labels are an operator's word. What a node says of its own
fabric fills a gap, and moves no node whose domain is known: a node that lies joins its neighbours, and gains nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa

from store.database.coordination import TOPOLOGY, move_mark
from store.records.event import Device, Event
from store.records.telemetry import gpu_index
from store.tables import schema
from store.tables.bulk_rows import is_one_of
from store.tables.packed_hours import PackedHours

FABRIC = "nvlink_fabric"
_MOST_TEXT = 128


def domains_of(events: Iterable[Event]) -> dict[str, str]:
    """What events say of their own nodes' NVLink fabric."""
    found: dict[str, str] = {}
    for event in events:
        if event.kind == FABRIC and event.node is not None:
            domain = event.attributes.get("domain")
            if isinstance(domain, str) and 0 < len(domain) <= _MOST_TEXT:
                found[event.node] = domain
    return found


def note_domains(connection: sa.Connection, domains: Mapping[str, str], *, is_told: bool = False) -> None:
    """Note the NVLink domains of nodes; those that are known already stay, unless an operator's word `is_told`."""
    table = schema.nodes
    for domain in sorted(set(domains.values())):
        nodes = [node for node, own in domains.items() if own == domain]
        known = set(connection.scalars(sa.select(table.c.node).where(is_one_of(connection, table.c.node, nodes))))
        if new := [{"node": node, "nvlink_domain": domain} for node in nodes if node not in known]:
            connection.execute(sa.insert(table), new)
        change = sa.update(table).where(is_one_of(connection, table.c.node, known)).values(nvlink_domain=domain)
        is_news = table.c.nvlink_domain.is_distinct_from(domain) if is_told else table.c.nvlink_domain.is_(None)
        moved = connection.execute(change.where(is_news)).rowcount
        if new or moved:
            move_mark(connection, TOPOLOGY)


def domain_of_each(connection: sa.Connection) -> dict[str, str]:
    """The NVLink domain of each node that has one."""
    table = schema.nodes.c
    query = sa.select(table.node, table.nvlink_domain).where(table.nvlink_domain.is_not(None))
    return {row.node: row.nvlink_domain for row in connection.execute(query)}


# What each link's counters showed, from the roll-ups of exporters and from what nvidia-smi printed.

COUNTERS_KIND = "nvlink_counters"
_OF_LINK = re.compile(r"(?P<name>nvlink_[a-z_]{1,40})_l(?P<link>\d{1,3})", re.ASCII)
# Of each device and measure: min, max, mean, last, changes.
_Figures: TypeAlias = tuple[float | None, float | None, float | None, float | None, float | None]
_DEVICES = msgspec.json.Decoder(dict[str, dict[str, _Figures]])
_MOST_LINKS = 256


@dataclass(frozen=True, slots=True)
class LinkReading:
    """What one GPU's NVLinks last showed. `links`: how many were read; `counters`: of each counter and link."""

    node: str
    device: Device
    time: datetime
    source: str
    links: int
    counters: Mapping[tuple[str, int], float]


# What a sidecar reads of links it tells when it changes: what was read weeks ago stands.
_PRINTED = timedelta(days=30)


def link_readings(connection: sa.Connection, since: datetime, until: datetime) -> list[LinkReading]:
    """The newest reading of each GPU until a moment, by node and device; of exporters' roll-ups since another."""
    newest: dict[tuple[str, str], LinkReading] = {}
    for reading in (*_of_rollups(connection, since, until), *_of_events(connection, until - _PRINTED, until)):
        index = reading.device.index  # a GPU that took the place of another is read in its stead
        key = reading.node, f"{reading.source} {reading.device.key() if index is None else index}"
        former = newest.get(key)
        if former is None or former.time <= reading.time:
            newest[key] = reading
    return [newest[key] for key in sorted(newest)]


def _of_rollups(connection: sa.Connection, since: datetime, until: datetime) -> Iterator[LinkReading]:
    table = schema.telemetry.c
    text, hours = sa.cast(table.devices, sa.Text), PackedHours(connection)
    query = sa.select(table.node, table.time, text.label("devices"), table.packed)
    query = query.where(table.time >= since, table.time < until).order_by(table.time)
    query = query.where(sa.or_(text.like("%nvlink\\_%\\_l%", escape="\\"), table.packed.is_not(None)))
    with connection.execute(query.execution_options(yield_per=1000)) as rows:
        for row in rows:
            if (told := hours.text(row.time, row.devices, row.packed, _IN_ROLLUP)) is None:
                continue
            try:
                devices = _DEVICES.decode(told)
            except msgspec.MsgspecError:
                continue
            for device, measures in devices.items():
                last = ((name, figures[3]) for name, figures in measures.items())
                counters = _by_link((name, value) for name, value in last if value is not None)
                index = gpu_index(device)
                if counters and index is not None:
                    links = len({link for _, link in counters})
                    yield LinkReading(row.node, Device("gpu", index=index), row.time, "dcgm", links, counters)


def _of_events(connection: sa.Connection, since: datetime, until: datetime) -> Iterator[LinkReading]:
    table = schema.events.c
    query = sa.select(table.node, table.time, table.source, table.device, table.attributes)
    query = query.where(table.kind == COUNTERS_KIND, table.time >= since, table.time < until, table.node.is_not(None))
    for row in connection.execute(query.order_by(table.time)):
        links = row.attributes.get("links")
        values = ((name, value) for name, value in row.attributes.items() if isinstance(value, int | float))
        if isinstance(links, int) and 0 < links <= _MOST_LINKS:
            yield LinkReading(row.node, Device(**row.device), row.time, row.source, links, _by_link(values))


def days_of_links(connection: sa.Connection) -> list[datetime]:
    """The ends of the days that tell of single links; of a day's roll-ups a few are looked at."""
    found: set[datetime] = set()
    events = schema.events.c
    for moment in connection.scalars(sa.select(events.time).where(events.kind == COUNTERS_KIND)):
        found.add(_end_of_day(moment))
    table = schema.telemetry.c
    ends = sa.select(sa.func.min(table.time, type_=schema.UtcTime()), sa.func.max(table.time, type_=schema.UtcTime()))
    first, last = connection.execute(ends).one()
    day, hours = None if first is None else _end_of_day(first), PackedHours(connection)
    while day is not None and last is not None and day - _DAY <= last:
        query = sa.select(table.time, sa.cast(table.devices, sa.Text), table.packed)
        query = query.where(table.time >= day - _DAY, table.time < day)
        looked = connection.execute(query.limit(_LOOKED_AT)).all()
        if any(hours.text(time, text, packed, _IN_ROLLUP) for time, text, packed in looked):
            found.add(day)
        day += _DAY
    return sorted(found)


_DAY = timedelta(days=1)
_LOOKED_AT = 16
_IN_ROLLUP = re.compile(r'"nvlink_[a-z_]{1,40}_l\d', re.ASCII)


def _end_of_day(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY


def _by_link(values: Iterable[tuple[str, Any]]) -> dict[tuple[str, int], float]:
    """The values of single links, by counter and link."""
    found: dict[tuple[str, int], float] = {}
    for name, value in values:
        if match := _OF_LINK.fullmatch(name):
            found[match["name"], int(match["link"])] = float(value)
    return found


def by_domain(readings: Iterable[LinkReading], domains: Mapping[str, str]) -> dict[str, list[LinkReading]]:
    """Readings that are compared with each other: those of a domain, else those of a node."""
    found: dict[str, list[LinkReading]] = defaultdict(list)
    for reading in readings:
        found[domains.get(reading.node, reading.node)].append(reading)
    return found
