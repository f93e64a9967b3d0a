"""The clocks of nodes: how far each is off, by when its words are received; and a common time for what it tells.

    clocks.heartbeat("gpu-017", own, received)    # made when it is sent: the difference is the clock's, and a delay
    clocks.receipt("gpu-017", own, received)      # of an event: sent when it happened, or hours later
    clocks.common(event)                          # its time by the server's clock, and within how many seconds

A delay only adds: what is received before it happened comes from a clock that is ahead by at least so much. A clock
that is behind looks like a delay; a heartbeat, which is never sent again, tells the two apart, and so do events that
come with a steady lag at different times (a backlog's lags shrink). What is not known is not mended.
A node's clock moves its own events alone: of what others saw of the node, their clocks tell.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from store.nodes.sidecars import clock_readings
from store.records.event import Event
from store.tables import schema

# Differences that a busy network and a batch of lines make.
_USUAL_S = 5.0
# Further off than this no clock is believed to be: somebody sends old or invented times.
_MOST_S = 86_400.0
# Events' lags that are remembered of a node, how near each other they must be, and how long a stretch they must span.
_MOST_LAGS = 8
_STEADY_S = 5.0
_SPAN_S = 20.0
_LEAST_LAGS = 3
# Ten times the largest cluster known: a sender of invented names fills no memory.
MOST_NODES = 125_000
# Formats whose events a node tells of itself, by its own clock; a fabric's manager or a scheduler has another.
_OWN_SOURCES = frozenset(
    [
        "kernel",
        "ascend",
        "fabricmanager",
        "dcgm",
        "nvml",
        "npu",
        "amd",
        "cambricon",
        "node_exporter",
        "infiniband",
        "rasdaemon",
        "hostengine",
        "nhc",
        "nvidia_smi",
        "npu_smi",
        "hccn",
        "cnmon",
        "rocm_smi",
        "amd_smi",
        "gpud",
        "hook",
    ]
)
USUAL_UNCERTAINTY_S = 1.0


@dataclass(slots=True)
class _Reading:
    """What is known of one clock; `behind_s` and `ahead_s` are of the node's clock against the server's."""

    beat_s: float | None = None  # receipt less own time, of the newest heartbeat
    ahead_s: float = 0.0
    lags: list[tuple[float, float]] = field(default_factory=list)  # when received, and how late, of the newest

    def offset_s(self) -> float:
        """Seconds to add to the node's times."""
        if self.beat_s is not None and abs(self.beat_s) > _USUAL_S:
            return self.beat_s
        if self.ahead_s > _USUAL_S:
            return -self.ahead_s
        return self._steady_lag() if self.beat_s is None else 0.0

    def _steady_lag(self) -> float:
        """The lag of events that came at different times, all with the same; else none."""
        if len(self.lags) < _LEAST_LAGS or self.lags[-1][1] <= 2 * _USUAL_S:
            return 0.0
        late = [lag for _, lag in self.lags]
        span = max(when for when, _ in self.lags) - min(when for when, _ in self.lags)
        is_steady = max(late) - min(late) <= _STEADY_S and span >= _SPAN_S
        return min(late) if is_steady and min(late) > 2 * _USUAL_S else 0.0


class NodeClocks:
    """The clocks of nodes, as far as they are known."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}

    def heartbeat(self, node: str, own: datetime, received: datetime) -> None:
        """A report that was made when it was sent."""
        late_s = (received - own).total_seconds()
        reading = self._reading(node)
        if reading is not None and abs(late_s) <= _MOST_S:
            reading.beat_s = late_s

    def receipt(self, event: Event, received: datetime) -> None:
        """An event of a node's own, and when it was received."""
        if event.time is not None and event.node is not None and event.source in _OWN_SOURCES:
            self.own_time(event.node, event.time, received)

    def own_time(self, node: str, own: datetime, received: datetime) -> None:
        """A time that a node gave some event of its own, and when that was received."""
        late_s = (received - own).total_seconds()
        reading = self._reading(node)
        if reading is None or abs(late_s) > _MOST_S:
            return
        if late_s < 0:
            reading.ahead_s = max(reading.ahead_s, -late_s)
        reading.lags.append((received.timestamp(), late_s))
        del reading.lags[:-_MOST_LAGS]

    def offset_s(self, node: str) -> float:
        """Seconds to add to a node's times; 0 where its clock is right, or not known to be wrong."""
        reading = self._readings.get(node)
        return 0.0 if reading is None else reading.offset_s()

    def common(self, event: Event, time: datetime) -> tuple[datetime, float]:
        """The time of an event by the server's clock, and within how many seconds it is true."""
        if event.node is None or event.source not in _OWN_SOURCES or event.node not in self._readings:
            return time, USUAL_UNCERTAINTY_S
        offset_s = self._readings[event.node].offset_s()
        return (time, USUAL_UNCERTAINTY_S) if not offset_s else (time + timedelta(seconds=offset_s), _USUAL_S)

    def _reading(self, node: str) -> _Reading | None:
        known = self._readings.get(node)
        if known is None and len(self._readings) < MOST_NODES:
            known = self._readings[node] = _Reading()
        return known


# Of a window: events whose receipt is looked at, and how far clocks may carry them out of it.
_MOST_EVENTS = 20_000
_MARGIN = timedelta(minutes=10)
# A clock is what it was so long before its newest heartbeat, and so long after it: not what it is months later.
_HEARD = timedelta(hours=1)
_EVENTS = schema.events


def read_clocks(connection: sa.Connection, since: datetime, until: datetime) -> NodeClocks:
    """The clocks as the heartbeats and the receipts of a window tell them."""
    clocks = NodeClocks()
    read_heartbeats(connection, clocks, until)
    query = (
        sa.select(_EVENTS.c.node, _EVENTS.c.time, _EVENTS.c.received)
        .where(_EVENTS.c.time >= since - _MARGIN, _EVENTS.c.time <= until + _MARGIN)
        .where(_EVENTS.c.node.is_not(None), _EVENTS.c.source.in_(sorted(_OWN_SOURCES)), _EVENTS.c.severity != "info")
        .order_by(_EVENTS.c.time.desc())
        .limit(_MOST_EVENTS)
    )
    for row in connection.execute(query):
        clocks.own_time(row.node, row.time, row.received)
    return clocks


def read_heartbeats(connection: sa.Connection, clocks: NodeClocks, at: datetime) -> None:
    """Take the newest heartbeats in, of those that speak of a moment."""
    for node, own, received in clock_readings(connection, at - _HEARD, at + _HEARD):
        clocks.heartbeat(node, own, received)
