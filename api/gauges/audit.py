"""The head of the audit's hash chain as numbers: whoever keeps metrics elsewhere has an anchor for it."""

from collections.abc import Iterable

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from store.database.audit_chain import LEAST_DIGITS, audit_head


def audit_gauges(connection: sa.Connection) -> Iterable[Metric]:
    """How long the chain is, and the first 13 hex digits of its head's hash: 52 bits, which a number holds exactly."""
    head = audit_head(connection)
    length = GaugeMetricFamily("foreshock_audit_position", "Place of the newest row in the audit's hash chain.")
    length.add_metric([], head.position)
    digits = GaugeMetricFamily(
        "foreshock_audit_head", "First 13 hex digits of that row's hash, as a number: printf %013x gives them back."
    )
    digits.add_metric([], int(head.hash[:LEAST_DIGITS] or "0", 16))
    return length, digits
