"""Verdicts as gauges: how many of each class stand, and how many events wait to be explained."""

from collections.abc import Iterable

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from store.records.verdict import CAUSE_CLASSES
from store.verdicts.symptom_news import count_news
from store.verdicts.verdict_log import count_standing


def verdict_gauges(connection: sa.Connection) -> Iterable[Metric]:
    """Every class has its series, so that one that comes and goes is seen to."""
    found = count_standing(connection)
    standing = GaugeMetricFamily("foreshock_verdicts_open", "Verdicts that stand now, by class.", labels=["class"])
    for name in CAUSE_CLASSES:
        standing.add_metric([name], found.get(name, 0))
    yield standing
    waiting = GaugeMetricFamily("foreshock_symptom_events_waiting", "Events that no verdict has weighed yet.")
    waiting.add_metric([], count_news(connection))
    yield waiting
