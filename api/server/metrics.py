"""The server's own counters, in a registry of their own; label sets are bounded.

What the database knows (risks, hints) is read at scrape: see `routes/metrics.py`.
"""

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from api.server.settings import SettingsSource
from parsers.registry import PARSERS
from parsers.site_rules.rules import RulesFile
from schedulers.policy.settings import PolicySource
from store.visible_text import visible_exposition

# One page of metrics for server processes that share a port: whichever is scraped asks the others.
#
#     siblings = Siblings(folder, number=0, count=2)
#     siblings.answer(registry)          # from now on, the others answer too
#     families = siblings.families()     # of all of them, with the label `process`
#
# Each process keeps its own series: a counter that starts again with its process is a reset of that series alone, which
# `rate()` knows how to read; a sum made here would seem to fall.
# A process that does not answer within two seconds is missing, and `foreshock_process_up` says so.

LABEL = "process"
_PATIENCE_S = 2.0
_PAUSE_S = 0.1
_PART = 65_536
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Siblings:
    """A process's place among those of one port. `folder` is theirs alone: their sockets lie there by number."""

    folder: Path
    number: int
    count: int

    def answer(self, registry: CollectorRegistry) -> None:
        """Tell a registry's families to whichever process asks, for as long as this one lives."""
        path = self._path(self.number)
        path.unlink(missing_ok=True)  # its predecessor's
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.fspath(path))
        listener.listen(self.count)
        threading.Thread(target=_answer, args=(listener, registry), name="siblings", daemon=True).start()

    def families(self, registry: CollectorRegistry) -> Iterator[Metric]:
        """The families of all processes, and which of them are up; of this one, out of its `registry`."""
        up = GaugeMetricFamily("foreshock_process_up", "Whether a process of this server answered.", labels=[LABEL])
        found: dict[str, Metric] = {}
        for number in range(self.count):
            own = number == self.number
            families = list(registry.collect()) if own else self._answer_of(number)
            up.add_metric([str(number)], float(families is not None))
            for family in families or ():
                joined = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for name, labels, value, *_ in family.samples:
                    joined.add_sample(name, {LABEL: str(number), **labels}, value)
        yield from found.values()
        yield up

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.sock"

    def _answer_of(self, number: int) -> list[Metric] | None:
        """What another process tells; None where it does not."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(_PATIENCE_S)
                asking.connect(os.fspath(self._path(number)))
                parts = iter(lambda: asking.recv(_PART), b"")
                return [_read(family) for family in orjson.loads(b"".join(parts))]
        except (OSError, ValueError) as error:
            _log.warning("process %d of this server tells no metrics: %s", number, error)
            return None


def _answer(listener: socket.socket, registry: CollectorRegistry) -> None:
    while True:
        try:
            sibling, _ = listener.accept()
            with sibling:
                sibling.settimeout(_PATIENCE_S)
                sibling.sendall(orjson.dumps([_written(family) for family in registry.collect()]))
        except OSError:  # who asked has given up; or no file descriptor is left, and one may be in a moment
            time.sleep(_PAUSE_S)


def _written(family: Metric) -> list[Any]:
    samples: Iterable[Any] = ((sample.name, sample.labels, sample.value) for sample in family.samples)
    return [family.name, family.documentation, family.type, list(samples)]


def _read(written: list[Any]) -> Metric:
    name, documentation, kind, samples = written
    family = Metric(name, documentation, kind)
    for sample, labels, value in samples:
        family.add_sample(sample, labels, math.nan if value is None else value)  # JSON has no NaN
    return family


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
        self._count_refusals()
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
        self._count_verdicts()
        self.failing: set[str] = set()  # background loops whose last turn failed

    def _count_refusals(self) -> None:
        self.denied = Counter(
            "foreshock_records_denied",
            "Records that their sender may not report: of another node, or of the fleet.",
            ["resource", "reason"],
            registry=self.registry,
        )
        self.refused_callers = Counter(
            "foreshock_callers_refused",
            "Requests refused for the token, certificate or scope that they came with, or lacked.",
            ["reason"],
            registry=self.registry,
        )

        self.unread_states = Counter(
            "foreshock_node_states_unread",
            "Stored states of nodes whose metrics others send that this version cannot read: they began anew.",
            registry=self.registry,
        )

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

    def _count_verdicts(self) -> None:
        self.explained = Counter(
            "foreshock_symptom_events_weighed", "Events that were weighed for verdicts.", registry=self.registry
        )
        self.symptoms = Gauge("foreshock_symptoms", "Symptoms that the engine holds.", registry=self.registry)
        self.verdict_changes = Counter(
            "foreshock_verdict_changes", "Changes of verdicts, by the state.", ["state"], registry=self.registry
        )
        buckets = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
        self.verdict_seconds = Histogram(
            "foreshock_verdict_seconds",
            "Time from the oldest event of a turn to the change of a verdict that came of it.",
            buckets=buckets,
            registry=self.registry,
        )
        self.explain_seconds = Histogram(
            "foreshock_explain_seconds", "What one turn of the engine cost.", buckets=buckets, registry=self.registry
        )

    def page(self) -> bytes:
        """All of it as Prometheus reads it; where several processes share a port, that of each with its label."""
        own = self.registry if self.siblings is None else _Families(self.siblings, self.registry)
        return visible_exposition(generate_latest(own) + generate_latest(self.database))

    def share(self, siblings: Siblings) -> None:
        """Be one of several processes behind a port."""
        self.siblings = siblings
        siblings.answer(self.registry)

    def watch_rules(self, rules: RulesFile) -> None:
        """Show how many changes of the rules file were refused."""
        gauge = Gauge("foreshock_rules_errors", "Changes of the rules file that were refused.", registry=self.registry)
        gauge.set_function(lambda: float(rules.errors))

    def watch_settings(self, settings: SettingsSource) -> None:
        """Show how many reloads of the configuration were refused, and since when the one in force is."""
        refused = Gauge(
            "foreshock_configuration_errors",
            "Reloads of the configuration, and renewed certificates, that were refused.",
            registry=self.registry,
        )
        refused.set_function(lambda: float(settings.errors))
        stale = Gauge(
            "foreshock_configuration_stale",
            "1 while the configuration's files do not hold: older ones are in force.",
            registry=self.registry,
        )
        stale.set_function(lambda: float(settings.problem is not None))
        loaded = Gauge(
            "foreshock_configuration_loaded_timestamp_seconds",
            "When the configuration in force was read.",
            registry=self.registry,
        )
        loaded.set_function(lambda: settings.loaded.timestamp())

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
