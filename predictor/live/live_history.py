"""What is known of the fleet now, kept in memory, so that a score costs what is new and not what is old.

    live = LiveHistory(engine)
    look = live.look(now)      # the first reads 28 days, later ones only what has come since

What arrives is found by when it was received, so that a sidecar's events of yesterday count as soon as they come.
Telemetry speaks of whole hours: its features are computed once for each reading of it.
The fleet and its outages are small and read anew each time.
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from predictor.dataset.labels import at_risk
from predictor.dataset.matrix import EVENTFUL, HOURLY, features_of
from predictor.history.arrays import (
    EVENT_WINDOW_MS,
    GAUGE_GAP_MS,
    HOUR_MS,
    MEASURE_WINDOW_MS,
    TELEMETRY_COLUMNS,
    TELEMETRY_WINDOW_H,
    Feature,
    FleetArrays,
    Floats,
    Grid,
    History,
    Ints,
    Rows,
    Series,
    Telemetry,
    every,
    from_ms,
    renumbered,
    to_ms,
)
from predictor.history.device_telemetry import read_measures
from predictor.history.precursor_log import PrecursorLog, milliseconds, precursor_query
from predictor.history.store_reader import (
    data_span,
    lit_hours,
    read_fleet,
    read_jobs,
    read_outage_log,
    read_rollups,
)
from store.tables import schema
from store.telemetry.hours import LATE_H, late_nodes

# Telemetry kept between two readings: only the newest hours are read again.

# Roll-ups of an hour come until well after it has ended. Those of a node that was away come later still: the store
# notes such nodes. What came around the last look is read twice, for its transaction may have ended after it.
_LATE_AGAIN = timedelta(minutes=2)
# So many hours are worth a connection of their own.
_MANY_HOURS = 48
_NOTHING = np.empty(0, dtype=np.int64)


class TelemetryLog:
    """Roll-ups of any node, sorted by (node, time)."""

    def __init__(self) -> None:
        # Nodes are numbered as the fleet that was last asked for, and others behind it as they come.
        self._names: dict[str, int] = {}
        self._fleet: tuple[str, ...] = ()
        nothing = np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)
        self._held = Telemetry(_NOTHING, _NOTHING, nothing, _NOTHING)
        self._read_to: int | None = None
        self._late: dict[str, datetime] = {}

    def read(self, connection: sa.Connection, fleet: FleetArrays, first_hour: int, end_hour: int) -> Telemetry:
        """The fleet's roll-ups of a window of hours.

        Read are the hours that have come since, the last few of before again, and all of nodes of which some came late.
        Hours before the first are forgotten.
        """
        self._number(fleet)
        late = late_nodes(connection)
        begin = first_hour if self._read_to is None else max(first_hour, self._read_to - LATE_H)
        if self._read_to is not None and end_hour < self._read_to:
            begin = first_hour  # time went back: a replay that began anew
        again = self._came_late(late) if begin > first_hour else []
        new = self._read(connection, begin, end_hour)
        if again:
            new.append(read_rollups(connection, self._names, first_hour, begin, again))
        held = self._held
        kept = (held.time_ms > first_hour * HOUR_MS) & (held.time_ms <= begin * HOUR_MS)
        if again:
            kept &= ~np.isin(held.node, [self._names[name] for name in again if name in self._names])
        self._take(np.flatnonzero(kept), new)
        # Not before all is read: what a lost connection left out comes again.
        self._read_to, self._late = end_hour, late
        known = int(np.searchsorted(self._held.node, len(fleet.names)))  # strangers stand behind
        held = self._held
        return Telemetry(held.node[:known], held.time_ms[:known], held.values[:known], held.lit_ms)

    def _read(self, connection: sa.Connection, begin: int, end: int) -> list[Telemetry]:
        """Roll-ups of some hours; of many, PostgreSQL gives half over a connection of its own."""
        if end - begin < _MANY_HOURS or connection.dialect.name != "postgresql":
            return [read_rollups(connection, self._names, begin, end)]
        names, middle = dict(self._names), (begin + end) // 2

        def half() -> Telemetry:
            with connection.engine.connect() as other:
                return read_rollups(other, names, begin, middle)

        with ThreadPoolExecutor(1) as beside:
            older = beside.submit(half)
            newer = read_rollups(connection, self._names, middle, end)
        number = np.array([self._names.setdefault(name, len(self._names)) for name in names], dtype=np.int64)
        found = older.result()
        return [replace(found, node=number[found.node]), newer]

    def _came_late(self, late: Mapping[str, datetime]) -> list[str]:
        """The nodes of which late roll-ups may have come since the last look."""
        known = self._late
        newest = max(known.values(), default=None)
        return [
            name
            for name, received in late.items()
            if known.get(name) != received or (newest is not None and received >= newest - _LATE_AGAIN)
        ]

    def _number(self, fleet: FleetArrays) -> None:
        """Number the nodes as a fleet does. Until the next `_take` what is held stands in the order of before."""
        if self._fleet == fleet.names:
            return
        self._names, now = renumbered(self._names, fleet.names)
        self._held = replace(self._held, node=now[self._held.node])
        self._fleet = fleet.names

    def _take(self, kept: Ints, new: Sequence[Telemetry]) -> None:
        """Hold some of the entries that are held, and new ones, in order; the values are copied but once."""
        held, before = self._held, len(self._held.node)
        node = np.concatenate([held.node[kept], *(part.node for part in new)])
        time_ms = np.concatenate([held.time_ms[kept], *(part.time_ms for part in new)])
        added = np.concatenate([part.values for part in new])
        hour = time_ms // HOUR_MS
        since, hours = (int(hour.min()), int(np.ptp(hour)) + 1) if len(hour) else (0, 1)
        order = np.argsort(node * hours + (hour - since), kind="stable")
        source = np.concatenate([kept, np.arange(before, before + len(added))])[order]
        if not len(kept):
            values = added[order]
        else:
            values = np.empty((len(order), added.shape[1]), dtype=np.float32)
            np.take(held.values, np.minimum(source, before - 1), axis=0, out=values, mode="clip")
            values[source >= before] = added[source[source >= before] - before]
        self._held = Telemetry(node[order], time_ms[order], values, lit_hours(time_ms))


# A transaction that began before another may commit after it: this much is read twice (ids tell what is known).
OVERLAP_MS = 120_000
# Roll-ups of an hour still come for a while after it has ended.
TELEMETRY_EVERY = timedelta(minutes=20)
MEASURES_EVERY = timedelta(hours=6)
FORGET_EVERY_MS = 24 * HOUR_MS
_PART = 20_000


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The nodes at risk at one moment, their features, and what these were made of."""

    history: History
    rows: Rows
    features: tuple[Feature, ...]
    values: Grid


@dataclass(frozen=True, slots=True)
class _HourlyFeatures:
    """What changes by the hour: a history without events and outages, and telemetry's features of every node."""

    at: datetime
    history: History
    names: tuple[str, ...]
    values: Grid

    def serves(self, at: datetime, fleet: FleetArrays) -> bool:
        """Whether no other hour has ended since, no late roll-ups may have come, and the nodes are the same."""
        same_hour = to_ms(self.at) // HOUR_MS == to_ms(at) // HOUR_MS
        fresh = timedelta() <= at - self.at < TELEMETRY_EVERY
        return same_hour and fresh and self.history.fleet.names == fleet.names


class LiveHistory:
    """The history of now, for one thread. A moment may not lie before an earlier one by more than a day."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._log = PrecursorLog()
        self._mark: int | None = None
        self._forgot_ms: int | None = None
        self._telemetry = TelemetryLog()
        self._measures: dict[str, Series] = {}
        self._measures_at: datetime | None = None
        self._hourly: _HourlyFeatures | None = None

    def look(self, at: datetime, wanted: Collection[str] = ()) -> FleetSnapshot:
        """Every node at risk at a moment, and its features.

        Args:
            wanted: the features that models ask for: measures that none of them knows are not read.
        """
        at_ms = to_ms(at)
        with ThreadPoolExecutor(1) as beside:
            events = beside.submit(self._read_events, at_ms)
            if self._engine.dialect.name != "postgresql":  # only a server reads for two at once
                events.result()
            with self._engine.connect() as connection:
                fleet = read_fleet(connection)
                outages = read_outage_log(connection, fleet, at_ms)
                if self._hourly is None or not self._hourly.serves(at, fleet):
                    self._hourly = self._of_the_hour(connection, fleet, at, wanted)
            events.result()
        hourly = self._hourly
        precursors = self._log.precursors(fleet, at_ms - EVENT_WINDOW_MS - GAUGE_GAP_MS, at_ms)
        history = replace(hourly.history, fleet=fleet, precursors=precursors, outages=outages)
        everybody = every(len(fleet.names), [at])
        kept = at_risk(fleet, outages, everybody)
        rows, reported = everybody.only(kept), features_of(history)
        place = {feature.name: i for i, feature in enumerate(reported)}
        values = np.empty((len(rows), len(reported)), dtype=np.float32, order="F")
        values[:, [place[name] for name in hourly.names]] = hourly.values[kept]
        for maker in EVENTFUL:
            for name, column in maker.compute(history, rows).items():
                values[:, place[name]] = column
        return FleetSnapshot(history, rows, reported, values)

    def _read_events(self, at_ms: int) -> None:
        """Take what has come since the last time."""
        with self._engine.connect() as connection:
            self._take_events(connection, at_ms)

    def _take_events(self, connection: sa.Connection, at_ms: int) -> None:
        since_ms = at_ms - EVENT_WINDOW_MS - GAUGE_GAP_MS
        table, on_postgres = schema.events, connection.dialect.name == "postgresql"
        # SQLite numbers rows as they come; PostgreSQL has an index of when they came.
        mark: Any = milliseconds(connection, table.c.received) if on_postgres else sa.literal_column("events._rowid_")
        query = precursor_query(connection, from_ms(since_ms)).add_columns(mark)
        newest = self._mark
        if newest is not None:
            begun = table.c.received >= from_ms(newest - OVERLAP_MS) if on_postgres else mark > newest
            # At once, and in no order: for a cursor in order of time PostgreSQL looks through all of the 28 days.
            query = query.where(begun).execution_options(yield_per=None)
            if on_postgres:
                # The index of arrivals tells at once that an old day holds nothing new. The planner believes that to
                # read a small day is as fast, and takes ten times as long; without the choice it must not compile.
                connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
                connection.execute(sa.text("SET LOCAL jit = off"))
        with connection.execute(query) as rows:
            for part in rows.partitions(_PART):
                self._log.take(part)
                newest = max(newest or 0, *(row[-1] for row in part))
        self._mark = newest  # not before all are read: what a lost connection left out is asked for again
        if self._forgot_ms is None:
            self._forgot_ms = at_ms
        elif at_ms - self._forgot_ms > FORGET_EVERY_MS:
            self._log.forget(since_ms)
            self._forgot_ms = at_ms

    def _of_the_hour(
        self, connection: sa.Connection, fleet: FleetArrays, at: datetime, wanted: Collection[str]
    ) -> _HourlyFeatures:
        """Read the telemetry that has come, and make the features of all nodes from it."""
        at_ms = to_ms(at)
        first_hour, end_hour = at_ms // HOUR_MS - TELEMETRY_WINDOW_H, at_ms // HOUR_MS
        telemetry = self._telemetry.read(connection, fleet, first_hour, end_hour)
        due = self._measures_at is None or not timedelta() <= at - self._measures_at < MEASURES_EVERY
        if due and any("." in name for name in wanted):
            self._measures = read_measures(connection, fleet.index, at_ms - MEASURE_WINDOW_MS, end_hour * HOUR_MS)
            self._measures_at = at
        span = data_span(connection)
        history = History(
            fleet=fleet,
            precursors=PrecursorLog().precursors(fleet, 0, 0),
            outages=read_outage_log(connection, fleet, 0),
            telemetry=telemetry,
            jobs=read_jobs(connection, fleet, first_hour * HOUR_MS, at_ms),
            start_ms=at_ms if span is None else min(to_ms(span[0]), at_ms),
            measures=self._measures,
        )
        columns: dict[str, Floats] = {}
        for maker in HOURLY:
            columns |= maker.compute(history, every(len(fleet.names), [at]))
        values = np.empty((len(fleet.names), len(columns)), dtype=np.float32, order="F")
        for place, column in enumerate(columns.values()):
            values[:, place] = column
        return _HourlyFeatures(at, history, tuple(columns), values)
