"""The spool's figures, read when somebody asks."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.losses import Reason
from collectors.spool import QUEUES, Spool

_NAME = "foreshock_sidecar_spool"


class SpoolFigures(Collector):
    """One spool's."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def collect(self) -> Iterator[Metric]:
        """Sizes, age and losses; a loss that has not happened is 0, so that its first time is an increase."""
        for queue in QUEUES:
            waits = self._spool.backlog_bytes(queue)
            yield GaugeMetricFamily(f"{_NAME}_{queue}_bytes", f"Bytes of {queue} that wait for the server.", waits)
        yield GaugeMetricFamily(f"{_NAME}_limit_bytes", "Bytes that may wait in all.", self._spool.max_bytes)
        age = self._spool.oldest_s()
        yield GaugeMetricFamily(f"{_NAME}_oldest_seconds", "How long the oldest thing waits for the server.", age)
        damaged = self._spool.damage_bytes()
        yield GaugeMetricFamily(f"{_NAME}_damaged_bytes", "Bytes of the spool made unreadable.", damaged)
        lost = self._spool.lost()
        family = CounterMetricFamily(
            f"{_NAME}_lost",
            "Given up for room (items), unreadable (damaged: bytes) or gone (missing: segments).",
            labels=("queue", "reason"),
        )
        for queue in QUEUES:
            for reason in get_args(Reason):
                family.add_metric((queue, reason), lost[queue, reason])
        yield family

    def describe(self) -> list[Metric]:
        """Nothing to ask the spool for when it is registered."""
        return []
