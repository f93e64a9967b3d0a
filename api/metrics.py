"""The server's own counters, in a registry of their own; label sets are bounded.

What the database knows (risks, hints) is read at scrape: see `routes/metrics.py`.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric

from api.policy_source import PolicySource
from api.siblings import Siblings
from parsers.registry import PARSERS
from parsers.rules_file import RulesFile

# Sources have an open vocabulary on the wire; as a label they are these, or `other`.
SOURCES = frozenset({*PARSERS, "infiniband"})


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.database = CollectorRegistry()  # what every process of one database tells alike
        self.siblings: Siblings | None = None
        self.events = Counter(
            "foreshock_events_accepted",
            "Events that were new when they came in.",
            ["source"],
            registry=self.registry,
        )
        self.rejected = Counter(
            "foreshock_records_rejected",
            "Records that did not fit and were left out.",
            ["resource"],
            registry=self.registry,
        )
        self.requests = Counter(
            "foreshock_http_requests",
            "HTTP requests answered.",
            ["method", "operation", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "foreshock_http_request_seconds",
            "Time from request to answer.",
            ["operation"],
            buckets=(0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0),
            registry=self.registry,
        )
        self._count_loops()
        self.shed = Counter(
            "foreshock_shed",
            "Requests refused because the server could not take them then.",
            ["reason"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "foreshock_requests_in_flight", "Requests at work with the database.", ["kind"], registry=self.registry
        )
        self.slot_wait = Histogram(
            "foreshock_slot_wait_seconds",
            "How long a request waited for its turn.",
            ["kind"],
            buckets=(0.001, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0),
            registry=self.registry,
        )
        self.failing: set[str] = set()  # background loops whose last turn failed

    def _count_loops(self) -> None:
        self.folded = Counter(
            "foreshock_intake_events_folded",
            "Fault events that this process made incidents of.",
            registry=self.registry,
        )
        self.leader = Gauge(
            "foreshock_leader", "Whether this process runs the loops that run once.", registry=self.registry
        )
        self.turns = Counter("foreshock_loop_turns", "Turns of a background loop.", ["loop"], registry=self.registry)
        self.failures = Counter(
            "foreshock_loop_failures", "Turns of a background loop that failed.", ["loop"], registry=self.registry
        )
        self.success = Gauge(
            "foreshock_loop_last_success_timestamp_seconds",
            "When a background loop last ended a turn well.",
            ["loop"],
            registry=self.registry,
        )
        self.deliveries = Counter(
            "foreshock_hint_deliveries",
            "Attempts to hand a hint to a scheduler, by outcome.",
            ["outcome"],
            registry=self.registry,
        )

        self.tests = Counter(
            "foreshock_node_tests",
            "Tests of held nodes that ended, by outcome.",
            ["outcome"],
            registry=self.registry,
        )

    def page(self) -> bytes:
        """All of it as Prometheus reads it; where several processes share a port, that of each with its label."""
        own = self.registry if self.siblings is None else _Families(self.siblings, self.registry)
        return generate_latest(own) + generate_latest(self.database)

    def share(self, siblings: Siblings) -> None:
        """Be one of several processes behind a port."""
        self.siblings = siblings
        siblings.answer(self.registry)

    def watch_rules(self, rules: RulesFile) -> None:
        """Show how many changes of the rules file were refused."""
        gauge = Gauge("foreshock_rules_errors", "Changes of the rules file that were refused.", registry=self.registry)
        gauge.set_function(lambda: float(rules.errors))

    def watch_policy(self, policy: PolicySource) -> None:
        """Show how many changes of the policy were refused, and whether the one that stands in its file is in force."""
        refused = Gauge("foreshock_policy_errors", "Changes of the policy that were refused.", registry=self.registry)
        refused.set_function(lambda: float(policy.errors))
        stale = Gauge(
            "foreshock_policy_stale",
            "1 while the policy's file does not hold: an older one is in force.",
            registry=self.registry,
        )
        stale.set_function(lambda: float(policy.problem is not None))

    def count_events(self, source: str, count: int) -> None:
        """Count new events of a source."""
        self.events.labels(source if source in SOURCES else "other").inc(count)


class _Families(CollectorRegistry):
    """The families of all processes of a port, as a registry is written."""

    def __init__(self, siblings: Siblings, registry: CollectorRegistry) -> None:
        super().__init__()
        self._siblings, self._registry = siblings, registry

    def collect(self) -> Iterable[Metric]:
        """All of them, as of now."""
        return self._siblings.families(self._registry)
