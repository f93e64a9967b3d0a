"""Telemetry kept between two readings: only the newest hours are read again."""

from dataclasses import replace

import numpy as np
import sqlalchemy as sa

from predictor.history import HOUR_MS, TELEMETRY_COLUMNS, Fleet, Ints, Telemetry
from predictor.reading import lit_hours, read_rollups

# Roll-ups of an hour come until well after it has ended; those of a node that was away come later still, and are
# seen with the next reading of all.
AGAIN_H = 6
_NOTHING = np.empty(0, dtype=np.int64)


class TelemetryLog:
    """Roll-ups of any node, by name."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        nothing = np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32)
        self._held = Telemetry(_NOTHING, _NOTHING, nothing, _NOTHING)
        self._read_to: int | None = None

    def read(self, connection: sa.Connection, first_hour: int, end_hour: int) -> None:
        """Read the hours that have come since, and the last few of before again; forget those before the first."""
        begin = first_hour if self._read_to is None else max(first_hour, self._read_to - AGAIN_H)
        if self._read_to is not None and end_hour < self._read_to:
            begin = first_hour  # time went back: a replay that began anew
        new = read_rollups(connection, self._names, begin, end_hour)
        held = self._held
        kept = (held.time_ms > first_hour * HOUR_MS) & (held.time_ms <= begin * HOUR_MS)
        node = np.concatenate([held.node[kept], new.node])
        time_ms = np.concatenate([held.time_ms[kept], new.time_ms])
        values = np.concatenate([held.values[kept], new.values])
        self._held = Telemetry(node, time_ms, values, lit_hours(time_ms))
        self._read_to = end_hour

    def telemetry(self, fleet: Fleet, first_hour: int, end_hour: int) -> Telemetry:
        """The fleet's roll-ups of a window of hours."""
        held, index = self._held, fleet.index
        place = np.array([index.get(name, -1) for name in self._names], dtype=np.int64)
        node: Ints = place[held.node] if len(held.node) else held.node
        inside = (held.time_ms > first_hour * HOUR_MS) & (held.time_ms <= end_hour * HOUR_MS) & (node >= 0)
        order = np.flatnonzero(inside)
        order = order[np.lexsort((held.time_ms[order], node[order]))]
        lit = held.lit_ms[held.lit_ms <= end_hour * HOUR_MS]
        return replace(held, node=node[order], time_ms=held.time_ms[order], values=held.values[order], lit_ms=lit)
