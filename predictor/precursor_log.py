"""Precursor events as they are read from the store: gathered in 8 bytes a figure, handed out in order of time."""

from array import array
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from predictor.families import FAMILY_INDEX, family_of, is_serious
from predictor.history import Fleet, Precursors
from predictor.told import repeated
from store import schema
from store.event import NAMING
from store.sources import NO_SIGN

_FETCH = 20_000
# Kinds that say nothing of a node's health, and are many.
_SILENT_KINDS = ("telemetry", "link_up", "port_discovered", "gpu_returned")


def milliseconds(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A time column as a plain number of milliseconds, computed by the database."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.func.floor(sa.func.extract("epoch", column) * 1000), sa.BigInteger)
    return sa.type_coerce(column, sa.BigInteger) // 1000


class Columns:
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
    """Columns: node, time, kind, code, severity, cause, count, device, its name, source, id; of events of any node."""
    table = schema.events
    query = sa.select(
        table.c.node,
        milliseconds(connection, table.c.time),
        table.c.kind,
        table.c.code,
        table.c.severity,
        table.c.cause,
        table.c.attributes["count"].as_float(),
        sa.cast(table.c.device, sa.Text),
        sa.func.coalesce(*(table.c.attributes[key].as_string() for key in NAMING)),
        table.c.source,
        table.c.id,
    )
    return query.where(table.c.node.is_not(None)).execution_options(yield_per=_FETCH)


def precursor_query(connection: sa.Connection, since: datetime) -> sa.Select[Any]:
    """The events from a moment on that may be signs, as `event_rows`."""
    table = schema.events
    signs = (table.c.source.not_in(sorted(NO_SIGN)), table.c.kind.not_in(_SILENT_KINDS))
    return event_rows(connection).where(table.c.time >= since, *signs)


class PrecursorLog:
    """Precursor events of any node. Rows come from `precursor_query`, in any order; the same id counts once."""

    def __init__(self) -> None:
        self._columns = Columns("qqqdqbq")
        self._ids: list[str] = []
        self._known: set[str] = set()
        self._nodes: dict[str, int] = {}
        self._meaning: dict[tuple[Any, ...], tuple[int, bool]] = {}
        self._devices: dict[tuple[str, str | None], int] = {}
        self._device_names: list[str] = []
        self._sources: dict[str, int] = {}

    def take(self, rows: Iterable[Any]) -> int:
        """Add what is a precursor. Returns how many were new."""
        before = len(self._ids)
        for row in rows:
            what = (row[2], row[3], row[4], row[5])
            if what not in self._meaning:
                self._meaning[what] = (FAMILY_INDEX.get(family_of(*what) or "", -1), is_serious(row[4], row[5]))
            family, serious = self._meaning[what]
            if (family >= 0 or serious) and row[10] not in self._known:
                self._known.add(row[10])
                self._ids.append(row[10])
                self._add(row, family, serious)
        return len(self._ids) - before

    def _add(self, row: Any, family: int, serious: bool) -> None:
        node = self._nodes.setdefault(row[0], len(self._nodes))
        weight = 1.0 if row[6] is None else float(row[6])
        device = self._devices.setdefault((row[7], row[8]), len(self._devices))
        if device == len(self._device_names):
            self._device_names.append(device_name(row[7], row[8]))
        source = self._sources.setdefault(row[9], len(self._sources))
        self._columns.add((node, row[1], family, weight, device, serious, source))

    def precursors(self, fleet: Fleet, first_ms: int, last_ms: int) -> Precursors:
        """The fleet's events of [first_ms, last_ms), in order of time; what another source had told is left out."""
        node, time_ms, family, weight, device, serious, source = self._columns.arrays()
        index = fleet.index
        place = np.array([index.get(name, -1) for name in self._nodes], dtype=np.int64)
        node = place[node] if len(node) else node
        inside = np.flatnonzero((node >= 0) & (time_ms >= first_ms) & (time_ms < last_ms))
        order = inside[np.argsort(time_ms[inside], kind="stable")]
        kept = order[~repeated(node[order], family[order], source[order], time_ms[order])]
        return Precursors(
            node=node[kept],
            time_ms=time_ms[kept],
            family=family[kept],
            weight=weight[kept],
            device=device[kept],
            serious=serious[kept].astype(np.bool_),
            devices=tuple(self._device_names),
            ids=np.array(self._ids, dtype=object)[kept],
        )

    def forget(self, before_ms: int) -> None:
        """Give up events that no window reaches any more."""
        columns = self._columns.arrays()
        kept = np.flatnonzero(columns[1] >= before_ms)
        self._columns = Columns("qqqdqbq")
        for row in zip(*(column[kept].tolist() for column in columns), strict=True):
            self._columns.add(row)
        self._ids = [self._ids[at] for at in kept]
        self._known = set(self._ids)


def device_name(text: str, name: str | None) -> str:
    """How an operator calls a device: `GPU 3`, `port 7`, by its name `disk nvme0`; empty for the node itself."""
    device = orjson.loads(text)
    if not isinstance(device, dict) or device.get("type") in (None, "node"):
        return ""
    kind = {"gpu": "GPU", "hca": "HCA", "npu": "NPU", "nvswitch": "NVSwitch"}.get(device["type"], device["type"])
    for key in ("index", "pci", "uuid", "port"):
        if device.get(key) is not None:
            return f"{kind} {device[key]}"
    return f"{kind} {name}" if name else ""
