"""What holds hints back, as gauges: trips of the breaker that nobody has reset, and what is stopped."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from schedulers.lifecycle.hindsight import hindsight
from schedulers.lifecycle.release import FOR_HEALTH
from schedulers.policy.breaker import KINDS
from schedulers.policy.kill_switch import effective_stop
from schedulers.policy.settings import Policy
from store.hints.hint_log import read_hints
from store.hints.stops import newest_trips
from store.records.hint import OPEN_STATES

# Gauges of what came of hints, and of held nodes that wait for their test or for repair.

_WINDOW = timedelta(days=30)
_LABELS = ["action", "basis"]


def hindsight_gauges(connection: sa.Connection, now: datetime) -> Iterable[Metric]:
    """Of the hints of the last 30 days, by action and basis; what is not known is missing."""
    outcomes = GaugeMetricFamily(
        "foreshock_hint_outcomes", "Hints of 30 days that are judged, by what came.", labels=[*_LABELS, "right"]
    )
    precision = GaugeMetricFamily(
        "foreshock_hint_precision_ratio", "Share of right ones among the hints that nobody acted on.", labels=_LABELS
    )
    hours = GaugeMetricFamily(
        "foreshock_hint_gpu_hours", "What hints cost (held) and saved, or would have.", labels=[*_LABELS, "what"]
    )
    false_holds = GaugeMetricFamily(
        "foreshock_false_holds_per_1000_node_days", "Holds that were wrong, or would have been, per 1000 node-days."
    )
    found = hindsight(connection, now - _WINDOW, now)
    for tally in found.tallies:
        labels = [tally.action, tally.basis]
        outcomes.add_metric([*labels, "true"], tally.right)
        outcomes.add_metric([*labels, "false"], tally.judged - tally.right)
        if tally.precision is not None:
            precision.add_metric(labels, tally.precision)
        if tally.unknown_held < tally.judged:
            hours.add_metric([*labels, "held"], tally.held_gpu_h)
        if tally.unknown_saved < tally.judged:
            hours.add_metric([*labels, "saved"], tally.saved_gpu_h)
    if found.false_holds_per_1000_node_days is not None:
        false_holds.add_metric([], found.false_holds_per_1000_node_days)
    yield from (outcomes, precision, hours, false_holds, _waiting(connection))


def _waiting(connection: sa.Connection) -> Metric:
    waiting = GaugeMetricFamily("foreshock_held_nodes_waiting", "Held nodes that wait, for what.", labels=["what"])
    hints = read_hints(connection, states=OPEN_STATES)
    repair = sum(hint.evidence.repair is not None for hint in hints)
    waiting.add_metric(["repair"], repair)
    waits = [hint.evidence.release.waits for hint in hints if hint.evidence.release and hint.evidence.repair is None]
    health = waits.count(FOR_HEALTH)
    waiting.add_metric(["health"], health)
    waiting.add_metric(["test"], len(waits) - health)
    return waiting


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
