"""What was told of links: read once, asked for as many windows as a learning needs.

    known = known_links(connection)
    log = read_link_log(connection, known.cabling, known.fleet.names)      # all that the store holds
    log.precursors(first_ms, last_ms)                                      # the link in the place of the node

A port that flaps writes the same line thousands of times: the database gathers the times of what is otherwise equal,
so that a year of 100,000 links comes in 100,000 rows instead of millions.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.history.arrays import (
    DAY_MS,
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    INCIDENT_GAP_MS,
    FleetArrays,
    Ints,
    Precursors,
    from_ms,
    to_ms,
)
from predictor.history.families import BY_KIND, FAMILY_INDEX, family_of, is_serious
from predictor.history.precursor_log import device_name, event_rows, repeated, weight_of
from predictor.history.store_reader import data_span
from predictor.links.cabling import Cabling, read_cabling
from store.nodes.inventory import read_nodes
from store.tables import schema
from store.tables.bulk_rows import is_one_of

_FAMILIES = ("link_flap", "link_error", "pcie")
_KINDS = sorted(kind for kind, family in BY_KIND.items() if family in _FAMILIES)
# Losses that features know of: counting them must not take longer from year to year.
LOSS_WINDOW_MS = 365 * DAY_MS
EVER_MS = (FAR_PAST_MS, FAR_FUTURE_MS)


@dataclass(frozen=True, slots=True)
class KnownLinks:
    """The links of the topology and the ports beside it, as a fleet; and when the data begin, None: there are none."""

    cabling: Cabling
    fleet: FleetArrays
    begun_ms: int | None


def known_links(connection: sa.Connection) -> KnownLinks:
    """The links as they are now.

    Ports beside the topology are those of the data's last year, so that positions are the same whenever one asks.
    """
    cabling, span = read_cabling(connection), data_span(connection)
    if span is not None:
        told = _events(connection, (to_ms(span[1]) - LOSS_WINDOW_MS, FAR_FUTURE_MS)).subquery().c
        named = connection.execute(sa.select(told[0], told[7], told[8]).distinct()).all()
        # In order: of a node that names more ports than it may have, the same ones count each time.
        for node, device, name in sorted(named, key=lambda row: (row[0], row[1], row[2] or "")):
            cabling.link(node, device, name)
    return KnownLinks(cabling, _fleet(connection, cabling), None if span is None else to_ms(span[0]))


def _fleet(connection: sa.Connection, cabling: Cabling) -> FleetArrays:
    """The links as a fleet: a link's leaf is its switch, its time in service that of its host."""
    nodes = {node.node: node for node in read_nodes(connection)}
    hosts = {cable.name: cable.far if cable.far_is_host else None for cable in cabling.cables} | cabling.own
    switches = {cable.name: cable.switch for cable in cabling.cables}
    names = tuple(sorted(hosts))
    leaves: dict[str, int] = {}
    leaf, since, until = [], [], []
    for name in names:
        host = nodes.get(hosts[name] or "")
        switch = switches.get(name) or (host.leaf if host else None)
        leaf.append(-1 if switch is None else leaves.setdefault(switch, len(leaves)))
        since.append(to_ms(host.in_service_since) if host and host.in_service_since else FAR_PAST_MS)
        until.append(to_ms(host.in_service_until) if host and host.in_service_until else FAR_FUTURE_MS)
    unknown = np.full(len(names), -1, dtype=np.int64)
    return FleetArrays(
        names=names,
        leaf=np.array(leaf, dtype=np.int64),
        rack=unknown,
        gpus=np.full(len(names), np.nan),
        since_ms=np.array(since, dtype=np.int64),
        until_ms=np.array(until, dtype=np.int64),
        model=unknown,
    )


@dataclass(frozen=True, slots=True)
class LinkLog:
    """Events of links in order of link and time, what several sources repeat among them; the source of each."""

    events: Precursors
    source: Ints

    def precursors(self, first_ms: int, last_ms: int) -> Precursors:
        """Those of [first_ms, last_ms); what another source had told is left out."""
        told = self.events
        inside = np.flatnonzero((told.time_ms >= first_ms) & (told.time_ms < last_ms))
        entries = (told.node[inside], told.family[inside], self.source[inside], told.time_ms[inside])
        gaps = np.full(int(self.source.max(initial=0)) + 1, INCIDENT_GAP_MS, dtype=np.int64)
        return told.only(inside[~repeated(entries, gaps)])


def read_link_log(
    connection: sa.Connection,
    cabling: Cabling,
    names: Sequence[str],
    window_ms: tuple[int, int] = EVER_MS,
    with_ids: bool = False,
    tellers: Sequence[str] | None = None,
) -> LinkLog:
    """What nodes said of links in [window_ms[0], window_ms[1]).

    Args:
        names: the links; one's position is its number.
        with_ids: the events' ids are read, too.
        tellers: the events of these nodes alone.
    """
    index = {name: number for number, name in enumerate(names)}
    numbers: list[tuple[int, ...]] = []
    time_us, weights, ids = array("q"), array("d"), list[str]()
    devices, sources = dict[tuple[str, str | None], int](), dict[str, int]()
    for (node, kind, code, severity, cause, device, name, source), told in _grouped(
        connection, window_ms, with_ids, tellers
    ):
        link = index.get(cabling.link(node, device, name) or "")
        family = FAMILY_INDEX.get(family_of(kind, code, severity, cause) or "", -1)
        serious = is_serious(severity, cause)
        if link is not None and (family >= 0 or serious):
            of_device = devices.setdefault((device, name), len(devices))
            of_source = sources.setdefault(source, len(sources))
            numbers.append((link, family, of_device, serious, of_source, len(told[0])))
            time_us.extend(told[0])
            weights.extend(map(weight_of, told[1]))
            ids.extend(told[2] if with_ids else ())
    columns = np.array(numbers, dtype=np.int64).reshape(-1, 6).T
    node_of, family_of_it, device_of, is_grave, source_of = (np.repeat(column, columns[5]) for column in columns[:5])
    us, weight = np.array(time_us, dtype=np.int64), np.array(weights, dtype=np.float64)
    order = np.lexsort((weight, us, node_of))  # stable: what is equal in all stays in the order of the groups
    told_ids = np.array(ids, dtype=object) if with_ids else np.full(len(us), "", dtype=object)
    return LinkLog(
        Precursors(
            node=node_of[order],
            time_ms=us[order] // 1000,
            family=family_of_it[order],
            weight=weight[order],
            device=device_of[order],
            serious=is_grave[order].astype(np.bool_),
            devices=tuple(device_name(*one) for one in devices),
            ids=told_ids[order],
        ),
        source_of[order],
    )


def _grouped(
    connection: sa.Connection, window_ms: tuple[int, int], with_ids: bool, tellers: Sequence[str] | None
) -> Iterator[tuple[tuple[Any, ...], list[list[Any]]]]:
    """Events that are equal but for their times: what they have in common; the times in microseconds, counts, ids.

    In order of what they have in common, so that the same store is read to the same arrays.
    """
    query = _events(connection, window_ms)
    if tellers is not None:
        query = query.where(is_one_of(connection, schema.events.c.node, tellers))
    told = query.subquery().c
    same = (told[0], *(told[at] for at in (2, 3, 4, 5, 7, 8, 9)))
    listed = sa.func.json_agg if connection.dialect.name == "postgresql" else sa.func.json_group_array
    each = [told[1], told[6], told[10]][: 3 if with_ids else 2]
    lists = (sa.cast(listed(one), sa.Text) for one in each)
    found = connection.execute(sa.select(*same, *lists).group_by(*same)).all()
    common = len(same)
    for row in sorted(found, key=lambda row: tuple("" if part is None else str(part) for part in row[:common])):
        yield tuple(row[:common]), [orjson.loads(text) for text in row[common:]]


def _events(connection: sa.Connection, window_ms: tuple[int, int]) -> sa.Select[Any]:
    """`event_rows` of what may be said of a link in [window_ms[0], window_ms[1])."""
    time = schema.events.c.time
    query = event_rows(connection).where(schema.events.c.kind.in_(_KINDS))
    if window_ms[0] > FAR_PAST_MS:
        query = query.where(time >= from_ms(window_ms[0]))
    if window_ms[1] < FAR_FUTURE_MS:
        query = query.where(time < from_ms(window_ms[1]))
    return query
