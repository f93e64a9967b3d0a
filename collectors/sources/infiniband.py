"""`infiniband[:DIR]`: looks at every RDMA port of the node (InfiniBand, RoCE) every 30 s, in /sys/class/infiniband.

States that change, error counters that rise and ports that vanish are events; all values, and bytes as rates, go into
the node-hours. DIR is another root of the same form: a host's, mounted into a container.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.telemetry.device_watch import DeviceWatch
from collectors.telemetry.ports import LinkWatch, Port, read_ports
from collectors.telemetry.rollups import DeviceHours
from store.records.event import Event
from store.records.telemetry import Rollup, Sample

_ROOT = "/sys/class/infiniband"
_INTERVAL_S = 30.0
_BYTES = ("xmit_bytes", "rcv_bytes")


class Rates:
    """Counters of bytes to bytes a second, over the time between two looks."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._last: dict[str, list[float]] = {name: list(pair) for name, pair in (state or {}).items()}

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {name: list(pair) for name, pair in self._last.items()}

    def rate(self, name: str, count: float, now_s: float) -> float | None:
        """The rate since the last look; None at the first, and where the counter began anew."""
        last, self._last[name] = self._last.get(name), [now_s, count]
        if last is None or now_s <= last[0] or count < last[1]:
            return None
        return (count - last[1]) / (now_s - last[0])


class InfinibandCollector:
    """The ports of this node."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the root, or empty."""
        self.spec = f"infiniband:{rest}" if rest else "infiniband"
        self._root = Path(rest or _ROOT)
        self._settings = settings
        self.wake = Wake()
        self._interval_s = settings.interval_s or _INTERVAL_S
        self._due = self._rollup_due = 0.0
        self._restore({})

    def _restore(self, state: Position) -> None:
        self._watch = DeviceWatch(self.spec, state.get("watch"))
        self._links = LinkWatch(self._settings.node, self.spec, state.get("links"))
        self._hours = DeviceHours(state.get("hours"))
        self._rates = Rates(state.get("rates"))

    def open(self, position: Position | None) -> None:
        """Take up what was seen last.

        Raises:
            SourceError: there are no such devices, and never were.
        """
        self._restore(position or {})
        if position is None and not self._root.is_dir():
            raise SourceError(
                f"there is no {self._root}: load the adapter's driver (mlx5_ib), or leave this source out"
                " where the node has no RDMA"
            )
        self._due = time.monotonic()
        self._rollup_due = self._due + self._interval_s

    def collect(self, wait_s: float) -> CollectorTurn:
        """One look, when it is due within `wait_s`."""
        if not self.wake.wait_until(self._due, wait_s):
            return CollectorTurn()
        self._due = max(self._due + self._interval_s, time.monotonic())
        return self._look(read_ports(self._root), datetime.now(UTC))

    def close(self) -> None:
        """Nothing is held open between looks."""

    def _look(self, ports: Sequence[Port], now: datetime) -> CollectorTurn:
        samples = [self._sample(port, now) for port in ports]
        events: list[Event] = [event for port in ports for event in self._links.add(port, now)]
        events += self._watch.add(samples, now)
        for sample, port in zip(samples, ports, strict=True):
            values = {name: value for name, value in sample.values.items() if name not in _BYTES}
            for name in _BYTES:
                count, counter = sample.values.get(name), f"{port.device}/{port.number}/{name}"
                rate = None if count is None else self._rates.rate(counter, count, now.timestamp())
                if rate is not None:
                    values[f"{name}_per_s"] = rate
            self._hours.add(sample.device_name(), values, now)
        rollups: list[Rollup] = []
        if time.monotonic() >= self._rollup_due:
            self._rollup_due = time.monotonic() + self._settings.rollup_interval_s
            rollups = self._hours.rollups(self._settings.node)
        return CollectorTurn(events=tuple(events), rollups=tuple(rollups), lines=len(ports), position=self._position())

    def _sample(self, port: Port, now: datetime) -> Sample:
        values = dict(port.counters)
        if port.state_id is not None:
            values["state_id"] = float(port.state_id)
        if port.physical_id is not None:
            values["physical_state_id"] = float(port.physical_id)
        if port.gb_per_s is not None:
            values["rate_bytes_per_s"] = port.gb_per_s * 1e9 / 8
        return Sample(
            now,
            self._settings.node,
            0,
            values,
            uuid=port.guid,
            pci=port.pci,
            type="hca",
            name=port.device,
            port=port.number,
            source="infiniband",
        )

    def _position(self) -> Position:
        return {
            "watch": self._watch.state(),
            "links": self._links.state(),
            "hours": self._hours.state(),
            "rates": self._rates.state(),
        }
