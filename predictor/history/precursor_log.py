"""Precursor events as they are read from the store: gathered in 8 bytes a figure, handed out by node and time.

What is new is put in its place among what is known, which is not sorted again.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.history.arrays import GAUGE_GAP_MS, INCIDENT_GAP_MS, Bools, FleetArrays, Ints, Precursors, renumbered
from predictor.history.families import FAMILY_INDEX, family_of, is_serious
from store.records.event import NAMING
from store.records.event_sources import NO_SIGN
from store.tables import schema

# What several sources tell within a minute counts once: an Xid of the kernel log that two detectors repeat is one Xid.
#
#     kernel 1.000 s, gpud 1.500 s, kernel 1.600 s      the first counts; gpud repeats it, and so does the kernel's
# second
#
# It looks back only: what is said later changes nothing that was counted before. An exporter's last Xid is a gauge that
# is looked at each hour or so: it counts where nobody else told of the Xid before.
GAUGES = frozenset({"dcgm", "cambricon"})


def repeated(entries: tuple[Ints, Ints, Ints, Ints], gap_ms: Ints) -> Bools:
    """Whether another source told the same of the node shortly before; a node's entries are in order of time.

    Args:
        entries: node, family, source and time in milliseconds of each.
        gap_ms: of each source, how long before.
    """
    node, family, source, time_ms = entries
    several = _reported_by_several(family, source)
    found = np.zeros(len(node), dtype=np.bool_)
    found[several] = _repeated((node[several], family[several], source[several], time_ms[several]), gap_ms)
    return found


def _reported_by_several(family: Ints, source: Ints) -> Ints:
    """The entries of families that more than one source tells."""
    if not len(family):
        return np.empty(0, dtype=np.int64)
    sources = int(source.max()) + 1
    reported = np.bincount((family + 1) * sources + source, minlength=(int(family.max()) + 2) * sources)
    several: Ints = (reported.reshape(-1, sources) > 0).sum(axis=1) > 1
    return np.flatnonzero(several[family + 1])


def _repeated(entries: tuple[Ints, Ints, Ints, Ints], gap_ms: Ints) -> Bools:
    node, family, source, time_ms = entries
    order = np.lexsort((family, node))  # stable: each node's family stays in order of time
    node, family, source, time_ms = node[order], family[order], source[order], time_ms[order]
    place = np.arange(len(order), dtype=np.int64)
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = (node[1:] == node[:-1]) & (family[1:] == family[:-1])
    # Where a source takes the word, the entry before it is the last that another source said.
    takes = ~same
    takes[1:] |= source[1:] != source[:-1]
    began = np.maximum.accumulate(np.where(takes, place, 0))
    other = np.maximum(began - 1, 0)
    found = np.zeros(len(order), dtype=np.bool_)
    found[order] = same[began] & (time_ms - time_ms[other] <= gap_ms[source])
    return found


_FETCH = 20_000
_MOST_DIGITS, _MOST_COUNT = 30, 2.0**63
# Kinds that say nothing of a node's health, and are many.
_SILENT_KINDS = ("telemetry", "link_up", "port_discovered", "gpu_returned")


def milliseconds(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A time column as a plain number of milliseconds, computed by the database."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.func.floor(sa.func.extract("epoch", column) * 1000), sa.BigInteger)
    return sa.type_coerce(column, sa.BigInteger) // 1000


def _microseconds(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """The same in microseconds: events of one millisecond have an order, too."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.func.extract("epoch", column) * 1_000_000, sa.BigInteger)
    return sa.type_coerce(column, sa.BigInteger)


class ColumnBuffer:
    """Rows gathered column by column in 8 bytes a figure: millions of tuples would take all memory."""

    def __init__(self, types: str) -> None:
        self._columns: list[array[Any]] = [array(kind) for kind in types]

    def add(self, row: tuple[float, ...]) -> None:
        """One row, a figure for each column."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The columns as NumPy arrays."""
        return [np.array(column, dtype=column.typecode) for column in self._columns]


def event_rows(connection: sa.Connection) -> sa.Select[Any]:
    """Columns: node, time in microseconds, kind, code, severity, cause, count, device, its name, source, id.

    The count is JSON, see `weight_of`.
    """
    table = schema.events
    query = sa.select(
        table.c.node,
        _microseconds(connection, table.c.time),
        table.c.kind,
        table.c.code,
        table.c.severity,
        table.c.cause,
        sa.func.substr(sa.cast(table.c.attributes["count"], sa.Text), 1, _MOST_DIGITS + 1),
        sa.cast(table.c.device, sa.Text),
        sa.func.coalesce(*(table.c.attributes[key].as_string() for key in NAMING)),
        table.c.source,
        table.c.id,
    )
    return query.where(table.c.node.is_not(None)).execution_options(yield_per=_FETCH)


def weight_of(count: str | None) -> float:
    """What an event's `count` weighs: as many, where it is a number that a computer counts to; else 1.

    Args:
        count: of `event_rows`: its sender may have written anything.
    """
    if count is None or len(count) > _MOST_DIGITS:
        return 1.0
    try:
        number = float(count)
    except ValueError:  # a text, a list, `true`
        return 1.0
    return number if 0 <= number <= _MOST_COUNT else 1.0


def precursor_query(connection: sa.Connection, since: datetime) -> sa.Select[Any]:
    """The events from a moment on that may be signs, as `event_rows`."""
    table = schema.events
    signs = (table.c.source.not_in(sorted(NO_SIGN)), table.c.kind.not_in(_SILENT_KINDS), ~_felt_of_a_domain())
    return event_rows(connection).where(table.c.time >= since, *signs)


# Xid 145 and what follows it (channels torn down, a recovery asked for).
_FELT = (145, 43, 45, 154)


def _felt_of_a_domain() -> sa.ColumnElement[bool]:
    """Whether an event is what a node of an NVLink domain of several prints when another's link fails.

    It is no sign of its own: a fault of its own has a line beside these.
    """
    event, node = schema.events.c, schema.nodes.alias()
    domains = sa.select(schema.nodes.c.nvlink_domain).where(schema.nodes.c.nvlink_domain.is_not(None))
    several = domains.group_by(schema.nodes.c.nvlink_domain).having(sa.func.count() > 1)
    theirs = sa.select(node.c.node).where(node.c.nvlink_domain.in_(several))
    return (event.kind == "xid") & event.code.in_(_FELT) & event.node.in_(theirs)


# Node and millisecond in one figure, by which events are kept in order; microsecond of it, family, weight, device,
# whether it is serious, source. A millisecond takes 42 bits until the year 2109.
_TYPES = "qqqdqbq"
_BITS = 42
_LAST_MS = (1 << _BITS) - 1


class PrecursorLog:
    """Precursor events of any node. Rows come from `precursor_query`, in any order; the same id counts once."""

    def __init__(self) -> None:
        self._held = ColumnBuffer(_TYPES).arrays()  # in order of node, time and id
        self._ids = np.empty(0, dtype=object)
        self._taken: list[list[NDArray[Any]]] = []
        self._taken_ids: list[str] = []
        self._known: set[str] = set()
        # Nodes are numbered as the fleet that was last asked for, and others behind it as they come.
        self._fleet: tuple[str, ...] = ()
        self._nodes: dict[str, int] = {}
        self._meaning: dict[tuple[Any, ...], tuple[int, bool, int] | None] = {}
        self._devices: dict[tuple[str, str | None], int] = {}
        self._device_names: list[str] = []
        self._sources: dict[tuple[str, bool], int] = {}  # a source, and whether it is its gauge of the last Xid

    def take(self, rows: Iterable[Any]) -> int:
        """Add what is a precursor. Returns how many were new."""
        kept, meant = list[Any](), list[tuple[int, bool, int]]()
        for row in rows:
            if row[10] in self._known:  # what is read twice, since another may have come between
                continue
            what = (row[2], row[3], row[4], row[5], row[9])
            meaning = self._meaning[what] if what in self._meaning else self._mean(*what)
            if meaning is not None:
                self._known.add(row[10])
                kept.append(row)
                meant.append(meaning)
        if kept:
            self._add(kept, meant)
        return len(kept)

    def _mean(
        self, kind: str, code: int | None, severity: str, cause: str, source: str
    ) -> tuple[int, bool, int] | None:
        """The family of such events, whether they are serious, and their source's number; None of no precursor."""
        family = FAMILY_INDEX.get(family_of(kind, code, severity, cause) or "", -1)
        serious, meaning = is_serious(severity, cause), None
        if family >= 0 or serious:
            is_gauge = kind == "xid" and source in GAUGES
            meaning = family, serious, self._sources.setdefault((source, is_gauge), len(self._sources))
        self._meaning[kind, code, severity, cause, source] = meaning
        return meaning

    def _add(self, rows: Sequence[Any], meant: Sequence[tuple[int, bool, int]]) -> None:
        names, told, _, _, _, _, counts, devices, named, _, ids, *_ = zip(*rows, strict=True)
        family, serious, source = np.array(meant, dtype=np.int64).T
        for name in dict.fromkeys(names):
            self._nodes.setdefault(name, len(self._nodes))
        pairs = list(zip(devices, named, strict=True))
        for pair in dict.fromkeys(pairs):
            if pair not in self._devices:
                self._devices[pair] = len(self._devices)
                self._device_names.append(device_name(*pair))
        weights = {count: weight_of(count) for count in dict.fromkeys(counts)}
        time_ms, us = np.divmod(np.array(told, dtype=np.int64), 1000)
        node = np.array([self._nodes[name] for name in names], dtype=np.int64)
        weight = np.array([weights[count] for count in counts], dtype=np.float64)
        device = np.array([self._devices[pair] for pair in pairs], dtype=np.int64)
        key = node << _BITS | time_ms.clip(0, _LAST_MS)
        self._taken.append([key, us, family, weight, device, serious.astype(np.int8), source])
        self._taken_ids += ids

    def _settle(self) -> None:
        """Put what was taken since the last time in its place."""
        if not self._taken:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._taken, strict=True)]
        ids = np.array(self._taken_ids, dtype=object)
        self._taken, self._taken_ids = [], []
        order = _in_order(columns[0], columns[1], ids)
        columns, ids = [column[order] for column in columns], ids[order]
        place = np.searchsorted(self._held[0], columns[0], side="right")
        first = np.searchsorted(self._held[0], columns[0], side="left")
        for at in np.flatnonzero(first < place).tolist():  # others of the same node and millisecond are known
            known = [(int(self._held[1][old]), self._ids[old]) for old in range(first[at], place[at])]
            place[at] = first[at] + bisect_left(known, (int(columns[1][at]), ids[at]))
        self._held = [np.insert(old, place, column) for old, column in zip(self._held, columns, strict=True)]
        self._ids = np.insert(self._ids, place, ids)

    def _number(self, names: tuple[str, ...]) -> None:
        """Number the nodes as a fleet does."""
        if names == self._fleet:
            return
        self._nodes, now = renumbered(self._nodes, names)
        self._fleet, key = names, self._held[0]
        if len(key):
            key = now[key >> _BITS] << _BITS | key & _LAST_MS
            order = np.argsort(key, kind="stable")
            self._held = [column[order] for column in (key, *self._held[1:])]
            self._ids = self._ids[order]

    def precursors(self, fleet: FleetArrays, first_ms: int, last_ms: int) -> Precursors:
        """The fleet's events of [first_ms, last_ms); what another source had told is left out."""
        self._settle()
        self._number(fleet.names)
        end = np.searchsorted(self._held[0], len(fleet.names) << _BITS)  # strangers stand behind
        time_ms = self._held[0][:end] & _LAST_MS
        inside: Bools = (time_ms >= first_ms) & (time_ms < last_ms)
        key, _, family, weight, device, serious, source = (column[:end][inside] for column in self._held)
        node, time_ms = key >> _BITS, time_ms[inside]
        gaps = [GAUGE_GAP_MS if is_gauge else INCIDENT_GAP_MS for _, is_gauge in self._sources]
        kept = ~repeated((node, family, source, time_ms), np.array(gaps or [INCIDENT_GAP_MS], dtype=np.int64))
        return Precursors(
            node=node[kept],
            time_ms=time_ms[kept],
            family=family[kept],
            weight=weight[kept],
            device=device[kept],
            serious=serious[kept].astype(np.bool_),
            devices=tuple(self._device_names),
            ids=self._ids[:end][inside][kept],
        )

    def forget(self, before_ms: int) -> None:
        """Give up events that no window reaches any more."""
        self._settle()
        kept: Bools = self._held[0] & _LAST_MS >= before_ms
        self._held, self._ids = [column[kept] for column in self._held], self._ids[kept]
        self._known = set(self._ids.tolist())


def _in_order(key: Ints, us: Ints, ids: NDArray[np.object_]) -> Ints:
    """Positions in order of node, time and id."""
    order: Ints = np.lexsort((us, key))
    same = (np.diff(key[order]) == 0) & (np.diff(us[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    if len(tied):  # neighbours, which change places among themselves alone
        order[tied] = sorted(order[tied].tolist(), key=lambda at: (key[at], us[at], ids[at]))
    return order


_KINDS = {"gpu": "GPU", "hca": "HCA", "npu": "NPU", "mlu": "MLU", "hpu": "HPU", "nvswitch": "NVSwitch"}


def device_name(text: str, name: str | None) -> str:
    """How an operator calls a device: `GPU 3`, `port 7`, by its name `disk nvme0`; empty for the node itself."""
    device = orjson.loads(text)
    if not isinstance(device, dict) or device.get("type") in (None, "node"):
        return ""
    kind = _KINDS.get(device["type"], device["type"])
    for key in ("index", "pci", "uuid", "port"):
        if device.get(key) is not None:
            return f"{kind} {device[key]}"
    return f"{kind} {name}" if name else ""
