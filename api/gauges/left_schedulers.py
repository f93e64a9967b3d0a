"""Schedulers that were taken out of the configuration while they hold nodes for us: nobody asks them to let go."""

from collections.abc import Iterable

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from api.server.settings import ApiSettings
from store.hints.holds import orphan_holds


def scheduler_names(settings: ApiSettings) -> frozenset[str]:
    """The schedulers that are read back, as they are configured."""
    return frozenset(actuator.name for actuator in settings.actuators)


def left_behind_gauge(connection: sa.Connection, settings: ApiSettings) -> Iterable[Metric]:
    """The nodes that such schedulers hold; no series where there are none."""
    gauge = GaugeMetricFamily(
        "foreshock_scheduler_left_behind_nodes",
        "Nodes held for us by a scheduler that is not configured any more.",
        labels=["scheduler"],
    )
    for name, count in orphan_holds(connection, scheduler_names(settings)).items():
        gauge.add_metric([name], count)
    yield gauge
