"""What holds hints back, as gauges: trips of the breaker that nobody has reset, and what is stopped."""

from collections import Counter
from collections.abc import Iterable

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from schedulers.breaker import KINDS
from schedulers.kill_switch import effective_stop
from schedulers.settings import Policy
from store.trips import newest_trips


def limit_gauges(connection: sa.Connection, policy: Policy) -> Iterable[Metric]:
    """Each kind of group and each degree of stop is always there, so that an alert sees it come and go."""
    found = Counter(trip.kind for trip in newest_trips(connection) if trip.reset is None)
    tripped = GaugeMetricFamily(
        "foreshock_breaker_tripped", "Groups of nodes that nothing is held of until a person looks.", labels=["kind"]
    )
    for kind in (*KINDS, *sorted(set(found) - set(KINDS))):
        tripped.add_metric([kind], found[kind])
    stop = effective_stop(connection, policy)
    stopped = GaugeMetricFamily("foreshock_hints_stopped", "Whether the kill switch is on.", labels=["stop"])
    for degree in ("holds", "all"):
        stopped.add_metric([degree], float(stop == degree))
    return tripped, stopped
