"""Gauges of the schedulers that are read back; only the process that acts has them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from schedulers.reconcile.turn import ActuatorTurnResult

# A process that has not had a turn for so long is not the one that acts (any more).
_STALE_S = 120.0


@dataclass(frozen=True, slots=True)
class _Last:
    """What the last turn found. Times are monotonic seconds."""

    tried: float
    is_up: bool
    seen: float | None = None
    turned: ActuatorTurnResult | None = None


class SchedulerGauges:
    """Of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last: dict[str, _Last] = {}
        self._orders = Counter(
            "foreshock_scheduler_orders",
            "Orders to a scheduler that is read back, by its answer.",
            ["scheduler", "result"],
            registry=registry,
        )
        registry.register(self)

    def up(self, scheduler: str, turned: ActuatorTurnResult) -> None:
        """A turn went through."""
        now = time.monotonic()
        self._last[scheduler] = _Last(now, True, now, turned)
        for report in turned.reports:
            self._orders.labels(scheduler, report.result).inc()

    def away(self, scheduler: str) -> None:
        """It did not answer; what it held last is kept, with its age."""
        before = self._last.get(scheduler)
        seen, turned = (None, None) if before is None else (before.seen, before.turned)
        self._last[scheduler] = _Last(time.monotonic(), False, seen, turned)
        self._orders.labels(scheduler, "away").inc()

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The gauges, as of now."""
        now = time.monotonic()
        up = GaugeMetricFamily("foreshock_scheduler_up", "Whether a scheduler answered last.", labels=["scheduler"])
        holds = GaugeMetricFamily(
            "foreshock_scheduler_holds",
            "Nodes kept out of service there: by us, by others, and with a mark of ours that no hint explains.",
            labels=["scheduler", "owner"],
        )
        age = GaugeMetricFamily(
            "foreshock_scheduler_observation_age_seconds",
            "How long ago a scheduler was last read.",
            labels=["scheduler"],
        )
        for name, last in sorted(self._last.items()):
            if now - last.tried > _STALE_S:
                continue
            up.add_metric([name], float(last.is_up))
            if last.seen is not None and last.turned is not None:
                age.add_metric([name], now - last.seen)
                found = {
                    "ours": last.turned.ours,
                    "foreign": last.turned.foreign,
                    "orphan": len(last.turned.orphans),
                }
                for owner, count in found.items():
                    holds.add_metric([name, owner], count)
        return (up, holds, age)
