"""Gauges of what came of hints, and of held nodes that wait for their test or for repair."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from schedulers.hindsight_turn import hindsight
from store.hint import OPEN_STATES
from store.hint_log import read_hints

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
    repair = sum("repair" in hint.evidence for hint in hints)
    waiting.add_metric(["repair"], repair)
    waiting.add_metric(["test"], sum("release" in hint.evidence for hint in hints) - repair)
    return waiting
